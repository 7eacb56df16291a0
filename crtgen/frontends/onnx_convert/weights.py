"""Layers with weights, products of matrices, and poolings: images become ``[N,H,W,C]`` around them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from crtgen.frontends.builder import Converted, Refused
from crtgen.frontends.onnx_convert.layer import (
    Converter,
    Layer,
    Operand,
    number,
    reshaped,
    transposed,
)
from crtgen.ir import Array, shape_text
from crtgen.ops import (
    Add,
    AveragePool2d,
    Concat,
    Conv2d,
    DepthwiseConv2d,
    FullyConnected,
    MaxPool2d,
    Mul,
    Pad,
    Padding,
    StridedSlice,
)
from crtgen.ops.function import Abs, Sqrt, Square
from crtgen.ops.matmul import BatchMatMul
from crtgen.ops.reduce import Sum

__all__ = ["CONVERTERS"]

_LAST = (0, 2, 3, 1)
_FIRST = (0, 3, 1, 2)


@dataclass(frozen=True, slots=True)
class _Window:
    """What a window does along both axes of an image, of which the first is 1 long where the file has one."""

    image: tuple[int, int, int, int]
    taps: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: Padding
    beyond: Padding
    """What ``ceil_mode`` adds to the padding."""

    @property
    def around(self) -> Padding:
        """All the padding."""
        a, b = self.padding, self.beyond
        return Padding(a.top, a.bottom + b.bottom, a.left, a.right + b.right)


def _window(layer: Layer, kernel: Sequence[int]) -> _Window:
    spatial = layer.rank - 2
    if spatial not in (1, 2):
        raise Refused(f"{spatial} dimensions of space; supported: 1, 2")
    taps, stride, dilation = (
        _two(layer, name, spatial, given)
        for name, given in (("kernel_shape", kernel), ("strides", ()), ("dilations", ()))
    )
    shape = layer.x.shape
    image = (*shape[:2], *(1,) * (2 - spatial), *shape[2:])
    n, c, h, w = image
    sides = [
        _sides(layer, axis - (2 - spatial), spatial, length, (window - 1) * spread + 1, step)
        for axis, (length, window, spread, step) in enumerate(
            zip((h, w), taps, dilation, stride, strict=True)
        )
    ]
    (top, bottom, below), (left, right, aside) = sides
    padding, beyond = Padding(top, bottom, left, right), Padding(bottom=below, right=aside)
    return _Window((n, c, h, w), taps, stride, dilation, padding, beyond)


def _two(layer: Layer, name: str, spatial: int, default: Sequence[int]) -> tuple[int, int]:
    """An attribute for height and width."""
    listed = [int(i) for i in layer.attribute(name) or default or [1] * spatial]
    if len(listed) != spatial or min(listed) < 1:
        raise ValueError(f"{name} {listed} for {spatial} dimensions of space")
    return (listed[0], listed[1]) if spatial == 2 else (1, listed[0])


def _sides(
    layer: Layer, axis: int, spatial: int, length: int, extent: int, step: int
) -> tuple[int, int, int]:
    """Padding before and after along an axis, and what ``ceil_mode`` adds after it."""
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


def _to_last(x: Operand, image: tuple[int, int, int, int], rank: int) -> Operand:
    """``[N,C,H,W]`` or ``[N,C,W]`` as ``[N,H,W,C]``."""
    return transposed(x if rank == 4 else reshaped(x, image), _LAST)


def _to_first(made: Converted, image: Sequence[int], rank: int) -> Converted:
    """Back; ``image`` is the shape ``[N,C,H,W]``."""
    back = transposed(made, _FIRST)
    return back if rank == 4 else reshaped(back, (*image[:2], *image[3:]))


def _bias(layer: Layer, outputs: int) -> Array:
    if not layer.has(2):
        return np.zeros(outputs, np.float32)
    bias = layer.constant(2, "biases")
    if bias.shape != (outputs,):
        raise ValueError(f"a bias of {shape_text(bias.shape)} for {outputs} outputs")
    return bias


def _conv(layer: Layer) -> Converted:
    weights = layer.constant(1, "weights")
    if weights.ndim != layer.rank:
        raise ValueError(f"weights of {shape_text(weights.shape)} on {shape_text(layer.x.shape)}")
    window = _window(layer, weights.shape[2:])
    if tuple(weights.shape[2:]) != window.taps[4 - layer.rank :]:
        raise ValueError(f"a window of {window.taps} and weights of {shape_text(weights.shape)}")
    kernel = weights.reshape(*weights.shape[:2], *window.taps).transpose(0, 2, 3, 1)
    bias = _bias(layer, weights.shape[0])
    x = _to_last(layer.x, window.image, layer.rank)
    made = _grouped(x, window, kernel, bias, layer.whole("group", 1))
    size = window.padding.output_size(window.image[2:], window.taps, window.stride, window.dilation)
    return _to_first(made, (window.image[0], weights.shape[0], *size), layer.rank)


def _grouped(x: Operand, window: _Window, kernel: Array, bias: Array, groups: int) -> Converted:
    """A convolution of ``[N,H,W,C]`` with ``kernel[O,kh,kw,C/groups]``."""
    outputs, depth, channels = kernel.shape[0], kernel.shape[3], window.image[1]
    if groups < 1 or depth * groups != channels or outputs % groups:
        raise ValueError(f"weights for {groups} times {depth} of {channels} channels, and {outputs} outputs")
    roles = ("weights", "bias")
    op = Conv2d(window.stride, window.padding, window.dilation)
    if groups == 1:
        return Converted(op, (x, kernel, bias), roles)
    if depth == 1:
        one = DepthwiseConv2d(window.stride, window.padding, window.dilation, outputs // groups)
        return Converted(one, (x, kernel.transpose(3, 1, 2, 0), bias), roles)
    each, (n, _, h, w) = outputs // groups, window.image
    parts = []
    for g in range(groups):
        cut = StridedSlice((0, 0, 0, g * depth), (n, h, w, (g + 1) * depth), (1,) * 4)
        own = np.s_[g * each : (g + 1) * each]
        parts.append(Converted(op, (Converted(cut, (x,)), kernel[own], bias[own]), roles))
    return Converted(Concat(3), tuple(parts))


def _conv_transpose(layer: Layer) -> Converted:
    """A convolution of the image with zeros between its pixels, with the weights turned round."""
    weights = layer.constant(1, "weights")
    groups, spatial = layer.whole("group", 1), layer.rank - 2
    if spatial not in (1, 2):
        raise Refused(f"{spatial} dimensions of space; supported: 1, 2")
    taps, stride, dilation = (
        _two(layer, name, spatial, given)
        for name, given in (("kernel_shape", weights.shape[2:]), ("strides", ()), ("dilations", ()))
    )
    n, c, *size = layer.x.shape
    size = [1] * (2 - spatial) + size
    extents = [(t - 1) * d + 1 for t, d in zip(taps, dilation, strict=True)]
    pads, size_out = _transposed_sides(layer, size, extents, stride)
    each = weights.shape[1]
    kernel = weights.reshape(groups, c // groups, each, *taps)[..., ::-1, ::-1]
    kernel = kernel.transpose(0, 2, 3, 4, 1).reshape(groups * each, *taps, c // groups)
    x = _to_last(layer.x, (n, c, size[0], size[1]), layer.rank)
    x = _stuffed(x, (n, *size, c), stride)
    before = [e - 1 - p for e, p in zip(extents, pads, strict=True)]
    stuffed = [(d - 1) * s + 1 for d, s in zip(size, stride, strict=True)]
    after = [o + e - 1 - b - d for o, e, b, d in zip(size_out, extents, before, stuffed, strict=True)]
    begin, end = [max(-b, 0) for b in before], [d + min(a, 0) for d, a in zip(stuffed, after, strict=True)]
    x = Converted(StridedSlice((0, *begin, 0), (n, *end, c), (1,) * 4), (x,))
    padding = Padding(max(before[0], 0), max(after[0], 0), max(before[1], 0), max(after[1], 0))
    image = (n, c, end[0] - begin[0], end[1] - begin[1])
    window = _Window(image, taps, (1, 1), dilation, padding, Padding())
    made = _grouped(x, window, kernel, _bias(layer, groups * each), groups)
    return _to_first(made, (n, groups * each, *size_out), layer.rank)


def _transposed_sides(
    layer: Layer, size: Sequence[int], extents: Sequence[int], stride: Sequence[int]
) -> tuple[list[int], list[int]]:
    """What is cut off before each axis of a transposed convolution's output, and the output's lengths."""
    spatial, first = layer.rank - 2, 4 - layer.rank
    listed = [int(p) for p in layer.attribute("pads") or [0] * (2 * spatial)]
    more = [0] * first + [int(p) for p in layer.attribute("output_padding") or [0] * spatial]
    asked = layer.attribute("output_shape")
    auto = layer.text("auto_pad", "NOTSET")
    full = [(d - 1) * s + e + m for d, s, e, m in zip(size, stride, extents, more, strict=True)]
    if asked is None and auto in ("NOTSET", "VALID"):
        pads = [0] * first + (listed[:spatial] if auto == "NOTSET" else [0] * spatial)
        ends = [0] * first + (listed[spatial:] if auto == "NOTSET" else [0] * spatial)
        return pads, [f - a - b for f, a, b in zip(full, pads, ends, strict=True)]
    given = (
        asked[-spatial:] if asked is not None else [d * s for d, s in zip(size, stride, strict=True)][first:]
    )
    wanted = [1] * first + [int(d) for d in given]
    totals = [max(f - d, 0) for f, d in zip(full, wanted, strict=True)]
    pads = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in totals]
    return pads, wanted


def _stuffed(x: Operand, shape: Sequence[int], stride: tuple[int, int]) -> Operand:
    """``[N,H,W,C]`` with ``stride - 1`` zeros between pixels: ``[N,(H-1)*s+1,(W-1)*s+1,C]``."""
    if stride == (1, 1):
        return x
    n, h, w, c = shape
    (down, across) = stride
    apart = reshaped(x, (n, h, 1, w, 1, c))
    spread = Converted(Pad((0,) * 6, (0, 0, down - 1, 0, across - 1, 0)), (apart,))
    whole = reshaped(spread, (n, h * down, w * across, c))
    end = (n, (h - 1) * down + 1, (w - 1) * across + 1, c)
    return Converted(StridedSlice((0,) * 4, end, (1,) * 4), (whole,))


def _max_pool(layer: Layer) -> Converted:
    if layer.outputs[1:] not in ((), (None,)):
        raise Refused("the places of the greatest numbers as an output; supported: the numbers")
    window = _window(layer, ())
    if window.dilation != (1, 1):
        raise Refused(f"dilation {window.dilation}; supported: 1")
    return _pooled(layer, window, MaxPool2d(window.taps, window.stride, window.around), layer.x)


def _pooled(layer: Layer, window: _Window, op: AveragePool2d | MaxPool2d, x: Operand) -> Converted:
    made = Converted(op, (_to_last(x, window.image, layer.rank),))
    size = op.padding.output_size(window.image[2:], window.taps, window.stride)
    return _to_first(made, (*window.image[:2], *size), layer.rank)


def _average_pool(layer: Layer) -> Converted:
    return _averaged(layer, layer.x, bool(layer.whole("count_include_pad")))


def _averaged(layer: Layer, x: Operand, counts: bool) -> Converted:
    """The mean of each window; ``counts``: with the zeros around the image."""
    window = _window(layer, ())
    if window.dilation != (1, 1):
        raise Refused(f"dilation {window.dilation}; supported: 1")
    p, (n, c, h, w) = window.padding, window.image
    if not counts or p == Padding():
        return _pooled(layer, window, AveragePool2d(window.taps, window.stride, window.around), x)
    x = x if layer.rank == 4 else reshaped(x, window.image)
    padded = Converted(Pad((0, 0, p.top, p.left), (0, 0, p.bottom, p.right)), (x,))
    image = (n, c, h + p.top + p.bottom, w + p.left + p.right)
    op = AveragePool2d(window.taps, window.stride, window.beyond)
    made = Converted(op, (_to_last(padded, image, 4),))
    return _to_first(made, (n, c, *op.padding.output_size(image[2:], op.window, op.stride)), layer.rank)


def _lp_pool(layer: Layer) -> Converted:
    """The p-th root of the sum of the p-th powers."""
    layer.refuse("p", 2, 1)
    if layer.whole("ceil_mode"):
        raise Refused("ceil_mode; supported: without")
    squares = layer.whole("p", 2) == 2
    inner = Converted(Square() if squares else Abs(), (layer.x,))
    count = float(prod(_window(layer, ()).taps))
    total = Converted(Mul(), (_averaged(layer, inner, True), number(count)), ("count",))
    return Converted(Sqrt(), (total,)) if squares else total


def _matmul(layer: Layer) -> Converted:
    """As numpy's ``matmul``; by constant weights, a fully connected layer."""
    a, b = layer.tensor(0), layer.tensor(1)
    if not a.shape or not b.shape:
        raise ValueError("a scalar is no matrix")
    if b.data is not None and b.data.ndim == 2 and len(a.shape) > 1:
        weights, zeros = np.ascontiguousarray(b.data.T), np.zeros(b.shape[1], np.float32)
        return Converted(FullyConnected(keep_dims=True), (a, weights, zeros), ("weights", "bias"))
    left: Operand = a if len(a.shape) > 1 else reshaped(a, (1, *a.shape))
    right: Operand = b if len(b.shape) > 1 else reshaped(b, (*b.shape, 1))
    made = Converted(BatchMatMul(), (left, right), ("operand",))
    if len(a.shape) > 1 and len(b.shape) > 1:
        return made
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = a.shape[-2:-1] if len(a.shape) > 1 else ()
    columns = b.shape[-1:] if len(b.shape) > 1 else ()
    return reshaped(made, (*batch, *rows, *columns))


def _gemm(layer: Layer) -> Converted:
    """``alpha * a * b + beta * c``."""
    a, b = layer.tensor(0), layer.tensor(1)
    alpha, beta = layer.real("alpha", 1.0), layer.real("beta", 1.0)
    turned = bool(layer.whole("transA")), bool(layer.whole("transB"))
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise ValueError(f"{shape_text(a.shape)} times {shape_text(b.shape)}")
    if b.data is not None:
        weights = np.ascontiguousarray(b.data if turned[1] else b.data.T).astype(np.float32) * np.float32(
            alpha
        )
        x = transposed(a, (1, 0)) if turned[0] else a
        return _dense(layer, x, weights, beta)
    made = Converted(BatchMatMul(*turned), (a, b), ("operand",))
    if alpha != 1:
        made = Converted(Mul(), (made, number(alpha)), ("alpha",))
    return _plus(layer, made, beta)


def _dense(layer: Layer, x: Operand, weights: Array, beta: float) -> Converted:
    """A fully connected layer, whose bias is the third operand where that has one number per output."""
    outputs = weights.shape[0]
    bias = np.zeros(outputs, np.float32)
    third = layer.tensor(2).data if layer.has(2) else None
    own = third is not None and third.size in (1, outputs) and third.shape[-1:] in ((), (1,), (outputs,))
    if third is not None and own and (third.ndim < 2 or third.shape[0] == 1):
        bias = np.broadcast_to(third.reshape(-1).astype(np.float32) * np.float32(beta), (outputs,)).astype(
            np.float32
        )
        return Converted(FullyConnected(), (x, weights, bias), ("weights", "bias"))
    made = Converted(FullyConnected(), (x, weights, bias), ("weights", "bias"))
    return _plus(layer, made, beta)


def _plus(layer: Layer, made: Converted, beta: float) -> Converted:
    if not layer.has(2) or beta == 0:
        return made
    third: Operand = layer.tensor(2)
    if beta != 1:
        third = Converted(Mul(), (third, number(beta)), ("beta",))
    return Converted(Add(), (made, third), ("bias",))


def _einsum(layer: Layer) -> Converted:
    """One or two operands without repeated letters in one of them, as a product of matrices."""
    equation = layer.text("equation", "").replace(" ", "")
    terms, arrow, result = equation.partition("->")
    letters = terms.split(",")
    if not arrow:
        result = "".join(sorted(c for c in set(terms) - {","} if terms.count(c) == 1))
    plain = all(len(set(term)) == len(term) and term.isalpha() for term in letters)
    if not plain or len(letters) != len(layer.inputs) or len(letters) > 2:
        raise Refused(f"equation {equation!r}; supported: one or two operands without repeated letters")
    shapes = [layer.tensor(i).shape for i in range(len(letters))]
    if any(len(s) != len(t) for s, t in zip(shapes, letters, strict=True)):
        raise ValueError(f"equation {equation!r} for {' and '.join(map(shape_text, shapes))}")
    length = {c: d for t, s in zip(letters, shapes, strict=True) for c, d in zip(t, s, strict=True)}
    if len(letters) == 1:
        return _summed(layer.x, letters[0], result)
    return _contracted(layer, letters, result, length)


def _summed(x: Operand, letters: str, result: str) -> Converted:
    gone = tuple(i for i, c in enumerate(letters) if c not in result)
    kept = [c for c in letters if c in result]
    made = Converted(Sum(gone), (x,)) if gone else x
    return transposed(made, [kept.index(c) for c in result])


def _contracted(layer: Layer, letters: list[str], result: str, length: Mapping[str, int]) -> Converted:
    """``[batch, rows, sums] x [batch, sums, columns]``."""
    first, second = letters
    batch = [c for c in first if c in second and c in result]
    sums = [c for c in first if c in second and c not in result]
    rows = [c for c in first if c not in second]
    columns = [c for c in second if c not in first]
    if any(c not in result for c in rows + columns):
        raise Refused(f"a sum over one operand of {','.join(letters)}; supported: over both")
    sizes = [prod(length[c] for c in part) for part in (batch, rows, sums, columns)]
    left = transposed(layer.tensor(0), [first.index(c) for c in batch + rows + sums])
    right = transposed(layer.tensor(1), [second.index(c) for c in batch + sums + columns])
    operands = reshaped(left, (sizes[0], sizes[1], sizes[2])), reshaped(right, (sizes[0], sizes[2], sizes[3]))
    whole = batch + rows + columns
    made = reshaped(Converted(BatchMatMul(), operands, ("operand",)), [length[c] for c in whole])
    return transposed(made, [whole.index(c) for c in result])


CONVERTERS: Mapping[str, Converter] = {
    "AveragePool": Converter(_average_pool, ("average_pool",)),
    "Conv": Converter(_conv, ("conv",)),
    "ConvTranspose": Converter(_conv_transpose, ("conv_transpose",)),
    "Einsum": Converter(_einsum, ("einsum",)),
    "Gemm": Converter(_gemm, ("gemm", "dense")),
    "LpPool": Converter(_lp_pool, ("lp_pool",)),
    "MatMul": Converter(_matmul, ("matmul",)),
    "MaxPool": Converter(_max_pool, ("max_pool",)),
}
