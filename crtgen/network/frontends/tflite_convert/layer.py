"""A layer of a `.tflite` file as converters see it, and the rows of their tables."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from itertools import product
from typing import Any, ClassVar

from crtgen.network.frontends.builder import Converted, RefusedOperator, Result
from crtgen.network.frontends.converting import FileLayer
from crtgen.network.frontends.tflite_file import FileOperator, FileTensor
from crtgen.network.ir import DType, Op, shape_text
from crtgen.network.ops import Activation, Padding
from crtgen.network.ops.fixedpoint import single

__all__ = ["NUMBERS", "PLAIN", "Convert", "TfliteConverter", "TfliteLayer", "pairs", "same", "unary"]

_ACTIVATIONS = {
    0: Activation.NONE,
    1: Activation.RELU,
    2: Activation.RELU_N1_1,
    3: Activation.RELU6,
    4: "TANH",
    5: "SIGN_BIT",
}
_MOST_REAL = 2.0**127


class _Padding(IntEnum):
    SAME = 0
    VALID = 1


@dataclass(frozen=True, slots=True)
class TfliteLayer(FileLayer[FileTensor]):
    """An operator of the file with its tensors. Raises ``ValueError`` if it is invalid."""

    longest: ClassVar[int] = 64

    operator: FileOperator
    inputs: tuple[FileTensor | None, ...]
    outputs: tuple[FileTensor, ...]

    @property
    def y(self) -> FileTensor:
        return self.outputs[0]

    def option(self, name: str) -> Any:
        return self.operator.options.get(name, 0)

    def require_alike(
        self,
        tensors: Iterable[FileTensor],
        what: str = "input",
        types: tuple[DType, ...] = (DType.INT8, DType.UINT8),
    ) -> None:
        """Refuse tensors of these types whose quantisation differs from the output's, as TFLite Micro
        does.
        """
        if self.y.dtype in types and any(t.quant != self.y.quant for t in tensors):
            reason = f"{what} and output are quantised differently, which TFLite Micro refuses, too"
            raise RefusedOperator(f"{reason}; supported: the same scale and zero point")

    def number(self, name: str, default: int = 0) -> int:
        value = self.operator.options.get(name, default)
        if not isinstance(value, int):
            raise ValueError(f"the option {name} is not an integer")
        return int(value)

    def real(self, name: str) -> float:
        value = self.option(name)
        if not isinstance(value, int | float) or not abs(value) < _MOST_REAL:
            raise ValueError(f"the option {name} is not a float")
        return single(float(value))

    def activation(self) -> Activation:
        number = self.option("FusedActivationFunction")
        activation = _ACTIVATIONS.get(number, f"number {number}")
        if not isinstance(activation, Activation):
            raise RefusedOperator(
                f"fused activation {activation}; supported: NONE, RELU, RELU6, RELU_N1_TO_1"
            )
        return activation

    def image(self, position: int = 0) -> tuple[int, int]:
        shape = self.tensor(position).shape
        if len(shape) != 4:
            raise ValueError(f"input {position} has shape {shape_text(shape)} instead of four dimensions")
        return shape[1], shape[2]

    def pair(self, stem: str, suffix: str = "") -> tuple[int, int]:
        """Return an option for height and width, such as ``StrideH`` and ``StrideW``."""
        values = tuple(int(self.option(f"{stem}{axis}{suffix}")) for axis in ("H", "W"))
        return values[0], values[1]

    def padding(
        self,
        window: tuple[int, int],
        stride: tuple[int, int],
        dilation: tuple[int, int] = (1, 1),
        size: tuple[int, int] | None = None,
    ) -> Padding:
        """Return SAME or VALID as rows and columns of padding around an image of this size (the input's)."""
        if min(*window, *stride, *dilation) < 1:
            raise ValueError(f"window {window}, stride {stride} and dilation {dilation} must be positive")
        if self.option("Padding") == _Padding.VALID:
            return Padding()
        if self.option("Padding") == _Padding.SAME:
            return Padding.same(size or self.image(), window, stride, dilation)
        raise RefusedOperator(f"padding number {self.option('Padding')}; supported: SAME, VALID")


def unary(op: Op) -> "Convert":
    return lambda layer: Converted(op, (layer.x,))


Convert = Callable[[TfliteLayer], Result]
Types = frozenset[tuple[DType, DType]]


def same(*types: DType) -> Types:
    """Accept any of ``types`` for the first input, and the same type for the output."""
    return frozenset((dtype, dtype) for dtype in types)


def pairs(sources: Iterable[DType], results: Iterable[DType]) -> Types:
    return frozenset(product(sources, results))


NUMBERS = same(DType.FLOAT32, DType.INT8)
"""Types of values in quantised and in float networks."""

PLAIN = same(*DType)
"""Any type, the same for input and output, for operators that move elements."""


@dataclass(frozen=True, slots=True)
class TfliteConverter:
    """A row of the table.

    ``stems`` are possible beginnings of the layer's name, ``options`` is the options' table and ``fields``
    are the fields read from it, ``types`` are pairs of the first input's and the output's type.
    """

    convert: Convert
    stems: tuple[str, ...]
    options: str = ""
    fields: tuple[str, ...] = ()
    types: Types = NUMBERS
