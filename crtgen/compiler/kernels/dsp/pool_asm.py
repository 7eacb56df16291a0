"""Assembly of poolings: sums or maxima of four channels of a window."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from crtgen.compiler.kernels.asm import CORE, Function, Routine

__all__ = ["Pixels", "of_part", "of_window"]

# Registers that are not those of a result.
_OTHERS = CORE[2:]


@dataclass(frozen=True, slots=True)
class Pixels:
    """Pixels to pool: ``rows`` rows of ``blocks`` times ``unroll`` pixels of ``channels`` bytes, ``gap``
    bytes between rows.

    Maxima are returned in one word. Sums are returned in two: channels 0 and 2 in the halves of the lower
    word, 1 and 3 in the upper one; or, if ``wide``, in four words.
    """

    mean: bool
    wide: bool
    rows: int
    blocks: int
    unroll: int
    channels: int
    gap: int

    @property
    def returns(self) -> str:
        if self.wide:
            return "void"
        return "uint64_t" if self.mean else "uint32_t"


@lru_cache(maxsize=256)
def of_window(k: Pixels) -> Routine:
    """Write ``window(x)``, which pools four channels of a window; wide sums go to ``sums``."""
    sums = ("int32_t *sums",) if k.wide else ()
    f = Function("window", "const int8_t *x", *sums, purpose="Four channels of a window.", returns=k.returns)
    to = f.moved(f.arguments[1], "sums", _OTHERS) if k.wide else ""
    x = f.moved(f.arguments[0], "inputs", _OTHERS)
    take, clear = _takes(f, k, x)
    totals = f.cores("sums in 32 bits", 4) if k.wide else ()
    clear()
    for total in totals:
        f.number(total, 0)
    with f.repeated("rows", k.rows):
        with f.repeated("blocks", k.blocks):
            for pixel in range(k.unroll):
                take(pixel * k.channels)
            f.advance(x, k.unroll * k.channels)
        if totals:
            _flush(f, totals)
            clear()
        if k.rows > 1:
            f.advance(x, k.gap)
    for number, total in enumerate(totals):
        f("str", total, f"[{to}, #{4 * number}]")
    return f.done()


@lru_cache(maxsize=256)
def of_part(k: Pixels, row_bytes: int) -> Routine:
    """Write ``part(x, rows, columns)``, which pools the pixels of a window at the border."""
    f = Function(
        "part",
        "const int8_t *x",
        "uint32_t rows",
        "uint32_t columns",
        purpose="Four channels of what a window shares with the image.",
        returns=k.returns,
    )
    x, rows, columns = f.arguments
    x, rows = f.moved(x, "inputs", _OTHERS), f.moved(rows, "rows left", _OTHERS)
    take, clear = _takes(f, k, x)
    left, step, gap = (
        f.core("columns left"),
        f.constant("bytes of a pixel", k.channels),
        f.core("bytes between rows"),
    )
    f.number(gap, row_bytes)
    f("mls", gap, columns, step, gap)
    clear()
    with f.loop("rows", "rows") as next_row:
        f("mov", left, columns)
        with f.loop("columns", "columns") as next_column:
            take(0)
            f("add", x, x, step)
            f("subs", left, left, "#1")
            f("bne", next_column)
        f("add", x, x, gap)
        f("subs", rows, rows, "#1")
        f("bne", next_row)
    return f.done()


def _takes(f: Function, k: Pixels, x: str) -> tuple[Callable[[int], None], Callable[[], None]]:
    # Functions that add a pixel, and that start a sum.
    first = f.core("sums of channels 0 and 2" if k.mean else "maxima", ("r0",))
    second = f.core("sums of channels 1 and 3", ("r1",)) if k.mean else f.core("differences")
    word = f.core("a pixel")

    def take(offset: int) -> None:
        f("ldr", word, f"[{x}, #{offset}]")
        if k.mean:
            f("sxtab16", first, first, word)
            f("sxtab16", second, second, word, "ror #8")
        else:
            f("ssub8", second, first, word, note="marks the bytes that are not less")
            f("sel", first, first, word)

    def clear() -> None:
        f.number(first, 0 if k.mean else 0x80808080)
        if k.mean:
            f.number(second, 0)

    return take, clear


def _flush(f: Function, totals: tuple[str, ...]) -> None:
    for number, halves in enumerate(("r0", "r1")):
        f("sxtah", totals[number], totals[number], halves)
        f("add", totals[number + 2], totals[number + 2], halves, "asr #16")
