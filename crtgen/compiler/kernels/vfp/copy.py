"""Copying and filling rows and windows of float32, sixteen values at a time."""

from collections.abc import Callable
from functools import cache, lru_cache

from crtgen.compiler.kernels.asm import Function, Routine, Runs, listed
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.vfp.unit import cut

__all__ = ["copied", "copy", "copy_window", "fill", "filled"]

_AT_ONCE = 16
_WRITTEN_OUT = 4  # blocks of so many


@cache
def copy() -> Routine:
    """Write ``copy(to, from, bytes)``, which copies 32-bit words from the first to the last."""
    f = Function("copy", "void *to", "const void *from", "uint32_t bytes", purpose="Copies numbers.")
    to, source, left = f.arguments
    numbers = f.singles("numbers", _AT_ONCE)

    def move(count: int) -> None:
        f("vldmia", f"{source}!", listed(numbers[:count]))
        f("vstmia", f"{to}!", listed(numbers[:count]))

    _all(f, left, move)
    return f.done()


@cache
def fill() -> Routine:
    """Write ``fill(to, word, bytes)``, which fills memory with a word."""
    f = Function("fill", "void *to", "int32_t word", "uint32_t bytes", purpose="Fills with a word.")
    to, word, left = f.arguments
    words = f.singles("words", _AT_ONCE)
    for first, second in cut(words, 2):
        f("vmov", first, second, word, word)
    _all(f, left, lambda count: f("vstmia", f"{to}!", listed(words[:count])))
    return f.done()


def _all(f: Function, left: str, some: Callable[[int], None]) -> None:
    # Does ``some`` numbers at once until ``left`` bytes are done.
    few, spare, block = f.label("few"), f.core("bits of what is left"), 4 * _AT_ONCE
    f("subs", left, left, f"#{block}")
    f("blt", few)
    with f.loop("sixteen", "sixteens") as again:
        some(_AT_ONCE)
        f("subs", left, left, f"#{block}")
        f("bge", again)
    f.place(few)
    for bit, most in ((27, 8), (29, 2)):  # bits of the count of bytes: one to the carry, one to the sign
        f("lsls", spare, left, f"#{bit}")
        for condition, count in (("bcc", most), ("bpl", most // 2)):
            past = f.label(f"less than {count}")
            f(condition, past)
            with f.loop(f"{count}", f"some{count}"):
                some(count)
            f.place(past)


def copied(work: Work, nbytes: int, runs: float) -> None:
    work.block("copy", runs).assembly += runs * _all_of(copy(), nbytes)


def filled(work: Work, nbytes: int, runs: float) -> None:
    work.block("fill", runs).assembly += runs * _all_of(fill(), nbytes)


def _all_of(routine: Routine, nbytes: int) -> Runs:
    rounds = {f"some{n}": float(nbytes // 4 & n != 0) for n in (8, 4, 2, 1)}
    return routine.runs(sixteens=nbytes // (4 * _AT_ONCE), **rounds)


@lru_cache(maxsize=256)
def copy_window(rows: int, numbers: int, pitch: int) -> Routine:
    """Write ``window(to, from)``, which copies ``numbers`` values of each of ``rows`` rows, ``pitch`` bytes
    apart.
    """
    f = Function("window", "float *to", "const float *from", purpose="Copies a window.")
    to, source = f.arguments
    registers = f.singles("numbers", min(_AT_ONCE, numbers))

    def move(count: int) -> None:
        f("vldmia", f"{source}!", listed(registers[:count]))
        f("vstmia", f"{to}!", listed(registers[:count]))

    with f.repeated("rows", rows):
        blocks, rest = divmod(numbers, _AT_ONCE)
        if blocks > _WRITTEN_OUT:
            with f.repeated("blocks", blocks):
                move(_AT_ONCE)
        else:
            for _ in range(blocks):
                move(_AT_ONCE)
        if rest:
            move(rest)
        f.advance(source, pitch - 4 * numbers)
    return f.done()
