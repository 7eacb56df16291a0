"""Weights in the order of the Helium kernels: vectors by groups of four channels, then the requantisation
constants.

A vector of 4-bit weights holds two channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from crtgen.compiler.kernels.asm import Function
from crtgen.compiler.kernels.engine.kernel import Const
from crtgen.compiler.kernels.engine.layout import grouped, records, stream
from crtgen.compiler.kernels.engine.words import NO_WORDS, Words
from crtgen.compiler.kernels.mve.epilogue import Requantisation
from crtgen.network.ops import INT8
from crtgen.network.ops.fixedpoint import Int8, Int64

__all__ = ["LANES", "StreamCut", "sixteenths", "stream_const", "sums_fit", "unpack"]

LANES = 16  # bytes of a vector
_CHANNELS = 4


@dataclass(frozen=True, slots=True)
class StreamCut:
    """``length`` bytes of inputs from ``start`` on, at most one vector."""

    start: int
    length: int


def stream_const(
    weights: Int8,
    cuts: Sequence[StreamCut],
    requant: Requantisation,
    channels: int,
    note: str,
    header: Words = NO_WORDS,
    size: int = 1,
    at_once: int = 1,
) -> Const:
    """Pack ``weights[O, K]`` in groups of ``channels`` channels: vectors of weights by cut, then constants by
    groups of four.

    The inputs have ``size`` bytes. Channels of groups that are computed together alternate.
    """
    outputs = np.arange(len(weights))
    if at_once > 1:
        outputs = outputs.reshape(-1, channels, at_once).transpose(0, 2, 1).reshape(-1)
    groups, lanes = -(-len(weights) // channels), LANES // size
    vectors = channels // 2 if requant.int4 else channels
    words = vectors * len(cuts) * lanes // 4 + channels * len(requant.constants)

    def some_groups(some: slice) -> Words:
        taken = outputs[channels * some.start : channels * some.stop]
        part = replace(requant, constants=requant.constants[:, taken])
        return _pack_groups(weights[taken], cuts, part, channels, size)

    at = None if requant.int4 else (0, vectors * len(cuts) * lanes)
    return stream(groups, words, some_groups, note, header, align=8, weights=at)


def _pack_groups(
    weights: Int8, cuts: Sequence[StreamCut], requant: Requantisation, channels: int, size: int
) -> Words:
    groups, lanes = -(-len(weights) // channels), LANES // size
    lying = np.zeros((len(weights), len(cuts), lanes), np.int8)
    for number, cut in enumerate(cuts):
        start, length = cut.start // size, cut.length // size
        lying[:, number, :length] = weights[:, start : start + length]
    vectors = grouped(lying.reshape(len(weights), -1), channels, lanes)
    if requant.int4:
        both = vectors.reshape(groups, len(cuts), channels // 2, 2, lanes)
        vectors = both[:, :, :, 0] << 4 | both[:, :, :, 1] & 15
    constants = np.pad(requant.constants.astype(np.int32), ((0, 0), (0, -len(weights) % channels)))
    return records(vectors, grouped(constants.T, _CHANNELS).reshape(groups, -1))


def sums_fit(weights: Int8 | Int64) -> bool:
    """Return True if 32 bits hold 16 times the sums of 4-bit ``weights[O, K]`` with any int8 inputs."""
    return 16 * INT8.magnitude(0) * int(np.abs(weights).sum(axis=1).max()) < 1 << 31


def unpack(f: Function, weights: str, first: str) -> None:
    """Append code that unpacks the 4-bit weights of two channels from a vector: those of the first, and 16
    times those of the second.
    """
    f("vshr.s8", first, weights, "#4")
    f("vshl.i8", weights, weights, "#4")


def sixteenths(f: Function, sums: Sequence[str]) -> None:
    """Append code that divides the sums of every second channel by 16, which its weights made too large."""
    for total in sums[1::2]:
        f("asr", total, total, "#4")
