"""A node of an `.onnx` file as converters see it, and the rows of their tables."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from crtgen.base import budget
from crtgen.network.frontends.builder import Converted, KnownOutput, NamedTensor, RefusedOperator
from crtgen.network.frontends.converting import FileLayer
from crtgen.network.frontends.onnx_file import FileNode
from crtgen.network.ir import Array, DType, Op, Value
from crtgen.network.ops import Mul, Reshape, Transpose
from crtgen.network.ops.arithmetic import Pow
from crtgen.network.ops.function import Cast, Sqrt, Square

__all__ = [
    "ANY",
    "FLOAT",
    "NARROW",
    "NUMBERS",
    "Convert",
    "OnnxConverter",
    "OnnxLayer",
    "Operand",
    "Results",
    "ask_for_room",
    "cast",
    "chain",
    "number",
    "pair",
    "power",
    "reshaped",
    "same",
    "transposed",
    "unary",
]

_LARGEST_ELEMENT = 8

Operand: TypeAlias = NamedTensor | Converted | Value | Array
Results: TypeAlias = Converted | KnownOutput | tuple[Converted | KnownOutput, ...]
"""Outputs of a node: one, a constant, or a list with one of these for each output."""


@dataclass(frozen=True, slots=True)
class OnnxLayer(FileLayer[NamedTensor]):
    """A node of the file with its tensors. Raises ``ValueError`` for an invalid one."""

    longest: ClassVar[int] = 4096

    node: FileNode
    inputs: tuple[NamedTensor | None, ...]
    outputs: tuple[NamedTensor | None, ...]

    @property
    def opset(self) -> int:
        return self.node.opset

    @property
    def rank(self) -> int:
        return len(self.x.shape)

    def listed(self, name: str, position: int) -> list[int] | None:
        """Return integers that older versions of the operator store as an attribute, newer ones as an
        input.
        """
        if name in self.node.attributes:
            return [int(i) for i in self.node.attributes[name]]
        return self.integers(position, name) if self.has(position) else None

    def own_axis(self, default: int) -> int:
        return self.axis(self.whole("axis", default), self.rank)

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.node.attributes.get(name, default)

    def whole(self, name: str, default: int = 0) -> int:
        return int(self.attribute(name, default))

    def real(self, name: str, default: float) -> float:
        return float(np.float32(self.attribute(name, default)))

    def text(self, name: str, default: str) -> str:
        return str(self.attribute(name, default))

    def refuse(self, name: str, *supported: Any) -> None:
        """Raise ``RefusedOperator`` unless the attribute has one of the given values; the first is its
        default.
        """
        value = self.attribute(name, supported[0])
        if value not in supported:
            raise RefusedOperator(f"{name} {value}; supported: {', '.join(map(str, supported))}")


Convert: TypeAlias = Callable[[OnnxLayer], Results]

FLOAT = frozenset({DType.FLOAT32})
NUMBERS = frozenset({DType.FLOAT32, DType.INT32})
NARROW = frozenset({DType.INT8, DType.UINT8, DType.INT16, DType.UINT16})
"""Types whose numbers are computed in 32 bits."""

ANY = frozenset(DType)
"""Any type, for operators that move elements."""


@dataclass(frozen=True, slots=True)
class OnnxConverter:
    """A row of the table. ``stems`` are possible beginnings of the layer's name; ``types`` are those of the
    first input.

    ``whole`` is the number of outputs if all are computed, including unused ones. If an operator
    ``is_bounded``, its outputs get the largest possible lengths, whatever the file says.
    """

    convert: Convert
    stems: tuple[str, ...]
    types: frozenset[DType] = FLOAT
    whole: int = 0
    is_bounded: bool = False


def unary(op: Op) -> Convert:
    return lambda layer: Converted(op, (layer.x,))


def pair(op: Op) -> Convert:
    """Return the converter of an operator that takes its two operands unchanged."""
    return lambda layer: Converted(op, (layer.tensor(0), layer.tensor(1)), ("other",))


def chain(x: Operand, ops: Iterable[Op]) -> Converted:
    """Apply one or more operators of one input, one after another."""
    made: Operand = x
    for op in ops:
        made = Converted(op, (made,))
    assert isinstance(made, Converted)
    return made


def ask_for_room(shape: Iterable[int]) -> None:
    """Ask the budget for an array of eight bytes per element, before an array of a file's shape is
    allocated.
    """
    budget.current().hold(_LARGEST_ELEMENT * math.prod(max(length, 0) for length in shape), "what it becomes")


def number(value: float, dtype: DType = DType.FLOAT32) -> Array:
    return np.array(value, dtype.numpy)


def cast(x: Operand, to: DType) -> Converted:
    return Converted(Cast(to), (x,))


def power(x: Operand, exponent: float) -> Operand:
    """Return ``x ** exponent`` as products and roots, if few suffice."""
    if exponent == 1:
        return x
    if exponent == 2:
        return Converted(Square(), (x,))
    if exponent == 4:
        return Converted(Square(), (Converted(Square(), (x,)),))
    if exponent == 3 and isinstance(x, NamedTensor):
        return Converted(Mul(), (Converted(Mul(), (x, x)), x))
    if exponent == 0.5:
        return Converted(Sqrt(), (x,))
    if exponent == 0.25:
        return Converted(Sqrt(), (Converted(Sqrt(), (x,)),))
    return Converted(Pow(), (x, number(exponent)), ("exponent",))


def reshaped(x: Operand, shape: Iterable[int]) -> Converted:
    return Converted(Reshape(tuple(shape)), (x,))


def same(x: NamedTensor) -> Converted:
    return reshaped(x, x.shape)


def transposed(x: Operand, perm: Iterable[int]) -> Converted:
    return Converted(Transpose(tuple(perm)), (x,))
