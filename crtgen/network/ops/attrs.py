"""Attributes that several operators share: fused activations and explicit padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, Quant, Value
from crtgen.network.ops.fixedpoint import round_half_away, single
from crtgen.network.ops.scheme import scheme_of

__all__ = [
    "NO_PADDING",
    "Activation",
    "Padding",
    "clamp_float",
    "magnitude",
    "padded_elements",
    "require",
    "require_inputs",
    "tensor_quant",
]


class Activation(Enum):
    NONE = "none"
    RELU = "relu"
    RELU6 = "relu6"
    RELU_N1_1 = "relu_n1_1"
    RELU_0_1 = "relu_0_1"

    def float_range(self) -> tuple[float, float]:
        inf = float("inf")
        return {
            "none": (-inf, inf),
            "relu": (0.0, inf),
            "relu6": (0.0, 6.0),
            "relu_n1_1": (-1.0, 1.0),
            "relu_0_1": (0.0, 1.0),
        }[self.value]

    def quantized_range(self, value: Value) -> tuple[int, int]:
        """Return the limits of a quantised output, as ``CalculateActivationRangeQuantized`` does."""
        (low, high), (least, most) = self.float_range(), scheme_of(value).limits
        quant = tensor_quant(value)
        lowest = least if np.isinf(low) else max(least, _quantize(low, quant))
        highest = most if np.isinf(high) else min(most, _quantize(high, quant))
        return lowest, highest

    def whole_range(self, value: Value) -> tuple[int, int]:
        (low, high), info = self.float_range(), np.iinfo(value.dtype.value)
        return int(max(low, info.min)), int(info.max if np.isinf(high) else high)


def _quantize(real: float, quant: Quant) -> int:
    # ``real`` on the grid of ``quant``: divided in float32, rounded half away from zero.
    ratio = min(max(single(real / quant.scale), -(2.0**31)), 2.0**31)
    return quant.zero_point + round_half_away(ratio)


@dataclass(frozen=True, slots=True)
class Padding:
    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0

    @classmethod
    def same(
        cls,
        size: tuple[int, int],
        window: tuple[int, int],
        stride: tuple[int, int],
        dilation: tuple[int, int] = (1, 1),
    ) -> "Padding":
        """Return TFLite's SAME: ``ceil(size / stride)`` outputs, with the odd row or column at the bottom and
        right.
        """
        totals = []
        for length, taps, step, spread in zip(size, window, stride, dilation, strict=True):
            outputs = -(-length // step)
            totals.append(max(0, (outputs - 1) * step + (taps - 1) * spread + 1 - length))
        rows, columns = totals
        return cls(rows // 2, rows - rows // 2, columns // 2, columns - columns // 2)

    def output_size(
        self,
        size: tuple[int, int],
        window: tuple[int, int],
        stride: tuple[int, int],
        dilation: tuple[int, int] = (1, 1),
    ) -> tuple[int, int]:
        """Return height and width of a sliding window's output. Raises ``ValueError`` if the window never
        fits.
        """
        height = _outputs(size[0] + self.top + self.bottom, window[0], stride[0], dilation[0])
        width = _outputs(size[1] + self.left + self.right, window[1], stride[1], dilation[1])
        return height, width

    def __str__(self) -> str:
        return f"({self.top},{self.bottom},{self.left},{self.right})"


NO_PADDING = Padding()

# Elements of an image with its padding: what a front end allows of a tensor, too.
_MOST_PADDED = 1 << 26


def padded_elements(shape: Sequence[int], padding: Padding) -> int:
    """Return the number of elements of ``[N,H,W,C]`` including padding. Raises ``ValueError`` if it is too
    large.
    """
    batch, height, width, depth = shape
    elements = (
        batch * (height + padding.top + padding.bottom) * (width + padding.left + padding.right) * depth
    )
    if elements > _MOST_PADDED:
        reason = f"with padding {padding} its input has {elements:,} elements; supported: {_MOST_PADDED:,}"
        raise ValueError(reason)
    return elements


def _outputs(length: int, taps: int, step: int, spread: int) -> int:
    if min(taps, step, spread) < 1:
        raise ValueError(f"window {taps}, stride {step} and dilation {spread} must be positive")
    extent = (taps - 1) * spread + 1
    if length < extent:
        raise ValueError(f"a window of {extent} does not fit into {length}")
    return (length - extent) // step + 1


def require(condition: bool, reason: str) -> None:
    if not condition:
        raise ValueError(reason)


def require_inputs(inputs: Sequence[Value], count: int) -> None:
    require(len(inputs) == count, f"it has {len(inputs)} inputs instead of {count}")


def tensor_quant(value: Value) -> Quant:
    """Return the per-tensor quantisation. Raises ``ValueError`` if there is none or it is per axis."""
    if value.quant is None:
        raise ValueError(f"{value.name} is {value.dtype.value} without quantisation")
    require(value.quant.axis is None, f"{value.name} is quantised per axis")
    return value.quant


def magnitude(value: Value) -> int:
    """Return the largest possible ``|q - zero_point|`` of a quantised tensor."""
    return scheme_of(value).magnitude(tensor_quant(value).zero_point)


def clamp_float(real: npt.NDArray[np.float64], activation: Activation) -> Array:
    return np.clip(real, *activation.float_range()).astype(np.float32)
