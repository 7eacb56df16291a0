"""Products of two computed float32 matrices with an FPU; a tile of the output is accumulated in registers.

Neither operand is copied. In memory, the terms of a sum are contiguous or one matrix row apart. If they are
apart, the same term of all rows (or columns) of the tile is contiguous, and one VLDM loads it.
"""

from collections.abc import Sequence

from crtgen.compiler.kernels.asm import Function, Writer, listed
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.portable.matmul import batches
from crtgen.compiler.kernels.shared.matrices import FloatMatrices, lane_pointers, matrices, tiled, unrolled
from crtgen.compiler.kernels.vfp.unit import FloatUnit, add_products, cut
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.matmul import BatchMatMul

__all__ = ["product"]

_ROWS, _COLUMNS = 4, 4
_LONE = 8  # columns of a tile of one row, if they follow each other in memory
_WRITTEN_OUT = {"speed": 64, "size": 16}  # products in the loop's body; twice as many if they are fused
_PAIR = 2


@design(BatchMatMul, types=(DType.FLOAT32,), needs="vfp", weights=None)
def product(op: BatchMatMul, sig: Signature, target: Target) -> Kernel:
    rows, depth, _, columns = op.lengths(*sig.inputs)
    unit = FloatUnit.of(target)
    lone = rows == 1 and not op.adj_y
    tile = min(rows, _ROWS), min(columns, _LONE if lone else _COLUMNS)
    products = target.steps(_WRITTEN_OUT[target.optimize]) * (1 + unit.fused)
    unroll = unrolled(depth, max(_PAIR, products // (tile[0] * tile[1])))
    routine = _TileWriter.routine(matrices(op, sig, tile, unroll), unit)
    return tiled(op, sig, "vfp matrix product", tile, routine, batches(sig))


class _TileWriter(Writer):
    """Writes ``tile(a, b, y)``, which multiplies some rows of ``a`` by some columns of ``b``; both are called
    lanes.
    """

    def __init__(self, k: FloatMatrices, unit: FloatUnit) -> None:
        self.k, self.unit = k, unit
        self.f = f = Function(
            "tile",
            "const float *a",
            "const float *b",
            "float *y",
            purpose=f"{k.rows} rows times {k.columns} columns, {k.depth} terms each.",
        )
        a, b, self.y = f.arguments
        self.a = lane_pointers(f, a, "a row", k.rows, k.first)
        self.b = lane_pointers(f, b, "a column", k.columns, k.second)
        self.sums = [f.singles("sums of a row", k.columns) for _ in range(k.rows)]
        self.at_once = _PAIR if k.columns <= _COLUMNS else 1
        self.taps = f.singles("terms of the columns", self.at_once * k.columns)
        self.inputs = f.singles(
            "terms of the rows", max(k.rows if len(self.a) == 1 else 0, _PAIR * self.at_once)
        )
        self.products = () if unit.fused else f.singles("products", k.columns)

    def write(self) -> None:
        f, k = self.f, self.k
        zero = f.constant("zero", 0)
        for sums in self.sums:
            for total in sums:
                f("vmov", total, zero)
        f.free(zero)
        with f.repeated("terms", k.depth // k.unroll):
            self._terms(k.unroll)
        self._terms(k.depth % k.unroll)
        for number, sums in enumerate(self.sums, 1):
            f("vstmia", f"{self.y}!", listed(sums))
            if number < k.rows:
                f.advance(self.y, k.pitch - 4 * k.columns)

    def _terms(self, count: int) -> None:
        for some in cut(range(count), self.at_once):
            taps = self._taps(len(some))
            if self.k.first[1] == 4:
                self._along(taps)
            else:
                self._down(taps)

    def _taps(self, count: int) -> list[Sequence[str]]:
        # Load ``count`` terms of all columns; return the registers of each term.
        columns = self.k.columns
        if self.k.second[1] == 4:
            lanes = cut(self.taps, self.at_once)
            for pointer, lane in zip(self.b, lanes, strict=True):
                self.f("vldmia", f"{pointer}!", listed(lane[:count]))
            return [[lane[term] for lane in lanes] for term in range(count)]
        terms = cut(self.taps, columns)[:count]
        for term in terms:
            self._lanes(self.b[0], term, self.k.second[1])
        return terms

    def _along(self, taps: Sequence[Sequence[str]]) -> None:
        # Load the terms of two rows at a time, which follow each other, and add their products.
        for pair in cut(list(zip(self.a, self.sums, strict=True)), _PAIR):
            loaded = [words[: len(taps)] for words in cut(self.inputs, self.at_once)]
            for (row, _), words in zip(pair, loaded, strict=False):
                self.f("vldmia", f"{row}!", listed(words))
            for term, weights in enumerate(taps):
                for (_, sums), words in zip(pair, loaded, strict=False):
                    self._add(sums, words[term], weights)

    def _down(self, taps: Sequence[Sequence[str]]) -> None:
        # Load each term of all rows at once, and add its products.
        for weights in taps:
            self._lanes(self.a[0], self.inputs[: self.k.rows], self.k.first[1])
            for sums, word in zip(self.sums, self.inputs, strict=False):
                self._add(sums, word, weights)

    def _lanes(self, pointer: str, registers: Sequence[str], step: int) -> None:
        # Load a term of all lanes, which follow each other; the next term is ``step`` bytes further.
        whole = step == 4 * len(registers)
        self.f("vldmia", f"{pointer}{'!' if whole else ''}", listed(registers))
        if not whole:
            self.f.advance(pointer, step)

    def _add(self, sums: Sequence[str], word: str, weights: Sequence[str]) -> None:
        add_products(self.f, self.unit, sums, (word,) * len(sums), weights, self.products)
