"""Operators on the bits of whole numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.ir import Array, DType, Signature, Value
from crtgen.ops.attrs import require
from crtgen.ops.case import Case, make, plain
from crtgen.ops.elementwise import Elementwise

__all__ = ["BitAnd", "BitNot", "BitOr", "BitXor", "Bitwise", "Shift", "cases"]


class _Bits(Elementwise):
    """Whole numbers that mean themselves."""

    __slots__ = ()

    def require_types(self, inputs: Sequence[Value]) -> None:
        for value in inputs:
            whole = value.dtype.is_integer and value.quant is None
            require(whole, f"{value.name} is {value.dtype.value} instead of whole numbers")
        Elementwise.require_types(self, inputs)


class Bitwise(_Bits):
    """Each bit of two numbers to one."""

    __slots__ = ()

    operands: ClassVar[int] = 2
    sign: ClassVar[str]
    """The same in C."""


@dataclass(frozen=True, slots=True)
class BitAnd(Bitwise):
    """The bits that both have."""

    name: ClassVar[str] = "bit_and"
    sign: ClassVar[str] = "&"

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.bitwise_and(*arrays),)


@dataclass(frozen=True, slots=True)
class BitOr(Bitwise):
    """The bits that one or both have."""

    name: ClassVar[str] = "bit_or"
    sign: ClassVar[str] = "|"

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.bitwise_or(*arrays),)


@dataclass(frozen=True, slots=True)
class BitXor(Bitwise):
    """The bits that one of both has."""

    name: ClassVar[str] = "bit_xor"
    sign: ClassVar[str] = "^"

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.bitwise_xor(*arrays),)


@dataclass(frozen=True, slots=True)
class BitNot(_Bits):
    """The bits that the number does not have."""

    name: ClassVar[str] = "bit_not"

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.invert(arrays[0]),)


@dataclass(frozen=True, slots=True)
class Shift(_Bits):
    """A number without a sign, by as many bits as the other one says; by all of its bits it is zero."""

    name: ClassVar[str] = "shift"
    operands: ClassVar[int] = 2

    left: bool

    def require_types(self, inputs: Sequence[Value]) -> None:
        _Bits.require_types(self, inputs)
        kind = inputs[0].dtype
        require(kind.numpy.kind == "u", f"a shift of {kind.value}; supported: numbers without a sign")

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        a, b = (x.astype(np.uint64) for x in arrays)
        inside = np.minimum(b, np.uint64(63))
        moved = np.left_shift(a, inside) if self.left else np.right_shift(a, inside)
        kept = np.where(b < np.uint64(8 * sig.x.dtype.itemsize), moved, np.uint64(0))
        return (kept.astype(sig.x.dtype.numpy),)


def cases() -> Iterator[Case]:
    """Each type, equal and broadcast shapes; TFLite Micro does not have them (``_onnx``)."""
    for dtype in (d for d in DType if d.is_integer and d is not DType.INT4):
        low = 0.0 if dtype.numpy.kind == "u" else -100.0
        limits = {"a": (low, 100.0), "b": (low, 100.0)}
        pair = [plain("a", (4, 1, 3), dtype), plain("b", (5, 1), dtype)]
        for op in (BitAnd(), BitOr(), BitXor()):
            yield make(f"{dtype.value}_onnx", op, pair, limits=limits)
        yield make(f"{dtype.value}_onnx", BitNot(), [plain("a", (3, 7), dtype)], limits=limits)
        for left in (True, False) if low == 0 else ():
            shift = [plain("a", (3, 7), dtype), plain("b", (3, 7), dtype)]
            name = f"{dtype.value}_{'left' if left else 'right'}_onnx"
            yield make(name, Shift(left), shift, limits={"a": (0.0, 200.0), "b": (0.0, 40.0)})
