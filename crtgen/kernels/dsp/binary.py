"""Addition, subtraction and multiplication with the DSP extension, four elements at a time.

A sum is two SMLAW and one SSAT per element: ``sat8((x0 * a >> 8) + (x1 * b >> 8) + c >> shift)`` replaces
TFLite's five roundings where a search finds factors with which all 65,536 pairs of inputs come out right.

A product is one SMLABB of operands whose zero points SXTAB16 has added, and a requantisation as that of a
convolution.

The operands are read in runs in which one goes on and the other one goes on, too, or stays: so a vector is
broadcast over pixels, and a number over channels.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crtgen.ir import DType, Quant, Signature
from crtgen.kernels.binary import operands, product_scale
from crtgen.kernels.dsp.finish import Finish, finish_lanes
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.loops import Loop, index_of, merge, repeated_strides
from crtgen.kernels.registry import design
from crtgen.kernels.requant import clamp_limits
from crtgen.kernels.sums import SumForm, every_sum, quants_of
from crtgen.ops.binary import Add, Mul, Sub

__all__ = ["PairsView", "Runs", "add", "multiply", "solve_sum"]

_SHIFTS = 4  # tried from the largest one down
_LANES = 4


@dataclass(frozen=True, slots=True)
class Runs:
    """In each of ``loops`` a run of ``length`` elements, of which ``first`` goes on and ``second`` may stay.

    ``first`` and ``second`` are C, the addresses where a run begins; ``parameters`` those of the function.
    ``swapped``: the first is the operator's second operand.
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
        """Whether the function's own arguments are those of its one run."""
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
class PairsView:
    """``pair`` is what goes into r4 and r5: factors of a sum, or zero points twice of a product.

    ``start`` is what sums begin with, ``requant`` the multiplier and the constant of a product; all are
    unsigned words.
    """

    runs: Runs
    pair: tuple[int, int]
    start: int
    requant: tuple[int, int] | None
    finish: Finish


@design(Add, Sub, types=(DType.INT8,), needs="dsp", weights=None)
def add(op: Add | Sub, sig: Signature, target: Target) -> Kernel | None:
    """For int8 operands; None for others, without runs of four, or if no factors are exact."""
    runs = _runs(sig)
    form = solve_sum(op, quants_of(sig)) if runs else None
    if runs is None or form is None:
        return None
    params = op.parameters(sig)
    low, high = clamp_limits(params.act_min, params.act_max)
    finish = Finish("floor", (form.shift,), low, high)
    a, b = reversed(form.factors) if runs.swapped else form.factors
    view = PairsView(runs, _words(a, b), form.constant & 0xFFFFFFFF, None, finish)
    four, one = (7, 3) if runs.stays else (14, 6)
    return _kernel("dsp_sum", sig, view, four, one, 2 + 3 * finish.clamps)


@design(Mul, types=(DType.INT8,), needs="dsp", weights=None)
def multiply(op: Mul, sig: Signature, target: Target) -> Kernel | None:
    """For int8 operands; None for others, without runs of four, or if no requantisation is exact."""
    runs = _runs(sig)
    if runs is None:
        return None
    params = op.parameters(sig)
    lanes = finish_lanes(product_scale(params), ((1, np.array([0])),))
    if lanes is None:
        return None
    scale, constant = (int(n) for n in lanes.constants[0][0])
    offsets = (params.input1_offset, params.input2_offset)
    first, second = reversed(offsets) if runs.swapped else offsets
    pair = _words((first & 0xFFFF) * 65537, (second & 0xFFFF) * 65537)
    view = PairsView(runs, pair, int(lanes.offsets[0][0]) & 0xFFFFFFFF, (scale, constant), lanes.finish)
    doubled = 0 if lanes.finish.floor or runs.stays else 1
    four, one = (7, 2) if runs.stays else (10 + 2 * doubled, 5 + doubled)
    end = 4 - lanes.finish.floor + 3 * lanes.finish.clamps
    return _kernel("dsp_product", sig, view, four, one, end)


@lru_cache(maxsize=256)
def solve_sum(op: Add | Sub, quants: tuple[Quant, Quant, Quant]) -> SumForm | None:
    """``sat8(((x0 * factors[0] >> 8) + (x1 * factors[1] >> 8) + constant) >> shift)``, as the reference.

    It agrees for every pair of int8 values; None if the search finds no such factors.
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
    return None


def _runs(sig: Signature) -> Runs | None:
    """How operands are read; None for runs of less than four."""
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
    return Runs(outer, run.count, run.strides != (1, 1), first, second, parameters, swapped)


def _words(first: int, second: int) -> tuple[int, int]:
    return first & 0xFFFFFFFF, second & 0xFFFFFFFF


def _kernel(name: str, sig: Signature, view: PairsView, four: float, one: float, end: float) -> Kernel:
    """``four`` and ``one`` are instructions for so many elements, without the ``end`` of each."""
    runs = view.runs
    consts: tuple[Const, ...] = operands(sig)[1]
    call = 0 if runs.plain else 10 + 2 * len(runs.loops)
    run = 14 + call + runs.whole / _LANES * (four + 4 * end + 2) + runs.rest * (one + end)
    whole = [i for i, v in enumerate(sig.inputs) if not v.is_constant and v.elements == sig.y.elements]
    return Kernel(
        design=name,
        template="dsp/binary.c.j2",
        view=view,
        consts=consts,
        inplace=tuple(InPlace(i) for i in whole),
        cost=runs.count * run,
    )
