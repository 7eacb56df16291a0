"""SVDF with Helium: the filters' products as a row of sums, then the memories, one unit's filters at a time.

The products are stored in scratch, and then appended to the memories.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import Rescale, accumulator_range
from crtgen.compiler.kernels.asm import EVEN, ODD, Function, Writer
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import Words, by_output
from crtgen.compiler.kernels.mve.bytes import copy
from crtgen.compiler.kernels.mve.dense import row_of_sums, shared_requantisation
from crtgen.compiler.kernels.mve.epilogue import MveEpilogue, epilogue_words
from crtgen.compiler.kernels.mve.matrix import LOADS, PRODUCTS, STORES, gather_sums
from crtgen.compiler.kernels.mve.stream import LANES
from crtgen.network.ir import Array, DType, Signature
from crtgen.network.ops import scheme_of
from crtgen.network.ops.fixedpoint import Int64
from crtgen.network.ops.svdf import Svdf

__all__ = ["MemoriesView", "MveSvdfView", "svdf"]

_UNITS = 4
_MOST = 16  # vectors of a unit that are written out
_ENDS = -(1 << 31), (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class MveSvdfView:
    """Dimensions of SVDF: ``inputs`` and ``units`` in each of ``batch`` rows; ``elements`` is the size of a
    state element in bytes.
    """

    batch: int
    inputs: int
    units: int
    elements: int


@dataclass(frozen=True, slots=True)
class MemoriesView:
    """``units`` outputs from ``rank`` memories each, of ``length`` elements of ``size`` bytes."""

    units: int
    rank: int
    length: int
    size: int
    epilogue: MveEpilogue

    @property
    def vectors(self) -> int:
        return -(-self.length * self.size // LANES)

    @property
    def tail(self) -> int:
        """Bytes of the last vector that are used; 0 for all."""
        return self.length * self.size % LANES


@design(Svdf, types=(DType.INT8,), needs="mve", weights=(1, 2, 3))
def svdf(op: Svdf, sig: Signature, target: Target) -> Kernel | None:
    """SVDF; None if the states have a zero point, or for long memories."""
    x, feature, time, bias, state = sig.inputs
    p, size, units = op.parameters(sig), state.dtype.itemsize, sig.y.shape[-1]
    filters, length = time.shape
    if p.state_zero_point or op.rank * -(-length * size // LANES) > _MOST:
        return None
    weights, scheme = by_output(feature), scheme_of(state)
    low, high = accumulator_range(weights, *(end + p.input_offset for end in scheme_of(x).limits))
    rescale = Rescale(*_all(p.feature, filters), 0, *scheme.limits, low, high, scheme)
    products = row_of_sums(weights, p.input_offset * weights.sum(axis=1), rescale, 1, target)
    least, most = (np.full(units, end) for end in _ENDS)
    outputs = Rescale(*_all(p.time, units), p.output_offset, *scheme_of(sig.y).limits, least, most)
    header, requant = shared_requantisation(outputs, bias.array().astype(np.int64))
    if products is None or requant is None or not requant.epilogue.uniform:
        return None
    view = MemoriesView(units, op.rank, length, size, requant.epilogue)
    routines = (products[0], _SvdfWriter.routine(view), copy())
    batch = x.shape[0]
    work = Work(batch * (routines[0].runs() + routines[1].runs()))
    work.assembly += batch * copy().runs(vectors=-(-filters * length * size // LANES))
    return Kernel(
        design="mve svdf",
        template="mve/svdf.c.j2",
        view=MveSvdfView(batch, x.shape[1], units, filters * length),
        consts=(products[1], _stream(view, time.array(), header, requant.constants[0])),
        scratch=filters * size,
        inplace=(InPlace(input=4, output=1),),
        work=work.block("batch", batch),
        routines=routines,
    )


def _all(factor: tuple[int, int], count: int) -> tuple[Int64, Int64]:
    return np.full(count, factor[0], np.int64), np.full(count, factor[1], np.int64)


def _stream(view: MemoriesView, time: Array, header: Words, starts: Int64) -> Const:
    # For each four units: their weights of time as whole vectors, then the start values of sums.
    units, lanes = view.units, view.vectors * LANES // view.size
    words = len(header) + units * view.rank * view.vectors * LANES // 4 + -(-units // _UNITS) * _UNITS

    def pack() -> Words:
        padded = np.zeros((units, view.rank, lanes), time.dtype)
        padded[:, :, : view.length] = time.reshape(units, view.rank, view.length)
        begin = np.append(starts, np.zeros(-units % _UNITS)).astype(np.int32).view(np.uint32)
        parts = [header]
        for first in range(0, units, _UNITS):
            group = slice(first, first + _UNITS)
            parts += [padded[group].reshape(-1).view(np.uint32), begin[group]]
        return np.concatenate(parts)

    return Const("time", "uint32", (words,), pack, 8, "requantisation; per four units: weights, starts")


class _SvdfWriter(Writer):
    """Writes ``memories(memory, newest, time, y)``, which appends the newest values to memories, then
    computes outputs.
    """

    def __init__(self, k: MemoriesView) -> None:
        self.k = k
        self.f = f = Function(
            "memories",
            "void *memory",
            "const void *newest",
            "const uint32_t *time",
            "int8_t *y",
            purpose=f"{k.units} units from {k.rank} memories each, of {k.length} numbers.",
        )
        memory, newest, time, y = f.arguments
        self.y = y
        self.newest, self.time = newest, f.moved(time, "weights of time", ODD)
        self.memory = f.moved(memory, "memories", ODD)
        self.left, self.spare = f.core("units left", ODD), f.core("a number", ODD)
        self.sums = f.cores("sums", _UNITS, EVEN)
        self.vector = f.vector("memory, then sums")
        self.others = f.vector("weights, then constants"), f.vector("constants")
        self.united = (f.vector("multiplier"), f.vector("last constant"))

    def write(self) -> None:
        f, k = self.f, self.k
        for q in self.united:
            f("vldrw.u32", q, f"[{self.time}], #16")
        groups, rest = divmod(k.units, _UNITS)
        if groups:
            f.number(self.left, groups)
            with f.loop("four units", groups) as again:
                self._units(_UNITS)
                f("subs", self.left, self.left, "#1")
                f("bne", again)
        if rest:
            self._units(rest)

    def _units(self, count: int) -> None:
        f, k = self.f, self.k
        if k.tail:
            f.number(self.spare, k.tail)
            f("vctp.8", self.spare)
        for total in self.sums[:count]:
            for vector in range(k.rank * k.vectors):
                self._vector(total, vector)
        gather_sums(f, self.vector, self.sums)
        epilogue_words(f, k.epilogue, [self.vector], self.time, (*self.others, self.spare), self.united)
        if count < _UNITS:
            f.number(self.spare, count)
            f("vctp.32", self.spare)
            f("vpst")
        f(STORES[1].format("t" if count < _UNITS else ""), self.vector, f"[{self.y}], #{_UNITS}")

    def _vector(self, total: str, number: int) -> None:
        # A vector of a memory times weights; the newest number is put into the memory before its first.
        f, k = self.f, self.k
        if number % k.vectors == 0:
            letter = "b" if k.size == 1 else "h"
            f(f"ldrs{letter}", self.spare, f"[{self.newest}], #{k.size}")
            f(f"str{letter}", self.spare, f"[{self.memory}, #{(k.length - 1) * k.size}]")
        masked = k.tail > 0 and number % k.vectors == k.vectors - 1
        if masked:
            f("vpst")
        load = LOADS[k.size].replace(".", "t.") if masked else LOADS[k.size]
        f(load, self.vector, f"[{self.memory}], #{k.tail if masked else LANES}")
        f("vldrw.u32", self.others[0], f"[{self.time}], #16")
        operation = "vmladava" if number else "vmladav"
        f(f"{operation}.{PRODUCTS[k.size]}", total, self.vector, self.others[0])
