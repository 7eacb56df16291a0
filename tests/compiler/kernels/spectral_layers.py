"""Random layers between samples and features."""

import numpy as np
from hypothesis import strategies as st

from crtgen.network.ir import DType, Value
from crtgen.network.ops import (
    Bands,
    Before,
    Biquads,
    BlockPower,
    Case,
    Frame,
    LogFloor,
    Moments,
    Power,
    RemoveMean,
    RoundedRatio,
    ScaledExp,
    ScaledLog,
)
from crtgen.network.ops.case import make

SPECTRAL = (
    *(Bands, Biquads, BlockPower, Frame, Moments, Power, RemoveMean, RoundedRatio),
    *(ScaledExp, ScaledLog),
)

_F32, _I16 = DType.FLOAT32, DType.INT16


def _weights(draw: st.DrawFn, count: int, name: str = "w") -> Value:
    random = np.random.default_rng(draw(st.integers(0, 99)))
    return Value.constant(name, random.uniform(-1, 1, count).astype(np.float32))


@st.composite
def _frames(draw: st.DrawFn) -> Case:
    size, start = draw(st.integers(1, 200)), draw(st.integers(0, 9))
    before = draw(st.sampled_from(Before))
    start = 0 if before is Before.LAST else start
    x = Value("x", (start + size + draw(st.integers(0, 9)),), draw(st.sampled_from([_I16, _I16, _F32])))
    return make("drawn", Frame(start, draw(st.sampled_from([0.0, 0.97])), before), [x, _weights(draw, size)])


@st.composite
def _blocks(draw: st.DrawFn) -> Case:
    length = 1 << draw(st.integers(4, 10))
    size = draw(st.integers(1, min(length, 300)) | st.just(length))
    before = draw(st.sampled_from(Before))
    start = 0 if before is Before.LAST else draw(st.integers(0, 9))
    centred = before is Before.ITSELF and draw(st.booleans())
    x = Value("x", (start + size + draw(st.integers(0, 9)),), _I16)
    first = draw(st.integers(0, length // 2 - 1))
    bins = first, draw(st.integers(first + 2, length // 2 + 1))
    op = BlockPower(start, draw(st.sampled_from([0.0, 0.97, -0.3])), before, length, bins, centred)
    return make("drawn", op, [x, _weights(draw, size)])


@st.composite
def _bands(draw: st.DrawFn) -> Case:
    bins = draw(st.integers(1, 90))
    spans = draw(st.lists(st.tuples(st.integers(0, bins), st.integers(0, bins)), min_size=1, max_size=30))
    first = [min(pair) for pair in spans]
    widths = [abs(a - b) for a, b in spans]
    shape = (*draw(st.lists(st.integers(1, 3), max_size=1)), bins)
    tables = [Value.constant(n, np.array(t, np.int16)) for n, t in (("f", first), ("n", widths))]
    weights = _weights(draw, sum(widths))
    if not sum(widths):
        return make("drawn", Power(), [Value("x", (2 * bins,), _F32)])
    return make("drawn", Bands(), [Value("x", shape, _F32), weights, *tables])


@st.composite
def _windows(draw: st.DrawFn) -> Case:
    shape = (*draw(st.lists(st.integers(1, 3), max_size=1)), draw(st.integers(1, 100)))
    x = Value("x", shape, _F32)
    if draw(st.booleans()):
        return make("drawn", Moments(), [x])
    count = draw(st.integers(1, 4))
    sections = np.random.default_rng(draw(st.integers(0, 99))).uniform(-0.4, 0.4, (count, 5))
    return make("drawn", Biquads(), [x, Value.constant("s", sections.astype(np.float32))])


@st.composite
def _others(draw: st.DrawFn) -> Case:
    count = draw(st.integers(1, 200))
    kind = draw(st.sampled_from(["mean", "power", "root", "log", "exp", "ratio"]))
    if kind == "mean":
        start = draw(st.integers(0, 9))
        x = Value("x", (start + count + draw(st.integers(0, 9)),), _I16)
        return make("drawn", RemoveMean(start, count), [x])
    if kind == "ratio":
        numbers = (draw(st.integers(1, 16384)), draw(st.integers(2, 16384)), draw(st.integers(-128, 127)))
        return make("drawn", RoundedRatio(*numbers), [Value("x", (count,), _I16)])
    if kind == "exp":
        limit = draw(st.sampled_from([0.1, 5.0, 100.0]))
        op = ScaledExp(draw(st.floats(-9, 9, width=32)), draw(st.floats(-9, 9, width=32)))
        return make("drawn", op, [Value("x", (count,), _F32)], limits={"x": (-limit, limit)})
    if kind == "log":
        real = (draw(st.sampled_from([1e-30, 1e-6, 0.5])), draw(st.floats(-9, 9)), draw(st.floats(-9, 9)))
        logarithm = ScaledLog(real[0], draw(st.sampled_from(LogFloor)), real[1], real[2])
        return make("drawn", logarithm, [Value("x", (count,), _F32)], limits={"x": (0.0, 1e4)})
    return make("drawn", Power(kind == "root"), [Value("x", (2 * count,), _F32)])


def spectral() -> st.SearchStrategy[Case]:
    """Of each kind."""
    return st.one_of(_frames(), _blocks(), _bands(), _windows(), _others())
