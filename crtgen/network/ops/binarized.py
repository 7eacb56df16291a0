"""Binary networks: 32 values, each 1 or -1, in an int32, where a set bit means -1.

The layout is that of Larq Compute Engine: channels are along the last axis, the first one in the lowest bit;
bits beyond the last channel are zero.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Op, Signature, Value
from crtgen.network.ops.attrs import NO_PADDING, Padding, padded_elements, require, require_inputs
from crtgen.network.ops.case import Case, floats, int8s, make, plain
from crtgen.network.ops.conv import pad_image, window_tap
from crtgen.network.ops.traits import Real

__all__ = [
    "WORD",
    "BinaryConv2d",
    "PackSigns",
    "PackedMaxPool2d",
    "UnpackSigns",
    "cases",
    "packed",
    "words_of",
]

WORD = 32


def words_of(channels: int) -> int:
    return -(-channels // WORD)


def packed(negative: Array) -> Array:
    """Pack booleans ``[..., C]`` into bits ``[..., words]`` of int32."""
    *rows, channels = negative.shape
    bits = np.zeros((*rows, words_of(channels) * WORD), np.uint8)
    bits[..., :channels] = negative
    found: Array = np.packbits(bits, axis=-1, bitorder="little").view("<i4")
    return found.astype(np.int32)


def _unpacked(words: Array, channels: int) -> Array:
    # The reverse: ``[..., words]`` as truth values ``[..., channels]``.
    found: Array = np.unpackbits(words.astype("<i4").view(np.uint8), axis=-1, bitorder="little")
    return found[..., :channels].astype(np.bool_)


def _signs(words: Array, channels: int) -> Real:
    return np.where(_unpacked(words, channels), -1.0, 1.0)


@dataclass(frozen=True, slots=True)
class PackSigns(Op):
    """``x[..., C] -> [..., words]``: a bit is set if a value is below zero, or below its zero point."""

    name: ClassVar[str] = "pack_signs"

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        types = (DType.FLOAT32, DType.INT8, DType.INT32)
        require(x.dtype in types and len(x.shape) > 0, f"signs of {x.dtype.value}")
        return (((*x.shape[:-1], words_of(x.shape[-1])), DType.INT32),)

    def zero(self, sig: Signature) -> int:
        return 0 if sig.x.quant is None else sig.x.quant.zero_point

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (packed(np.less(arrays[0], self.zero(sig))),)


@dataclass(frozen=True, slots=True)
class UnpackSigns(Op):
    """``x[..., words] -> [..., channels]``: 1 or -1 in float32."""

    name: ClassVar[str] = "unpack_signs"

    channels: int

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        _require_packed(inputs[0], self.channels)
        return (((*inputs[0].shape[:-1], self.channels), DType.FLOAT32),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (_signs(arrays[0], self.channels).astype(np.float32),)


def _require_packed(x: Value, channels: int) -> None:
    require(x.dtype is DType.INT32 and len(x.shape) > 0, f"signs in {x.dtype.value}")
    require(channels > 0 and x.shape[-1] == words_of(channels), f"{channels} signs in {x.shape[-1]} words")


@dataclass(frozen=True, slots=True)
class PackedMaxPool2d(Op):
    """``x[N,H,W,words] -> [N,oh,ow,words]``: 1 if any value of a window is 1; padding never is."""

    name: ClassVar[str] = "packed_max_pool2d"

    window: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: Padding = NO_PADDING

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        require(x.dtype is DType.INT32 and len(x.shape) == 4, "an image of signs is [N,H,W,words] of int32")
        size = self.padding.output_size((x.shape[1], x.shape[2]), self.window, self.stride)
        padded_elements(x.shape, self.padding)
        return (((x.shape[0], *size, x.shape[3]), DType.INT32),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        signs = _signs(arrays[0], WORD * sig.x.shape[3])
        around = pad_image(signs, self.padding, -1)
        taps = [
            window_tap(around, (row, column), self.stride, (1, 1), sig)
            for row, column in product(*map(range, self.window))
        ]
        return (packed(np.less(np.max(taps, axis=0), 0)),)


@dataclass(frozen=True, slots=True)
class BinaryConv2d(Op):
    """``x[N,H,W,words], weights[O,kh,kw,words] -> [N,oh,ow,O]``: sums of products of signs, in int32.

    ``fill`` is the value of padding, 0 or 1.
    """

    name: ClassVar[str] = "binary_conv2d"

    channels: int
    stride: tuple[int, int] = (1, 1)
    padding: Padding = NO_PADDING
    dilation: tuple[int, int] = (1, 1)
    fill: int = 0

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 2)
        x, weights = inputs
        _require_packed(x, self.channels)
        require(len(x.shape) == 4 and len(weights.shape) == 4, "input and weights need four dimensions")
        alike = weights.dtype is DType.INT32 and weights.shape[3] == x.shape[3]
        require(alike, f"weights of {weights.shape[3]} words of {weights.dtype.value} for {x.shape[3]}")
        require(self.fill in (0, 1), f"a padding of {self.fill}")
        image = (x.shape[1], x.shape[2])
        size = self.padding.output_size(image, self.taps(weights), self.stride, self.dilation)
        padded_elements(x.shape, self.padding)
        return (((x.shape[0], *size, weights.shape[0]), DType.INT32),)

    def taps(self, weights: Value) -> tuple[int, int]:
        return weights.shape[1], weights.shape[2]

    def macs(self, sig: Signature) -> int:
        return sig.y.elements * prod(self.taps(sig.inputs[1])) * self.channels

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        around = pad_image(_signs(arrays[0], self.channels), self.padding, self.fill)
        weights = _signs(arrays[1], self.channels)
        total = np.zeros(sig.y.shape)
        for row, column in product(*map(range, self.taps(sig.inputs[1]))):
            seen = window_tap(around, (row, column), self.stride, self.dilation, sig)
            total += seen @ weights[:, row, column].T
        return (total.astype(np.int32),)


def cases() -> Iterator[Case]:
    for channels in (3, 32, 70):
        yield make(f"f32_{channels}_larq", PackSigns(), [floats("x", (2, 5, channels))])
        yield make(f"{channels}_larq", UnpackSigns(channels), [plain("x", (2, 5, words_of(channels)))])
    yield make("int8_larq", PackSigns(), [int8s("x", (3, 40), 0.1, -5)])
    yield make("int32_larq", PackSigns(), [plain("x", (3, 40))])
    pool = PackedMaxPool2d((2, 3), (2, 2), Padding.same((7, 6), (2, 3), (2, 2)))
    yield make("same_larq", pool, [plain("x", (1, 7, 6, 2))])
    random = np.random.default_rng(8)
    for channels, fill in ((32, 0), (96, 1), (20, 0), (70, 1)):
        weights = Value.constant("weights", packed(random.random((5, 3, 2, channels)) < 0.5))
        op = BinaryConv2d(channels, (1, 2), Padding(1, 1, 1, 0), (2, 1), fill)
        known = {"x": (0.0, 2.0 ** (channels % WORD) - 1)} if channels % WORD else {}
        yield make(
            f"{channels}_{fill}_larq", op, [plain("x", (1, 6, 7, words_of(channels))), weights], limits=known
        )
    large = Value.constant("weights", packed(random.random((3, 3, 3, 256)) < 0.5))
    yield make(
        "large_larq", BinaryConv2d(256, padding=Padding(1, 1, 1, 1)), [plain("x", (1, 4, 4, 8)), large]
    )
