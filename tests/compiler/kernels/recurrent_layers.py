"""Random layers with a memory, or of several outputs, drawn by hypothesis; see ``layers.py``."""

import numpy as np
from hypothesis import strategies as st

from crtgen.network.ir import Array, DType, Op, Quant, Value
from crtgen.network.ops import Case
from crtgen.network.ops.case import floats, int8s, int16s, make, plain
from crtgen.network.ops.detection import DetectionPostProcess, detection_case
from crtgen.network.ops.gru import Gru, gru_case
from crtgen.network.ops.lstm import Lstm, lstm_case
from crtgen.network.ops.stream import Delay, Framer, OverlapAdd, Stacker, stream_case
from crtgen.network.ops.suppression import NonMaxSuppression
from crtgen.network.ops.svdf import Svdf, svdf_case

__all__ = ["RECURRENT", "STREAMS", "detections", "recurrent", "streams"]

RECURRENT: tuple[type[Op], ...] = (Svdf, Lstm, Gru)
STREAMS: tuple[type[Op], ...] = (Delay, Framer, OverlapAdd, Stacker)
_F32, _I8, _I16 = DType.FLOAT32, DType.INT8, DType.INT16
_zeros = st.sampled_from([0, -128, 127, 5, -60])
_few = st.integers(1, 6)
_some = st.one_of(_few, _few, st.integers(1, 40))


def recurrent() -> st.SearchStrategy[Case]:
    """Of any size and type, with states that hold anything."""
    return st.one_of(_svdf(), _lstm(), _gru()).filter(_is_computed).filter(_is_comparable)


def _is_computed(case: Case) -> bool:
    """Whether the reference takes its quantisation."""
    try:
        _reference(case)
    except ValueError:
        return False
    return True


def _is_comparable(case: Case) -> bool:
    """Whether floats of a sum's output do not all cancel: what they may differ by is of the largest one."""
    if case.sig.x.dtype is not _F32 or isinstance(case.op, Lstm):
        return True
    return all(float(np.abs(_reference(case, seed)).max()) > 1 for seed in range(4))


def _reference(case: Case, seed: int = 0) -> Array:
    given = case.inputs(seed)
    arrays = [given[v.name] if v.data is None else v.data for v in case.sig.inputs]
    return case.op.reference(case.sig, arrays)[0]


@st.composite
def _svdf(draw: st.DrawFn) -> Case:
    batch, inputs, units, rank, memory = draw(st.tuples(st.integers(1, 3), _some, _some, _few, _some))
    state = draw(st.sampled_from([_I16, _I8, _F32]))
    shape = (batch, inputs)
    x = (
        floats("x", shape)
        if state is _F32
        else int8s("x", shape, 2.0 ** draw(st.floats(-8, -3)), draw(_zeros))
    )
    return svdf_case("drawn", x, units, rank, memory, state, draw(st.integers(0, 999)))


@st.composite
def _lstm(draw: st.DrawFn) -> Case:
    shape, units = draw(st.tuples(st.integers(1, 3), st.integers(1, 3), _some)), draw(_some)
    kind, scale = draw(st.sampled_from([_I8, _I16, _F32])), 2.0 ** draw(st.floats(-8, -4))
    hidden = None
    if kind is _I8:
        x, hidden = (
            int8s("x", shape, scale, draw(_zeros)),
            Quant.tensor(draw(st.floats(0.005, 0.01)), draw(_zeros)),
        )
    else:
        x = int16s("x", shape, scale / 128) if kind is _I16 else floats("x", shape)
    op = Lstm(draw(st.booleans()), draw(st.sampled_from([0.0, 0.5, 3.0])))
    return lstm_case("drawn", op, x, units, draw(st.integers(-14, -9)), hidden, draw(st.integers(0, 999)))


@st.composite
def _gru(draw: st.DrawFn) -> Case:
    shape, units = draw(st.tuples(st.integers(1, 3), st.integers(1, 3), _some)), draw(_some)
    scale, op, hidden = 2.0 ** draw(st.floats(-8, -4)), Gru(draw(st.booleans())), None
    if draw(st.booleans()):
        x = int8s("x", shape, scale, draw(_zeros))
        hidden = Quant.tensor(draw(st.floats(0.002, 0.01)), draw(_zeros))
    else:
        x = int16s("x", shape, scale / 128)
        hidden = Quant.tensor(draw(st.floats(2.0**-16, 2.0**-14)))
    return gru_case("drawn", op, x, units, hidden, draw(st.integers(0, 999)))


@st.composite
def streams(draw: st.DrawFn) -> Case:
    """Of samples that came in before; counters are anything that they become."""
    kind = draw(st.sampled_from(STREAMS))
    rows = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    if kind is Delay:
        return stream_case("drawn", Delay(draw(st.integers(1, 20))), _samples(*rows, draw(st.integers(1, 9))))
    if kind is Stacker:
        left, right = draw(st.integers(0, 4)), draw(st.integers(0, 4))
        step = draw(st.integers(1, left + 1 + right))
        limits = {"n": (0.0, float(max(right + 1, step)))}
        return stream_case("drawn", Stacker(left, right, step), _samples(draw(st.integers(1, 9))), limits)
    step = draw(st.integers(1, 8))
    if kind is Framer:
        size, prefill = draw(st.integers(1, 30)), draw(st.booleans())
        op = Framer(max(size, step) if prefill else size, step, prefill)
        x = _samples(*rows, step * draw(st.integers(1, 4)))
        return stream_case("drawn", op, x, {"n": (0.0, float(op.steps))})
    shape = (*rows, draw(st.integers(1, 4)), step + draw(st.integers(0, 9)))
    return stream_case("drawn", OverlapAdd(step), plain("x", shape, draw(st.sampled_from([_I16, _F32]))))


def _samples(*shape: int) -> Value:
    return plain("x", shape, _I16)


@st.composite
def _suppressions(draw: st.DrawFn) -> Case:
    """The best boxes of each class."""
    batch, classes, boxes = (draw(st.integers(1, most)) for most in (3, 4, 20))
    most, overlap = draw(st.integers(1, 25)), draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))
    op = NonMaxSuppression(most, overlap, draw(st.sampled_from([-9.0, 0.5])), draw(st.booleans()))
    inputs = [floats("b", (batch, boxes, 4)), floats("s", (batch, classes, boxes))]
    return make("drawn", op, inputs, limits={"b": (0.0, 1.0), "s": (0.0, 1.0)})


@st.composite
def detections(draw: st.DrawFn) -> Case:
    """Both ways, of any numbers of boxes and classes."""
    if draw(st.booleans()):
        return draw(_suppressions())
    classes, boxes = draw(st.integers(1, 5)), draw(st.integers(1, 20))
    scale = st.floats(1, 20, width=32)
    op = DetectionPostProcess(
        classes,
        draw(st.integers(1, 12)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 9)),
        draw(st.booleans()),
        draw(st.sampled_from([-9.0, 0.0, 0.5, 9.0])),
        draw(st.sampled_from([0.25, 0.5, 1.0])),
        (draw(scale), draw(scale), draw(scale), draw(scale)),
    )
    scores = classes + draw(st.integers(0, 1))
    return detection_case("drawn", op, boxes, scores, draw(st.integers(0, 999)))
