"""SVDF: each filter's product with the input, the advance of its memory, and the sum over the memory, in one
pass.
"""

from dataclasses import dataclass

from crtgen.compiler.kernels.arithmetic.epilogue import float_epilogue
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import clamped, stored
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.literal import plus
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import scheme_of
from crtgen.network.ops.svdf import Svdf

__all__ = ["SvdfView", "svdf_view"]


@dataclass(frozen=True, slots=True)
class SvdfView:
    """Sizes and types; ``stored`` and ``result`` are C expressions that convert the sums ``dot`` and
    ``total``.
    """

    x_type: str
    state_type: str
    sum_type: str
    batch: int
    inputs: int
    units: int
    rank: int
    memory: int
    offset: str
    zero: str
    stored: str
    result: str


@design(Svdf, types=(DType.INT8, DType.FLOAT32), weights=(1, 2, 3))
def svdf(op: Svdf, sig: Signature, target: Target) -> Kernel:
    x, feature, time, _, state = sig.inputs
    view = svdf_view(op, sig)
    names = ("feature", "time", "bias")
    consts = tuple(Const.of(n, v.array()) for n, v in zip(names, sig.inputs[1:4], strict=True))
    kind, batch = state.dtype.value, x.shape[0]
    work = (
        Work()
        .block(f"{kind} feature", batch * feature.elements)
        .block(f"{kind} filter", batch * time.shape[0])
    )
    work.block(f"{kind} time", batch * time.elements)
    return Kernel("svdf", "svdf.c.j2", view, consts, inplace=(InPlace(input=4, output=1),), work=work)


def svdf_view(op: Svdf, sig: Signature) -> SvdfView:
    x, _, time, _, state = sig.inputs
    filters, memory = time.shape
    offset, zero, kept, result = _integer(op, sig)
    if scheme_of(x).is_real:
        epilogue = float_epilogue(op.activation)
        result = f"crt_maxf(total, {epilogue.low})" if epilogue.low else "total"
        result = f"crt_minf({result}, {epilogue.high})" if epilogue.high else result
    return SvdfView(
        x_type=x.dtype.c_name,
        state_type=state.dtype.c_name,
        sum_type=scheme_of(x).accumulators.c_name,
        batch=x.shape[0],
        inputs=x.shape[1],
        units=filters // op.rank,
        rank=op.rank,
        memory=memory,
        offset=offset,
        zero=zero,
        stored=kept,
        result=result,
    )


def _integer(op: Svdf, sig: Signature) -> tuple[str, str, str, str]:
    # The zero points of input and state, and what becomes of both sums.
    if scheme_of(sig.x).is_real:
        return "", "", "dot", ""
    p = op.parameters(sig)
    state, (multiplier, shift) = scheme_of(sig.inputs[4]), p.time
    scaled = clamped(sig.inputs[4], f"crt_scale(dot, {p.feature[0]}, {p.feature[1]})", *state.limits)
    total = f"crt_scale(total, {multiplier}, {shift}) {plus(p.output_offset)}"
    kept = stored(sig.inputs[4], f"{scaled} {plus(p.state_zero_point)}")
    result = clamped(sig.y, total, *scheme_of(sig.y).limits)
    return plus(p.input_offset), plus(-p.state_zero_point), kept, result
