"""Convolutions, depthwise ones, and poolings."""

import ctypes

from crtgen.compiler.byoc.cmsis_nn.layer import (
    CmsisCode,
    CmsisConvParams,
    CmsisDepthwiseParams,
    CmsisLayer,
    Four,
    call,
    context,
    declare,
    dims,
    per_channel,
)
from crtgen.compiler.byoc.cmsis_nn.sources import CmsisSources
from crtgen.network.ir import DType
from crtgen.network.ops import AveragePool2d

__all__ = ["convolution", "depthwise", "pool"]


def convolution(layer: CmsisLayer, sources: CmsisSources) -> CmsisCode:
    op, p = layer.op, layer.op.parameters(layer.sig)
    params = CmsisConvParams(p.input_offset, p.output_offset, *reversed(op.stride), op.padding.left,
                         op.padding.top, *reversed(op.dilation), p.act_min, p.act_max)  # fmt: skip
    code = _convolved("cmsis_nn_conv_params", f"arm_convolve_wrapper_{layer.kind}", params, layer, sources)
    if layer.kind != "s16":
        return code
    plain = str(layer.sig.inputs[2].dtype is DType.INT32).lower()
    bias = f"const cmsis_nn_bias_data bias_data = {{{layer.names[2]}, {plain}}};"
    lines = tuple(line.replace(f"&biases, {layer.names[2]},", "&biases, &bias_data,") for line in code.lines)
    return CmsisCode((bias, *lines), code.functions, code.consts, code.buffer)


def depthwise(layer: CmsisLayer, sources: CmsisSources) -> CmsisCode:
    op, sig, p = layer.op, layer.sig, layer.op.parameters(layer.sig)
    multiplier = sig.y.shape[3] // sig.x.shape[3]
    corner, clamp = (op.padding.left, op.padding.top), (p.act_min, p.act_max)
    params = CmsisDepthwiseParams(
        p.input_offset, p.output_offset, multiplier, *op.stride[::-1], *corner, *op.dilation[::-1], *clamp
    )
    function = f"arm_depthwise_conv_wrapper_{layer.kind}"
    return _convolved("cmsis_nn_dw_conv_params", function, params, layer, sources)


def _convolved(
    kind: str, function: str, params: ctypes.Structure, layer: CmsisLayer, sources: CmsisSources
) -> CmsisCode:
    sig = layer.sig
    x, w, y = (dims(v.shape) for v in (sig.x, sig.inputs[1], sig.y))
    nbytes = sources.size(layer.sized(function), params, x, w, y)
    quant, consts = per_channel(layer.op.parameters(sig))
    source, weights, bias = layer.names
    lines = [
        f"static const {kind} params = {{",
        *(f"    {field}," for field in _nested(params)),
        "};",
        *declare(input=x, filter=w, biases=dims((sig.y.shape[3],)), output=y),
        quant,
        context(nbytes),
        call(function, "&context", "&params", "&quant", "&input", source, "&filter", weights,
             "&biases", bias, "&output", "y0"),
    ]  # fmt: skip
    return CmsisCode(tuple(lines), (function,), consts, nbytes)


def _nested(params: ctypes.Structure) -> list[str]:
    # The fields with their names; those of tiles and clamps as C nests them.
    inner = {"_w": ".w", "_h": ".h"}
    parts = []
    for name, *_ in params._fields_:
        field = name
        for ending, member in inner.items():
            field = field.removesuffix(ending) + member if field.endswith(ending) else field
        field = {"act_min": "activation.min", "act_max": "activation.max"}.get(name, field)
        parts.append(f".{field} = {getattr(params, name)}")
    return parts


def pool(layer: CmsisLayer, sources: CmsisSources) -> CmsisCode:
    op, sig, p = layer.op, layer.sig, layer.op.parameters(layer.sig)
    average = isinstance(op, AveragePool2d)
    function = f"arm_avgpool_{layer.kind}" if average else f"arm_max_pool_{layer.kind}"
    nbytes = sources.size(layer.sized(function), sig.y.shape[2], sig.x.shape[3]) if average else 0
    tiles = ", ".join(f"{{{b}, {a}}}" for a, b in (op.stride, (op.padding.top, op.padding.left)))
    window = Four(1, *op.window, sig.x.shape[3])
    lines = [
        f"static const cmsis_nn_pool_params params = {{{tiles}, {{{p.act_min}, {p.act_max}}}}};",
        *declare(input=dims(sig.x.shape), filter=window, output=dims(sig.y.shape)),
        context(nbytes),
        call(function, "&context", "&params", "&input", layer.names[0], "&filter", "&output", "y0"),
    ]
    return CmsisCode(tuple(lines), (function,), (), nbytes)
