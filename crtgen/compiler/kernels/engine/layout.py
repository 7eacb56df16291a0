"""Packing of constants into the order in which kernels read them: rows in groups, and streams of records."""

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
    """``times`` groups of ``channels`` output channels each; the channels of a group are accumulated
    together.
    """

    channels: int
    times: int


def groups_of(outputs: int, channels: int) -> tuple[ChannelGroup, ...]:
    """Split the outputs into groups of ``channels``, with a smaller last group for the remainder."""
    counts = ChannelGroup(channels, outputs // channels), ChannelGroup(outputs % channels, 1)
    return tuple(group for group in counts if all(group))


def grouped(rows: Numbers, group: int, step: int = 1) -> Numbers:
    """Reorder ``rows[O, K]`` to ``[o / group][k / step][o % group][k % step]`` and return it as ``[groups,
    group * K]``.

    Zeros pad the last group, and the last step of each row.
    """
    outputs, depth = rows.shape
    groups, steps = -(-outputs // group), -(-depth // step)
    padded = np.zeros((groups * group, steps * step), rows.dtype)
    padded[:outputs, :depth] = rows
    ordered: Numbers = padded.reshape(groups, group, steps, step).transpose(0, 2, 1, 3)
    return ordered.reshape(groups, group * steps * step)


def in_groups(rows: Array, groups: Sequence[ChannelGroup], int4: bool = False) -> Array:
    """Reorder ``rows[O, K]`` group by group, each as ``[k][channel]``; ``int4``: two channels share a
    byte.
    """
    parts, first = [], 0
    for channels, times in groups:
        part = grouped(rows[first : first + channels * times], channels)
        parts.append(nibbles(part.reshape(-1, channels)).ravel() if int4 else part.ravel())
        first += channels * times
    return np.concatenate(parts)


def biased(weights: Array, bias: Array, channels: int, names: tuple[str, str]) -> Const:
    """Pack float32 ``weights[O, K]`` in groups of ``channels`` channels, each group after its biases.

    ``names`` are the words that the note uses for a row and a column, such as channel and tap.
    """

    def pack() -> Array:
        return in_groups(np.concatenate([bias[:, None], weights], axis=1), groups_of(len(bias), channels))

    note = "[{0} / {2}][bias, then {1}][{0} % {2}]".format(*names, channels)
    return Const("weights", "float32", (weights.size + bias.size,), pack, 4, note)


def nibbles(numbers: Array) -> Array:
    """Pack 4-bit integers as int8, two per byte along the last axis, the first one in the low half."""
    odd = numbers.shape[-1] % 2
    pairs = np.pad(numbers.astype(np.int8), [(0, 0)] * (numbers.ndim - 1) + [(0, odd)])
    both: Array = ((pairs[..., ::2] & 15) | (pairs[..., 1::2] << 4)).astype(np.int8)
    return both


def records(*parts: Array) -> Words:
    """Concatenate the bytes of several parts, record by record, each padded to a word boundary; returns
    ``[records, words]``.
    """
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
    """Return a constant of ``header`` and ``count`` records of ``words`` words each.

    ``make`` returns a slice of the records as ``[records, words]``, so that little memory is needed.
    ``weights`` is the byte range within a record that holds weights, if these may be stored as codes; for
    ``halves`` and ``pairs`` see ``WeightRows``.
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
