"""Copying rows and windows of float32, sixteen numbers at a time."""

from functools import cache, lru_cache

from crtgen.kernels.asm import Function, Routine
from crtgen.kernels.cost import Work
from crtgen.kernels.vfp.unit import listed

__all__ = ["copied", "copy", "copy_window"]

_AT_ONCE = 16
_WRITTEN_OUT = 4  # blocks of so many


@cache
def copy() -> Routine:
    """``copy(to, from, bytes)``: whole numbers of float32, forwards."""
    f = Function("copy", "void *to", "const void *from", "uint32_t bytes", purpose="Copies numbers.")
    to, source, left = f.arguments
    numbers, spare = f.singles("numbers", _AT_ONCE), f.core("bits of what is left")
    few, block = f.label("few"), 4 * _AT_ONCE
    f("subs", left, left, f"#{block}")
    f("blt", few)
    with f.loop("sixteen", "sixteens") as again:
        f("vldmia", f"{source}!", listed(numbers))
        f("vstmia", f"{to}!", listed(numbers))
        f("subs", left, left, f"#{block}")
        f("bge", again)
    f.place(few)
    for bit, count in ((27, 8), (29, 2)):  # bits of the count of bytes: one to the carry, one to the sign
        f("lsls", spare, left, f"#{bit}")
        for condition, some in (("bcc", count), ("bpl", count // 2)):
            past = f.label(f"less than {some}")
            f(condition, past)
            with f.loop(f"{some}", f"some{some}"):
                f("vldmia", f"{source}!", listed(numbers[:some]))
                f("vstmia", f"{to}!", listed(numbers[:some]))
            f.place(past)
    return f.done()


def copied(work: Work, nbytes: int, runs: float) -> None:
    """Adds so many copies."""
    rounds = {f"some{n}": float(nbytes // 4 & n != 0) for n in (8, 4, 2, 1)}
    each = copy().runs(sixteens=nbytes // (4 * _AT_ONCE), **rounds)
    work.block("copy", runs).assembly += runs * each


@lru_cache(maxsize=256)
def copy_window(rows: int, numbers: int, pitch: int) -> Routine:
    """``window(to, from)``: so many numbers of each of so many rows, ``pitch`` bytes apart."""
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
