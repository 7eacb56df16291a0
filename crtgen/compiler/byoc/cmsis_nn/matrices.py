"""Matrix products: fully connected layers, and products of two computed operands."""

from crtgen.compiler.byoc.cmsis_nn.layer import (
    CmsisCode,
    CmsisLayer,
    Four,
    call,
    context,
    declare,
    dims,
    has_own_scales,
    per_channel,
)
from crtgen.compiler.byoc.cmsis_nn.sources import CmsisSources
from crtgen.compiler.kernels.engine.kernel import Const
from crtgen.network.ops.scheme import scheme_of

__all__ = ["PER_CHANNEL", "fully_connected", "matmul"]

PER_CHANNEL = "arm_fully_connected_per_channel_s8"
"""Only newer releases have it, and only for int8."""


def fully_connected(layer: CmsisLayer, sources: CmsisSources) -> CmsisCode:
    """Return a call of ``arm_fully_connected``; for int8 with Helium it needs sums of weights, which are
    computed in every run.
    """
    sig, p = layer.sig, layer.op.parameters(layer.sig)
    outputs, depth = sig.inputs[1].shape
    rows = sig.x.elements // depth
    function, weights = f"arm_fully_connected_{layer.kind}", Four(depth, 1, 1, outputs)
    buffered = layer.kind != "s4"
    sized = f"{function}_get_buffer_size_{layer.extension or 'dsp'}"
    quant = f"static const cmsis_nn_per_tensor_quant_params quant = {{{p.multipliers[0]}, {p.shifts[0]}}};"
    consts: tuple[Const, ...] = ()
    if has_own_scales(p):
        function = PER_CHANNEL
        quant, consts = per_channel(p)
    nbytes = sources.size(sized, weights) if buffered else 0
    source, matrix, bias = layer.names
    lines = [
        f"static const cmsis_nn_fc_params params = {{{p.input_offset}, 0, {p.output_offset}, "
        f"{{{p.act_min}, {p.act_max}}}}};",
        quant,
        *declare(input=Four(rows, 1, 1, depth), filter=weights, biases=dims((outputs,)),
                 output=Four(rows, 1, 1, outputs)),
        context(nbytes),
    ]  # fmt: skip
    functions = [function]
    if nbytes:
        functions.append("arm_vector_sum_s8")
        sums = "(int32_t *)(void *)scratch"
        lines.append(call(functions[-1], sums, depth, outputs, matrix, p.input_offset, 0, bias))
    lines.append(
        call(function, "&context", "&params", "&quant", "&input", source, "&filter", matrix,
             "&biases", bias, "&output", "y0")
    )  # fmt: skip
    return CmsisCode(tuple(lines), tuple(functions), consts, nbytes)


def matmul(layer: CmsisLayer, sources: CmsisSources) -> CmsisCode:
    """Return a call of ``arm_batch_matmul``; the columns of the second operand must be contiguous."""
    sig, p = layer.sig, layer.op.parameters(layer.sig)
    a, b = sig.inputs
    nbytes = 4 * b.shape[-2] if layer.extension == "mve" and layer.kind == "s8" else 0
    low, high = scheme_of(sig.y).limits
    function = f"arm_batch_matmul_{layer.kind}"
    lines = [
        f"static const cmsis_nn_bmm_params params = {{false, false, {{{p.input1_offset}, {p.input2_offset}, "
        f"{p.output_offset}, {{{low}, {high}}}}}}};",
        f"static const cmsis_nn_per_tensor_quant_params quant = {{{p.multiplier}, {p.shift}}};",
        *declare(first=dims(a.shape), second=dims(b.shape), output=dims(sig.y.shape)),
        context(nbytes),
        call(function, "&context", "&params", "&quant", "&first", layer.names[0], "&second", layer.names[1],
             "&output", "y0"),
    ]  # fmt: skip
    return CmsisCode(tuple(lines), (function,), (), nbytes)
