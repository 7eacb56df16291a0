"""Operators whose indices may be computed at run time; they never access memory outside of their tensors."""

from dataclasses import dataclass

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import operands
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.loops import Loop, index_of, merge, strides_of
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.portable.move import Copy, MoveView, moved, split_run
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.gather import DynamicSlice, DynamicUpdateSlice, Gather, GatherNd

__all__ = ["GatherNdView", "GatherView"]


@dataclass(frozen=True, slots=True)
class GatherView:
    """``batch`` times ``outer`` times ``count`` runs of ``run`` elements, with ``index`` a C expression of
    ``i``.
    """

    x: str
    index: str
    batch: int
    outer: int
    count: int
    length: int
    run: int


@dataclass(frozen=True, slots=True)
class GatherNdView:
    """``count`` runs of ``run`` elements; run ``n`` begins at the C expression ``first``."""

    x: str
    first: str
    count: int
    run: int


def _index(dtype: DType, name: str, most: int) -> str:
    # C for an index within 0 and ``most``.
    return f"crt_index({name}, {most})" if dtype is DType.INT64 else f"crt_min(crt_max({name}, 0), {most})"


@design(Gather, weights=None)
def gather(op: Gather, sig: Signature, target: Target) -> Kernel:
    batch, outer, length, run = op.sizes(sig)
    (x, indices), consts = operands(sig)
    count = sig.inputs[1].elements // batch
    index = _index(sig.inputs[1].dtype, f"{indices}[i]", length - 1)
    view = GatherView(x, index, batch, outer, count, length, run)
    runs, size = batch * outer * count, sig.y.dtype.itemsize
    work = Work().block("index", runs).copy(run * size, runs)
    return Kernel(design="gather", template="gather.c.j2", view=view, consts=consts, work=work)


@design(GatherNd, weights=None)
def gather_nd(op: GatherNd, sig: Signature, target: Target) -> Kernel:
    (x, indices), consts = operands(sig)
    strides = op.strides(sig)
    count = sig.inputs[1].elements // len(strides)
    run = sig.y.elements // count
    places = [f"(n * {len(strides)}) + {i}" for i in range(len(strides))]
    terms = [f"((int64_t){indices}[{at}] * {stride})" for at, stride in zip(places, strides, strict=True)]
    first = f"crt_index({' + '.join(terms) or '0'}, {sig.x.elements - run})"
    view = GatherNdView(x, first, count, run)
    work = Work().block("index", count).block("axis", count * len(strides), len(strides))
    work.copy(run * sig.y.dtype.itemsize, count)
    return Kernel(design="gather nd", template="gather_nd.c.j2", view=view, consts=consts, work=work)


@design(DynamicSlice, weights=None)
def dynamic_slice(op: DynamicSlice, sig: Signature, target: Target) -> Kernel:
    (x, begin), consts = operands(sig)
    loops, run = _runs(op.size, strides_of(sig.x.shape), strides_of(op.size))
    view = MoveView(
        (Copy(x, loops, f"first + {index_of(loops, 0)}", index_of(loops, 1), run),),
        lines=_first(sig, 1, begin, op.size),
    )
    return Kernel(
        design="slice", template="move.c.j2", view=view, consts=consts, work=moved(sig, view.copies)
    )


@design(DynamicUpdateSlice, weights=None)
def dynamic_update_slice(op: DynamicUpdateSlice, sig: Signature, target: Target) -> Kernel:
    """Copy the tensor unless the output already has its place, then write the update into it."""
    (x, update, begin), consts = operands(sig)
    size = sig.inputs[1].shape
    loops, run = _runs(size, strides_of(size), strides_of(sig.x.shape))
    whole = (
        f"if (y0 != {x}) {{",
        f"    crt_copy(y0, {x}, {sig.y.elements} * sizeof *y0);",
        "}",
    )
    view = MoveView(
        (Copy(update, loops, index_of(loops, 0), f"first + {index_of(loops, 1)}", run),),
        lines=(*_first(sig, 2, begin, size), *whole),
    )
    overlays = () if sig.x.is_constant else (InPlace(0, exact=False),)
    work = moved(sig, view.copies).block("whole", 1).copy(sig.y.nbytes, 1)
    return Kernel("update slice", "move.c.j2", view, consts, inplace=overlays, work=work)


def _first(sig: Signature, position: int, name: str, size: tuple[int, ...]) -> tuple[str, ...]:
    # C for the first element that a window of ``size`` has in ``x``, by the operand at ``position``.
    dtype, strides = sig.inputs[position].dtype, strides_of(sig.x.shape)
    terms = [
        f"{_index(dtype, f'{name}[{i}]', have - want)} * {stride}"
        for i, (have, want, stride) in enumerate(zip(sig.x.shape, size, strides, strict=True))
        if have > want
    ]
    if not terms:
        return f"(void){name};", "const int32_t first = 0;"
    return (f"const int32_t first = {' + '.join(terms)};",)


def _runs(
    size: tuple[int, ...], source: tuple[int, ...], to: tuple[int, ...]
) -> tuple[tuple[Loop, ...], int]:
    # The elements of a window: loops with both strides, and the innermost run.
    strides = zip(size, source, to, strict=True)
    return split_run(merge([Loop(n, (a, b)) for n, a, b in strides], 2))
