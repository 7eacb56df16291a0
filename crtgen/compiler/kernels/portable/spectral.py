"""Features in float32: windows, powers, bands, logarithms."""

from dataclasses import dataclass, replace

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.literal import c_float, plus
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import DType, Op, Signature
from crtgen.network.ops.spectral import LOG_TERMS, Bands, Frame, Power, RemoveMean, RoundedRatio, ScaledLog
from crtgen.network.ops.statistics import Biquads, Moments

__all__ = ["LogView", "RatioView", "SpectralView"]


@dataclass(frozen=True, slots=True)
class SpectralView:
    """An operator with its attributes: ``rows`` of ``inputs`` values become rows of ``outputs`` values.

    ``sections`` are those of a filter. ``type`` is the C type of the input; ``preemphasis`` is a literal, or
    empty for none, ``before`` the sample before the first one.
    """

    op: Op
    type: str
    rows: int
    inputs: int
    outputs: int
    preemphasis: str = ""
    before: str = ""
    sections: int = 0


@dataclass(frozen=True, slots=True)
class LogView:
    op: Op
    outputs: int
    floor: str
    scale: str
    offset: str
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RatioView:
    """A ratio; ``offset`` is the addend, in C."""

    op: Op
    outputs: int
    offset: str


def _view(op: Op, sig: Signature, rows: int = 1) -> SpectralView:
    return SpectralView(op, sig.x.dtype.c_name, rows, sig.x.elements // rows, sig.y.elements // rows)


def _before(op: Frame, sig: Signature) -> str:
    place = op.before.place(op.start, sig.x.elements)
    return "0.0f" if place is None else f"(float)x[{place}]"


@design(Frame, weights=(1,))
def frame(op: Frame, sig: Signature, target: Target) -> Kernel:
    """Convert, take differences and apply the window in one pass."""
    factor = c_float(op.preemphasis) if op.preemphasis else ""
    kind = f"{sig.x.dtype.value} {'difference' if factor else 'sample'}"
    return Kernel(
        design="frame",
        template="spectral/frame.c.j2",
        view=replace(_view(op, sig), preemphasis=factor, before=_before(op, sig)),
        consts=(Const.of("weights", sig.inputs[1].array(), 4),),
        work=Work().block(kind, sig.y.elements),
    )


@design(RemoveMean)
def remove_mean(op: RemoveMean, sig: Signature, target: Target) -> Kernel:
    work = Work().block("sample", sig.y.elements)
    return Kernel("remove_mean", "spectral/remove_mean.c.j2", _view(op, sig), work=work)


@design(Power)
def power(op: Power, sig: Signature, target: Target) -> Kernel:
    """Add two squares for each output; outputs overwrite the inputs from which they are computed."""
    work = Work().block("root" if op.root else "pair", sig.y.elements)
    return Kernel(
        design="power",
        template="spectral/power.c.j2",
        view=_view(op, sig),
        inplace=(InPlace(),),
        work=work,
    )


@design(Bands, weights=(1, 2, 3))
def bands(op: Bands, sig: Signature, target: Target) -> Kernel:
    # Add up only values with a nonzero weight.
    rows = sig.x.elements // sig.x.shape[-1]
    pairs = zip(("weights", "first", "widths"), sig.inputs[1:], strict=True)
    consts = tuple(Const.of(name, value.array(), value.dtype.itemsize) for name, value in pairs)
    work = Work().block("band", sig.y.elements).block("product", rows * sig.inputs[1].elements)
    return Kernel("bands", "spectral/bands.c.j2", _view(op, sig, rows), consts, work=work)


@design(ScaledLog)
def scaled_log(op: ScaledLog, sig: Signature, target: Target) -> Kernel:
    floor, scale, offset = (c_float(n) for n in (op.floor, op.scale, op.offset))
    terms = tuple(c_float(float(term)) for term in LOG_TERMS)
    view = LogView(op, sig.y.elements, floor, scale, offset, terms)
    work = Work().block("number", sig.y.elements)
    return Kernel("scaled_log", "spectral/scaled_log.c.j2", view, inplace=(InPlace(),), work=work)


@design(RoundedRatio, to=DType.INT8, types=(DType.INT16,))
def rounded_ratio(op: RoundedRatio, sig: Signature, target: Target) -> Kernel:
    view = RatioView(op, sig.y.elements, plus(op.zero_point))
    work = Work().block("number", sig.y.elements)
    return Kernel("rounded_ratio", "spectral/rounded_ratio.c.j2", view, inplace=(InPlace(),), work=work)


@design(Moments)
def moments(op: Moments, sig: Signature, target: Target) -> Kernel:
    rows = sig.x.elements // sig.x.shape[-1]
    work = Work().block("row", rows).block("number", sig.x.elements)
    return Kernel("moments", "spectral/moments.c.j2", _view(op, sig, rows), work=work)


@design(Biquads, weights=(1,))
def biquads(op: Biquads, sig: Signature, target: Target) -> Kernel:
    rows, sections = sig.x.elements // sig.x.shape[-1], sig.inputs[1].shape[0]
    return Kernel(
        design="biquads",
        template="spectral/biquads.c.j2",
        view=replace(_view(op, sig, rows), sections=sections),
        consts=(Const.of("sections", sig.inputs[1].array(), 4),),
        inplace=(InPlace(),),
        work=Work().block("section", rows * sections).block("number", sig.x.elements * sections),
    )
