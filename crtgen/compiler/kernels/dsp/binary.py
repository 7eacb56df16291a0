"""Addition, subtraction and multiplication with the DSP extension, four elements at a time.

A sum takes two SMLAW and one SSAT per element: ``sat8((x0 * a >> 8) + (x1 * b >> 8) + c >> shift)`` replaces
TFLite's five roundings if a search finds factors that are exact for all 65,536 pairs of inputs. Two or three
instructions more round ties as TFLite or ONNX Runtime do.

A product is one SMLABB of operands with their zero points added by SXTAB16, and a requantisation like that of
a convolution.

The operands are read in runs in which one advances and the other advances or is constant: so a vector can be
broadcast over pixels, and a single value over channels.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import clamp_limits
from crtgen.compiler.kernels.arithmetic.sums import SumForm, Ties, every_sum, quants_of
from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.dsp.epilogue import DspEpilogue, clamp, epilogue_lanes, saturate
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import operands
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.loops import Loop, index_of, merge, repeated_strides
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.portable.binary import product_scale
from crtgen.network.ir import DType, Quant, Signature
from crtgen.network.ops.binary import Add, Mul, Sub

__all__ = ["DspPairsView", "PairRuns", "add", "multiply", "solve_sum"]

_SHIFTS = 4  # tried from the largest one down
_LANES = 4


@dataclass(frozen=True, slots=True)
class PairRuns:
    """Runs of ``length`` elements within ``loops``: ``first`` advances during a run, ``second`` may be a
    single element.

    ``first`` and ``second`` are C expressions for the addresses at which a run begins; ``parameters`` are the
    function's. ``swapped``: ``first`` is the operator's second operand.
    """

    loops: tuple[Loop, ...]
    length: int
    stays: bool
    first: str
    second: str
    parameters: tuple[str, ...]
    swapped: bool

    @property
    def plain(self) -> bool:
        """True if there is a single run, whose addresses are the function's arguments."""
        return self.parameters == (self.first, self.second, "y0") and len(self.loops) == 1

    @property
    def whole(self) -> int:
        return self.length // _LANES * _LANES

    @property
    def rest(self) -> int:
        return self.length % _LANES

    @property
    def count(self) -> int:
        return int(np.prod([loop.count for loop in self.loops]))


@dataclass(frozen=True, slots=True)
class DspPairsView:
    """``pair`` are the factors of a sum, or twice the zero points of a product.

    ``start`` is the initial value of sums, ``requant`` the multiplier and the constant of a product; all are
    unsigned words. A sum has a ``form``.
    """

    runs: PairRuns
    pair: tuple[int, int]
    start: int
    requant: tuple[int, int] | None
    epilogue: DspEpilogue
    form: SumForm | None = None


@design(Add, Sub, types=(DType.INT8,), needs="dsp", weights=None)
def add(op: Add | Sub, sig: Signature, target: Target) -> Kernel | None:
    """Addition of int8; None without runs of four elements, or if no factors are exact."""
    runs = _runs(sig)
    form = solve_sum(op, quants_of(sig)) if runs else None
    if runs is None or form is None:
        return None
    params = op.parameters(sig)
    low, high = clamp_limits(params.act_min, params.act_max)
    epilogue = DspEpilogue("floor", (form.shift,), low, high)
    a, b = reversed(form.factors) if runs.swapped else form.factors
    start = form.constant & 0xFFFFFFFF
    rest = replace(form, factors=(0, 0), constant=0)  # the same code for several layers
    view = DspPairsView(runs, _words(a, b), start, None, epilogue, rest)
    return _kernel("dsp_sum", sig, view)


@design(Mul, types=(DType.INT8,), needs="dsp", weights=None)
def multiply(op: Mul, sig: Signature, target: Target) -> Kernel | None:
    """Multiplication of int8; None without runs of four elements, or if no requantisation is exact."""
    runs = _runs(sig)
    if runs is None:
        return None
    params = op.parameters(sig)
    lanes = epilogue_lanes(product_scale(params), ((1, np.array([0])),))
    if lanes is None or (lanes.offsets[0][0] and not lanes.epilogue.floor):
        return None
    scale, constant = (int(n) for n in lanes.constants[0][0])
    offsets = (params.input1_offset, params.input2_offset)
    first, second = reversed(offsets) if runs.swapped else offsets
    pair = _words((first & 0xFFFF) * 65537, (second & 0xFFFF) * 65537)
    view = DspPairsView(runs, pair, int(lanes.offsets[0][0]) & 0xFFFFFFFF, (scale, constant), lanes.epilogue)
    return _kernel("dsp_product", sig, view)


@lru_cache(maxsize=256)
def run_of_pairs(k: DspPairsView) -> Routine:
    """Write ``run(x0, x1, y)``, which adds or multiplies the elements of two operands."""
    f = Function(
        "run",
        "const int8_t *x0",
        "const int8_t *x1",
        "int8_t *y",
        purpose=f"{'Sums' if k.requant is None else 'Products'} of {k.runs.length} pairs of elements.",
    )
    writer: _BinarySum | _BinaryProduct
    if k.form:
        writer = _BinarySum(f, k, k.form)
    else:
        assert k.requant is not None
        writer = _BinaryProduct(f, k, k.requant)
    if k.runs.whole:
        end = f.constant("where the fours end", k.runs.whole)
        f("add", end, end, writer.y)
        with f.loop("fours", k.runs.whole // _LANES) as again:
            outputs = writer.four()
            for place, output in enumerate(outputs[1:], 1):
                f("strb", output, f"[{writer.y}, #{place}]")
            f("strb", outputs[0], f"[{writer.y}], #{_LANES}")
            f("cmp", writer.y, end)
            f("bne", again)
    for _ in range(k.runs.rest):
        f("strb", writer.one(), f"[{writer.y}], #1")
    return f.done()


class _BinarySum:
    """A sum. Inputs are kept in the upper bytes of halfwords, which multiplies them by 256."""

    def __init__(self, f: Function, k: DspPairsView, form: SumForm) -> None:
        self.f, self.k, self.form = f, k, form
        self.first, self.second, self.y = f.arguments
        self.factors = [f.constant("a factor", number) for number in k.pair]
        self.start = f.constant("constant", k.start)
        self.words = f.cores("elements, then sums", 6)
        self.mask = f.constant("the upper bytes", 0xFF00FF00) if k.runs.whole else ""
        if k.runs.stays:  # the second operand's part is the same for all
            number = self.words[0]
            f("ldrsb", number, f"[{self.second}]")
            f("lsl", number, number, "#8")
            f("smlawb", self.start, self.factors[1], number, self.start)

    def four(self) -> tuple[str, ...]:
        f, (a, b), stays = self.f, self.factors, self.k.runs.stays
        odd, even, first, second, other, otherwise = self.words
        f("ldr", odd, f"[{self.first}], #4")
        if not stays:
            f("ldr", otherwise, f"[{self.second}], #4")
        f("and", even, self.mask, odd, "lsl #8", note="elements 0 and 2")
        f("and", odd, self.mask, odd, note="elements 1 and 3")
        sums = (first, second, even, odd)
        for half, total, word in (("b", first, even), ("t", even, even), ("b", second, odd), ("t", odd, odd)):
            f(f"smlaw{half}", total, a, word, self.start)
        if not stays:
            f("and", other, self.mask, otherwise, "lsl #8")
            f("and", otherwise, self.mask, otherwise)
            for half, total, word in (
                ("b", first, other),
                ("t", even, other),
                ("b", second, otherwise),
                ("t", odd, otherwise),
            ):
                f(f"smlaw{half}", total, b, word, total)
        self._finish(*sums)
        return sums

    def one(self) -> str:
        f, total, other = self.f, *self.words[:2]
        operands = [(self.first, total, self.factors[0], self.start)]
        operands += [] if self.k.runs.stays else [(self.second, other, self.factors[1], total)]
        for pointer, word, factor, start in operands:
            f("ldrsb", word, f"[{pointer}], #1")
            f("lsl", word, word, "#8")
            f("smlawb", total, factor, word, start)
        self._finish(total)
        return total

    def _finish(self, *sums: str) -> None:
        f, (shift,), (part, last) = self.f, self.k.epilogue.shifts, self.words[4:]
        form = self.form
        if form.ties is not Ties.UP:
            f.number(last, form.last)
        for total in sums:
            if form.ties is Ties.AWAY and form.step:
                f("asr", part, total, "#31")
                f("add", total, total, part, f"lsl #{form.step}")
            elif form.ties is Ties.AWAY:
                f("add", total, total, total, "asr #31", note="ties go away from zero")
            elif form.ties is Ties.EVEN:
                f("ubfx", part, total, f"#{shift}", "#1")
                f("add", total, total, part, note="ties go to even")
            if form.ties is not Ties.UP:
                f("add", total, total, last)
            saturate(f, self.k.epilogue, total, shift)
            clamp(f, self.k.epilogue, (total,))


class _BinaryProduct:
    """A product. SXTAB16 adds the zero points to the elements."""

    def __init__(self, f: Function, k: DspPairsView, requant: tuple[int, int]) -> None:
        self.f, self.k = f, k
        self.first, self.second, self.y = f.arguments
        self.zeros = [f.constant("a zero point", number) for number in k.pair]
        self.multiplier, self.constant = (f.constant("requantisation", number) for number in requant)
        self.start = f.core("start" if k.epilogue.floor else "of a rounding")
        if k.epilogue.floor:
            f.number(self.start, k.start)
        self.words = f.cores("elements, then products", 5)
        if k.runs.stays:
            number, twice = self.words[0], self.zeros[1]
            f("ldrsb", number, f"[{self.second}]")
            f("uxth", number, number)
            f("orr", number, number, number, "lsl #16")
            f("sadd16", twice, twice, number, note="the second operand twice")
            self._double(twice)

    def _double(self, *registers: str) -> None:
        # The next step rounds twice the product.
        if self.k.epilogue.doubled:
            for register in registers:
                self.f("sadd16", register, register, register)

    def four(self) -> tuple[str, ...]:
        f, (a, b), stays = self.f, self.zeros, self.k.runs.stays
        odd, even, otherwise, other, first = self.words
        f("ldr", odd, f"[{self.first}], #4")
        if not stays:
            f("ldr", otherwise, f"[{self.second}], #4")
        f("sxtab16", even, a, odd, note="elements 0 and 2, less the zero point")
        f("sxtab16", odd, a, odd, "ror #8", note="elements 1 and 3")
        if not stays:
            f("sxtab16", other, b, otherwise)
            f("sxtab16", otherwise, b, otherwise, "ror #8")
            self._double(other, otherwise)
        self._multiply(first, "bb", even, b if stays else other)
        self._multiply(even, "tt", even, b if stays else other)
        self._multiply(other, "bb", odd, b if stays else otherwise)
        self._multiply(odd, "tt", odd, b if stays else otherwise)
        products = (first, other, even, odd)
        self._finish(*products)
        return products

    def one(self) -> str:
        f, (a, b), product, other = self.f, self.zeros, *self.words[:2]
        f("ldrb", product, f"[{self.first}], #1")
        f("sxtab16", product, a, product)
        if not self.k.runs.stays:
            f("ldrb", other, f"[{self.second}], #1")
            f("sxtab16", other, b, other)
            self._double(other)
        self._multiply(product, "bb", product, b if self.k.runs.stays else other)
        self._finish(product)
        return product

    def _multiply(self, to: str, halves: str, a: str, b: str) -> None:
        if self.k.epilogue.floor:
            self.f(f"smla{halves}", to, a, b, self.start)
        else:
            self.f(f"smul{halves}", to, a, b)

    def _finish(self, *products: str) -> None:
        epilogue, constants = self.k.epilogue, (self.multiplier, self.constant)
        epilogue.append_all(self.f, products, constants, (self.start,), epilogue.doubled)


@lru_cache(maxsize=256)
def solve_sum(op: Add | Sub, quants: tuple[Quant, Quant, Quant]) -> SumForm | None:
    """Find factors of ``sat8(((x0 * factors[0] >> 8) + (x1 * factors[1] >> 8) + constant) >> shift)``.

    The form agrees with the reference for every pair of int8 values. If ties prevent this, they are rounded
    as the reference does; None if the search finds no factors either way.
    """
    table = every_sum(op, quants)
    largest = 22 - max(0, int(np.ceil(np.log2(max(map(abs, table.factors))))))
    for shift in range(largest, max(largest - _SHIFTS, 0), -1):
        for a, b in table.near(shift + 8):
            total = ((table.x[0] * a) >> 8) + ((table.x[1] * b) >> 8)
            constants = table.constants(total, shift)
            constant = (constants.start + constants.stop) // 2
            if constants and abs(constant) + int(np.abs(total).max()) < 1 << 31:
                return SumForm((a, b), constant, shift)
    for shift in range(largest, max(largest - _SHIFTS, 0), -1):
        ((a, b),) = table.near(shift + 8, ((0, 0),))
        first, second, _ = table.zero_points
        total = ((table.x[0] * a) >> 8) + ((table.x[1] * b) >> 8)
        form = table.with_ties((a, b), total, (first * a >> 8) + (second * b >> 8), shift)
        if form:
            return form
    return None


def _runs(sig: Signature) -> PairRuns | None:
    # Runs of the operands; None if they are shorter than four.
    strides = zip(*(repeated_strides(v, sig.y) for v in sig.inputs), strict=True)
    *loops, run = merge([Loop(n, s) for n, s in zip(sig.y.shape, strides, strict=True)], 2)
    if run.count < _LANES or sorted(run.strides) not in ([0, 1], [1, 1]):
        return None
    outer = merge(loops, 2)
    names, consts = operands(sig)
    places = [f"{name} + {index_of(outer, i)}" if len(loops) else name for i, name in enumerate(names)]
    swapped = run.strides[0] == 0
    first, second = reversed(places) if swapped else places
    variable = [n for n in names if n.startswith("x")]
    parameters = (*variable, "y0", *(c.name for c in consts))
    return PairRuns(outer, run.count, run.strides != (1, 1), first, second, parameters, swapped)


def _words(first: int, second: int) -> tuple[int, int]:
    return first & 0xFFFFFFFF, second & 0xFFFFFFFF


def _kernel(name: str, sig: Signature, view: DspPairsView) -> Kernel:
    runs, routine = view.runs, run_of_pairs(view)
    consts: tuple[Const, ...] = operands(sig)[1]
    work = Work(runs.count * routine.runs())
    if not runs.plain:
        work.block("run", runs.count).loops("line", runs.loops)
    whole = [i for i, v in enumerate(sig.inputs) if not v.is_constant and v.elements == sig.y.elements]
    return Kernel(
        design=name,
        template="" if runs.plain else "dsp/binary.c.j2",
        view=view,
        consts=consts,
        inplace=tuple(InPlace(i) for i in whole),
        work=work,
        routines=(routine,),
    )
