"""Element-wise operators: sums, products, maxima and minima, activations; also softmax and moves of
elements.
"""

from math import prod

from crtgen.compiler.byoc.cmsis_nn.layer import CmsisCode, CmsisLayer, Four, call, declare, dims
from crtgen.compiler.byoc.cmsis_nn.sources import CmsisSources
from crtgen.compiler.kernels.engine.kernel import Const
from crtgen.network.ir import DType
from crtgen.network.ops import Tanh
from crtgen.network.ops.sigmoid16 import Sigmoid16Params
from crtgen.network.ops.softmax16 import Softmax16Params, exp_table, reciprocal_table

__all__ = ["activation", "add", "extreme", "left_shift", "mul", "pad", "softmax", "transpose"]


def add(layer: CmsisLayer, sources: CmsisSources) -> CmsisCode:
    p = layer.op.parameters(layer.sig)
    function = f"arm_elementwise_add_{layer.kind}"
    line = call(
        function, *layer.names,
        p.input1_offset, p.input1_multiplier, p.input1_shift,
        p.input2_offset, p.input2_multiplier, p.input2_shift, p.left_shift,
        "y0", p.output_offset, p.output_multiplier, p.output_shift, p.act_min, p.act_max,
        layer.sig.y.elements,
    )  # fmt: skip
    return CmsisCode((line,), (function,))


def mul(layer: CmsisLayer, sources: CmsisSources) -> CmsisCode:
    p = layer.op.parameters(layer.sig)
    function = f"arm_elementwise_mul_{layer.kind}"
    line = call(
        function, *layer.names, p.input1_offset, p.input2_offset,
        "y0", p.output_offset, p.output_multiplier, p.output_shift, p.act_min, p.act_max,
        layer.sig.y.elements,
    )  # fmt: skip
    return CmsisCode((line,), (function,))


def extreme(layer: CmsisLayer, sources: CmsisSources) -> CmsisCode:
    """Return a call of ``arm_maximum_s8`` or ``arm_minimum_s8``, which broadcast."""
    function = f"arm_{layer.op.name}_s8"
    a, b = (dims(v.shape) for v in layer.sig.inputs)
    first, second = layer.names
    lines = (
        *declare(first=a, second=b, output=dims(layer.sig.y.shape)),
        call(function, "NULL", first, "&first", second, "&second", "y0", "&output"),
    )
    return CmsisCode(lines, (function,))


def left_shift(params: object) -> int | None:
    """Return the input scale in the form that ``arm_nn_activation_s16`` expects; None if that form cannot
    express it.
    """
    if not isinstance(params, Sigmoid16Params):
        return None
    power = (params.multiplier // 3).bit_length() - 1
    if params.multiplier != 3 << max(power, 0) or (power and params.shift):
        return None
    return power - params.shift


def activation(layer: CmsisLayer, sources: CmsisSources) -> CmsisCode:
    shift = left_shift(layer.op.parameters(layer.sig))
    kind = "ARM_TANH" if isinstance(layer.op, Tanh) else "ARM_SIGMOID"
    line = call("arm_nn_activation_s16", layer.names[0], "y0", layer.sig.y.elements, shift, kind)
    return CmsisCode((line,), ("arm_nn_activation_s16",))


def softmax(layer: CmsisLayer, sources: CmsisSources) -> CmsisCode:
    p, shape = layer.op.parameters(layer.sig), layer.sig.y.shape
    rows, source = (prod(shape[:-1]), shape[-1]), layer.names[0]
    if isinstance(p, Softmax16Params):
        consts = (Const.of("exponents", exp_table(), 4), Const.of("reciprocals", reciprocal_table(), 4))
        tables = "const cmsis_nn_softmax_lut_s16 tables = {exponents, reciprocals};"
        line = call("arm_softmax_s16", source, *rows, p.multiplier, p.shift, "&tables", "y0")
        return CmsisCode((tables, line), ("arm_softmax_s16",), consts)
    function = "arm_softmax_s8_s16" if layer.sig.y.dtype is DType.INT16 else "arm_softmax_s8"
    numbers = (p.input_multiplier, p.input_left_shift, p.diff_min)
    return CmsisCode((f"{function}({', '.join(map(str, (source, *rows, *numbers, 'y0')))});",), (function,))


def pad(layer: CmsisLayer, sources: CmsisSources) -> CmsisCode:
    op, shape = layer.op, layer.sig.x.shape
    none = (0,) * (4 - len(shape))
    lines = (
        *declare(input=dims(shape), before=Four(*none, *op.before), after=Four(*none, *op.after)),
        call("arm_pad_s8", layer.names[0], "y0", op.fill(layer.sig), "&input", "&before", "&after"),
    )
    return CmsisCode(lines, ("arm_pad_s8",))


def transpose(layer: CmsisLayer, sources: CmsisSources) -> CmsisCode:
    """Return a call of ``arm_transpose_s8``, whose shapes begin with their first axis."""
    perm = layer.op.perm
    x, y = (Four(*v.shape, *(1,) * (4 - len(v.shape))) for v in (layer.sig.x, layer.sig.y))
    lines = (
        f"static const uint32_t axes[] = {{{', '.join(map(str, perm))}}};",
        f"static const cmsis_nn_transpose_params params = {{{len(perm)}, axes}};",
        *declare(input=x, output=y),
        call("arm_transpose_s8", layer.names[0], "y0", "&input", "&output", "&params"),
    )
    return CmsisCode(lines, ("arm_transpose_s8",))
