"""Random layers on pictures."""

import numpy as np
from hypothesis import strategies as st

from crtgen.network.ir import DType, Value
from crtgen.network.ops import Blend, ByteTable, Case, Demosaic, Grey, Resample, Unpack565, YuvToRgb
from crtgen.network.ops.case import make

PICTURES = (Blend, ByteTable, Demosaic, Grey, Resample, Unpack565, YuvToRgb)

_U8, _I16, _F32 = DType.UINT8, DType.INT16, DType.FLOAT32


@st.composite
def _formats(draw: st.DrawFn) -> Case:
    height, width = draw(st.integers(3, 24)), draw(st.integers(2, 16))
    kind = draw(st.sampled_from(["565", "yuv", "bayer", "grey", "grey"]))
    if kind == "565":
        return make("drawn", Unpack565(), [Value("x", (height, width), DType.UINT16)])
    if kind == "yuv":
        return make("drawn", YuvToRgb(), [Value("x", (height, 2 * width, 2), _U8)])
    if kind == "bayer":
        op = Demosaic(draw(st.integers(0, 1)), draw(st.integers(0, 1)))
        return make("drawn", op, [Value("x", (height, width + 1), _U8)])
    shift = draw(st.integers(8, 20))
    red, green = draw(st.integers(0, 1 << (shift - 1))), draw(st.integers(0, 1 << (shift - 1)))
    op_ = Grey(red, green, (1 << shift) - red - green, shift)
    return make("drawn", op_, [Value("x", (height, width, 3), _U8)])


@st.composite
def _resampled(draw: st.DrawFn) -> Case:
    shape = (draw(st.integers(1, 16)), draw(st.integers(1, 16)), draw(st.sampled_from([1, 3])))
    axis = draw(st.integers(0, 1))
    length = shape[axis]
    starts = draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=24))
    widths = [draw(st.integers(1, min(6, length - start))) for start in starts]
    tables = [Value.constant(n, np.array(t, np.int16)) for n, t in (("f", starts), ("n", widths))]
    random = np.random.default_rng(draw(st.integers(0, 99)))
    kind = draw(st.sampled_from(["bytes", "sums", "rounded"]))
    if kind == "bytes":
        shift = draw(st.integers(8, 22))
        whole = random.integers(-(1 << shift) // 6, 1 << shift, sum(widths)) // 3
        x, weights = Value("x", shape, _U8), Value.constant("w", whole.astype(np.int32))
        return make("drawn", Resample(axis, shift), [x, weights, *tables])
    weights = Value.constant("w", random.uniform(0, 0.5, sum(widths)).astype(np.float32))
    if kind == "sums":
        return make("drawn", Resample(axis), [Value("x", shape, _U8), weights, *tables])
    op = Resample(axis, scale=draw(st.sampled_from([1.0, 0.25, 1 / 9])))
    return make("drawn", op, [Value("x", shape, _F32), weights, *tables], limits={"x": (0.0, 999.0)})


@st.composite
def _blended(draw: st.DrawFn) -> Case:
    shape = (draw(st.integers(1, 16)), draw(st.integers(1, 16)), draw(st.sampled_from([1, 3])))
    real = draw(st.booleans())
    random = np.random.default_rng(draw(st.integers(0, 99)))
    operands = []
    for name, length in zip("rc", shape, strict=False):
        count = draw(st.integers(1, 16))
        places = random.integers(0, length, (2, count)).astype(np.int16)
        second = random.integers(0, 2049, count)
        whole = np.stack([2048 - second, second]).astype(np.int16)
        weights = (second / 2048).astype(np.float32) if real else whole
        operands += [Value.constant(name, places), Value.constant(f"{name}w", weights)]
    return make("drawn", Blend(), [Value("x", shape, _U8), *operands])


@st.composite
def _tables(draw: st.DrawFn) -> Case:
    channels = draw(st.sampled_from([1, 3]))
    x = Value("x", (draw(st.integers(1, 12)), draw(st.integers(1, 12)), channels), _U8)
    rows = draw(st.sampled_from([1, channels]))
    kind = draw(st.sampled_from(["int8", "uint8", "float32"]))
    numbers = np.random.default_rng(draw(st.integers(0, 99))).integers(-128, 128, (rows, 256))
    return make("drawn", ByteTable(), [x, Value.constant("t", numbers.astype(kind))])


def pictures() -> st.SearchStrategy[Case]:
    """Of each kind."""
    return st.one_of(_formats(), _resampled(), _blended(), _tables())
