"""Float32 features on an FPU: windows, powers and bands, with loads of several registers at a time."""

from collections.abc import Sequence

import numpy as np

from crtgen.compiler.kernels.asm import Function, Routine, listed
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import bits_of
from crtgen.compiler.kernels.shared.single_routine import single_routine
from crtgen.compiler.kernels.shared.spectral_asm import (
    FrameWriter,
    bands_function,
    frame_function,
    power_function,
)
from crtgen.network.ir import Signature
from crtgen.network.ops.spectral import Bands, Frame, Power

__all__ = ["bands", "frame", "power"]

_STEP = 8
_BLOCK = 4


@design(Frame, needs="vfp", weights=(1,))
def frame(op: Frame, sig: Signature, target: Target) -> Kernel:
    """Process eight samples at a time; the product with the last one is kept for the next iteration."""
    f = frame_function(sig)
    made = _FpuFrame(f, op, sig)
    made.begin()
    f.rounds("samples", sig.y.elements, _STEP, made.samples)
    return single_routine("vfp frame", f.done(), [Const.of("weights", sig.inputs[1].array(), 4)])


class _FpuFrame(FrameWriter):
    def __init__(self, f: Function, op: Frame, sig: Signature) -> None:
        super().__init__(f, op, sig)
        self.now, self.then = f.singles("samples", _STEP), f.singles("weights", _STEP)
        self.words = f.cores("samples", 2)
        if op.preemphasis:
            self.before, self.factor = f.singles("the product before, the factor", 2)

    def begin(self) -> None:
        # The address of the frame, and the product with what is before it.
        f, op, word = self.f, self.op, self.words[0]
        f.advance(self.x, self.size * op.start)
        if not op.preemphasis:
            return
        if self.place is None:
            f.number(word, 0)
            f("vmov", self.before, word)
        else:
            f("mov", word, self.x)
            f.advance(word, self.size * self.place, self.words[1])
            self._single(word)
        f.number(word, bits_of(op.preemphasis))
        f("vmov", self.factor, word)
        f("vmul.f32", self.before, self.before, self.factor)

    def _single(self, at: str) -> None:
        if not self.short:
            self.f("vldr", self.before, f"[{at}]")
            return
        self.f("ldrsh", at, f"[{at}]")
        self.f("vmov", self.before, at)
        self.f("vcvt.f32.s32", self.before, self.before)

    def samples(self, count: int) -> None:
        f, now, then = self.f, self.now[:count], self.then[:count]
        if self.short:
            self._shorts(now)
        else:
            f("vldmia", f"{self.x}!", listed(now))
        if self.op.preemphasis:
            for product, sample in zip(then, now, strict=True):
                f("vmul.f32", product, sample, self.factor)
            for sample, product in zip(now, (self.before, *then), strict=False):
                f("vsub.f32", sample, sample, product)
            f("vmov", self.before, then[-1])
        f("vldmia", f"{self.weights}!", listed(then))
        for sample, weight in zip(now, then, strict=True):
            f("vmul.f32", sample, sample, weight)
        f("vstmia", f"{self.y}!", listed(now))

    def _shorts(self, now: Sequence[str]) -> None:
        f, words = self.f, self.words
        for pair in range(0, len(now), 2):
            some = now[pair : pair + 2]
            for word, _ in zip(words, some, strict=False):
                f("ldrsh", word, f"[{self.x}], #2")
            f("vmov", *some, *words[: len(some)])
        for sample in now:
            f("vcvt.f32.s32", sample, sample)


@design(Power, needs="vfp")
def power(op: Power, sig: Signature, target: Target) -> Kernel:
    f = power_function(sig)
    x, y = f.arguments
    pairs, made = f.singles("pairs", 2 * _STEP), f.singles("powers", _STEP)

    def powers(count: int) -> None:
        f("vldmia", f"{x}!", listed(pairs[: 2 * count]))
        for part in pairs[: 2 * count]:
            f("vmul.f32", part, part, part)
        for to, real, imaginary in zip(made[:count], pairs[::2], pairs[1::2], strict=False):
            f("vadd.f32", to, real, imaginary)
        for to in made[: count if op.root else 0]:
            f("vsqrt.f32", to, to)
        f("vstmia", f"{y}!", listed(made[:count]))

    f.rounds("powers", sig.y.elements, _STEP, powers)
    return single_routine("vfp power", f.done(), inplace=True)


@design(Bands, needs="vfp", weights=(1, 2, 3))
def bands(op: Bands, sig: Signature, target: Target) -> Kernel:
    rows, count = sig.x.elements // sig.x.shape[-1], sig.y.shape[-1]
    first, widths = (v.array().astype(np.int64) for v in sig.inputs[2:])
    table = np.stack([4 * first, widths], axis=1).astype(np.uint16)
    consts = [
        Const.of("weights", sig.inputs[1].array(), 4),
        Const.of("places", table.ravel(), 2, "bytes to the first number, how many"),
    ]
    ones, twos, fours = (float(np.mean(n)) for n in (widths & 1, (widths >> 1) & 1, widths >> 2))
    return single_routine(
        "vfp bands", _bands(rows, sig.x.shape[-1], count), consts, ones=ones, twos=twos, fours=fours
    )


def _bands(rows: int, numbers: int, count: int) -> Routine:
    f = bands_function(rows, count, ("const float *weights", "const uint16_t *places"))
    x, y, weights, places = f.arguments
    band = _Band(f, weights)
    f.number(band.at, 0)
    f("vmov", band.zero, band.at)
    with f.repeated("rows", rows):
        if rows > 1:
            f("ldr", weights, f.kept[2])
            f("ldr", places, f.kept[3])
        f.number(band.left, count)
        with f.loop("sums", count) as again:
            f("ldrh", band.at, f"[{places}], #2")
            f("ldrh", band.steps, f"[{places}], #2")
            f("vmov", band.total, band.zero)
            f("add", band.at, band.at, x)
            band.sum()
            f("vstmia", f"{y}!", listed([band.total]))
            f("subs", band.left, band.left, "#1")
            f("bne", again)
        if rows > 1:
            f.advance(x, 4 * numbers)
    return f.done()


class _Band:
    def __init__(self, f: Function, weights: str) -> None:
        self.f, self.weights = f, weights
        self.at, self.steps, self.bits, self.left = f.cores(
            "numbers; products; their last bits; sums left", 4
        )
        self.total, self.zero = f.singles("the sum, zero", 2)
        self.values, self.factors = f.singles("numbers", _BLOCK), f.singles("weights", _BLOCK)

    def sum(self) -> None:
        # One product for an odd number, two for the next bit of it, then fours.
        f, steps = self.f, self.steps
        f("lsls", self.bits, steps, "#31")
        beyond, twos, end = (f.label(f"no_{name}") for name in ("one", "two", "four"))
        f("bpl", beyond)
        with f.loop("one", "ones"):
            self._products(1)
        f.place(beyond)
        f("lsls", self.bits, steps, "#30")
        f("bpl", twos)
        with f.loop("two", "twos"):
            self._products(2)
        f.place(twos)
        f("lsrs", steps, steps, "#2")
        f("beq", end)
        with f.loop("four", "fours") as more:
            self._products(_BLOCK)
            f("subs", steps, steps, "#1")
            f("bne", more)
        f.place(end)

    def _products(self, number: int) -> None:
        f, values, factors = self.f, self.values[:number], self.factors[:number]
        f("vldmia", f"{self.at}!", listed(values))
        f("vldmia", f"{self.weights}!", listed(factors))
        for value, factor in zip(values, factors, strict=True):
            f("vmul.f32", value, factor, value)
        for value in values:
            f("vadd.f32", self.total, self.total, value)
