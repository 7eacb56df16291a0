"""Quantises a float ONNX network with ONNX Runtime's own quantiser, and measures the loss of accuracy.

The arithmetic is ONNX Runtime's. The choices are ours: int8 activations, symmetric int8 weights per channel,
and ranges from the smallest to the largest value in the calibration data.
"""

import logging
import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen import api
from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.base.temporary import TemporaryFolder
from crtgen.lab.measure.against import sqnr
from crtgen.lab.measure.cases import interface_of, read_inputs
from crtgen.lab.measure.gates import quantise_gates, quantised_types, recurrent_layers
from crtgen.network.ir import Array

__all__ = ["LayerError", "LostPart", "Quantised", "onnx_runtime", "quantize"]

_Doubles = npt.NDArray[np.float64]

_INSTALL = "pip install 'crtgen[quantize]'"
_QUANTISED = "QuantizeLinear"
# A part of an output that keeps no more values than this is lost, if it had four times as many.
_FEW = 8
# Decibels below which such a part is lost.
_BAD = 20.0
_MOST_PLACES = 1024


@dataclass(frozen=True, slots=True)
class LayerError:
    """Error of a tensor in the quantised network against the float network, over all cases.

    ``node`` and ``operator`` compute the tensor; ``sqnr`` is the ratio of signal to error in decibels.
    """

    tensor: str
    node: str
    operator: str
    sqnr: float


@dataclass(frozen=True, slots=True)
class LostPart:
    """A range of an output in which quantisation leaves almost no information.

    It is from ``first`` up to ``end``, exclusive, of the ``length`` along ``axis``. ``values`` is the number
    of different values that the quantised network produces there, over all cases. ``concat`` names the Concat
    that joins them with larger values under one scale, empty if there is none.
    """

    output: str
    axis: int
    first: int
    end: int
    length: int
    values: int
    sqnr: float
    concat: str

    def __str__(self) -> str:
        places = f"{self.first}" if self.end == self.first + 1 else f"{self.first} to {self.end - 1}"
        where = f"{self.output}: place {places} of {self.length} along axis {self.axis}"
        return f"{where} would keep {self.values} values, {self.sqnr:.1f} dB"


@dataclass(frozen=True, slots=True)
class Quantised:
    """Agreement of the first outputs of both networks over the calibration cases.

    ``largest`` is the greatest difference, relative to the largest absolute value of the float network;
    ``same`` is the fraction of cases with the same greatest element. ``layers`` are in order of their
    ``sqnr``, worst first. ``lost`` are parts of outputs that a single scale would ruin; where a Concat is
    named, it stays float32 and the figures do not include that loss.
    """

    cases: int
    sqnr: float
    largest: float
    same: int
    layers: tuple[LayerError, ...]
    lost: tuple[LostPart, ...] = ()


def quantize(model: Path, calibrate: Path, output: Path) -> Quantised:
    """Write the quantised model to ``output``; ``calibrate`` has inputs, in the formats that ``run`` accepts.

    An input with an additional leading dimension has a case for each of its indices. Raises ``UsageError`` if
    the model or the data are not suitable.
    """
    if model.suffix != ".onnx" or output.suffix != ".onnx":
        raise UsageError(
            "quantize reads and writes .onnx",
            where=str(model if model.suffix != ".onnx" else output),
            hint="quantise a .tflite where it is exported: TensorFlow's converter does",
        )
    loaded = api.load(model)
    if not isinstance(loaded, api.Model):
        raise UsageError(
            "the model is code, not a network", where=str(model), hint="name the .onnx that it was made of"
        )
    names = _inputs(model)
    runs = read_inputs(calibrate, [interface_of(v) for v in loaded.inputs]).runs
    cases = [dict(zip(names, run, strict=True)) for run in runs]
    with _quiet(), TemporaryFolder() as folder:
        prepared, made = folder / "prepared.onnx", folder / "made.onnx"
        try:
            plain = _plain(model, folder)
            _quantized(plain, prepared, made, cases)
            floats, wholes = _outputs(prepared, cases), _outputs(made, cases)
            lost = _lost(prepared, floats, wholes)
            if joins := {part.concat for part in lost if part.concat}:
                _quantized(plain, prepared, made, cases, joins)
                wholes = _outputs(made, cases)
            real, quantised = (np.asarray(next(iter(each.values())), np.float64) for each in (floats, wholes))
            found = _compared(real, quantised, _layers(prepared, made, cases, folder), lost)
        except Exception as error:  # ONNX Runtime has exceptions of its own for what it does not take
            reason = " ".join(str(error).split())[:300]
            raise UsageError(
                f"ONNX Runtime cannot quantise it: {reason}",
                where=str(model),
                hint="simplify the model at its export, or quantise it there",
            ) from error
        files.write(output, made.read_bytes())
    return found


def _inputs(model: Path) -> list[str]:
    # The names of the inputs in the file, which has to have real numbers only.
    import onnx

    proto = onnx.load(model)
    if any(node.op_type == _QUANTISED for node in proto.graph.node):
        raise UsageError(
            "the network is quantised already", where=str(model), hint="quantize takes the float network"
        )
    kept = {tensor.name for tensor in proto.graph.initializer}
    return [value.name for value in proto.graph.input if value.name not in kept]


def onnx_runtime() -> Any:
    """Import ONNX Runtime without its telemetry, which is on by default. Raises ``UsageError`` if it is not
    installed.

    From version 1.29 on it reports usage to Microsoft, and stores an identifier in the cache, unless this
    variable is set before it is imported: ``disable_telemetry_events`` comes too late.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime
    except ImportError as error:
        raise UsageError("quantize needs onnxruntime", hint=_INSTALL) from error
    return onnxruntime


@contextmanager
def _quiet() -> Iterator[None]:
    # Without what ONNX Runtime says on its way; ``UsageError`` if it is not installed.
    onnx_runtime().set_default_logger_severity(3)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _plain(model: Path, folder: Path) -> Path:
    # Write the network as ONNX Runtime's quantiser takes it: without what skl2onnx writes otherwise. Linear
    # classifiers and regressors become a Gemm with what follows it, outputs that are words and dictionaries
    # are left out, and a bias ``[1, N]`` becomes ``[N]``.
    import onnx

    proto = onnx.load(model)
    graph = proto.graph
    nodes = [made for node in graph.node for made in _plain_nodes(node, graph)]
    outputs = {name for node in nodes for name in node.output}
    wrapped = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "ZipMap"}
    kept = [o for o in graph.output if wrapped.get(o.name, o.name) in outputs]
    real = [o for o in kept if o.name in wrapped or o.type.tensor_type.elem_type == onnx.TensorProto.FLOAT]

    def named(end: Any) -> Any:
        inner = wrapped.get(end.name)
        return end if inner is None else onnx.helper.make_tensor_value_info(inner, 1, None)

    for number, node in enumerate(nodes):
        node.name = node.name or f"{node.op_type}_{number}"
    ends = [named(o) for o in real or kept]
    for field, values in ((graph.node, _needed(nodes, [o.name for o in ends])), (graph.output, ends)):
        del field[:]
        field.extend(values)
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    del proto.opset_import[:]
    proto.opset_import.extend(onnx.helper.make_opsetid(*each) for each in ({"": 17} | versions).items())
    plain = folder / "plain.onnx"
    onnx.save(proto, plain)
    return plain


def _needed(nodes: Sequence[Any], outputs: Sequence[str]) -> list[Any]:
    # The nodes that outputs follow from, in their order.
    wanted, found = set(outputs), []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            found.append(node)
            wanted.update(node.input)
    return found[::-1]


def _plain_nodes(node: Any, graph: Any) -> Iterator[Any]:
    from onnx import helper, numpy_helper

    fields = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    after = {b"NONE": "Identity", b"SOFTMAX": "Softmax", b"LOGISTIC": "Sigmoid"}
    kind = after.get(fields.get("post_transform", b"NONE"))
    is_linear = node.domain == "ai.onnx.ml" and node.op_type in ("LinearClassifier", "LinearRegressor")
    if not is_linear or kind is None:
        if node.op_type in ("Gemm", "Add"):
            _flatten_biases(node, graph)
        yield node
        return
    biases = np.array(fields.get("intercepts", ()), np.float32)
    rows = len(biases) or fields.get("targets", 1)
    weights = np.array(fields["coefficients"], np.float32).reshape(rows, -1)
    scores = node.output[-1]
    names = [f"{scores}.{part}" for part in ("weights", "bias", "sums")]
    held = (weights, biases if biases.size else np.zeros(rows, np.float32))
    graph.initializer.extend(numpy_helper.from_array(a, n) for a, n in zip(held, names, strict=False))
    yield helper.make_node("Gemm", [node.input[0], *names[:2]], [names[2]], transB=1)
    last = helper.make_node(kind, [names[2]], [scores])
    if kind == "Softmax":
        last.attribute.append(helper.make_attribute("axis", 1))
    yield last


def _flatten_biases(node: Any, graph: Any) -> None:
    # Give constants ``[1, N]`` that are added one dimension: ONNX Runtime takes no other biases.
    for tensor in graph.initializer:
        if tensor.name in node.input and len(tensor.dims) == 2 and tensor.dims[0] == 1:
            is_bias = node.op_type == "Add" or tensor.name in node.input[2:]
            readers = sum(tensor.name in other.input for other in graph.node)
            if is_bias and readers == 1:
                del tensor.dims[0]


def _reader(cases: Sequence[Mapping[str, Array]]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class CalibrationReader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(cases)

        def get_next(self) -> Mapping[str, Array] | None:
            return next(self.left, None)

    return CalibrationReader()


def _quantized(
    model: Path,
    prepared: Path,
    made: Path,
    cases: Sequence[Mapping[str, Array]],
    joins: Collection[str] = (),
) -> None:
    # Write the quantised network; the nodes ``joins``, and what follows them, stay float.
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    quant_pre_process(model, prepared, skip_symbolic_shape=True)
    recurrent = set(recurrent_layers(prepared))
    quantize_static(
        prepared,
        made,
        _reader(cases),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
        op_types_to_quantize=quantised_types() if recurrent else None,
        nodes_to_exclude=[*_from_there(prepared, joins), *recurrent_layers(prepared, other=True)],
    )
    if recurrent:
        quantise_gates(prepared, made, recurrent)


def _from_there(prepared: Path, joins: Collection[str]) -> list[str]:
    # The names of these nodes, and of those that follow from them.
    import onnx

    reached: set[str] = set()
    found = []
    for node in onnx.load(prepared).graph.node:
        if node.name in joins or reached.intersection(node.input):
            found.append(node.name)
            reached.update(node.output)
    return found


def _outputs(path: Path, cases: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    # The outputs of a network in all cases, ``[cases, ...]`` each, without later ones whose shape varies.
    session = onnx_runtime().InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    runs = [session.run(names, dict(case)) for case in cases]
    pairs = ((n, name) for n, name in enumerate(names) if n == 0 or len({run[n].shape for run in runs}) == 1)
    return {name: np.stack([run[n] for run in runs]) for n, name in pairs}


def _lost(prepared: Path, floats: Mapping[str, Array], wholes: Mapping[str, Array]) -> tuple[LostPart, ...]:
    """Find parts of outputs that keep few values: scores beside boxes in pixels, for example.

    A tensor has one scale. If it joins ranges of 640 and of 1, a step is 2.5 and all scores become 0. The
    error of the whole tensor hides that, as it is small beside the boxes. So each place along each axis is
    looked at by itself.
    """
    import onnx

    producers = {name: node for node in onnx.load(prepared).graph.node for name in node.output}
    found: list[LostPart] = []
    for name, real in floats.items():
        quantised = wholes.get(name)
        if real.dtype.kind == "f" and quantised is not None and quantised.shape == real.shape:
            concat = _concat_of(name, producers)
            found += (replace(part, output=name, concat=concat) for part in _lost_places(real, quantised))
    return tuple(found)


def _lost_places(real: Array, quantised: Array) -> list[LostPart]:
    # The lost places along the first axis that has both lost ones and others.
    for axis in range(1, real.ndim):
        length = real.shape[axis]
        if not 2 <= length <= _MOST_PLACES:
            continue
        bad = [n for n in range(length) if _is_lost(np.take(real, n, axis), np.take(quantised, n, axis))]
        if 0 < len(bad) < length:
            runs = np.split(bad, np.flatnonzero(np.diff(bad) > 1) + 1)
            return [_part(real, quantised, axis - 1, int(run[0]), int(run[-1]) + 1) for run in runs]
    return []


def _is_lost(real: Array, quantised: Array) -> bool:
    return bool(
        np.unique(real).size >= 4 * _FEW
        and np.unique(quantised).size <= _FEW
        and sqnr(real, quantised) < _BAD
    )


def _part(real: Array, quantised: Array, axis: int, first: int, end: int) -> LostPart:
    places = range(first, end)
    both = np.take(real, places, axis + 1), np.take(quantised, places, axis + 1)
    return LostPart("", axis, first, end, real.shape[axis + 1], np.unique(both[1]).size, sqnr(*both), "")


def _concat_of(name: str, producers: Mapping[str, Any]) -> str:
    # The Concat that an output is, perhaps moved; empty if it is none.
    node = producers.get(name)
    while node is not None and node.op_type in ("Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze"):
        node = producers.get(node.input[0])
    return str(node.name) if node is not None and node.op_type == "Concat" else ""


def _compared(
    real: _Doubles, quantised: _Doubles, layers: tuple[LayerError, ...], lost: tuple[LostPart, ...]
) -> Quantised:
    # The agreement of the first outputs, ``[cases, ...]``.
    largest = float(np.abs(real).max()) or 1.0
    same = sum(int(a.argmax() == b.argmax()) for a, b in zip(real, quantised, strict=True))
    return Quantised(
        len(real), sqnr(real, quantised), float(np.abs(real - quantised).max()) / largest, same, layers, lost
    )


def _layers(
    prepared: Path, made: Path, cases: Sequence[Mapping[str, Array]], folder: Path
) -> tuple[LayerError, ...]:
    # The error of every tensor that both networks compute.
    import onnx
    from onnxruntime.quantization import qdq_loss_debug as debug

    outputs = []
    for path in (prepared, made):
        watched = folder / f"watched_{path.name}"
        debug.modify_model_output_intermediate_tensors(path, watched)
        outputs.append(debug.collect_activations(str(watched), _reader(cases)))
    producers = {name: node for node in onnx.load(prepared).graph.node for name in node.output}
    errors = []
    for tensor, both in debug.create_activation_matching(outputs[1], outputs[0]).items():
        if tensor in producers and "float" in both:
            real, quantised = (np.stack(list(both[key])) for key in ("float", "post_qdq"))
            node = producers[tensor]
            errors.append(LayerError(tensor, node.name, node.op_type, sqnr(real, quantised)))
    return tuple(sorted(errors, key=lambda error: error.sqnr))
