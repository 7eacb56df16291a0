"""Decodes weights: the entropy code of the stream (mlw), and the order in which the NPU reads the weights.

The code. A stream consists of slices. The header of a slice has the divisors of two Golomb-Rice codes, one
for weights and one for the runs of zeros between them, and possibly a new palette. A weight is an index:
below the palette's size it selects an entry of the palette, otherwise it is a value itself. Entries and
values have their sign in bit 0. Symbols of both codes come in chunks of 12 (or 8). The unary parts of all
symbols of a chunk come first, their remainders follow in the next chunk, so that hardware can decode one
chunk per cycle:

    WUNARY0 (12 bits) ZUNARY (12 or 8) WUNARY1 (a bit for each 1 in WUNARY0) WREMAIN and ZREMAIN of the chunk
    before

A weight's quotient counts up by 0, 1 or 2 for each symbol of two bits (0, 10, 11), and 2 goes on with the
next symbol. Runs of zeros have the plain unary code. Weights are up to 8 symbols ahead of the runs, then they
wait.

The order. Convolutions read weights block by block: output channels of a block, then input channels of a
block, then 8 by 8 elements of the kernel (4 by 4 where it is dilated), then micro-blocks. With the traversal
*depth first* an element's input channels follow one another, with *part kernel first* the elements of a
kernel do, padded to 4 (int16: to 2). The weights of two cores are interleaved: a core has every other output
channel.

Example: 3x3, 1 input channel, 8 output channels, part kernel first, micro-blocks of 8 by 8: 9 elements are
padded to 12, each has 8 x 8 weights, so there are 768 weights in the stream for the 72 that count; the others
are zero, and cost little more than a bit for 4.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crtgen.npu.rounding import Int64

__all__ = ["Order", "decode", "ordered"]

_END, _NO_RUNS, _PLAIN = 7, 6, 7
_ONES = tuple(n.bit_count() for n in range(1 << 12))


class _BitReader:
    """Bits of a stream, least significant bit of each byte first."""

    def __init__(self, data: bytes) -> None:
        self.data = data + bytes(32)
        self.at = 0
        self.size = 8 * len(data)

    def get(self, count: int) -> int:
        at = self.at
        self.at = at + count
        if self.at > self.size:
            raise ValueError("the weights end within a slice")
        start = at >> 3
        word = int.from_bytes(self.data[start : start + 20], "little")
        return word >> (at & 7) & ((1 << count) - 1)


@dataclass(slots=True)
class _Palette:
    values: list[int]
    offset: int
    bits: int


def decode(data: bytes) -> Int64:
    """Return the weights of a stream with its padding. Raises ``ValueError`` if it is damaged."""
    bits = _BitReader(data)
    palette: _Palette | None = None
    runs_before = False
    found: list[int] = []
    while bits.at < bits.size:
        divisor = bits.get(3)
        if divisor == _END:
            bits.at += -bits.at % 8
            palette = None
            continue
        palette, fresh, count, weight_divisor, truncated = _header(bits, palette)
        runs = divisor != _NO_RUNS
        if divisor > 3 and runs:
            raise ValueError(f"runs of zeros have the divisor {divisor}")
        if not fresh and runs != runs_before:
            raise ValueError("a slice begins to have runs of zeros, or ceases, without a new palette")
        runs_before = runs
        slice_ = _Slice(bits, palette, count, weight_divisor, truncated, divisor if runs else None, fresh)
        found += slice_.weights()
    return np.array(found, np.int64)


def _header(bits: _BitReader, palette: _Palette | None) -> tuple[_Palette, bool, int, int, bool]:
    count = bits.get(15) + 1
    divisor = bits.get(3)
    truncated, fresh = bool(bits.get(1)), bool(bits.get(1))
    if fresh:
        offset, size = bits.get(5), bits.get(5)
        width = bits.get(3) + 2
        values = [bits.get(width) for _ in range(size + 1 if size else 0)]
        palette = _Palette(values, offset, width)
    if palette is None:
        raise ValueError("the first slice of the weights has no palette")
    if divisor == 6:
        raise ValueError("weights have the divisor 6")
    return palette, fresh, count, divisor, truncated


class _Slice:
    def __init__(
        self,
        bits: _BitReader,
        palette: _Palette,
        count: int,
        divisor: int,
        truncated: bool,
        runs: int | None,
        fresh: bool,
    ) -> None:
        self.bits, self.palette, self.count = bits, palette, count
        self.plain = divisor == _PLAIN
        size = len(palette.values)
        self.divisor = ((size - 1).bit_length() if size else palette.bits) if self.plain else divisor
        self.truncated = truncated
        self.runs = runs
        self.fresh = fresh
        self.most = 8 if self.plain and self.divisor > 5 else 12
        self._weight_carry = self._run_carry = 0

    def weights(self) -> list[int]:
        indices, zeros = self._symbols()
        size, offset = len(self.palette.values), self.palette.offset
        values = [self.palette.values[i] if i < size else i - size + offset for i in indices]
        signed = [-(v >> 1) if v & 1 else v >> 1 for v in values]
        if self.runs is None:
            return signed
        out: list[int] = []
        rest = iter(zeros)
        if self.fresh:
            out += [0] * next(rest)
        for value, run in zip(signed, rest, strict=True):
            out.append(value)
            if run:
                out += [0] * run
        return out

    def _symbols(self) -> tuple[list[int], list[int]]:
        # Chunk by chunk: unary parts now, the remainders of the chunk before after them.
        bits = self.bits
        weights: list[int] = []
        zeros: list[int] = []
        wanted = (self.count, self.count + self.fresh if self.runs is not None else 0)
        read = [0, 0]
        before: tuple[list[int], list[int]] = ([], [])
        while True:
            ahead = read[0] - read[1] if self.runs is not None else 0
            has_weights = ahead < 8 and read[0] < wanted[0]
            has_runs = ahead >= 0 and read[1] < wanted[1]
            unary = bits.get(12) if has_weights and not self.plain else 0
            runs = self._run_quotients() if has_runs else []
            quotients = self._quotients(unary) if has_weights else []
            read[0] += len(quotients)
            read[1] += len(runs)
            weights += self._finished(before[0], self.divisor, wanted[0] - len(weights))
            zeros += self._finished(before[1], self.runs or 0, wanted[1] - len(zeros))
            before = quotients, runs
            if not has_weights and not has_runs:
                return weights, zeros

    def _quotients(self, unary: int) -> list[int]:
        if self.plain:
            return [0] * self.most
        more = self.bits.get(_ONES[unary])
        quotients = []
        carry = self._weight_carry
        for _ in range(12):
            step = 0
            if unary & 1:
                step = 1 + (more & 1)
                more >>= 1
            unary >>= 1
            carry += step
            if step < 2 or self.truncated:
                quotients.append(carry)
                carry = 0
        self._weight_carry = carry
        return quotients

    def _run_quotients(self) -> list[int]:
        length = 12 if (self.runs or 0) < 3 else 8
        unary = self.bits.get(length)
        quotients = []
        carry = self._run_carry
        for _ in range(length):
            if unary & 1:
                carry += 1
            else:
                quotients.append(carry)
                carry = 0
            unary >>= 1
        self._run_carry = carry
        return quotients

    def _finished(self, quotients: list[int], divisor: int, most: int) -> list[int]:
        count = min(len(quotients), most)
        if not count or not divisor:
            return quotients[:count]
        word, mask = self.bits.get(count * divisor), (1 << divisor) - 1
        return [(q << divisor) + (word >> n * divisor & mask) for n, q in enumerate(quotients[:count])]


@dataclass(frozen=True, slots=True)
class Order:
    """Parameters that determine the order of one core's weights.

    ``outputs`` are that core's channels, ``block`` is the channels of a block. A depthwise convolution has
    one input channel. ``window`` is the size, in elements, of the parts of a kernel.
    """

    outputs: int
    inputs: int
    kernel: tuple[int, int]
    block: int
    window: tuple[int, int]
    ofm_block: int
    ifm_block: int
    part_kernel: bool
    depthwise: bool
    short: bool


def ordered(flat: Int64, order: Order) -> Int64:
    """Return decoded weights as ``[outputs, height, width, inputs]``.

    Raises ``ValueError`` if there are too few, or more than padding explains.
    """
    places = _places(order)
    if not 0 <= len(flat) - len(places) < 64:
        raise ValueError(f"there are {len(flat)} weights in the stream, expected {len(places)}")
    height, width = order.kernel
    weights = np.zeros(order.outputs * height * width * order.inputs, np.int64)
    used = flat[: len(places)]
    real = places >= 0
    weights[places[real]] = used[real]
    return weights.reshape(order.outputs, height, width, order.inputs)


@lru_cache(maxsize=256)
def _places(order: Order) -> Int64:
    # For each weight of the stream its index in the array, or -1 if it only pads.
    inputs = 1 if order.depthwise else order.inputs
    step = 16 if order.part_kernel or order.short else 32
    parts = []
    for output in range(0, order.outputs, order.block):
        for input_ in range(0, inputs, step):
            for y in range(0, order.kernel[0], order.window[0]):
                for x in range(0, order.kernel[1], order.window[1]):
                    parts.append(_part(order, output, input_, (y, x), inputs, step))
    return np.concatenate(parts)


def _part(order: Order, output: int, input_: int, at: tuple[int, int], inputs: int, step: int) -> Int64:
    # One part of the kernel for one block: the axes in the order of the stream.
    (height, width), (y, x) = order.kernel, at
    rows, columns = min(height - y, order.window[0]), min(width - x, order.window[1])
    elements = rows * columns
    pad = (2 if order.short else 4) if order.part_kernel else 4 if order.depthwise else 1
    elements += -elements % pad
    outputs = min(order.block, order.outputs - output)
    deep = min(step, inputs - input_) if order.part_kernel else step
    depths = 1 if order.depthwise else -(-deep // order.ifm_block)
    blocks = -(-outputs // order.ofm_block)
    lanes = 1 if order.depthwise else order.ifm_block
    outer, inner = (depths, 1) if order.part_kernel else (1, depths)
    io, ob, e, ii, o, i = np.ogrid[:outer, :blocks, :elements, :inner, : order.ofm_block, :lanes]
    channel = output + ob * order.ofm_block + o
    depth = input_ + (io + ii) * order.ifm_block + i
    row, column = y + e // columns, x + e % columns
    place = ((channel * height + row) * width + column) * inputs + depth
    real = (channel < output + outputs) & (depth < inputs) & (e < rows * columns)
    return np.where(real, place, -1).reshape(-1)
