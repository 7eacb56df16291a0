"""Float32 features with Helium: windows, powers, bands, logarithms, with sums in the defined order."""

import numpy as np

from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import bits_of
from crtgen.compiler.kernels.mve.elements import (
    ElementSteps,
    Operands,
    StoreForm,
    elementwise,
    spread,
    unrolling,
    walk,
)
from crtgen.compiler.kernels.shared.single_routine import single_routine
from crtgen.compiler.kernels.shared.spectral_asm import (
    FrameWriter,
    bands_function,
    frame_function,
    power_function,
)
from crtgen.network.ir import Signature
from crtgen.network.ops.spectral import LOG_TERMS, Bands, Frame, LogFloor, Power, ScaledLog

__all__ = ["bands", "frame", "power", "scaled_log"]

_LANES, _VECTOR = 4, 16


@design(Frame, needs="mve", weights=(1,))
def frame(op: Frame, sig: Signature, target: Target) -> Kernel:
    """Convert samples, subtract their predecessors and apply the window, four at a time; the first sample is
    computed separately.
    """
    f = frame_function(sig)
    taken = _HeliumFrame(f, op, sig)
    count = sig.y.elements - taken.first()
    rounds, rest = divmod(count, _LANES * unrolling(target))
    if rounds:
        with f.low_overhead_loop("samples", rounds):
            for _ in range(unrolling(target)):
                taken.vector()
    if rest:
        with f.predicated_loop("rest", 32, rest):
            taken.vector()
    return single_routine("mve frame", f.done(), [Const.of("weights", sig.inputs[1].array(), 4)])


class _HeliumFrame(FrameWriter):
    def __init__(self, f: Function, op: Frame, sig: Signature) -> None:
        super().__init__(f, op, sig)
        self.now, self.before = f.vectors("samples, those before", 2)
        self.factor = f.constant("preemphasis", bits_of(op.preemphasis)) if op.preemphasis else ""

    def first(self) -> int:
        """Return the number of samples already computed: one, if the sample before the first one is not in
        memory before it.
        """
        f, op = self.f, self.op
        f.advance(self.x, self.size * op.start)
        if not self.factor or self.place == -1:
            return 0
        now, before, factor = f.singles("a sample, the one before, a factor", 3)
        self._single(now, self.x, 0)
        if self.place is None:
            zero = f.constant("zero", 0)
            f("vmov", before, zero)
            f.free(zero)
        else:
            self._single(before, self.x, self.place)
        f("vmov", factor, self.factor)
        f("vmul.f32", before, before, factor)
        f("vsub.f32", now, now, before)
        f("vldr", before, f"[{self.weights}]")
        f("vmul.f32", now, now, before)
        f("vstr", now, f"[{self.y}]")
        for pointer, step in ((self.x, self.size), (self.weights, 4), (self.y, 4)):
            f.advance(pointer, step)
        f.free(now, before, factor)
        return 1

    def _single(self, to: str, x: str, place: int) -> None:
        f, at = self.f, self.f.core("place")
        f.add(at, x, self.size * place)
        if self.short:
            f("ldrsh", at, f"[{at}]")
            f("vmov", to, at)
            f("vcvt.f32.s32", to, to)
        else:
            f("vldr", to, f"[{at}]")
        f.free(at)

    def _load(self, to: str, address: str) -> None:
        self.f("vldrh.s32" if self.short else "vldrw.u32", to, address)
        if self.short:
            self.f("vcvt.f32.s32", to, to)

    def vector(self) -> None:
        f, now, before = self.f, self.now, self.before
        if self.factor:
            self._load(before, f"[{self.x}, #-{self.size}]")
            f("vmul.f32", before, before, self.factor)
        self._load(now, f"[{self.x}], #{_LANES * self.size}")
        if self.factor:
            f("vsub.f32", now, now, before)
        f("vldrw.u32", before, f"[{self.weights}], #{_VECTOR}")
        f("vmul.f32", now, now, before)
        f("vstrw.32", now, f"[{self.y}], #{_VECTOR}")


@design(Power, needs="mve")
def power(op: Power, sig: Signature, target: Target) -> Kernel:
    f = power_function(sig, no_alias=True)
    x, y = f.arguments
    real, imaginary = f.vectors("real and imaginary parts", 2)
    pair, singles = f"{{{real}, {imaginary}}}", f.singles("the same, one by one", 2 * _LANES)
    rounds, rest = divmod(sig.y.elements, _LANES)

    def roots(count: int) -> None:
        for single in singles[: count if op.root else 0]:
            f("vsqrt.f32", single, single)

    a, b, *_ = singles

    if rounds:
        with f.low_overhead_loop("powers", rounds):
            f("vld20.32", pair, f"[{x}]")
            f("vld21.32", pair, f"[{x}]!")
            f("vmul.f32", real, real, real)
            f("vmul.f32", imaginary, imaginary, imaginary)
            f("vadd.f32", real, real, imaginary)
            roots(_LANES)
            f("vstrw.32", real, f"[{y}], #{_VECTOR}")
    for _ in range(rest):
        f("vldmia", f"{x}!", f"{{{a}, {b}}}")
        f("vmul.f32", a, a, a)
        f("vmul.f32", b, b, b)
        f("vadd.f32", a, a, b)
        roots(1)
        f("vstmia", f"{y}!", f"{{{a}}}")
    return single_routine("mve power", f.done(), inplace=True)


@design(Bands, needs="mve", weights=(1, 2, 3))
def bands(op: Bands, sig: Signature, target: Target) -> Kernel:
    """Compute four sums at a time, each with its own number of products: gather loads under masks."""
    rows, count = sig.x.elements // sig.x.shape[-1], sig.y.shape[-1]
    groups = _groups(sig)
    table = np.concatenate([words for _, words in groups]).astype(np.uint32)
    steps = np.array([rounds for rounds, _ in groups], np.uint16)
    routine = _bands(rows, sig.x.shape[-1], count)
    consts = (
        Const.of("sums", table, 4, "of four: bytes to the first number, bytes of numbers, then weights"),
        Const.of("steps", steps, 2),
    )
    return single_routine("mve bands", routine, consts, groups=len(groups), steps=float(steps.mean()))


def _groups(sig: Signature) -> list[tuple[int, np.ndarray[tuple[int, ...], np.dtype[np.uint32]]]]:
    # For each four bands, the products of the longest one, and the words that are read for them.
    weights, first, widths = (v.array() for v in sig.inputs[1:])
    starts, counts = first.astype(np.int64), widths.astype(np.int64)
    ends = np.cumsum(counts)
    groups = []
    for begin in range(0, len(starts), _LANES):
        lanes = range(begin, min(begin + _LANES, len(starts)))
        most = max(1, *(int(counts[lane]) for lane in lanes))
        factors = np.zeros((most, _LANES), np.float32)
        head = np.zeros((2, _LANES), np.uint32)
        for place, lane in enumerate(lanes):
            factors[: counts[lane], place] = weights[ends[lane] - counts[lane] : ends[lane]]
            head[:, place] = 4 * starts[lane], 4 * counts[lane]
        groups.append((most, np.concatenate([head.ravel(), factors.ravel().view(np.uint32)])))
    return groups


def _bands(rows: int, numbers: int, count: int) -> Routine:
    f = bands_function(rows, count, ("const uint32_t *sums", "const uint16_t *steps"), no_alias=True)
    x, y, sums, steps = f.arguments
    at, rounds, left = f.cores("numbers; products; sums left", 3)
    places, ends, total, product, weight = f.vectors("places; ends; sums; products; weights", 5)
    with f.repeated("rows", rows):
        if rows > 1:
            f("ldr", sums, f.kept[2])
            f("ldr", steps, f.kept[3])
        f.number(left, count)
        with f.loop("groups", "groups") as again:
            f("vldrw.u32", places, f"[{sums}], #{_VECTOR}")
            f("vldrw.u32", ends, f"[{sums}], #{_VECTOR}")
            f("ldrh", rounds, f"[{steps}], #2")
            f("vadd.i32", ends, ends, x)
            f("mov", at, x)
            f("vmov.i32", total, "#0")
            with f.low_overhead_loop("products", "steps", rounds):
                f("vpt.u32", "hi", ends, at)
                f("vldrwt.u32", product, f"[{at}, {places}]")
                f("add", at, at, "#4")
                f("vldrw.u32", weight, f"[{sums}], #{_VECTOR}")
                f("vmul.f32", product, product, weight)
                f("vadd.f32", total, total, product)
            f("vctp.32", left)
            f("vpst")
            f("vstrwt.32", total, f"[{y}], #{_VECTOR}")
            f("subs", left, left, f"#{_LANES}")
            f("bhi", again)
        if rows > 1:
            f.advance(x, 4 * numbers)
            f.advance(y, 4 * (count - _LANES * -(-count // _LANES)))
    return f.done()


@design(ScaledLog, needs="mve")
def scaled_log(op: ScaledLog, sig: Signature, target: Target) -> Kernel | None:
    return elementwise(
        "mve log",
        sig,
        target,
        walk(sig),
        lambda o: _Log(o, op).steps,
        StoreForm(store="vstrw.32", step=_VECTOR),
    )


class _Log:
    """Appends logarithms. A float with the bits b is ``m 2^e`` with m from ``sqrt(1/2)`` to ``sqrt(2)``.

    The exponent e is b minus the bits of the lower bound, shifted right by 23; the remainder is added to the
    bound again.
    """

    def __init__(self, o: Operands, op: ScaledLog) -> None:
        self.o, self.op, self.f = o, op, o.f
        bound = bits_of(2**0.5) - 0x800000 + 1  # the least m: the float behind sqrt(2), halved
        numbers = [*LOG_TERMS[:0:-1].tolist()]
        f = self.f
        self.floor, self.mask = f.vectors("floor; mask", 2)
        spread(f, self.mask, 0x7FFFFF)
        spread(f, self.floor, bits_of(max(op.floor, float(np.finfo(np.float32).tiny))))
        self.tiny = f.vector("the least number")
        spread(f, self.tiny, bits_of(float(np.finfo(np.float32).tiny)))
        self.words = [0 - bound, bound, *map(bits_of, (1.0, *numbers))]
        self.words += map(
            bits_of, (float(LOG_TERMS[0]), 0.5, float(np.float32(np.log(2))), op.scale, op.offset)
        )
        self.words += [bits_of(op.floor)] if op.kind is LogFloor.ADD else []
        self.table = f.core("numbers")
        f.table("numbers", self.words)(self.table)
        self.number, self.next = f.core("a number"), 0
        self.q = f.vectors("x; exponents; sums; squares; cubes", 5)

    @property
    def steps(self) -> ElementSteps:
        return ElementSteps(self.vector)

    def _scalar(self, place: int) -> str:
        self.f("ldr", self.number, f"[{self.table}, #{4 * place}]")
        return self.number

    def vector(self) -> str:
        f, (x, e, total, square, cube) = self.f, self.q
        f("vldrw.u32", x, f"[{self.o.inputs[0]}], #{_VECTOR}")
        self._keep(x)
        f("vadd.i32", x, x, self._scalar(0))
        f("vshr.s32", e, x, "#23")
        f("vand", x, x, self.mask)
        f("vadd.i32", x, x, self._scalar(1))
        f("vsub.f32", x, x, self._scalar(2))
        terms = len(LOG_TERMS)
        f("vmul.f32", total, x, self._scalar(3))
        for place in range(4, 3 + terms):
            f("vadd.f32", total, total, self._scalar(place))
            if place < 2 + terms:
                f("vmul.f32", total, total, x)
        f("vmul.f32", square, x, x)
        f("vmul.f32", cube, square, x)
        f("vmul.f32", total, cube, total)
        f("vmul.f32", square, square, self._scalar(3 + terms))
        f("vsub.f32", x, x, square)
        f("vadd.f32", x, x, total)
        f("vcvt.f32.s32", e, e)
        f("vmul.f32", e, e, self._scalar(4 + terms))
        f("vadd.f32", e, e, x)
        f("vmul.f32", e, e, self._scalar(5 + terms))
        f("vadd.f32", e, e, self._scalar(6 + terms))
        return e

    def _keep(self, x: str) -> None:
        f = self.f
        match self.op.kind:
            case LogFloor.MAX:
                f("vmaxnm.f32", x, x, self.floor)
            case LogFloor.ADD:
                f("vadd.f32", x, x, self._scalar(7 + len(LOG_TERMS)))
            case LogFloor.ZERO:
                f("vpt.f32", "eq", x, "zr")
                f("vorrt", x, self.floor, self.floor)
        f("vmaxnm.f32", x, x, self.tiny)
