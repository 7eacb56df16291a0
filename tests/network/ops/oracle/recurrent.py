"""SVDF and LSTM for TFLite Micro."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from crtgen.network.ir import Node, Op, Quant, Signature
from crtgen.network.ops.lstm import Lstm
from crtgen.network.ops.svdf import Svdf
from tests.network.ops.oracle.writer import ACTIVATIONS, Write, Writer, Written, tensor
from tests.tflite_builder import Operator, Options


def _svdf(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    return (
        "SVDF",
        Options("SVDFOptions", Rank=op.rank, FusedActivationFunction=ACTIVATIONS[op.activation]),
        [],
    )


def _lstm(writer: Writer, node: Node, sig: Signature) -> Written:
    """Its weights are a tensor for each gate; those without scales of their own have no quantisation."""
    op: Any = node.op
    parts: list[str | None] = []
    for value in sig.inputs[3:]:
        scales = value.quant.scales if value.quant is not None else ()
        for gate, array in enumerate(value.array()):
            name = f"{value.name}{gate}"
            quant = Quant.tensor(scales[gate]) if scales else None
            made = replace(value, name=name, shape=array.shape, data=np.ascontiguousarray(array), quant=quant)
            writer.tensors.append(tensor(made))
            parts.append(name)
    x, hidden, cell = node.inputs[:3]
    inputs = [x, *parts[:8], None, None, None, *parts[8:], None, None, hidden, cell, *[None] * 4]
    fields = {"FusedActivationFunction": 4, "CellClip": op.cell_clip, "TimeMajor": op.time_major}
    options = Options("UnidirectionalSequenceLSTMOptions", **fields)
    writer.operators.append(Operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, node.outputs[:1], options))
    return "", None, []


WRITERS: Mapping[type[Op], Write] = {Svdf: _svdf, Lstm: _lstm}
