"""Bitwise operators on integers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Index, Op, Signature, Value
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, floats, make, plain
from crtgen.network.ops.elementwise import Elementwise

__all__ = ["BitAnd", "BitCast", "BitNot", "BitOr", "BitXor", "Bitwise", "Shift", "cases"]


class _Bits(Elementwise):
    # Unquantised integers.
    __slots__ = ()

    def require_types(self, inputs: Sequence[Value]) -> None:
        for value in inputs:
            whole = value.dtype.is_integer and value.quant is None
            require(whole, f"{value.name} is {value.dtype.value} instead of integers")
        Elementwise.require_types(self, inputs)


class Bitwise(_Bits):
    __slots__ = ()

    operands: ClassVar[int] = 2
    sign: ClassVar[str]
    """Operator in C."""


@dataclass(frozen=True, slots=True)
class BitAnd(Bitwise):
    name: ClassVar[str] = "bit_and"
    sign: ClassVar[str] = "&"

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.bitwise_and(*arrays),)


@dataclass(frozen=True, slots=True)
class BitOr(Bitwise):
    name: ClassVar[str] = "bit_or"
    sign: ClassVar[str] = "|"

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.bitwise_or(*arrays),)


@dataclass(frozen=True, slots=True)
class BitXor(Bitwise):
    name: ClassVar[str] = "bit_xor"
    sign: ClassVar[str] = "^"

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.bitwise_xor(*arrays),)


@dataclass(frozen=True, slots=True)
class BitNot(_Bits):
    name: ClassVar[str] = "bit_not"

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.invert(arrays[0]),)


@dataclass(frozen=True, slots=True)
class Shift(_Bits):
    """Shift of an integer by the number of bits in the second operand.

    A shift by the full width or more, or by a negative number, gives 0, or -1 for a negative integer shifted
    right.
    """

    name: ClassVar[str] = "shift"
    operands: ClassVar[int] = 2

    left: bool

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        if sig.x.dtype.numpy.kind == "i":
            return (self._signed(sig, *(x.astype(np.int64) for x in arrays)),)
        a, b = (x.astype(np.uint64) for x in arrays)
        inside = np.minimum(b, np.uint64(63))
        moved = np.left_shift(a, inside) if self.left else np.right_shift(a, inside)
        kept = np.where(b < np.uint64(8 * sig.x.dtype.itemsize), moved, np.uint64(0))
        return (kept.astype(sig.x.dtype.numpy),)

    def _signed(self, sig: Signature, a: Index, b: Index) -> Array:
        most = 8 * sig.x.dtype.itemsize - 1
        inside = (b >= 0) & (b <= most)
        if not self.left:
            return np.right_shift(a, np.where(inside, b, most)).astype(sig.x.dtype.numpy)
        moved = np.left_shift(a.view(np.uint64), np.where(inside, b, 0).astype(np.uint64))
        return np.where(inside, moved, np.uint64(0)).astype(sig.x.dtype.numpy)


@dataclass(frozen=True, slots=True)
class BitCast(Op):
    """The bits of a value, reinterpreted as another type of the same size."""

    name: ClassVar[str] = "bit_cast"

    to: DType

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        fits = inputs[0].dtype.itemsize == self.to.itemsize and DType.INT4 not in (inputs[0].dtype, self.to)
        require(fits, f"{inputs[0].dtype.value} as {self.to.value}")
        return ((inputs[0].shape, self.to),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.ascontiguousarray(arrays[0]).view(self.to.numpy).reshape(sig.x.shape),)


def cases() -> Iterator[Case]:
    for dtype in (d for d in DType if d.is_integer and d is not DType.INT4):
        low = 0.0 if dtype.numpy.kind == "u" else -100.0
        limits = {"a": (low, 100.0), "b": (low, 100.0)}
        pair = [plain("a", (4, 1, 3), dtype), plain("b", (5, 1), dtype)]
        for op in (BitAnd(), BitOr(), BitXor()):
            yield make(f"{dtype.value}_onnx", op, pair, limits=limits)
        yield make(f"{dtype.value}_onnx", BitNot(), [plain("a", (3, 7), dtype)], limits=limits)
        for left in (True, False):
            shift = [plain("a", (3, 7), dtype), plain("b", (3, 7), dtype)]
            name = f"{dtype.value}_{'left' if left else 'right'}_onnx"
            yield make(name, Shift(left), shift, limits={"a": (low, 100.0), "b": (low / 4, 40.0)})
    yield make("int32_onnx", BitCast(DType.INT32), [floats("x", (3, 5))])
    yield make("f32_onnx", BitCast(DType.FLOAT32), [plain("x", (), DType.UINT32)], limits={"x": (0, 1 << 30)})
    yield make("int8_onnx", BitCast(DType.INT8), [plain("x", (7,), DType.BOOL)])
