"""Assembly of convolutions and fully connected layers that several layers share when optimising for size.

It uses TFLite's own requantisation, whose constants are short and have the same form for every layer.
"""

from collections.abc import Sequence
from functools import cache

from crtgen.compiler.kernels.asm import EVEN, ODD, Function, Routine, Writer
from crtgen.compiler.kernels.mve.matrix import gather_sums
from crtgen.compiler.kernels.mve.shared_tables import MveSharedView, SharedDenseView
from crtgen.compiler.kernels.mve.stream import LANES

__all__ = ["SharedPair", "any_dense", "runs_of_a_row"]


@cache
def any_dense(k: SharedDenseView) -> Routine:
    """Write ``dense(x, y, weights, table)`` for any layer of one row with a single scale."""
    f = Function(
        "dense",
        "const int8_t *x",
        "int8_t *y",
        "const uint32_t *weights",
        "const int32_t *table",
        purpose="A fully connected layer of one row, four outputs at a time.",
    )
    x, y, weights, table = f.arguments
    x, y = f.moved(x, "all inputs", ODD), f.moved(y, "outputs", ODD)
    weights, table = f.moved(weights, "weights", ODD), f.moved(table, "table", ODD)
    sums = f.cores("sums", 4, EVEN)
    size = sums[0]
    inputs = f.core("inputs", ODD)
    left, zero = f.core("outputs left"), f.core("zero point")
    multiplier, shift = f.core("multiplier"), f.core("shift")
    rounds = f.core("vectors left", ("lr",))
    q, first, weight = f.vectors("inputs and weights, then sums", 3)
    f("ldrd", left, zero, f"[{table}, #{k.at['outputs']}]")
    f("ldrd", multiplier, shift, f"[{table}, #{k.at['multiplier']}]")
    with f.loop("four outputs", "fours") as again:
        f("ldrd", rounds, size, f"[{table}, #{k.at['rounds']}]")
        f("vctp.8", size)
        f("vpst", note="the first vector may not be full")
        f("vldrbt.u8", q, f"[{x}]")
        f("add", inputs, x, size)
        _step(f, first, weights, size)
        for total in sums[1:]:
            _step(f, weight, weights, size)
            f("vmladav.s8", total, q, weight)
        f("vmladav.s8", sums[0], q, first)
        end = f.label("no more")
        f("wls", rounds, rounds, end)
        with f.loop("vectors", "vectors") as more:
            f("vldrb.u8", q, f"[{inputs}], #{LANES}")
            for total in sums:
                f("vldrb.u8", first, f"[{weights}], #{LANES}")
                f("vmladava.s8", total, q, first)
            f("le", rounds, more)
        f.place(end)
        gather_sums(f, q, sums)
        f("vldrw.u32", first, f"[{weights}], #16")
        f("vadd.i32", q, q, first)
        f("vqrdmulh.s32", q, q, multiplier)
        f("vshr.s32", first, q, "#31")
        f("vadd.i32", q, q, first, note="halves go away from zero")
        f("vrshl.s32", q, shift)
        f("vadd.i32", q, q, zero)
        f("vqmovnb.s32", q, q)
        f("vqmovnb.s16", q, q)
        if k.clamped:
            f("ldrd", sums[0], sums[1], f"[{table}, #{k.at['low']}]")
            _clamp(f, [q], (first, weight), sums[:2])
        f("vctp.32", left)
        f("vpst")
        f("vstrbt.32", q, f"[{y}], #4")
        f("subs", left, left, "#4")
        f("bgt", again)
    return f.done()


def _step(f: Function, vector: str, weights: str, size: str) -> None:
    f("vldrb.u8", vector, f"[{weights}]")
    f("add", weights, weights, size)


def _clamp(f: Function, vectors: Sequence[str], spare: Sequence[str], limits: Sequence[str]) -> None:
    for q, limit in zip(spare, limits, strict=True):
        f("vdup.8", q, limit)
    for q in vectors:
        f("vmax.s8", q, q, spare[0])
        f("vmin.s8", q, q, spare[1])


class SharedPair(Writer):
    def __init__(self, k: MveSharedView) -> None:
        self.k = k
        self.f = f = Function(
            "pair",
            "const uint32_t *weights",
            "const void *pair",
            "const int32_t *table",
            purpose="Two pixels, four channels at a time.",
            keep=(1, 2),
        )
        weights, pair, table = f.arguments
        self.weights = f.moved(weights, "weights", ODD)
        self.y, self.left = f.core("outputs", ODD), f.core("channels left", ODD)
        f("ldr", self.y, f"[{pair}, #8]")
        f("ldr", self.left, f"[{table}, #{k.at['outputs']}]")
        f.free(pair, table)
        self.pointers = f.cores("inputs", 2, ODD)
        self.rounds = f.core("vectors left", ODD)
        self.sums = f.cores("sums of the first pixel", 4, EVEN), f.cores("sums of the second pixel", 4, EVEN)
        self.inputs = f.vector("inputs of the first pixel"), f.vector("inputs of the second pixel")
        self.channels = f.vectors("weights, then constants", 2)

    def write(self) -> None:
        f = self.f
        with f.loop("four channels", "groups") as again:
            self._first()
            end = f.label("no more")
            f("cmp", self.rounds, "#0")
            f("beq", end)
            with f.loop("vectors", "vectors") as more:
                self._vector()
                f("subs", self.rounds, self.rounds, "#1")
                f("bne", more)
            f.place(end)
            self._finish()
            f("subs", self.left, self.left, "#4")
            f("bgt", again)

    def _multiply(self, operation: str, channel: int, weights: str) -> None:
        for sums, inputs in zip(self.sums, self.inputs, strict=True):
            self.f(operation, sums[channel], inputs, weights)

    def _first(self) -> None:
        # The first vector of inputs, which may not be full.
        f, k, size = self.f, self.k, self.sums[0][0]
        pair, table = self.sums[0][2], self.sums[0][3]
        even, odd = self.channels
        f("ldrd", pair, table, f.kept[1])
        f("ldrd", *self.pointers, f"[{pair}]")
        f("ldrd", self.rounds, size, f"[{table}, #{k.at['rounds']}]")
        f("vctp.8", size)
        f("vpstt")
        for inputs, pointer in zip(self.inputs, self.pointers, strict=True):
            f("vldrbt.u8", inputs, f"[{pointer}]")
        for pointer in self.pointers:
            f("add", pointer, pointer, size)
        _step(f, even, self.weights, size)
        for channel in (1, 2, 3):
            _step(f, odd, self.weights, size)
            self._multiply("vmladav.s8", channel, odd)
        self._multiply("vmladav.s8", 0, even)

    def _vector(self) -> None:
        f, (even, odd) = self.f, self.channels
        f("vldrb.u8", self.inputs[0], f"[{self.pointers[0]}], #{LANES}")
        f("vldrb.u8", even, f"[{self.weights}], #{LANES}")
        f("vldrb.u8", self.inputs[1], f"[{self.pointers[1]}], #{LANES}")
        f("vldrb.u8", odd, f"[{self.weights}], #{LANES}")
        self._multiply("vmladava.s8", 0, even)
        f("vldrb.u8", even, f"[{self.weights}], #{LANES}")
        self._multiply("vmladava.s8", 1, odd)
        f("vldrb.u8", odd, f"[{self.weights}], #{LANES}")
        self._multiply("vmladava.s8", 2, even)
        self._multiply("vmladava.s8", 3, odd)

    def _finish(self) -> None:
        f, k, (even, odd) = self.f, self.k, self.channels
        zero, first, pair, table = (self.sums[0][i] for i in (0, 1, 2, 3))
        for q, sums in zip(self.inputs, self.sums, strict=True):
            gather_sums(f, q, sums)
        f("ldrd", pair, table, f.kept[1])
        f("ldr", zero, f"[{table}, #{k.at['zero_point']}]")
        f("vldrw.u32", even, f"[{self.weights}], #16")
        f("vshr.s32", odd, even, "#8")
        for q in self.inputs:
            f("vadd.i32", q, q, odd)
        f("vldrw.u32", odd, f"[{self.weights}], #16")
        for q in self.inputs:
            f("vqrdmulh.s32", q, q, odd)
        for q in self.inputs:
            f("vshr.s32", odd, q, "#31")
            f("vadd.i32", q, q, odd, note="halves go away from zero")
            f("vrshl.s32", q, q, even, note="by the lowest byte")
            f("vadd.i32", q, q, zero)
        for q in self.inputs:
            f("vqmovnb.s32", q, q)
            f("vqmovnb.s16", q, q)
        if k.clamped:
            f("ldrd", first, zero, f"[{table}, #{k.at['low']}]")
            _clamp(f, self.inputs, self.channels, (first, zero))
        f("ldr", zero, f"[{pair}, #12]")
        f("add", zero, zero, self.y)
        f("vctp.32", self.left)
        f("vpstt")
        f("vstrbt.32", self.inputs[1], f"[{zero}]")
        f("vstrbt.32", self.inputs[0], f"[{self.y}], #4")


@cache
def runs_of_a_row() -> Routine:
    """Write ``runs(to, from, apart, table)``, which copies one row of two pixels' windows and returns the
    address for the next row.
    """
    f = Function(
        "runs",
        "int8_t *to",
        "const int8_t *from",
        "int32_t apart",
        "const int32_t *table",
        purpose="What a row has of the windows of two pixels, which begin so many bytes from each other.",
        returns="int8_t *",
    )
    to, source, apart, table = f.arguments
    at = MveSharedView(False).at
    left, length, step, window = f.cores("numbers of the table", 4)
    for register, name in (
        (left, "runs"),
        (length, "run_bytes"),
        (step, "run_step"),
        (window, "window_bytes"),
    ):
        f("ldr", register, f"[{table}, #{at[name]}]")
    f.free(table)
    begin, end = f.cores("a run", 2)
    vector = f.vector("bytes")
    with f.loop("runs", "runs") as again:
        for first in (True, False):
            if first:
                f("mov", begin, source)
                f("mov", end, to)
            else:
                f("add", begin, source, apart)
                f("add", end, to, window)
            with f.predicated_while("vectors", 8, "vectors", length):
                f("vldrb.8", vector, f"[{begin}], #16")
                f("vstrb.8", vector, f"[{end}], #16")
        f("add", to, to, length)
        f("add", source, source, step)
        f("subs", left, left, "#1")
        f("bne", again)
    return f.done()
