"""CMSIS-NN as a code generator: Arm's kernels for int8 layers, their working memory planned in our arena.

Only its public interface is used, as of version 4.1; arithmetic and layouts are TFLite's, as ours are. The
sources are the user's copy, which goes into the project as far as it is needed.
"""

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Self

from crtgen.boards.core import Core
from crtgen.byoc.cmsis_sources import CmsisSources, find_sources
from crtgen.byoc.generator import Generated, Generator, Pattern
from crtgen.errors import UsageError
from crtgen.ir import DType, Graph, Node, Op, Signature, Value
from crtgen.kernels.kernel import Const, SourceLibrary, Target
from crtgen.ops import (
    Add,
    AveragePool2d,
    Conv2d,
    ConvParams,
    DepthwiseConv2d,
    FullyConnected,
    MaxPool2d,
    Mul,
    Softmax,
)

__all__ = ["CMSIS_NN", "CmsisNn"]

CMSIS_NN = "cmsis-nn"
_KINDS: tuple[type[Op], ...] = (
    Conv2d,
    DepthwiseConv2d,
    FullyConnected,
    AveragePool2d,
    MaxPool2d,
    Add,
    Mul,
    Softmax,
)
_WEIGHTED = Conv2d | DepthwiseConv2d | FullyConnected


class _Four(ctypes.Structure):
    """``cmsis_nn_dims``: n, h, w, c."""

    _fields_: ClassVar = [(name, ctypes.c_int32) for name in ("n", "h", "w", "c")]


class _Conv(ctypes.Structure):
    """``cmsis_nn_conv_params``; tiles are (w, h)."""

    _fields_: ClassVar = [
        (name, ctypes.c_int32)
        for name in ("input_offset", "output_offset", "stride_w", "stride_h", "padding_w", "padding_h",
                     "dilation_w", "dilation_h", "act_min", "act_max")
    ]  # fmt: skip


class _Depthwise(ctypes.Structure):
    """``cmsis_nn_dw_conv_params``."""

    _fields_: ClassVar = [
        (name, ctypes.c_int32)
        for name in ("input_offset", "output_offset", "ch_mult", "stride_w", "stride_h", "padding_w",
                     "padding_h", "dilation_w", "dilation_h", "act_min", "act_max")
    ]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """A node to be generated: ``names`` are its inputs in C."""

    op: Any
    sig: Signature
    names: tuple[str, ...]
    suffix: str


@dataclass(frozen=True, slots=True, eq=False)
class _Code:
    """What calls a function of CMSIS-NN: lines of C, further constants, bytes of its buffer."""

    lines: tuple[str, ...]
    functions: tuple[str, ...]
    consts: tuple[Const, ...] = ()
    buffer: int = 0


class CmsisNn(Generator):
    """CMSIS-NN from a copy of its sources."""

    name = CMSIS_NN
    patterns: ClassVar[tuple[Pattern, ...]] = tuple((kind,) for kind in _KINDS)

    def __init__(self, path: str | Path = "") -> None:
        self.sources = CmsisSources(find_sources(str(path)))

    @classmethod
    def create(cls, options: Mapping[str, str]) -> Self:
        unknown = options.keys() - {"path"}
        if unknown:
            raise UsageError(f"the code generator {cls.name} has no option {min(unknown)}")
        return cls(options.get("path", ""))

    def reason(self, op: Op, sig: Signature) -> str:
        try:
            return _reason(op, sig)
        except ValueError as error:
            return str(error)

    def library_for(self, headers: Collection[str], code: str) -> SourceLibrary | None:
        if not any(map(self.sources.has_header, headers)):
            return None
        return self.sources.library(self.sources.called_in(code))

    def generate(self, subgraph: Graph, target: Target) -> Generated:
        (node,) = subgraph.nodes
        constants = [v for v in subgraph.values.values() if v.is_constant]
        layer = _layer(subgraph, node, constants, target.core)
        code = _WRITERS[type(node.op)](layer, self.sources)
        given = tuple(Const.of(_const_name(node, v), v.array(), 4) for v in constants)
        return Generated(
            body="\n".join(f"    {line}" for line in code.lines),
            consts=(*given, *code.consts),
            scratch=code.buffer,
            includes=("arm_nnfunctions.h",),
            libraries=(self.sources.library(code.functions),),
        )


def _layer(subgraph: Graph, node: Node, constants: Sequence[Value], core: Core) -> _Layer:
    names = {name: f"x{i}" for i, name in enumerate(subgraph.inputs)}
    names |= {v.name: _const_name(node, v) for v in constants}
    suffix = "_mve" if core.mve else "_dsp" if core.dsp else ""
    return _Layer(node.op, subgraph.signature(node), tuple(names[n] for n in node.inputs), suffix)


def _const_name(node: Node, value: Value) -> str:
    index = node.inputs.index(value.name)
    return ("input", "weights", "bias")[index] if isinstance(node.op, _WEIGHTED) else f"operand{index}"


def _reason(op: Op, sig: Signature) -> str:
    if sig.x.dtype is not DType.INT8 or sig.y.dtype is not DType.INT8:
        return f"it is of {sig.x.dtype.value}, not int8"
    if isinstance(op, _WEIGHTED):
        return _reason_weighted(op, sig)
    if any(value.is_constant for value in sig.inputs) and not isinstance(op, Add | Mul):
        return "its input is constant"
    if isinstance(op, Add | Mul) and any(v.shape != sig.y.shape for v in sig.inputs):
        return "its operands have different shapes"
    if isinstance(op, AveragePool2d | MaxPool2d) and sig.x.shape[0] != 1:
        return "it has several images"
    op.parameters(sig)  # type: ignore[attr-defined]
    return ""


def _reason_weighted(op: _WEIGHTED, sig: Signature) -> str:
    if sig.x.is_constant or not all(v.is_constant for v in sig.inputs[1:]):
        return "its weights are not constant"
    params = op.parameters(sig)
    if isinstance(op, FullyConnected) and len(set(_pairs(params))) > 1:
        return "its channels are quantised one by one"
    if isinstance(op, DepthwiseConv2d) and sig.x.shape[0] != 1:
        return "it has several images"
    return ""


def _pairs(params: ConvParams) -> list[tuple[int, int]]:
    return list(zip(params.multipliers.tolist(), params.shifts.tolist(), strict=True))


def _dims(shape: Sequence[int]) -> _Four:
    return _Four(*shape)


def _c(structure: ctypes.Structure) -> str:
    """The fields in their order, which is C's: braces around the inner structures may be left out."""
    return ", ".join(str(getattr(structure, name)) for name, *_ in structure._fields_)


def _declare(**dims: _Four) -> list[str]:
    return [f"static const cmsis_nn_dims {name} = {{{_c(four)}}};" for name, four in dims.items()]


def _context(nbytes: int) -> str:
    return f"const cmsis_nn_context context = {{{'scratch' if nbytes else 'NULL'}, {nbytes}}};"


def _per_channel(params: ConvParams) -> tuple[str, tuple[Const, ...]]:
    consts = (Const.of("multiplier", params.multipliers, 4), Const.of("shift", params.shifts, 4))
    fields = ", ".join(f"(int32_t *)(uintptr_t){const.name}" for const in consts)
    return f"const cmsis_nn_per_channel_quant_params quant = {{{fields}}};", consts


def _conv(layer: _Layer, sources: CmsisSources) -> _Code:
    op, sig, p = layer.op, layer.sig, layer.op.parameters(layer.sig)
    params = _Conv(p.input_offset, p.output_offset, *reversed(op.stride), op.padding.left, op.padding.top,
                   *reversed(op.dilation), p.act_min, p.act_max)  # fmt: skip
    x, w, y = _dims(sig.x.shape), _dims(sig.inputs[1].shape), _dims(sig.y.shape)
    function = "arm_convolve_wrapper_s8"
    nbytes = sources.size(f"{function}_get_buffer_size{layer.suffix}", params, x, w, y)
    return _convolution("cmsis_nn_conv_params", function, params, (x, w, y), nbytes, layer)


def _depthwise(layer: _Layer, sources: CmsisSources) -> _Code:
    op, sig, p = layer.op, layer.sig, layer.op.parameters(layer.sig)
    multiplier = sig.y.shape[3] // sig.x.shape[3]
    params = _Depthwise(p.input_offset, p.output_offset, multiplier, *reversed(op.stride), op.padding.left,
                        op.padding.top, *reversed(op.dilation), p.act_min, p.act_max)  # fmt: skip
    x, w, y = _dims(sig.x.shape), _dims(sig.inputs[1].shape), _dims(sig.y.shape)
    function = "arm_depthwise_conv_wrapper_s8"
    nbytes = sources.size(f"{function}_get_buffer_size{layer.suffix}", params, x, w, y)
    return _convolution("cmsis_nn_dw_conv_params", function, params, (x, w, y), nbytes, layer)


def _convolution(
    kind: str,
    function: str,
    params: ctypes.Structure,
    dims: tuple[_Four, _Four, _Four],
    nbytes: int,
    layer: _Layer,
) -> _Code:
    x, w, y = dims
    quant, consts = _per_channel(layer.op.parameters(layer.sig))
    bias = _dims((1, 1, 1, layer.sig.y.shape[3]))
    source, weights, added = layer.names
    lines = [
        f"static const {kind} params = {{",
        *(f"    {field}," for field in _nested(params)),
        "};",
        *_declare(input=x, filter=w, biases=bias, output=y),
        quant,
        _context(nbytes),
        f"(void){function}(&context, &params, &quant, &input, {source}, &filter, {weights},",
        f"    &biases, {added}, &output, y0);",
    ]
    return _Code(tuple(lines), (function,), consts, nbytes)


def _nested(params: ctypes.Structure) -> list[str]:
    """The fields with their names; those of tiles and clamps as C nests them."""
    inner = {"_w": ".w", "_h": ".h"}
    parts = []
    for name, *_ in params._fields_:
        field = name
        for ending, member in inner.items():
            field = field.removesuffix(ending) + member if field.endswith(ending) else field
        field = {"act_min": "activation.min", "act_max": "activation.max"}.get(name, field)
        parts.append(f".{field} = {getattr(params, name)}")
    return parts


def _dense(layer: _Layer, sources: CmsisSources) -> _Code:
    sig, p = layer.sig, layer.op.parameters(layer.sig)
    outputs, depth = sig.inputs[1].shape
    rows = sig.x.elements // depth
    filter_dims = _Four(depth, 1, 1, outputs)
    suffix = layer.suffix or "_dsp"
    nbytes = sources.size(f"arm_fully_connected_s8_get_buffer_size{suffix}", filter_dims)
    source, weights, bias = layer.names
    lines = [
        f"static const cmsis_nn_fc_params params = {{.input_offset = {p.input_offset}, .filter_offset = 0, "
        f".output_offset = {p.output_offset}, .activation = {{{p.act_min}, {p.act_max}}}}};",
        f"static const cmsis_nn_per_tensor_quant_params quant = {{{p.multipliers[0]}, {p.shifts[0]}}};",
        *_declare(
            input=_Four(rows, 1, 1, depth),
            filter=filter_dims,
            biases=_Four(1, 1, 1, outputs),
            output=_Four(rows, 1, 1, outputs),
        ),
        _context(nbytes),
    ]
    functions = ["arm_fully_connected_s8"]
    if nbytes:
        functions.append("arm_vector_sum_s8")
        lines.append(
            f"(void)arm_vector_sum_s8((int32_t *)(void *)scratch, {depth}, {outputs}, {weights}, "
            f"{p.input_offset}, 0, {bias});"
        )
    lines += [
        f"(void)arm_fully_connected_s8(&context, &params, &quant, &input, {source}, &filter, {weights},",
        f"    &biases, {bias}, &output, y0);",
    ]
    return _Code(tuple(lines), tuple(functions), (), nbytes)


def _pool(layer: _Layer, sources: CmsisSources) -> _Code:
    op, sig, p = layer.op, layer.sig, layer.op.parameters(layer.sig)
    average = isinstance(op, AveragePool2d)
    function = "arm_avgpool_s8" if average else "arm_max_pool_s8"
    nbytes = 0
    if average:
        size = f"{function}_get_buffer_size{layer.suffix}"
        nbytes = sources.size(size, sig.y.shape[2], sig.x.shape[3])
    lines = [
        f"static const cmsis_nn_pool_params params = {{.stride = {{{op.stride[1]}, {op.stride[0]}}}, "
        f".padding = {{{op.padding.left}, {op.padding.top}}}, .activation = {{{p.act_min}, {p.act_max}}}}};",
        *_declare(
            input=_dims(sig.x.shape), filter=_Four(1, *op.window, sig.x.shape[3]), output=_dims(sig.y.shape)
        ),
        _context(nbytes),
        f"(void){function}(&context, &params, &input, {layer.names[0]}, &filter, &output, y0);",
    ]
    return _Code(tuple(lines), (function,), (), nbytes)


def _add(layer: _Layer, sources: CmsisSources) -> _Code:
    p = layer.op.parameters(layer.sig)
    a, b = layer.names
    lines = (
        f"(void)arm_elementwise_add_s8({a}, {b},",
        f"    {p.input1_offset}, {p.input1_multiplier}, {p.input1_shift},",
        f"    {p.input2_offset}, {p.input2_multiplier}, {p.input2_shift}, {p.left_shift},",
        f"    y0, {p.output_offset}, {p.output_multiplier}, {p.output_shift},",
        f"    {p.act_min}, {p.act_max}, {layer.sig.y.elements});",
    )
    return _Code(lines, ("arm_elementwise_add_s8",))


def _mul(layer: _Layer, sources: CmsisSources) -> _Code:
    p = layer.op.parameters(layer.sig)
    a, b = layer.names
    lines = (
        f"(void)arm_elementwise_mul_s8({a}, {b}, {p.input1_offset}, {p.input2_offset},",
        f"    y0, {p.output_offset}, {p.output_multiplier}, {p.output_shift},",
        f"    {p.act_min}, {p.act_max}, {layer.sig.y.elements});",
    )
    return _Code(lines, ("arm_elementwise_mul_s8",))


def _softmax(layer: _Layer, sources: CmsisSources) -> _Code:
    p, shape = layer.op.parameters(layer.sig), layer.sig.y.shape
    numbers = f"{prod(shape[:-1])}, {shape[-1]}, {p.input_multiplier}, {p.input_left_shift}, {p.diff_min}"
    return _Code((f"arm_softmax_s8({layer.names[0]}, {numbers}, y0);",), ("arm_softmax_s8",))


_WRITERS: Mapping[type[Op], Callable[[_Layer, CmsisSources], _Code]] = {
    Conv2d: _conv,
    DepthwiseConv2d: _depthwise,
    FullyConnected: _dense,
    AveragePool2d: _pool,
    MaxPool2d: _pool,
    Add: _add,
    Mul: _mul,
    Softmax: _softmax,
}
