"""Layers with weights, and poolings."""

import math
from collections.abc import Sequence

import numpy as np

from tests.system.grown.network import MOST, SPREAD, Network, Step
from tests.tflite_builder import Options, Tensor, packed

__all__ = ["STEPS"]


def _window(net: Network, x: Tensor, dilated: bool) -> tuple[list[int], dict[str, int], list[int]] | None:
    """A window over an image, its options and the size of the output; None if it does not fit."""
    taps = [net.integer(1, 4), net.integer(1, 4)] if net.chance(0.7) else [3, 3]
    strides = [net.integer(1, 3), net.integer(1, 3)] if net.chance(0.5) else [1, 1]
    spread = [net.integer(1, 2), net.integer(1, 2)] if dilated and net.chance(0.15) else [1, 1]
    reach = [(t - 1) * d + 1 for t, d in zip(taps, spread, strict=True)]
    valid = net.chance(0.5)
    size = [(d - (r if valid else 1)) // s + 1 for d, r, s in zip(x.shape[1:3], reach, strides, strict=True)]
    if valid and any(r > d for r, d in zip(reach, x.shape[1:3], strict=True)):
        return None
    options = {"Padding": int(valid), "StrideH": strides[0], "StrideW": strides[1]}
    options["FusedActivationFunction"] = net.activation()
    if dilated:
        options |= {"DilationHFactor": spread[0], "DilationWFactor": spread[1]}
    return taps, options, size


def _weights(
    net: Network, x: Tensor, shape: Sequence[int], axis: int, depth: int, four: bool = True
) -> tuple[list[Tensor | None], float]:
    """Weights, which may have ``four`` bits, and bias, and the unit that suits the output.

    The bias may be absent, but not of a depthwise layer (axis 3), where TFLite Micro crashes.
    """
    count, biased = shape[axis], axis == 3 or net.chance(0.9)
    if x.dtype == "float32":
        bias = net.constant(net.rng.normal(0, 0.3, count), "float32") if biased else None
        return [net.constant(net.rng.normal(0, 1 / math.sqrt(depth), shape), "float32"), bias], 0.0
    per_axis = net.chance(0.7)
    scales = net.rng.uniform(0.002, 0.02, count if per_axis else 1).astype(np.float32)
    zeros, kept = [0] * len(scales), axis if per_axis else 0
    if four and x.dtype == "int8" and net.chance(0.1) and not (per_axis and len(shape) == 2):
        scales *= 18
        halves = net.rng.integers(-7, 8, shape)
        weights = net.keep(Tensor(net.name(), shape, "int4", scales.tolist(), zeros, kept, packed(halves)))
    else:
        whole = net.rng.integers(-127, 128, shape)
        weights = net.constant(whole, "int8", scales=scales.tolist(), zero_points=zeros, axis=kept)
    step = float(scales.mean()) * x.scales[0]
    total = (
        float(scales.mean())
        * net.unit(x)
        * (4 if weights.dtype == "int4" else 70)
        * SPREAD
        * math.sqrt(depth)
    )
    biases = net.rng.normal(0, total / 2 / step, count).astype(int)
    bias_scales = [float(s) * x.scales[0] for s in scales]
    dtype = "int64" if x.dtype == "int16" else "int32"
    bias = net.constant(biases, dtype, scales=bias_scales, zero_points=zeros) if biased else None
    return [weights, bias], total / SPREAD * net.rng.uniform(0.7, 1.5)


def _conv(net: Network) -> None:
    x = net.source(4)
    window = _window(net, x, True) if x else None
    if x is None or window is None:
        return
    taps, options, size = window
    filters, channels = net.pick([net.integer(1, 18), 8, 16, 32]), x.shape[3]
    operands, scale = _weights(net, x, (filters, *taps, channels), 0, math.prod(taps) * channels)
    y = net.tensor(x.dtype, (x.shape[0], *size, filters), scale)
    net.add("CONV_2D", [x, *operands], y, Options("Conv2DOptions", **options))


def _depthwise(net: Network) -> None:
    x = net.source(4)
    window = _window(net, x, True) if x else None
    if x is None or window is None:
        return
    taps, options, size = window
    options["DepthMultiplier"] = net.pick([1, 1, 1, 2, 3])
    channels = x.shape[3] * options["DepthMultiplier"]
    operands, scale = _weights(net, x, (1, *taps, channels), 3, math.prod(taps))
    y = net.tensor(x.dtype, (x.shape[0], *size, channels), scale)
    net.add("DEPTHWISE_CONV_2D", [x, *operands], y, Options("DepthwiseConv2DOptions", **options))


def _pool(net: Network) -> None:
    x = net.source(4)
    window = _window(net, x, False) if x else None
    if x is None or window is None:
        return
    taps, options, size = window
    options |= {"FilterHeight": taps[0], "FilterWidth": taps[1]}
    y = net.like(x, (x.shape[0], *size, x.shape[3]))
    net.add(net.pick(["AVERAGE_POOL_2D", "MAX_POOL_2D"]), [x], y, Options("Pool2DOptions", **options))


def _dense(net: Network) -> None:
    x = net.source()
    if x is None or not x.shape or (len(x.shape) > 2 and net.chance(0.5)):
        return
    outputs, depth = net.integer(1, 20), x.shape[-1]
    keep = len(x.shape) > 2
    operands, scale = _weights(net, x, (outputs, depth), 0, depth)
    y = net.tensor(
        x.dtype, (*x.shape[:-1], outputs) if keep else (math.prod(x.shape) // depth, outputs), scale
    )
    options = Options("FullyConnectedOptions", FusedActivationFunction=net.activation(), KeepNumDims=keep)
    net.add("FULLY_CONNECTED", [x, *operands], y, options)


def _transposed(net: Network) -> None:
    """A transposed convolution, of a small image."""
    x = net.source(4)
    if x is None or math.prod(x.shape) > 600:
        return
    taps, stride = [net.integer(1, 4), net.integer(1, 4)], net.integer(1, 2)
    filters, valid = net.integer(1, 8), net.chance(0.5)
    more = [max(t - stride, 0) if valid else 0 for t in taps]
    size = [n * stride + m for n, m in zip(x.shape[1:3], more, strict=True)]
    shape = (x.shape[0], *size, filters)
    if math.prod(shape) > MOST:
        return
    operands, scale = _weights(net, x, (filters, *taps, x.shape[3]), 0, math.prod(taps) * x.shape[3], False)
    weights, bias = operands
    options = Options("TransposeConvOptions", Padding=int(valid), StrideH=stride, StrideW=stride)
    inputs = [net.constant(shape), weights, x, *([bias] if bias else [])]
    net.add("TRANSPOSE_CONV", inputs, net.tensor(x.dtype, shape, scale), options)


STEPS: list[Step] = [*[_conv] * 3, *[_depthwise] * 2, *[_dense] * 2, _pool, _transposed]
