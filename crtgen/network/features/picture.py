"""Converts a camera's frame to the picture that a network takes, operator by operator."""

import numpy as np

from crtgen.base.errors import UsageError
from crtgen.network.features.resizing import (
    PILLOW_BITS,
    Shorts,
    Spans,
    area_blend,
    area_means,
    linear_blend,
    nearest,
    pillow_axes,
    pillow_spans,
    real_blend,
    whole_scale,
)
from crtgen.network.features.settings import ImageSettings
from crtgen.network.features.steps import GraphSteps, Handle
from crtgen.network.ir import Array, DType, Signature, Value, shape_text
from crtgen.network.ops import (
    Blend,
    ByteTable,
    Demosaic,
    Div,
    Gather,
    Grey,
    Quantize,
    Resample,
    Reshape,
    StridedSlice,
    Sub,
    Transpose,
    Unpack565,
    YuvToRgb,
)

__all__ = ["frame_value", "picture"]

_GREYS = {"pillow": Grey(19595, 38470, 7471, 16), "opencv": Grey(9798, 19235, 3735, 15)}
_ORDERS = {"bayer_rggb": (0, 0), "bayer_grbg": (0, 1), "bayer_gbrg": (1, 0), "bayer_bggr": (1, 1)}


def frame_value(s: ImageSettings) -> Value:
    """Return the input value for a frame: ``[H, W, 3]`` bytes, ``[H, W, 2]`` of YUYV, ``[H, W]`` bytes, or
    uint16 for RGB565.
    """
    more = {"rgb888": (3,), "yuyv": (2,)}.get(s.format, ())
    shape = (s.frame_height, s.frame_width, *more)
    return Value("frame", shape, DType.UINT16 if s.format == "rgb565" else DType.UINT8)


def picture(steps: GraphSteps, s: ImageSettings, target: Value | None = None) -> Handle:
    """Return the picture ``[height, width, channels]`` of a frame, in the form of the network's input
    ``target``.

    Without a target it is float32, or bytes; for an input with the channels first it is ``[1, channels,
    height, width]``. Raises ``UsageError`` for an input that is not such a picture.
    """
    first = target is not None and _channels_first(s, target)
    made = _real(steps, s, _resized(steps, s, _grey(steps, s, _colours(steps, s))), target)
    if not first:
        return made
    batch = steps.one(Reshape((1, *made.shape)), made, quant=made.quant)
    return steps.one(Transpose((0, 3, 1, 2)), batch, quant=made.quant)


def _channels_first(s: ImageSettings, target: Value) -> bool:
    shape = target.shape[1:] if target.shape[:1] == (1,) else target.shape
    size = (s.height, s.width)
    if shape == (*size, s.channels) or (shape == size and s.channels == 1):
        return False
    if shape == (s.channels, *size):
        return True
    made = f"{s.width}x{s.height} with {s.channels} channel{'' if s.channels == 1 else 's'}"
    what = f"its input is {shape_text(target.shape)}: a picture of {made} does not fit"
    hint = "set width, height and grey in [features] as the network has them"
    raise UsageError(what, where=target.name, hint=hint)


def _colours(steps: GraphSteps, s: ImageSettings) -> Handle:
    # The whole frame in colours, or grey with one channel.
    frame = steps.samples
    if s.format == "yuyv":
        return steps.one(YuvToRgb(), frame)
    if s.format == "rgb565":
        return steps.one(Unpack565(), frame)
    if s.format in _ORDERS:
        return steps.one(Demosaic(*_ORDERS[s.format]), frame)
    return frame if s.format == "rgb888" else steps.one(Reshape((*frame.shape, 1)), frame)


def _grey(steps: GraphSteps, s: ImageSettings, frame: Handle) -> Handle:
    return frame if s.grey == "none" else steps.one(_GREYS[s.grey], frame)


def _part(steps: GraphSteps, x: Handle, axis: int, begin: int, length: int) -> Handle:
    if x.shape[axis] == length:
        return x
    begins = tuple(begin if a == axis else 0 for a in range(len(x.shape)))
    ends = tuple(begin + length if a == axis else n for a, n in enumerate(x.shape))
    return steps.one(StridedSlice(begins, ends, (1,) * len(begins)), x)


def _resized(steps: GraphSteps, s: ImageSettings, x: Handle) -> Handle:
    # The part that is looked at, in the size of the picture: what resizes reads that part only.
    library, kind = s.resize.split("-")
    height, width = s.part[2:]
    if library == "pillow" or (height, width) == (s.height, s.width):
        return _by_pillow(steps, s, x, kind)
    if library == "tensorflow":
        return _blend(steps, s, x, real_blend(height, s.height), real_blend(width, s.width))
    return _area(steps, s, x) if kind == "area" else _linear(steps, s, x)


def _by_pillow(steps: GraphSteps, s: ImageSettings, x: Handle, kind: str) -> Handle:
    # Along one axis after the other; an axis that keeps its length is only cut.
    begins, before, after = s.part[:2], s.part[2:], (s.height, s.width)
    axes = (0, 1) if kind == "nearest" else pillow_axes(before, after, s.pillow)
    for axis in axes:
        begin, length, count = begins[axis], before[axis], after[axis]
        if length == count:
            x = _part(steps, x, axis, begin, length)
        elif kind == "nearest":
            places = (nearest(length, count) + begin).astype(np.int32)
            x = steps.one(Gather(axis), x, steps.constant("places", places))
        else:
            spans = pillow_spans(length, count, kind).shifted(begin)
            x = _sums(steps, Resample(axis, PILLOW_BITS), x, spans)
    return x


def _linear(steps: GraphSteps, s: ImageSettings, x: Handle) -> Handle:
    _, _, height, width = s.part
    rows = linear_blend(height, s.height, columns=False)
    return _blend(steps, s, x, rows, linear_blend(width, s.width, columns=True))


def _area(steps: GraphSteps, s: ImageSettings, x: Handle) -> Handle:
    # Means where the picture shrinks along both axes: of whole pixels exact, of four as by linear.
    top, left, height, width = s.part
    if s.width > width or s.height > height:
        rows = area_blend(height, s.height, columns=False)
        return _blend(steps, s, x, rows, area_blend(width, s.width, columns=True))
    down, across = whole_scale(height, s.height), whole_scale(width, s.width)
    if (down, across) == (2, 2):
        return _linear(steps, s, x)
    if down and across:
        spans = [_even(across, s.width), _even(down, s.height)]
        scale = float(np.float32(1) / np.float32(down * across))
    else:
        spans, scale = [area_means(width, s.width), area_means(height, s.height)], 1.0
    sums = _sums(steps, Resample(1), x, spans[0].shifted(left))
    return _sums(steps, Resample(0, scale=scale), sums, spans[1].shifted(top))


def _even(step: int, count: int) -> Spans:
    return Spans.of([(i * step, [1.0] * step) for i in range(count)], np.float32)


def _sums(steps: GraphSteps, op: Resample, x: Handle, spans: Spans) -> Handle:
    names = ("weights", "first", "widths")
    return steps.one(op, x, *(steps.constant(n, a) for n, a in zip(names, spans.arrays, strict=True)))


def _blend(
    steps: GraphSteps, s: ImageSettings, x: Handle, rows: tuple[Shorts, Array], columns: tuple[Shorts, Array]
) -> Handle:
    top, left = (np.int16(begin) for begin in s.part[:2])
    names = ("rows", "row_weights", "columns", "column_weights")
    arrays = (rows[0] + top, rows[1], columns[0] + left, columns[1])
    return steps.one(Blend(), x, *(steps.constant(n, a) for n, a in zip(names, arrays, strict=True)))


def _real(steps: GraphSteps, s: ImageSettings, x: Handle, target: Value | None) -> Handle:
    # ``(pixel - mean) / std``, or bytes as they are, in the type of the network's input.
    if s.pixels == "bytes":
        return _bytes(steps, x, target)
    mean, std = (np.array(n, np.float32) for n in (s.mean, s.std))
    if x.dtype is DType.FLOAT32:
        centred = steps.one(Sub(), x, steps.constant("mean", mean))
        return steps.one(Div(), centred, steps.constant("std", std))
    pixels = np.arange(256, dtype=np.float32)
    table = (pixels - mean[:, None]) / std[:, None]
    if target is None or target.quant is None or target.dtype not in (DType.INT8, DType.UINT8):
        return steps.one(ByteTable(), x, steps.constant("pixels", table))
    given = Value("x", table.shape, DType.FLOAT32)
    made = Value("y", table.shape, target.dtype, target.quant)
    (codes,) = Quantize(target.dtype).reference(Signature((given,), (made,)), [table])
    return steps.one(ByteTable(), x, steps.constant("pixels", codes), quant=target.quant)


def _bytes(steps: GraphSteps, x: Handle, target: Value | None) -> Handle:
    if target is None or target.dtype is DType.UINT8:
        return x
    if target.dtype is not DType.INT8:
        what = f"its input is {target.dtype.value}, which takes no bytes"
        hint = 'set pixels = "real", and mean and std as in training'
        raise UsageError(what, where=target.name, hint=hint)
    table = (np.arange(256) - 128).astype(np.int8)[None]
    return steps.one(ByteTable(), x, steps.constant("pixels", table), quant=target.quant)
