"""Windows along the axes of an image, and images with channels last."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import OnnxLayer, Operand, reshaped, transposed
from crtgen.network.ir import Array, Op, Quant
from crtgen.network.ops import Activation, Concat, Conv2d, DepthwiseConv2d, Padding, StridedSlice

__all__ = [
    "REAL",
    "AxisWindow",
    "ConvStorage",
    "ImageWindow",
    "along",
    "grouped",
    "lines_of",
    "to_first",
    "to_last",
    "window_of",
]

_LAST = (0, 2, 3, 1)
_FIRST = (0, 3, 1, 2)


@dataclass(frozen=True, slots=True)
class ImageWindow:
    """A window along both axes of an image; the first axis has length 1 if the file has only one."""

    image: tuple[int, int, int, int]
    taps: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: Padding
    beyond: Padding
    """Padding that ``ceil_mode`` adds."""

    @property
    def around(self) -> Padding:
        a, b = self.padding, self.beyond
        return Padding(a.top, a.bottom + b.bottom, a.left, a.right + b.right)


def window_of(layer: OnnxLayer, kernel: Sequence[int]) -> ImageWindow:
    spatial = layer.rank - 2
    if spatial not in (1, 2):
        raise RefusedOperator(f"{spatial} dimensions of space; supported: 1, 2")
    lines = lines_of(layer, kernel)
    if spatial == 1:
        lines = (AxisWindow(1, 1, 1, 1, 0, 0, 0), *lines)
    down, across = lines
    padding = Padding(down.before, down.after, across.before, across.after)
    return ImageWindow(
        image=(layer.x.shape[0], layer.x.shape[1], down.length, across.length),
        taps=(down.taps, across.taps),
        stride=(down.stride, across.stride),
        dilation=(down.dilation, across.dilation),
        padding=padding,
        beyond=Padding(bottom=down.beyond, right=across.beyond),
    )


@dataclass(frozen=True, slots=True)
class AxisWindow:
    length: int
    taps: int
    stride: int
    dilation: int
    before: int
    after: int
    beyond: int

    @property
    def outputs(self) -> int:
        room = self.length + self.before + self.after + self.beyond - (self.taps - 1) * self.dilation - 1
        if room < 0:
            raise ValueError(f"a window of {self.taps} does not fit into {self.length}")
        return room // self.stride + 1


def lines_of(layer: OnnxLayer, kernel: Sequence[int]) -> tuple[AxisWindow, ...]:
    """Return the window along each axis of an image, for any number of axes."""
    found, spatial = [], layer.rank - 2
    lists = [
        along(layer, name, spatial, given)
        for name, given in (("kernel_shape", kernel), ("strides", ()), ("dilations", ()))
    ]
    for axis, (length, taps, stride, spread) in enumerate(zip(layer.x.shape[2:], *lists, strict=True)):
        ends = sides(layer, axis, spatial, length, (taps - 1) * spread + 1, stride)
        found.append(AxisWindow(length, taps, stride, spread, *ends))
    return tuple(found)


def along(layer: OnnxLayer, name: str, spatial: int, default: Sequence[int]) -> list[int]:
    """Return an attribute that has one value for each axis of the image."""
    listed = [int(i) for i in layer.attribute(name) or default or [1] * spatial]
    if len(listed) != spatial or min(listed) < 1:
        raise ValueError(f"{name} {listed} for {spatial} dimensions of space")
    return listed


def sides(
    layer: OnnxLayer, axis: int, spatial: int, length: int, extent: int, step: int
) -> tuple[int, int, int]:
    """Return the padding before and after an axis, and the additional padding that ``ceil_mode`` requires
    after it.
    """
    if axis < 0:
        return 0, 0, 0
    auto = layer.text("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        total = max((-(-length // step) - 1) * step + extent - length, 0)
        less, more = total // 2, total - total // 2
        return (less, more, 0) if auto == "SAME_UPPER" else (more, less, 0)
    pads = [int(p) for p in layer.attribute("pads") or [0] * (2 * spatial)]
    if len(pads) != 2 * spatial or min(pads) < 0:
        raise ValueError(f"padding {pads} for {spatial} dimensions of space")
    first, last = (0, 0) if auto == "VALID" else (pads[axis], pads[axis + spatial])
    if not layer.whole("ceil_mode"):
        return first, last, 0
    room = length + first + last - extent
    steps = -(-room // step)
    if steps * step >= length + first:
        steps -= 1
    return first, last, max(steps * step - room, 0)


def to_last(x: Operand, image: tuple[int, int, int, int], rank: int) -> Operand:
    return transposed(x if rank == 4 else reshaped(x, image), _LAST)


def to_first(made: Converted, image: Sequence[int], rank: int) -> Converted:
    """Transpose back; ``image`` is the shape ``[N,C,H,W]``."""
    back = transposed(made, _FIRST)
    return back if rank == 4 else reshaped(back, (*image[:2], *image[3:]))


class ConvStorage:
    """Storage of a convolution's weights and outputs; floats are stored unchanged."""

    activation: Activation = Activation.NONE
    output: Quant | None = None

    def weights(self, data: Array, axis: int, first: int) -> Operand:
        """Return the weights whose output channels are on ``axis``, starting at channel ``first``."""
        return data

    def layer(self, op: Conv2d | DepthwiseConv2d) -> Op:
        return op

    def reordered(self, order: npt.NDArray[np.intp]) -> "ConvStorage":
        """Return the storage of the outputs ``order``, one of which may be there several times."""
        return self


REAL = ConvStorage()


def grouped(
    x: Operand, window: ImageWindow, kernel: Array, bias: Array, groups: int, numbers: ConvStorage = REAL
) -> Converted:
    """Convolve ``[N,H,W,C]`` with ``kernel[O,kh,kw,C/groups]``."""
    outputs, depth, channels = kernel.shape[0], kernel.shape[3], window.image[1]
    if groups < 1 or depth * groups != channels or outputs % groups:
        raise ValueError(f"weights for {groups} times {depth} of {channels} channels, and {outputs} outputs")
    roles, quant = ("weights", "bias"), numbers.output
    op = numbers.layer(Conv2d(window.stride, window.padding, window.dilation, numbers.activation))
    if groups == 1:
        return Converted(op, (x, numbers.weights(kernel, 0, 0), bias), roles, quant=quant)
    if depth == 1:
        shape = window.stride, window.padding, window.dilation
        one = numbers.layer(DepthwiseConv2d(*shape, outputs // groups, numbers.activation))
        weights = numbers.weights(kernel.transpose(3, 1, 2, 0), 3, 0)
        return Converted(one, (x, weights, bias), roles, quant=quant)
    each, (n, _, h, w) = outputs // groups, window.image
    parts = []
    for g in range(groups):
        cut = StridedSlice((0, 0, 0, g * depth), (n, h, w, (g + 1) * depth), (1,) * 4)
        own = np.s_[g * each : (g + 1) * each]
        weights = numbers.weights(kernel[own], 0, g * each)
        parts.append(Converted(op, (Converted(cut, (x,)), weights, bias[own]), roles, quant=quant))
    return Converted(Concat(3), tuple(parts), quant=quant)
