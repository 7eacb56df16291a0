"""Constants in the order in which a kernel reads them: rows in groups, and streams of records."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from crtgen.compiler.kernels.engine.kernel import Const, WeightRows
from crtgen.compiler.kernels.engine.words import NO_WORDS, Words, some_at_a_time
from crtgen.network.ir import Array
from crtgen.network.ops.fixedpoint import Int8, Int64

__all__ = ["ChannelGroup", "biased", "grouped", "groups_of", "in_groups", "nibbles", "records", "stream"]

Numbers = TypeVar("Numbers", Int8, Int64, Array)


class ChannelGroup(NamedTuple):
    """``times`` groups of ``channels`` output channels, each accumulated together."""

    channels: int
    times: int


def groups_of(outputs: int, channels: int) -> tuple[ChannelGroup, ...]:
    """All outputs in groups of so many channels, and what is left in one of fewer."""
    counts = ChannelGroup(channels, outputs // channels), ChannelGroup(outputs % channels, 1)
    return tuple(group for group in counts if all(group))


def grouped(rows: Numbers, group: int, step: int = 1) -> Numbers:
    """``rows[O, K]`` as ``[o / group][k / step][o % group][k % step]``: ``[groups, numbers of a group]``.

    Zeros fill up the last group, and the last step of each row.
    """
    outputs, depth = rows.shape
    groups, steps = -(-outputs // group), -(-depth // step)
    padded = np.zeros((groups * group, steps * step), rows.dtype)
    padded[:outputs, :depth] = rows
    ordered: Numbers = padded.reshape(groups, group, steps, step).transpose(0, 2, 1, 3)
    return ordered.reshape(groups, group * steps * step)


def in_groups(rows: Array, groups: Sequence[ChannelGroup], packed: bool = False) -> Array:
    """``rows[O, K]`` by groups, each of them ``[k][channel]``; ``packed``: two channels are in a byte."""
    parts, first = [], 0
    for channels, times in groups:
        part = grouped(rows[first : first + channels * times], channels)
        parts.append(nibbles(part.reshape(-1, channels)).ravel() if packed else part.ravel())
        first += channels * times
    return np.concatenate(parts)


def biased(weights: Array, bias: Array, channels: int, names: tuple[str, str]) -> Const:
    """``weights[O, K]`` of float32 in groups of so many channels, each behind its biases.

    ``names`` are what the note calls a row and a column.
    """

    def pack() -> Array:
        return in_groups(np.concatenate([bias[:, None], weights], axis=1), groups_of(len(bias), channels))

    note = "[{0} / {2}][bias, then {1}][{0} % {2}]".format(*names, channels)
    return Const("weights", "float32", (weights.size + bias.size,), pack, 4, note)


def nibbles(numbers: Array) -> Array:
    """Numbers of four bits, two in a byte along the last axis, the first one in the low half, as int8."""
    odd = numbers.shape[-1] % 2
    pairs = np.pad(numbers.astype(np.int8), [(0, 0)] * (numbers.ndim - 1) + [(0, odd)])
    both: Array = ((pairs[..., ::2] & 15) | (pairs[..., 1::2] << 4)).astype(np.int8)
    return both


def records(*parts: Array) -> Words:
    """``[records, words]``: of each part the bytes of a record, in whole words, one part behind the other."""
    made = []
    for part in parts:
        lying = np.ascontiguousarray(part).reshape(len(part), -1).view(np.uint8)
        more = -lying.shape[1] % 4
        made.append((np.pad(lying, ((0, 0), (0, more))) if more else lying).view(np.uint32))
    return np.concatenate(made, axis=1)


def stream(
    count: int,
    words: int,
    make: Callable[[slice], Words],
    note: str,
    header: Words = NO_WORDS,
    align: int = 4,
    weights: tuple[int, int] | None = None,
    halves: bool = False,
    pairs: bool = False,
) -> Const:
    """Weights: ``header``, then ``count`` records of so many words.

    ``make`` makes some of them, ``[records, words]``, at a time, which takes little memory. ``weights`` are
    the bytes of a record that are weights, from the first one to before the last one, where these may be
    coded; ``halves`` and ``pairs`` are those of ``WeightRows``.
    """
    length = len(header) + count * words

    def pack() -> Words:
        made = np.empty(length, np.uint32)
        made[: len(header)] = header
        body = made[len(header) :].reshape(count, words)
        for some in some_at_a_time(count, words):
            body[some] = make(some)
        return made

    rows = weights and WeightRows(count, 4 * words, *weights, 4 * len(header), halves, pairs)
    return Const("weights", "uint32", (length,), pack, align, note, rows)
