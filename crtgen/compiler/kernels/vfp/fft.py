"""Transforms of float32 on an FPU: stages of radix 4 and the final separation in assembly, the first stage in
C.
"""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np

from crtgen.compiler.kernels.asm import Function, Routine, Runs, listed
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.portable.signal import FftView, rfft
from crtgen.compiler.kernels.shared.transform import Stages, apart_function, stage_function
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.fft import Rfft, turns

__all__ = ["transform"]

_PAIR = 8  # bytes of a complex number


@design(Rfft, types=(DType.FLOAT32,), needs="vfp")
def transform(op: Rfft, sig: Signature, target: Target) -> Kernel | None:
    """Transforms whose twiddle factors are stored in reading order; None for stages of a radix other than 4,
    and for a single stage.
    """
    plan = Stages.of(op.length // 2, eight=True)
    if plan is None or not plan.sizes:
        return None
    portable = rfft(op, sig, target)
    assert isinstance(portable.view, FftView)
    count, sizes = plan.count, plan.sizes
    table = turns(count, DType.FLOAT32)[plan.turns()].ravel().astype(np.float32)
    rows, stage, apart = portable.view.rows, _stage(), _apart(count)
    counted = apart.runs() + Runs.sum(stage.runs(groups=count // (4 * size), numbers=size) for size in sizes)
    work = Work(rows * counted).block("row", rows).block("stage", rows * len(sizes), len(sizes))
    return replace(
        portable,
        design="vfp radix 4",
        view=replace(portable.view, starts=tuple(start for _, _, start in plan.calls(_PAIR))),
        consts=tuple(
            Const.of("twiddles", table, 4, "three for each number of a stage") if c.name == "twiddles" else c
            for c in portable.consts
        ),
        work=work.block(f"first of {plan.first}", rows * count // plan.first),
        routines=(stage, apart),
    )


@cache
def _stage() -> Routine:
    # ``stage(x, turns, bytes, groups)``: groups of four transforms of so many bytes become one each.
    f = stage_function("float", keep=(1,))
    x, turn, step, left = f.arguments
    parts = (x, *f.cores("numbers", 3))
    numbers, far = f.cores("numbers left; to the next group", 2)
    q = [f.singles("numbers", 2) for _ in range(4)]
    by, spare = f.singles("turns", 6), f.singles("products, sums", 8)
    for before, part in pairwise(parts):
        f("add", part, before, step)
    f("add", far, step, step, "lsl #1")
    with f.loop("groups", "groups") as next_group:
        f("ldr", turn, f.kept[1])
        f("lsr", numbers, step, "#3")
        with f.loop("numbers", "numbers") as again:
            f("vldmia", f"{turn}!", listed(by))
            for (real, imaginary), part in zip(q, parts, strict=True):
                f("vldmia", part, listed((real, imaginary)))
            for number, pair in enumerate(q[1:]):
                _turn(f, pair, by[2 * number : 2 * number + 2], spare)
            _four(f, q, spare)
            for pair, part in zip(q, parts, strict=True):
                f("vstmia", f"{part}!", listed(pair))
            f("subs", numbers, numbers, "#1")
            f("bne", again)
        for part in parts:
            f("add", part, part, far)
        f("subs", left, left, "#1")
        f("bne", next_group)
    return f.done()


def _turn(f: Function, x: tuple[str, ...], by: tuple[str, ...], spare: tuple[str, ...]) -> None:
    (real, imaginary), (a, b, c, d, *_) = x, spare
    f("vmul.f32", a, real, by[0])
    f("vmul.f32", b, imaginary, by[1])
    f("vmul.f32", c, real, by[1])
    f("vmul.f32", d, imaginary, by[0])
    f("vsub.f32", real, a, b)
    f("vadd.f32", imaginary, c, d)


def _four(f: Function, x: list[tuple[str, ...]], spare: tuple[str, ...]) -> None:
    # A transform of four numbers, in their places.
    (ar, ai), (br, bi), (cr, ci), (dr, di) = x
    even, odd, total, rest = (spare[n : n + 2] for n in range(0, 8, 2))
    for plus, minus, p, q in ((even, odd, x[0], x[2]), (total, rest, x[1], x[3])):
        for part in (0, 1):
            f("vadd.f32", plus[part], p[part], q[part])
            f("vsub.f32", minus[part], p[part], q[part])
    f("vadd.f32", ar, even[0], total[0])
    f("vadd.f32", ai, even[1], total[1])
    f("vsub.f32", cr, even[0], total[0])
    f("vsub.f32", ci, even[1], total[1])
    f("vadd.f32", br, odd[0], rest[1])
    f("vsub.f32", bi, odd[1], rest[0])
    f("vsub.f32", dr, odd[0], rest[1])
    f("vadd.f32", di, odd[1], rest[0])


@cache
def _apart(count: int) -> Routine:
    # ``apart(x, y, halves)``: all but the ends of a transform of real numbers.
    f = apart_function("float")
    x, y, halves = f.arguments
    x_far, y_far = f.cores("numbers from the end", 2)
    near, far, by = (f.singles(role, 2) for role in ("near", "far", "turns"))
    total, rest, products = f.singles("sums", 2), f.singles("differences", 2), f.singles("products", 4)
    half = f.singles("one half", 1)[0]
    f.add(x_far, x, _PAIR * count)
    f.add(y_far, y, _PAIR * count)
    f("add", x, x, f"#{_PAIR}")
    f("add", y, y, f"#{_PAIR}")
    f("vmov.f32", half, "#0.5")
    with f.repeated("numbers", count // 2):
        f("vldmia", f"{x}!", listed(near))
        f("vldmdb", f"{x_far}!", listed(far))
        f("vldmia", f"{halves}!", listed(by))
        f("vadd.f32", total[0], near[0], far[0])
        f("vsub.f32", total[1], near[1], far[1])
        f("vsub.f32", rest[0], near[0], far[0])
        f("vadd.f32", rest[1], near[1], far[1])
        _turn(f, rest, by, products)
        for to, sign in ((near, "add"), (far, "sub")):
            for part in (0, 1):
                f(f"v{sign}.f32", to[part], total[part], rest[part])
        for number in (*near, far[0]):
            f("vmul.f32", number, number, half)
        f("vnmul.f32", far[1], far[1], half)
        f("vstmia", f"{y}!", listed(near))
        f("vstmdb", f"{y_far}!", listed(far))
    return f.done()
