"""What keeps something from run to run: variables, recurrent layers, streams; and detections."""

from collections.abc import Callable
from dataclasses import replace

from flatbuffers import flexbuffers

from crtgen.network.ir import DType, Quant
from crtgen.network.ops import Case
from crtgen.network.ops.detection import DetectionPostProcess, detection_case
from crtgen.network.ops.fft import Irfft, Rfft
from crtgen.network.ops.lstm import Lstm, lstm_case
from crtgen.network.ops.stream import Delay, Framer, OverlapAdd, Stacker, stream_case
from crtgen.network.ops.svdf import svdf_case
from tests.system.grown.network import MOST, NUMBERS, Network, Step
from tests.tflite_builder import Operator, Options, Subgraph, Tensor

__all__ = ["STEPS", "begin"]

_MOST_VARIABLES = 4
_ANY = (*NUMBERS, "int32", "bool")


def _variable(net: Network) -> None:
    """A variable is read, and then assigned what came in, or the sum of both."""
    x = net.source(types=_ANY)
    if x is None:
        return
    variables = net.shared.variables
    alike = [n for n, kept in variables.items() if _holds(kept) == _holds(x)]
    if alike and net.chance(0.5):
        name = net.pick(alike)
    elif len(variables) < _MOST_VARIABLES:
        name = f"kept{len(variables)}"
        variables[name] = net.values(x, x.shape)
    else:
        return
    handle = net.keep(Tensor(net.name(), [], "resource"))
    options = Options("VarHandleOptions", Container="", SharedName=name)
    net.operators.append(Operator("VAR_HANDLE", [], [handle.name], options))
    old = net.like(x, x.shape)
    net.operate(Operator("READ_VARIABLE", [handle.name], [old.name]), x.name not in net.rough)
    if net.chance(0.5) or x.dtype in ("bool", "int32"):
        new = x
    else:
        new = net.add("ADD", [old, x], net.like(x, x.shape), Options("AddOptions"))
        if new.dtype == "float32":  # or it would grow from run to run
            new = net.add("TANH", [new], net.like(x, x.shape))
    net.operators.append(Operator("ASSIGN_VARIABLE", [handle.name, new.name], []))
    if x.dtype == "float32":
        net.rough |= {old.name, new.name} & (net.rough | {new.name})


def _holds(x: Tensor) -> object:
    return x.dtype, tuple(x.shape), tuple(x.scales), tuple(x.zero_points)


def begin(net: Network) -> None:
    """An operator that sets some of the variables before the first run, in front of all others."""
    chosen = [n for n in net.shared.variables if net.chance(0.6)]
    if not chosen:
        return
    tensors, operators = [], []
    for i, name in enumerate(chosen):
        handle = Tensor(f"h{i}", [], "resource")
        value = replace(net.shared.variables[name], name=f"k{i}")
        options = Options("VarHandleOptions", Container="", SharedName=name)
        tensors += [handle, value]
        operators.append(Operator("VAR_HANDLE", [], [handle.name], options))
        operators.append(Operator("ASSIGN_VARIABLE", [handle.name, value.name], []))
    net.shared.others.append(Subgraph(tensors, operators, [], []))
    once = Options("CallOnceOptions", InitSubgraphIndex=len(net.shared.others))
    net.operators.insert(0, Operator("CALL_ONCE", [], [], once))


def _svdf(net: Network) -> None:
    x = net.source(2, ("int8", "float32"))
    if x is None:
        return
    dtype = DType(net.pick(["int8", "int16"])) if x.dtype == "int8" else DType.FLOAT32
    units, rank, memory = net.integer(1, 6), net.integer(1, 3), net.integer(1, 6)
    net.graft(svdf_case("grown", net.value(x), units, rank, memory, dtype, net.integer(0, 999)))


def _lstm(net: Network) -> None:
    x = net.source(3)
    if x is None or x.shape[0] * x.shape[1] > 60:
        return
    hidden = Quant.tensor(net.rng.uniform(0.005, 0.01), net.integer(-9, 9)) if x.dtype == "int8" else None
    op = Lstm(net.chance(0.5), net.pick([0.0, 0.5, 3.0]))
    case = lstm_case("grown", op, net.value(x), net.integer(1, 6), -11, hidden, net.integer(0, 999))
    net.graft(case)


def _stream(net: Network) -> None:
    """The signal library's operators with a memory, where each output is valid from the first run on."""
    x = net.source(types=["int16"])
    if x is None or not x.shape:
        return
    size = x.shape[-1]
    makes: list[Callable[[], Case]] = [lambda: stream_case("grown", Delay(net.integer(1, 9)), plain)]
    plain = replace(net.value(x), quant=None)
    step = net.pick([n for n in range(1, size + 1) if size % n == 0])
    makes.append(lambda: stream_case("grown", Framer(step + net.integer(0, 5), step, True), plain))
    if len(x.shape) == 1:
        makes.append(lambda: stream_case("grown", Stacker(net.integer(0, 3), 0, 1), plain))
    if len(x.shape) >= 2:
        makes.append(lambda: stream_case("grown", OverlapAdd(net.integer(1, size)), plain))
    case = net.pick(makes)()
    if case.sig.y.elements <= MOST:
        net.graft(case)


def _circular(net: Network) -> None:
    x = net.source(4, ["int8"])
    if x is None or x.shape[0] != 1 or x.shape[1] != 1:
        return
    slots = net.integer(1, 5)
    if slots * x.shape[2] * x.shape[3] > MOST:
        return
    y = replace(net.like(x, (1, slots, *x.shape[2:])), is_variable=True)
    custom = bytes(flexbuffers.Dumps({"cycles_max": 1}))
    net.add("CUSTOM CIRCULAR_BUFFER", [x], net.keep(y), exact=True, custom=custom)


def _transform(net: Network) -> None:
    x = net.source(types=["int16", "int32", "float32"])
    if x is None or not x.shape or x.shape[-1] > 64:
        return
    length = 1 << net.integer(max(2, (x.shape[-1] - 1).bit_length()), 7)
    found = net.apply(Rfft(length), [x])
    if found is not None and x.dtype != "float32" and net.chance(0.5):
        net.apply(Irfft(length), [found])


def _detection(net: Network) -> None:
    """Of random boxes, which are an input, and anchors: TFLite Micro stops where a box has no area."""
    x = net.source(3, ["float32"], exact=True)
    if (
        x is None
        or x.name not in net.inputs
        or net.depth
        or x.shape[0] != 1
        or x.shape[2] < 4
        or x.shape[1] > 40
    ):
        return
    scores = net.partner(x)
    if scores.name in net.rough:
        return
    classes = x.shape[2] - net.integer(0, 1)
    most, told, each = net.integer(1, 6), net.integer(1, 1), net.integer(1, 4)
    op = DetectionPostProcess(classes, most, told, each, True, -9.0, 0.5, (10.0, 10.0, 5.0, 5.0))
    case = detection_case("grown", op, x.shape[1], x.shape[2], net.integer(0, 999))
    boxes, other = (replace(v, name=t.name) for v, t in zip(case.sig.inputs, (x, scores), strict=False))
    sig = replace(case.sig, inputs=(boxes, other, case.sig.inputs[2]))
    net.graft(replace(case, sig=sig))


STEPS: list[Step] = [*[_variable] * 4, _svdf, _lstm, _stream, _stream, _circular, _transform, _detection]
