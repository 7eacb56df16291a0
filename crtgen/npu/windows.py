"""Operators that move a window over an image: convolution, depthwise convolution, pooling.

The hardware computes them block by block. Integer sums do not depend on the order, so here a whole operator
is computed at once, tap by tap. Products of taps are exact in float64, for which numpy's matrix product is
fast: an accumulator has at most 40 bits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from crtgen.npu.output import scaled, store
from crtgen.npu.rounding import Int64, rescale
from crtgen.npu.state import NpuState, check_elements
from crtgen.npu.weights import Order, decode, ordered

__all__ = ["convolve", "pool"]

_MAX, _AVERAGE, _SUM = range(3)
_NEAREST, _ZEROS = 1, 2
_SCALE_BYTES = 10
_LARGEST = 64 * 64  # elements of a kernel


@dataclass(frozen=True, slots=True)
class _KernelWindow:
    """A kernel: its size in elements, its strides, and its dilation."""

    size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    part_kernel: bool
    small_parts: bool

    @classmethod
    def of(cls, state: NpuState) -> "_KernelWindow":
        bits = state.get("KERNEL_STRIDE")
        stride = ((bits >> 1 & 1) + 1 + 2 * (bits >> 9 & 7), (bits & 1) + 1 + 2 * (bits >> 6 & 7))
        dilation = ((bits >> 4 & 1) + 1, (bits >> 3 & 1) + 1)
        height, width = state.get("KERNEL_HEIGHT_M1"), state.get("KERNEL_WIDTH_M1")
        size = (height // dilation[0] + 1, width // dilation[1] + 1)
        if prod(size) > _LARGEST:
            raise ValueError(f"a kernel of {size[0]}x{size[1]} is larger than {_LARGEST} elements")
        return cls(size, stride, dilation, bool(bits >> 2 & 1), bool(bits >> 5 & 1))

    @property
    def extent(self) -> tuple[int, int]:
        (height, width), (down, right) = self.size, self.dilation
        return (height - 1) * down + 1, (width - 1) * right + 1


@dataclass(frozen=True, slots=True)
class _Image:
    """An image with its padding: ``values`` without zero point, and which rows and columns are not
    padding.
    """

    values: Int64
    padding: tuple[int, int]
    window: _KernelWindow
    output: tuple[int, int]

    def taps(self) -> Iterator[tuple[int, int, Int64, npt.NDArray[np.bool_]]]:
        """Yield for each kernel element its position, the image elements ``[y, x, c]`` that it multiplies,
        and which of them are not padding.
        """
        height, width, _ = self.values.shape
        for ky in range(self.window.size[0]):
            for kx in range(self.window.size[1]):
                y = self._along(0, ky)
                x = self._along(1, kx)
                real = ((y >= 0) & (y < height))[:, None] & ((x >= 0) & (x < width))[None, :]
                seen = self.values[np.clip(y, 0, height - 1)][:, np.clip(x, 0, width - 1)]
                yield ky, kx, seen, real

    def _along(self, axis: int, tap: int) -> Int64:
        w = self.window
        return np.arange(self.output[axis]) * w.stride[axis] + tap * w.dilation[axis] - self.padding[axis]


def _image(state: NpuState) -> _Image:
    window = _KernelWindow.of(state)
    height, width, _ = state.output_shape
    top, left = state.get("IFM_PAD_TOP"), state.get("IFM_PAD_LEFT")
    bottom, right = state.get("IFM_PAD_BOTTOM"), state.get("IFM_PAD_RIGHT")
    rows = max((height - 1) * window.stride[0] + window.extent[0] - top - bottom, 1)
    columns = max((width - 1) * window.stride[1] + window.extent[1] - left - right, 1)
    mode = state.get("IFM_UPSCALE", 0)
    if mode:
        rows, columns = -(-rows // 2), -(-columns // 2)
    values = state.load("IFM", (rows, columns, state.get("IFM_DEPTH_M1") + 1))
    if mode == _NEAREST:
        values = values.repeat(2, 0).repeat(2, 1)
    elif mode == _ZEROS:
        spread = np.zeros((2 * rows, 2 * columns, values.shape[2]), np.int64)
        spread[::2, ::2] = values
        values = spread
    elif mode:
        raise ValueError(f"IFM_UPSCALE has the mode {mode}, which is reserved")
    return _Image(values, (top, left), window, (height, width))


def convolve(state: NpuState, *, depthwise: bool) -> None:
    image = _image(state)
    outputs, inputs = state.output_shape[2], image.values.shape[2]
    if depthwise and outputs != inputs:
        raise ValueError(f"a depthwise convolution has {outputs} output channels for {inputs} input channels")
    if state.get("OFM_PRECISION") >> 8 & 1:
        raise ValueError("a convolution with one scale for all channels is not known")
    taps = image.window.size[0] * image.window.size[1] * (1 if depthwise else inputs)
    check_elements("the sums", (*image.output, outputs))
    state.spend(image.output[0] * image.output[1] * outputs * taps)
    weights = _weights(state, image.window, outputs, 1 if depthwise else inputs, depthwise)
    bias, scale, shift = _scales(state, outputs)
    sums = np.zeros((*image.output, outputs), np.float64)
    for ky, kx, seen, real in image.taps():
        values = np.where(real[..., None], seen, 0).astype(np.float64)
        if depthwise:
            sums += values * weights[:, ky, kx, 0]
        else:
            sums += values @ weights[:, ky, kx, :].T
    total = sums.astype(np.int64) + bias
    _check_width(state, total)
    store(state, rescale(total, scale, shift, state.rounding))


def _check_width(state: NpuState, total: Int64) -> None:
    bits = {0: 32, 1: 40}.get(state.get("ACC_FORMAT"))
    if bits is None:
        raise ValueError(f"ACC_FORMAT is {state.get('ACC_FORMAT')}, no format of integers")
    if total.size and max(-int(total.min()), int(total.max())) >= 1 << (bits - 1):
        raise ValueError(
            f"an accumulator needs more than {bits} bits; what the NPU does then is not published"
        )


def _weights(
    state: NpuState, window: _KernelWindow, outputs: int, inputs: int, depthwise: bool
) -> npt.NDArray[np.float64]:
    check_elements("the weights", (outputs, *window.size, inputs))
    config, size = state.config, state.type("IFM").size
    cores = _cores(state)
    parts = [8 // step // (2 if window.small_parts else 1) for step in window.dilation]
    weights = np.zeros((outputs, *window.size, inputs), np.float64)
    block = state.get("OFM_BLK_DEPTH_M1") + 1
    for core in range(min(cores, outputs)):
        order = Order(
            outputs=-(-(outputs - core) // cores),
            inputs=inputs,
            kernel=window.size,
            block=-(-(block - core) // cores),
            window=(parts[0], parts[1]),
            ofm_block=config.ofm_block,
            ifm_block=config.ifm_block,
            part_kernel=window.part_kernel and not depthwise,
            depthwise=depthwise,
            short=size == 2,
        )
        data = _stream(state, "WEIGHT" if core == 0 else "WEIGHT1", "WEIGHT_REGION")
        weights[core::cores] = _ordered(data, order)
    return weights


@lru_cache(maxsize=512)
def _ordered(data: bytes, order: Order) -> npt.NDArray[np.float64]:
    # Decoding is the slow part of a run, and its result is the same in the next one.
    return ordered(decode(data), order).astype(np.float64)


def _cores(state: NpuState) -> int:
    return state.config.cores if state.get("PARALLEL_MODE", 0) else 1


def _stream(state: NpuState, name: str, region: str) -> bytes:
    start, length = state.get(f"{name}_BASE"), state.get(f"{name}_LENGTH")
    return state.memory.piece(state.get(region), start, length, f"{name}_BASE").tobytes()


def _scales(state: NpuState, outputs: int) -> tuple[Int64, Int64, Int64]:
    # Bias of 40 bits, scale of 32, shift of 6 for each channel; those of two cores are interleaved.
    cores = _cores(state)
    found = np.zeros((outputs, _SCALE_BYTES), np.uint8)
    for core in range(min(cores, outputs)):
        count = -(-(outputs - core) // cores)
        data = _stream(state, "SCALE" if core == 0 else "SCALE1", "SCALE_REGION")
        if len(data) < count * _SCALE_BYTES:
            raise ValueError(
                f"SCALE_LENGTH is {len(data)} bytes, expected {_SCALE_BYTES} for each of {count} channels"
            )
        whole = np.frombuffer(data[: count * _SCALE_BYTES], np.uint8)
        found[core::cores] = whole.reshape(count, _SCALE_BYTES)
    wide = found.astype(np.int64)
    bias = sum(wide[:, i] << (8 * i) for i in range(5)) << 24 >> 24
    scale = sum(wide[:, 5 + i] << (8 * i) for i in range(4))
    return np.asarray(bias, np.int64), np.asarray(scale, np.int64), wide[:, 9] & 63


def pool(state: NpuState, mode: int) -> None:
    image = _image(state)
    check_elements("the output", (*image.output, image.values.shape[2]))
    state.spend(image.output[0] * image.output[1] * image.values.shape[2] * prod(image.window.size))
    if mode == _SUM:
        store(state, scaled(state, image.values.sum(2, keepdims=True)))
    elif mode == _MAX:
        store(state, _greatest(image))
    elif mode == _AVERAGE:
        store(state, _average(state, image))
    else:
        raise ValueError(f"POOL has the mode {mode}, which is reserved")


def _greatest(image: _Image) -> Int64:
    least = np.int64(-(1 << 40))
    result = np.full((*image.output, image.values.shape[2]), least)
    for _, _, seen, real in image.taps():
        result = np.maximum(result, np.where(real[..., None], seen, least))
    return result


def _average(state: NpuState, image: _Image) -> Int64:
    # Windows that are whole are scaled, by one over their size. With padding, the NPU divides by the count of
    # real elements instead, whatever the scale says: both compilers of Vela rely on that.
    total = np.zeros((*image.output, image.values.shape[2]), np.int64)
    count = np.zeros((*image.output, 1), np.int64)
    for _, _, seen, real in image.taps():
        total += np.where(real[..., None], seen, 0)
        count += real[..., None]
    if not any(state.get(f"IFM_PAD_{side}") for side in ("TOP", "LEFT", "RIGHT", "BOTTOM")):
        return scaled(state, total)
    count = np.maximum(count, 1)
    result: Int64 = np.where(total >= 0, (total + count // 2) // count, -((-total + count // 2) // count))
    return result
