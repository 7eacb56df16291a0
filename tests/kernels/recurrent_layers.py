"""Random layers with a memory, drawn by hypothesis; see ``layers.py``."""

from hypothesis import reject
from hypothesis import strategies as st

from crtgen.ir import DType, Op, Quant
from crtgen.ops import Case
from crtgen.ops.case import floats, int8s, int16s
from crtgen.ops.lstm import Lstm, lstm_case
from crtgen.ops.svdf import Svdf, svdf_case

__all__ = ["RECURRENT", "recurrent"]

RECURRENT: tuple[type[Op], ...] = (Svdf, Lstm)
_F32, _I8, _I16 = DType.FLOAT32, DType.INT8, DType.INT16
_zeros = st.sampled_from([0, -128, 127, 5, -60])
_few = st.integers(1, 6)


@st.composite
def recurrent(draw: st.DrawFn) -> Case:
    """Of any size and type, with states that hold anything."""
    case = draw(st.one_of(_svdf(), _lstm()))
    try:
        case.op.reference(
            case.sig, [v.data if v.data is not None else case.inputs()[v.name] for v in case.sig.inputs]
        )
    except ValueError:
        reject()
    return case


@st.composite
def _svdf(draw: st.DrawFn) -> Case:
    batch, inputs, units, rank, memory = draw(
        st.tuples(st.integers(1, 3), st.integers(1, 20), _few, _few, _few)
    )
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
    shape, units = draw(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 12))), draw(_few)
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
