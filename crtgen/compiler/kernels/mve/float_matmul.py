"""Products of two computed float32 matrices with Helium: four rows by four columns at a time.

Neither operand is copied. If the terms of a column are contiguous in memory, a gather load takes the same
term of four columns.
"""

from crtgen.compiler.kernels.asm import EVEN, LISTED, Function, Writer, listed
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.portable.matmul import batches
from crtgen.compiler.kernels.shared.matrices import FloatMatrices, lane_pointers, matrices, tiled, unrolled
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.matmul import BatchMatMul

__all__ = ["product"]

_ROWS, _LANES = 4, 4
_UNROLL = {"speed": 8, "size": 4}
_TAPS, _GATHERED = 4, 2  # terms of the columns in registers at once: loaded, gathered
_NEXT = 508  # the most bytes by which a vector load can move its pointer


@design(BatchMatMul, types=(DType.FLOAT32,), needs="mve", weights=None)
def product(op: BatchMatMul, sig: Signature, target: Target) -> Kernel | None:
    """Product of two float32 matrices; None for fewer than four columns."""
    rows, depth, _, columns = op.lengths(*sig.inputs)
    if columns < _LANES:
        return None
    tile = min(rows, _ROWS), _LANES
    unroll = unrolled(depth, max(_GATHERED, target.steps(_UNROLL[target.optimize])))
    routine = _LaneTileWriter.routine(matrices(op, sig, tile, unroll))
    return tiled(op, sig, "mve float matrix product", tile, routine, batches(sig))


class _LaneTileWriter(Writer):
    """Writes ``tile(a, b, y)``, which multiplies some rows of ``a`` by four columns of ``b``."""

    def __init__(self, k: FloatMatrices) -> None:
        self.k = k
        self.f = f = Function(
            "tile",
            "const float *a",
            "const float *b",
            "float *y",
            purpose=f"{k.rows} rows times {k.columns} columns, {k.depth} terms each.",
        )
        a, self.b, self.y = f.arguments
        self.sums = f.vectors("sums of a row", k.rows)
        self.lanes = self._addresses() if k.second[1] == 4 else ""
        self.taps = f.vectors("terms of the columns", _GATHERED if self.lanes else _TAPS)
        self.a = lane_pointers(f, a, "a row", k.rows, k.first)
        self.words = f.cores("terms of the rows", len(self.taps) if k.first[1] == 4 else k.rows, LISTED)

    def _addresses(self) -> str:
        # Addresses of the four columns less 4, since each load adds 4 first.
        f, b = self.f, self.b
        lanes, number, apart = f.vector("addresses of terms"), f.core("a lane", EVEN), f.core("bytes apart")
        f.number(number, 0)
        f("vidup.u32", lanes, number, "#1")
        f.number(apart, self.k.second[0])
        f("vmul.i32", lanes, lanes, apart)
        f("sub", b, b, "#4")
        f("vadd.i32", lanes, lanes, b)
        f.free(number, apart)
        return lanes

    def write(self) -> None:
        f, k = self.f, self.k
        for total in self.sums:
            f("vmov.i32", total, "#0")
        with f.low_overhead_loop("terms", k.depth // k.unroll):
            self._terms(k.unroll)
        self._terms(k.depth % k.unroll)
        for number, total in enumerate(self.sums, 1):
            f("vstrw.32", total, f"[{self.y}]")
            if number < k.rows:
                f.advance(self.y, k.pitch)

    def _terms(self, count: int) -> None:
        f, k = self.f, self.k
        for first in range(0, count, len(self.taps)):
            taps = self.taps[: count - first]
            for tap in taps:
                self._load(tap)
            if k.first[1] != 4:
                for tap in taps:
                    self._down(tap)
                continue
            for row, total in zip(self.a, self.sums, strict=True):
                words = self.words[: len(taps)]
                if len(words) > 1:
                    f("ldm", f"{row}!", listed(words))
                else:
                    f("ldr", words[0], f"[{row}], #4")
                for tap, word in zip(taps, words, strict=True):
                    f("vfma.f32", total, tap, word)

    def _load(self, tap: str) -> None:
        # Load the next term of four columns.
        step = self.k.second[1]
        if self.lanes:
            self.f("vldrw.u32", tap, f"[{self.lanes}, #4]!")
        elif step <= _NEXT:
            self.f("vldrw.u32", tap, f"[{self.b}], #{step}")
        else:
            self.f("vldrw.u32", tap, f"[{self.b}]")
            self.f.advance(self.b, step)

    def _down(self, tap: str) -> None:
        # Load a term of all rows, and add its products.
        f, (a,) = self.f, self.a
        if len(self.words) > 1:
            f("ldm", a, listed(self.words))
        else:
            f("ldr", self.words[0], f"[{a}]")
        f.advance(a, self.k.first[1])
        for total, word in zip(self.sums, self.words, strict=True):
            f("vfma.f32", total, tap, word)
