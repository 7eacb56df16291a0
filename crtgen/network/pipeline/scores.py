"""Scores that are computed by additional operators after the network."""

from math import sqrt

import numpy as np

from crtgen.base.errors import UsageError
from crtgen.network.features.steps import GraphSteps, Handle
from crtgen.network.ir import DType
from crtgen.network.ops import (
    Concat,
    Dequantize,
    Mean,
    Moments,
    Mul,
    ReduceMin,
    Reshape,
    SquaredDifference,
    StridedSlice,
    Sub,
)
from crtgen.network.ops.statistics import MOMENTS
from crtgen.network.pipeline.decision import Clusters

__all__ = ["distance", "mean_square", "with_gate"]


def mean_square(steps: GraphSteps, given: Handle, output: Handle, name: str) -> Handle:
    if given.elements != output.elements:
        what = f"{output.elements} numbers come out and {given.elements} go in: there is no difference"
        raise UsageError(what, where=name, hint='anomaly = "mse" is for an autoencoder')
    flat = [_row(steps, _real(steps, v)) for v in (given, output)]
    return steps.one(Mean((0,), keep_dims=True), steps.one(SquaredDifference(), *flat))


def distance(steps: GraphSteps, x: Handle, clusters: Clusters) -> Handle:
    """Return the distance of x from the nearest cluster's edge: ``[1]``.

    A distance is computed as the root mean square of the differences, times the square root of their number.
    """
    count, width = clusters.centroids.shape
    if x.elements != width:
        what = f"centroids of {width} numbers for {x.elements}"
        raise UsageError(
            what, where="[decision] clusters", hint="fit the clusters on the output of this network"
        )
    row = steps.one(Reshape((1, width)), _real(steps, x))
    units = steps.one(Sub(), row, steps.constant("mean", clusters.mean.reshape(1, width)))
    factors = (1 / clusters.scale.astype(np.float64)).astype(np.float32)
    scaled = steps.one(Mul(), units, steps.constant("factors", factors.reshape(1, width)))
    moments = steps.one(Moments(), steps.one(Sub(), scaled, steps.constant("centroids", clusters.centroids)))
    place = MOMENTS.index("rms")
    means = steps.one(StridedSlice((0, place), (count, place + 1), (1, 1)), moments)
    lengths = steps.one(Mul(), steps.one(Reshape((count,)), means), steps.number(sqrt(width)))
    outside = steps.one(Sub(), lengths, steps.constant("radii", clusters.radii))
    return steps.one(ReduceMin((0,), keep_dims=True), outside)


def with_gate(steps: GraphSteps, output: Handle, gate: Handle, label: int) -> Handle:
    if label >= gate.elements:
        raise UsageError(
            f"the gate has no output {label}: it has {gate.elements}, counted from 0",
            where="[gate] label",
            hint="name an output that the gate has",
        )
    pair = [output, gate]
    if (output.dtype, output.quant) != (gate.dtype, gate.quant):
        pair = [_real(steps, each) for each in pair]
    scores, all_of_gate = (_row(steps, each) for each in pair)
    one = steps.one(StridedSlice((label,), (label + 1,), (1,)), all_of_gate, quant=all_of_gate.quant)
    return steps.one(Concat(0), scores, one, quant=scores.quant)


def _real(steps: GraphSteps, value: Handle) -> Handle:
    return value if value.dtype is DType.FLOAT32 else steps.one(Dequantize(), value)


def _row(steps: GraphSteps, value: Handle) -> Handle:
    return steps.one(Reshape((value.elements,)), value, quant=value.quant)
