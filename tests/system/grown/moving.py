"""Movements of elements."""

import math

from crtgen.network.ir import Op
from crtgen.network.ops.gather import DynamicSlice, DynamicUpdateSlice, Gather
from crtgen.network.ops.resize import ResizeBilinear
from crtgen.network.ops.spread import BroadcastTo, MirrorPad
from tests.system.grown.network import MOST, NUMBERS, Network, Step
from tests.tflite_builder import Options, Tensor

__all__ = ["STEPS"]

_WHOLE = (*NUMBERS, "int32")
_ANY = (*_WHOLE, "bool")


def _reshape(net: Network) -> None:
    x = net.source(types=_ANY)
    if x is None:
        return
    count = math.prod(x.shape)
    divisors = [d for d in range(1, count + 1) if count % d == 0]
    first = net.pick(divisors)
    shape = net.pick([(count,), (1, count), (1, first, 1, count // first), (first, count // first)])
    code = net.pick(["RESHAPE", "RESHAPE", "EXPAND_DIMS"])
    if code == "RESHAPE":
        asked = [*shape[:-1], -1] if net.chance(0.3) else list(shape)
        net.add(code, [x, net.constant(asked)], net.like(x, shape), Options("ReshapeOptions"), exact=True)
    elif len(x.shape) < 4 and x.dtype in NUMBERS:
        axis = net.constant(0)
        net.add(code, [x, axis], net.like(x, (1, *x.shape)), Options("ExpandDimsOptions"), exact=True)


def _pad(net: Network) -> None:
    x = net.source(4, _WHOLE)
    if x is None:
        return
    by = [[0, 0]] + [[net.integer(0, 2), net.integer(0, 2)] for _ in range(3)]
    if net.chance(0.6):
        by[3] = [0, 0]
    shape = [d + sum(p) for d, p in zip(x.shape, by, strict=True)]
    if math.prod(shape) > MOST:
        return
    y = net.like(x, shape)
    if net.chance(0.5):
        net.add("PAD", [x, net.constant(by)], y, Options("PadOptions"), exact=True)
    else:
        net.add("PADV2", [x, net.constant(by), net.values(x, [1])], y, Options("PadV2Options"), exact=True)


def _slice(net: Network) -> None:
    """A slice with masks, negative indices and strides; one axis may be dropped."""
    x = net.source(types=_ANY)
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
    net.add("STRIDED_SLICE", [x, *bounds], net.like(x, shape), options, exact=True)


def _transpose(net: Network) -> None:
    x = net.source(types=NUMBERS)
    if x is not None and 2 <= len(x.shape) <= 4:
        perm = net.rng.permutation(len(x.shape)).tolist()
        y = net.like(x, [x.shape[p] for p in perm])
        net.add("TRANSPOSE", [x, net.constant(perm)], y, Options("TransposeOptions"), exact=True)


def _concat(net: Network) -> None:
    """Of tensors that agree but for an axis, brought to one quantisation; perhaps with a constant."""
    x = net.source(types=_ANY)
    if x is None or not x.shape:
        return
    axis = net.integer(0, len(x.shape) - 1)

    def agrees(t: Tensor) -> bool:
        cut = [(*s.shape[:axis], *s.shape[axis + 1 :]) for s in (x, t)]
        return len(t.shape) == len(x.shape) and cut[0] == cut[1]

    others = [t for t in net.computed(types=[x.dtype]) if agrees(t)]
    parts = [x, *(net.pick(others) for _ in range(net.integer(1, 2)))]
    total = sum(p.shape[axis] for p in parts)
    if total * math.prod(x.shape) // x.shape[axis] > MOST:
        return
    joined = [net.alike(p, x) for p in parts]
    if net.chance(0.15):
        joined.append(net.values(x, x.shape))
        total += x.shape[axis]
    y = net.like(x, [*x.shape[:axis], total, *x.shape[axis + 1 :]])
    given = axis if net.chance(0.6) else axis - len(x.shape)
    net.add("CONCATENATION", joined, y, Options("ConcatenationOptions", Axis=given), exact=True)


def _resize(net: Network) -> None:
    x = net.source(4)
    if x is None:
        return
    size = [net.pick([d, 2 * d, net.integer(1, 9)]) for d in x.shape[1:3]]
    if math.prod(size) * x.shape[3] > MOST:
        return
    corners = net.chance(0.3)
    flags = {"AlignCorners": corners, "HalfPixelCenters": not corners and net.chance(0.4)}
    options = Options("ResizeNearestNeighborOptions", **flags)
    y = net.like(x, (x.shape[0], *size, x.shape[3]))
    net.add("RESIZE_NEAREST_NEIGHBOR", [x, net.constant(size)], y, options, exact=True)


def _pack(net: Network) -> None:
    """Tensors of one shape on a new axis, in whatever quantisation."""
    x = net.source(types=_WHOLE)
    if x is None or not 1 <= len(x.shape) < 4 or 3 * math.prod(x.shape) > MOST:
        return
    parts = [x, *(net.partner(x) for _ in range(net.integer(0, 2)))]
    axis = net.integer(0, len(x.shape))
    shape = [*x.shape[:axis], len(parts), *x.shape[axis:]]
    options = Options("PackOptions", Axis=axis, ValuesCount=len(parts))
    net.add("PACK", parts, net.like(x, shape), options, exact=True)


def _take_apart(net: Network) -> None:
    """Into parts along an axis, of which each is an output."""
    x = net.source(types=_WHOLE)
    if x is None or not 2 <= len(x.shape) <= 4:
        return
    axis = net.integer(0, len(x.shape) - 1)
    length, shape = x.shape[axis], list(x.shape)
    code = net.pick(["UNPACK", "SPLIT", "SPLIT_V"])
    if code == "UNPACK" and length <= 4:
        rest = [*shape[:axis], *shape[axis + 1 :]]
        outputs = [net.like(x, rest) for _ in range(length)]
        net.add(code, [x], outputs, Options("UnpackOptions", Axis=axis, Num=length), exact=True)
    elif code == "SPLIT_V" and length > 1:
        first = net.integer(1, length - 1)
        lengths = [first, length - first]
        outputs = [net.like(x, [*shape[:axis], n, *shape[axis + 1 :]]) for n in lengths]
        inputs = [x, net.constant(net.pick([lengths, [first, -1]])), net.constant(axis)]
        net.add(code, inputs, outputs, Options("SplitVOptions", NumSplits=2), exact=True)
    elif code == "SPLIT":
        count = net.pick([n for n in (1, 2, 3, 4) if length % n == 0])
        outputs = [net.like(x, [*shape[:axis], length // count, *shape[axis + 1 :]]) for _ in range(count)]
        net.add(code, [net.constant(axis), x], outputs, Options("SplitOptions", NumSplits=count), exact=True)


def _blocks(net: Network) -> None:
    """Between the image and the channels, or between the image and the batch."""
    x = net.source(4, ("int8", "float32"))
    if x is None:
        return
    n, h, w, c = x.shape
    if h % 2 == w % 2 == 0 and net.chance(0.5):
        y = net.like(x, (n, h // 2, w // 2, 4 * c))
        net.add("SPACE_TO_DEPTH", [x], y, Options("SpaceToDepthOptions", BlockSize=2), exact=True)
    elif h % 2 == 0:
        blocks, around = net.constant([2, 1]), net.constant([[0, 0], [0, 0]])
        y = net.like(x, (2 * n, h // 2, w, c))
        options = Options("SpaceToBatchNDOptions")
        net.add("SPACE_TO_BATCH_ND", [x, blocks, around], y, options, exact=True)
    elif c % 4 == 0:
        y = net.like(x, (n, 2 * h, 2 * w, c // 4))
        net.add("DEPTH_TO_SPACE", [x], y, Options("DepthToSpaceOptions", BlockSize=2), exact=True)
    elif n % 2 == 0:
        blocks, crops = net.constant([1, 2]), net.constant([[0, 0], [net.integer(0, 1), 0]])
        assert crops.data is not None
        y = net.like(x, (n // 2, h, 2 * w - int(crops.data[1][0]), c))
        options = Options("BatchToSpaceNDOptions")
        net.add("BATCH_TO_SPACE_ND", [x, blocks, crops], y, options, exact=True)


def _reverse(net: Network) -> None:
    x = net.source(types=_ANY)
    if x is not None and x.shape:
        axes = net.constant([net.integer(0, len(x.shape) - 1)])
        net.add("REVERSE_V2", [x, axes], net.like(x, x.shape), Options("ReverseV2Options"), exact=True)


def _spread(net: Network) -> None:
    """Elements that are repeated, mirrored, or mixed with their neighbours."""
    op: Op
    kind = net.pick([BroadcastTo, MirrorPad, ResizeBilinear])
    types = _WHOLE if kind is BroadcastTo else ("int8", "float32")
    x = net.source(4 if kind is ResizeBilinear else None, types)
    if x is None or not x.shape:
        return
    if kind is ResizeBilinear:
        corners = net.chance(0.3)
        op = ResizeBilinear((net.integer(1, 9), net.integer(1, 9)), corners, not corners and net.chance(0.4))
    elif kind is BroadcastTo:
        op = BroadcastTo(tuple(net.integer(1, 4) if d == 1 else d for d in x.shape))
    else:
        repeats = net.chance(0.5)
        most = [min(d - 1 + repeats, 3) for d in x.shape]
        before, after = (tuple(net.integer(0, n) for n in most) for _ in range(2))
        op = MirrorPad(before, after, repeats)
    quant = None if kind is BroadcastTo or net.chance(0.7) else net.quant(x.dtype, 0.05)
    net.apply(op, [x], quant, exact=kind is not ResizeBilinear)


def _indexed(net: Network) -> None:
    """Elements at places that are constant or, now and then, computed."""
    x = net.source(types=("int8", "float32"))
    if x is None or not x.shape:
        return
    axis = net.integer(0, len(x.shape) - 1)
    computed = [i for i in net.computed(types=["int32"]) if len(i.shape) <= 2 and i.name in net.places]
    places = net.constant(net.rng.integers(0, x.shape[axis], net.integer(1, 4)))
    if computed and net.chance(0.7):
        places = net.pick(computed)
        if net.places[places.name] > x.shape[axis]:
            return
    net.apply(Gather(axis, 0), [x, places], exact=True)


def _update(net: Network) -> None:
    """A part that is taken out, or overwritten, at a place."""
    x = net.source(types=("int8", "float32"))
    if x is None or not x.shape:
        return
    size = tuple(net.integer(1, d) for d in x.shape)
    place = net.constant([net.integer(0, d - n) for d, n in zip(x.shape, size, strict=True)])
    if net.chance(0.5):
        net.apply(DynamicUpdateSlice(), [x, net.values(x, size), place], exact=True)
    else:
        net.apply(DynamicSlice(size), [x, place], exact=True)


STEPS: list[Step] = [
    *(_reshape, _reshape, _pad, _slice, _transpose, _concat, _concat, _resize, _pack, _take_apart),
    *(_take_apart, _blocks, _blocks, _reverse, _spread, _spread, _indexed, _indexed, _update),
]
