"""Comparisons, logic and selection of elements."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Quant, Signature, Value
from crtgen.network.ops.attrs import magnitude, require, tensor_quant
from crtgen.network.ops.case import Case, floats, int8s, int16s, make, plain
from crtgen.network.ops.elementwise import Elementwise
from crtgen.network.ops.expr import COMPARISONS, Expr, Formula, operand
from crtgen.network.ops.fixedpoint import quantize_multiplier

__all__ = [
    "Comparison",
    "ComparisonParams",
    "Equal",
    "Greater",
    "GreaterEqual",
    "Less",
    "LessEqual",
    "Logical",
    "LogicalAnd",
    "LogicalOr",
    "Maximum",
    "Minimum",
    "NotEqual",
    "Select",
    "cases",
]

_LEFT_SHIFT = 8


@dataclass(frozen=True, slots=True)
class ComparisonParams:
    """Parameters that make two quantised values comparable: an offset, a multiplier and a shift for each.

    ``a = ((x + offset) << 8) * multiplier * 2**(shift - 31)``; shifts are <= 0.
    """

    first: tuple[int, int, int]
    second: tuple[int, int, int]


class Comparison(Formula, Elementwise):
    """Comparison of two values; quantised values are compared as the real values they represent."""

    __slots__ = ()

    operands: ClassVar[int] = 2
    sign: ClassVar[str]
    """Operator in C."""

    def result_type(self, inputs: Sequence[Value]) -> DType:
        return DType.BOOL

    def parameters(self, sig: Signature) -> ComparisonParams:
        """Compute the factors, which are the scales themselves. Raises ``ValueError`` for scales of 1.0 or
        more, which TFLite Micro refuses, too.
        """
        first, second = (self._scaling(value) for value in sig.inputs)
        return ComparisonParams(first, second)

    def _scaling(self, value: Value) -> tuple[int, int, int]:
        quant = tensor_quant(value)
        require(quant.scale < 1, f"{value.name} has scale {quant.scale:g}; supported in comparisons: below 1")
        return (-quant.zero_point, *quantize_multiplier(quant.scale, magnitude(value) << _LEFT_SHIFT))

    def formula(self, sig: Signature) -> Expr | None:
        if sig.x.quant is None:
            return None
        p = self.parameters(sig)
        a, b = (
            ((operand(sig, i) + offset) << _LEFT_SHIFT).scaled(*factor)
            for i, (offset, *factor) in enumerate((p.first, p.second))
        )
        return a.compared(self.sign, b)

    def plain(self, sig: Signature, arrays: Sequence[Array]) -> Array:
        return np.asarray(COMPARISONS[self.sign](*arrays))


@dataclass(frozen=True, slots=True)
class Equal(Comparison):
    name: ClassVar[str] = "equal"
    sign: ClassVar[str] = "=="


@dataclass(frozen=True, slots=True)
class NotEqual(Comparison):
    name: ClassVar[str] = "not_equal"
    sign: ClassVar[str] = "!="


@dataclass(frozen=True, slots=True)
class Greater(Comparison):
    name: ClassVar[str] = "greater"
    sign: ClassVar[str] = ">"


@dataclass(frozen=True, slots=True)
class GreaterEqual(Comparison):
    name: ClassVar[str] = "greater_equal"
    sign: ClassVar[str] = ">="


@dataclass(frozen=True, slots=True)
class Less(Comparison):
    name: ClassVar[str] = "less"
    sign: ClassVar[str] = "<"


@dataclass(frozen=True, slots=True)
class LessEqual(Comparison):
    name: ClassVar[str] = "less_equal"
    sign: ClassVar[str] = "<="


class Logical(Elementwise):
    __slots__ = ()

    operands: ClassVar[int] = 2
    sign: ClassVar[str]

    def require_types(self, inputs: Sequence[Value]) -> None:
        for value in inputs:
            require(value.dtype is DType.BOOL, f"{value.name} is {value.dtype.value} instead of bool")


@dataclass(frozen=True, slots=True)
class LogicalAnd(Logical):
    name: ClassVar[str] = "logical_and"
    sign: ClassVar[str] = "&&"

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.logical_and(*arrays),)


@dataclass(frozen=True, slots=True)
class LogicalOr(Logical):
    name: ClassVar[str] = "logical_or"
    sign: ClassVar[str] = "||"

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.logical_or(*arrays),)


class Extreme(Elementwise):
    """The larger or smaller of two stored values; like TFLite Micro, it ignores their quantisation."""

    __slots__ = ()

    operands: ClassVar[int] = 2
    monotonic: ClassVar[bool] = True
    sign: ClassVar[str]
    """C comparison that is true if the first operand is the result."""


@dataclass(frozen=True, slots=True)
class Maximum(Extreme):
    name: ClassVar[str] = "maximum"
    sign: ClassVar[str] = ">"

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.maximum(*arrays),)


@dataclass(frozen=True, slots=True)
class Minimum(Extreme):
    name: ClassVar[str] = "minimum"
    sign: ClassVar[str] = "<"

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.minimum(*arrays),)


@dataclass(frozen=True, slots=True)
class Select(Elementwise):
    """The second operand where the first is true, the third elsewhere, as stored values."""

    name: ClassVar[str] = "select"
    operands: ClassVar[int] = 3

    def require_types(self, inputs: Sequence[Value]) -> None:
        require(inputs[0].dtype is DType.BOOL, f"the condition is {inputs[0].dtype.value} instead of bool")
        Elementwise.require_types(self, inputs[1:])

    def result_type(self, inputs: Sequence[Value]) -> DType:
        return inputs[1].dtype

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.where(*arrays),)


_EVERY = (DType.FLOAT32, DType.INT8, DType.INT16, DType.INT32, DType.INT64)


def _operands(dtype: DType, a: tuple[int, ...], b: tuple[int, ...]) -> list[Value]:
    # Few different numbers, so that many are equal: see ``_few``.
    if dtype is DType.INT8:
        return [int8s("a", a, 0.05, -3), int8s("b", b, 0.05, 2)]
    if dtype is DType.INT16:
        return [int16s("a", a), int16s("b", b)]
    return [Value("a", a, dtype), Value("b", b, dtype)]


_few = {"a": (-9.0, 9.0), "b": (-9.0, 9.0)}


def _comparisons() -> Iterator[Case]:
    kinds = (Equal(), NotEqual(), Greater(), GreaterEqual(), Less(), LessEqual())
    for dtype in (DType.FLOAT32, DType.INT8, DType.INT32, DType.INT64):
        for op in kinds:
            yield make(f"{dtype.value}", op, _operands(dtype, (2, 5, 7), (2, 5, 7)), limits=_few)
        for op in kinds[:3]:
            yield make(f"{dtype.value}_outer", op, _operands(dtype, (4, 1, 3), (5, 1)), limits=_few)
    scales = [int8s("a", (3, 31), 0.7, -20), int8s("b", (31,), 0.013, 40)]
    for op in kinds:
        yield make("scales", op, scales)
    constant = Value.constant("b", np.array([1.5, -0.25], np.float32))
    yield make("constant", Less(), [floats("a", (9, 2)), constant])
    threshold = Value.constant("b", np.array([7], np.int8), Quant.tensor(0.02, 5))
    for op in kinds:
        yield make("int8_constant", op, [int8s("a", (5, 7), 0.05, -3), threshold], limits=_few)
    truths = [plain("a", (3, 7), DType.BOOL), plain("b", (7,), DType.BOOL)]
    for logic in (Equal(), NotEqual(), LogicalAnd(), LogicalOr()):
        yield make("bool", logic, truths)


def cases() -> Iterator[Case]:
    yield from _comparisons()
    for dtype in _EVERY:
        for op in (Maximum(), Minimum()):
            yield make(f"{dtype.value}", op, _operands(dtype, (2, 5, 7), (2, 5, 7)))
            yield make(f"{dtype.value}_outer", op, _operands(dtype, (4, 1, 3), (5, 1)))
    same = Quant.tensor(0.05, -3)
    fixed = Value.constant("b", np.arange(-40, 30, 10).astype(np.int8), same)
    yield make("constant", Maximum(), [int8s("a", (5, 7), 0.05, -3), fixed])
    for dtype in (DType.FLOAT32, DType.INT8, DType.INT16):
        condition = plain("c", (2, 5, 7), DType.BOOL)
        for name, shape in (("", (2, 5, 7)), ("_outer", (5, 1))):
            a, _ = _operands(dtype, (2, 5, 7), shape)
            operands = [condition, a, Value("b", shape, dtype, a.quant)]
            yield make(f"{dtype.value}{name}", Select(), operands, a.quant)
    numbers = [Value.constant(name, np.array([n], np.int8), same) for name, n in (("a", 100), ("b", -7))]
    for name, operands in (("ab", numbers), ("a", [numbers[0], int8s("b", (5, 7), 0.05, -3)])):
        yield make(f"int8_constant_{name}", Select(), [plain("c", (5, 7), DType.BOOL), *operands], same)
    yield make("rows", Select(), [plain("c", (5, 1), DType.BOOL), floats("a", (5, 7)), floats("b", (1, 7))])
