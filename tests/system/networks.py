"""Random small networks as `.tflite` files, and what TFLite Micro's interpreter computes with them.

A network grows operator by operator on tensors that it already has, so that it branches and joins. Scales are
such that the values of every int8 tensor spread over its range: a network that saturates tests nothing.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tflite_micro import runtime

from crtgen.ir import Array
from tests.system.growing import Network
from tests.tflite_builder import Operator, Options, Tensor

__all__ = ["expected", "network"]

_ARENA = 1 << 20
_MAX_ELEMENTS = 2500
_MAX_SOFTMAX = 512
"""TFLite Micro gives up on a sum of as much."""

_SPREAD = 50.0
"""Standard deviation that int8 tensors are meant to have, in steps."""


def network(seed: int) -> Network:
    """The network of a seed: one to three inputs, some operators, every loose end an output."""
    rng = np.random.default_rng(seed)
    net = Network(rng, "float32" if rng.random() < 0.2 else "int8")
    _inputs(net)
    wanted = net.integer(2, 14)
    for _ in range(200):
        if len(net.operators) >= wanted:
            break
        net.pick(_STEPS)(net)
    for name in [n for n in net.fresh if n in net.inputs]:
        net.add("RESHAPE", [name], net.like(net.tensors[name], [math.prod(net.tensors[name].shape)]))
    _outputs(net)
    return net


def expected(data: bytes, inputs: Sequence[Array], outputs: int) -> list[Array]:
    """The outputs of a `.tflite` file by TFLite Micro."""
    interpreter = runtime.Interpreter.from_bytes(data, arena_size=_ARENA)
    for index, array in enumerate(inputs):
        interpreter.set_input(array, index)
    interpreter.invoke()
    return [interpreter.get_output(i).copy() for i in range(outputs)]


def _inputs(net: Network) -> None:
    shapes = [(1, net.integer(1, 13), net.integer(1, 13), net.pick([net.integer(1, 9), 4, 16]))]
    shapes += [net.pick([shapes[0], (1, net.integer(1, 60)), (net.integer(1, 4), 5)]) for _ in range(2)]
    for shape in shapes[: net.pick([1, 1, 2, 3])]:
        if net.dtype == "int8" and net.chance(0.1):
            name = f"t{len(net.tensors)}"
            net.tensors[name] = Tensor(name, shape, "float32")
            net.inputs.append(name)
            net.add("QUANTIZE", [name], net.tensor(shape, 1 / _SPREAD, 0))
        else:
            name = net.tensor(shape, net.rng.uniform(0.01, 0.1)).name
            net.inputs.append(name)
            net.fresh.append(name)


def _outputs(net: Network) -> None:
    """Every loose end, dequantised now and then, and perhaps a tensor that is read as well."""
    net.outputs = list(net.fresh)
    inner = [o.outputs[0] for o in net.operators if o.outputs[0] not in net.fresh]
    if inner and net.chance(0.2):
        net.outputs.append(net.pick(inner))
    if net.dtype == "int8" and net.chance(0.15):
        name = f"t{len(net.tensors)}"
        x = net.tensors[net.outputs[-1]]
        net.tensors[name] = Tensor(name, x.shape, "float32")
        net.operators.append(Operator("DEQUANTIZE", [x.name], [name]))
        net.outputs[-1] = name


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


def _weights(net: Network, x: Tensor, shape: Sequence[int], axis: int, depth: int) -> tuple[list[Any], float]:
    """The names of weights and bias, and the scale that suits the output.

    The bias may be absent, but not of a depthwise layer (axis 3), where TFLite Micro crashes.
    """
    count, biased = shape[axis], axis == 3 or net.chance(0.9)
    if net.dtype == "float32":
        bias = net.constant(net.rng.normal(0, 0.3, count), "float32") if biased else None
        return [net.constant(net.rng.normal(0, 1 / math.sqrt(depth), shape), "float32"), bias], 0.0
    per_axis = net.chance(0.7)
    scales = net.rng.uniform(0.002, 0.02, count if per_axis else 1).astype(np.float32)
    weights = net.constant(
        net.rng.integers(-127, 128, shape),
        "int8",
        scales=scales.tolist(),
        zero_points=[0] * len(scales),
        axis=axis if per_axis else 0,
    )
    total = float(scales.mean()) * x.scales[0] * 70 * _SPREAD * math.sqrt(depth)
    biases = net.rng.normal(0, total / 2 / (float(scales.mean()) * x.scales[0]), count).astype(int)
    bias_scales = [float(s) * x.scales[0] for s in scales]
    bias = net.constant(biases, "int32", scales=bias_scales, zero_points=[0] * len(scales))
    return [weights, bias if biased else None], total / _SPREAD * net.rng.uniform(0.7, 1.5)


def _conv(net: Network) -> None:
    x = net.source(4)
    window = _window(net, x, True) if x else None
    if x is None or window is None:
        return
    taps, options, size = window
    filters, channels = net.pick([net.integer(1, 18), 8, 16, 32]), x.shape[3]
    operands, scale = _weights(net, x, (filters, *taps, channels), 0, math.prod(taps) * channels)
    y = net.tensor((x.shape[0], *size, filters), scale)
    net.add("CONV_2D", [x.name, *operands], y, Options("Conv2DOptions", **options))


def _depthwise(net: Network) -> None:
    x = net.source(4)
    window = _window(net, x, True) if x else None
    if x is None or window is None:
        return
    taps, options, size = window
    options["DepthMultiplier"] = net.pick([1, 1, 1, 2, 3])
    channels = x.shape[3] * options["DepthMultiplier"]
    operands, scale = _weights(net, x, (1, *taps, channels), 3, math.prod(taps))
    y = net.tensor((x.shape[0], *size, channels), scale)
    net.add("DEPTHWISE_CONV_2D", [x.name, *operands], y, Options("DepthwiseConv2DOptions", **options))


def _pool(net: Network) -> None:
    x = net.source(4)
    window = _window(net, x, False) if x else None
    if x is None or window is None:
        return
    taps, options, size = window
    options |= {"FilterHeight": taps[0], "FilterWidth": taps[1]}
    y = net.like(x, (x.shape[0], *size, x.shape[3]))
    net.add(net.pick(["AVERAGE_POOL_2D", "MAX_POOL_2D"]), [x.name], y, Options("Pool2DOptions", **options))


def _dense(net: Network) -> None:
    x = net.source()
    if x is None or not x.shape or (len(x.shape) > 2 and net.chance(0.5)):
        return
    outputs, depth = net.integer(1, 20), x.shape[-1]
    keep = len(x.shape) > 2
    operands, scale = _weights(net, x, (outputs, depth), 0, depth)
    y = net.tensor((*x.shape[:-1], outputs) if keep else (math.prod(x.shape) // depth, outputs), scale)
    options = Options("FullyConnectedOptions", FusedActivationFunction=net.activation(), KeepNumDims=keep)
    net.add("FULLY_CONNECTED", [x.name, *operands], y, options)


def _binary(net: Network) -> None:
    """A sum, difference or product of two tensors, of one with itself, or with a constant that broadcasts."""
    a = net.source()
    if a is None:
        return
    partners = [t for t in net.computed() if tuple(t.shape) == tuple(a.shape)]
    if net.chance(0.25):
        shape = [net.pick([1, d]) for d in a.shape][net.integer(0, len(a.shape)) :]
        b = net.tensors[net.values(Tensor("", shape, "int8", [net.rng.uniform(0.01, 0.1)], [0]), shape)]
    else:
        b = net.pick([t for t in partners if t is not a] or partners)
    kind = net.pick(["Add", "Add", "Sub", "Mul"])
    scale = 0.0
    if a.scales:
        x, y = a.scales[0], b.scales[0]
        scale = x * y * _SPREAD if kind == "Mul" else math.hypot(x, y)
    operands = [a.name, b.name] if net.chance(0.7) else [b.name, a.name]
    options = Options(f"{kind}Options", FusedActivationFunction=net.activation())
    net.add(kind.upper(), operands, net.tensor(a.shape, scale * net.rng.uniform(0.7, 2)), options)


def _pointwise(net: Network) -> None:
    """An activation of its own, or a change of the quantisation.

    TFLite Micro's RELU6 takes both quantisations to be the same.
    """
    x, code = net.source(), net.pick(["LOGISTIC", "TANH", "SOFTMAX", "RELU", "RELU6", "QUANTIZE"])
    if x is None or not x.shape or (code == "QUANTIZE" and net.dtype == "float32"):
        return
    if code == "SOFTMAX" and x.shape[-1] >= _MAX_SOFTMAX:
        return
    fixed = {"LOGISTIC": (1 / 256, -128), "SOFTMAX": (1 / 256, -128), "TANH": (1 / 128, 0)}.get(code)
    scale = x.scales[0] * net.rng.uniform(0.5, 2) if x.scales else 0.0
    options = Options("SoftmaxOptions", Beta=net.pick([1.0, 1.0, 0.5, 2.0])) if code == "SOFTMAX" else None
    if code == "RELU6" or (code == "RELU" and net.chance(0.5)):
        y = net.like(x, x.shape)
    else:
        y = net.tensor(x.shape, *(fixed or (scale,)))
    net.add(code, [x.name], y, options)


def _reshape(net: Network) -> None:
    x = net.source()
    if x is None:
        return
    count = math.prod(x.shape)
    divisors = [d for d in range(1, count + 1) if count % d == 0]
    first = net.pick(divisors)
    shape = net.pick([(count,), (1, count), (1, first, 1, count // first), (first, count // first)])
    code = net.pick(["RESHAPE", "RESHAPE", "EXPAND_DIMS"])
    if code == "RESHAPE":
        asked = [*shape[:-1], -1] if net.chance(0.3) else list(shape)
        net.add(code, [x.name, net.constant(asked)], net.like(x, shape), Options("ReshapeOptions"))
    elif len(x.shape) < 4:
        axis = net.constant(0)
        net.add(code, [x.name, axis], net.like(x, (1, *x.shape)), Options("ExpandDimsOptions"))


def _pad(net: Network) -> None:
    x = net.source(4)
    if x is None:
        return
    by = [[0, 0]] + [[net.integer(0, 2), net.integer(0, 2)] for _ in range(3)]
    if net.chance(0.6):
        by[3] = [0, 0]
    shape = [d + sum(p) for d, p in zip(x.shape, by, strict=True)]
    if math.prod(shape) > _MAX_ELEMENTS:
        return
    y = net.like(x, shape)
    if net.chance(0.5):
        net.add("PAD", [x.name, net.constant(by)], y, Options("PadOptions"))
    else:
        net.add("PADV2", [x.name, net.constant(by), net.values(x, [1])], y, Options("PadV2Options"))


def _mean(net: Network) -> None:
    x = net.source(4)
    if x is None:
        return
    axes = net.pick([[1, 2], [1, 2], [2, 1], [3], [-1], [1], [1, 2, 3]])
    keep = net.chance(0.5)
    dropped = {a % 4 for a in axes}
    shape = [1 if a in dropped else d for a, d in enumerate(x.shape) if keep or a not in dropped]
    scale = x.scales[0] * net.rng.uniform(0.3, 1.2) if x.scales else 0.0
    y = net.like(x, shape) if net.chance(0.3) else net.tensor(shape, scale)
    net.add("MEAN", [x.name, net.constant(axes)], y, Options("ReducerOptions", KeepDims=keep))


def _slice(net: Network) -> None:
    """A slice with masks, negative indices and strides; one axis may be dropped."""
    x = net.source()
    if x is None or not 2 <= len(x.shape) <= 4:
        return
    parts, shape, shrink, begin_mask = [], [], 0, 0
    for axis, length in enumerate(x.shape):
        first, last = sorted(net.rng.integers(0, length, 2).tolist())
        step = net.pick([1, 1, 2, -1])
        if axis and length > 1 and not shrink and net.chance(0.15):
            shrink, part = 1 << axis, (first, first + 1, 1)
        elif step < 0:
            part = (last, first - 1 if first else -length - 1, step)
        else:
            part = (first if net.chance(0.5) else first - length, last + 1, step)
            begin_mask |= 0 if net.chance(0.8) else 1 << axis
        parts.append(part)
        if not shrink & 1 << axis:
            start = None if begin_mask & 1 << axis else part[0]
            shape.append(len(range(*slice(start, *part[1:]).indices(length))))
    bounds = [net.constant(column) for column in zip(*parts, strict=True)]
    options = Options("StridedSliceOptions", BeginMask=begin_mask, ShrinkAxisMask=shrink)
    net.add("STRIDED_SLICE", [x.name, *bounds], net.like(x, shape), options)


def _transpose(net: Network) -> None:
    x = net.source()
    if x is not None and 2 <= len(x.shape) <= 4:
        perm = net.rng.permutation(len(x.shape)).tolist()
        y = net.like(x, [x.shape[p] for p in perm])
        net.add("TRANSPOSE", [x.name, net.constant(perm)], y, Options("TransposeOptions"))


def _concat(net: Network) -> None:
    """Of tensors that agree but for an axis, brought to one quantisation; perhaps with a constant."""
    x = net.source()
    if x is None or not x.shape:
        return
    axis = net.integer(0, len(x.shape) - 1)

    def agrees(t: Tensor) -> bool:
        cut = [(*s.shape[:axis], *s.shape[axis + 1 :]) for s in (x, t)]
        return len(t.shape) == len(x.shape) and cut[0] == cut[1]

    others = [t for t in net.computed() if agrees(t)]
    parts = [x, *(net.pick(others) for _ in range(net.integer(1, 2)))]
    total = sum(p.shape[axis] for p in parts)
    if total * math.prod(x.shape) // x.shape[axis] > _MAX_ELEMENTS:
        return
    names = [p.name if p.scales == x.scales and p.zero_points == x.zero_points else "" for p in parts]
    for i, part in enumerate(parts):
        names[i] = names[i] or net.add("QUANTIZE", [part.name], net.like(x, part.shape)).name
    if net.chance(0.15):
        names.append(net.values(x, x.shape))
        total += x.shape[axis]
    y = net.like(x, [*x.shape[:axis], total, *x.shape[axis + 1 :]])
    given = axis if net.chance(0.6) else axis - len(x.shape)
    net.add("CONCATENATION", names, y, Options("ConcatenationOptions", Axis=given))


def _resize(net: Network) -> None:
    x = net.source(4)
    if x is None:
        return
    size = [net.pick([d, 2 * d, net.integer(1, 9)]) for d in x.shape[1:3]]
    if math.prod(size) * x.shape[3] > _MAX_ELEMENTS:
        return
    corners = net.chance(0.3)
    flags = {"AlignCorners": corners, "HalfPixelCenters": not corners and net.chance(0.4)}
    options = Options("ResizeNearestNeighborOptions", **flags)
    y = net.like(x, (x.shape[0], *size, x.shape[3]))
    net.add("RESIZE_NEAREST_NEIGHBOR", [x.name, net.constant(size)], y, options)


_STEPS: list[Callable[[Network], None]] = [
    *(_conv, _conv, _conv, _depthwise, _depthwise, _pool, _dense, _dense, _binary, _binary, _binary),
    *(_pointwise, _pointwise, _reshape, _pad, _mean, _slice, _transpose, _concat, _concat, _resize),
]
