"""Operators that write to positions given by indices, and never outside of their tensors."""

from dataclasses import dataclass

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import operands, stored
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.loops import Loop, index_of, strides_of
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.scatter import Scatter, ScatterElements, ScatterNd

__all__ = ["ScatterView"]


@dataclass(frozen=True, slots=True)
class ScatterView:
    """``x`` is copied, then for each of ``loops`` a value ``b`` is written to the element ``at``.

    ``first`` is C code before the innermost loop, ``result`` the new value in terms of ``b`` and, if it
    ``reads``, the element ``a``.
    """

    x: str
    elements: int
    updates: str
    type: str
    loops: tuple[Loop, ...]
    first: str
    at: str
    reads: bool
    result: str


@design(ScatterNd, weights=None)
def scatter_nd(op: ScatterNd, sig: Signature, target: Target) -> Kernel:
    (_, indices, _), _ = operands(sig)
    strides, run = op.strides(sig), op.run(sig)
    places = [f"(i0 * {len(strides)}) + {i}" for i in range(len(strides))]
    terms = [f"((int64_t){indices}[{at}] * {stride})" for at, stride in zip(places, strides, strict=True)]
    first = f"crt_index({' + '.join(terms)}, {sig.x.elements - run})"
    loops = (Loop(sig.inputs[2].elements // run, ()), Loop(run, ()))
    return _kernel(op, sig, loops, first, "first + i1")


@design(ScatterElements, weights=None)
def scatter_elements(op: ScatterElements, sig: Signature, target: Target) -> Kernel:
    (_, indices, _), _ = operands(sig)
    shape, strides = sig.inputs[1].shape, strides_of(sig.x.shape)
    own = tuple(0 if a == op.axis else s for a, s in enumerate(strides))
    loops = tuple(Loop(n, (s,)) for n, s in zip(shape, own, strict=True))
    index, most = f"{indices}[n]", sig.x.shape[op.axis] - 1
    wide = sig.inputs[1].dtype is DType.INT64
    inside = f"crt_index({index}, {most})" if wide else f"crt_min(crt_max({index}, 0), {most})"
    return _kernel(op, sig, loops, "", f"{inside} * {strides[op.axis]} + {index_of(loops, 0)}")


def _kernel(op: Scatter, sig: Signature, loops: tuple[Loop, ...], first: str, at: str) -> Kernel:
    (x, _, updates), consts = operands(sig)
    view = ScatterView(
        x=x,
        elements=sig.y.elements,
        updates=updates,
        type=sig.x.dtype.c_name,
        loops=loops,
        first=first,
        at=at,
        reads=op.reduction != "none",
        result=_result(op, sig),
    )
    count, kind = sig.inputs[2].elements, sig.x.dtype.value
    work = (
        Work()
        .words(f"{kind} element", count, view.result)
        .words("index", loops[0].count if first else count, first or at)
    )
    work.copy(sig.y.nbytes, 1)
    overlays = () if sig.x.is_constant else (InPlace(0),)
    return Kernel(op.name.replace("_", " "), "scatter.c.j2", view, consts, inplace=overlays, work=work)


def _result(op: Scatter, sig: Signature) -> str:
    # C of the element ``a`` and the update ``b``; integers without a sign, where C would not wrap.
    kind, sign = sig.x.dtype, {"add": "+", "mul": "*", "max": ">", "min": "<"}.get(op.reduction)
    if sign is None:
        return "b"
    if sign in "<>":
        return f"(a {sign} b) ? a : b"
    if not kind.is_integer:
        return f"a {sign} b"
    wide = "uint64_t" if kind.itemsize == 8 else "uint32_t"
    made = f"({kind.c_name})(({wide})a {sign} ({wide})b)"
    return made if kind.itemsize >= 4 else stored(sig.y, f"a {sign} b")
