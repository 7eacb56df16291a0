"""Copying rows in scratch, word by word: neither pointer has to be aligned."""

from functools import cache

from crtgen.compiler.kernels.asm import Function, Routine, Runs

__all__ = ["copied", "copy"]

_AT_ONCE = 4  # words


@cache
def copy() -> Routine:
    """``copy(to, from, bytes)``, forwards: ``to`` may overlap ``from`` if it is lower."""
    f = Function("copy", "void *to", "const void *from", "uint32_t bytes", purpose="Copies bytes, forwards.")
    to, source, left = f.arguments
    words = f.cores("words", _AT_ONCE)
    few, odd, end = f.label("few"), f.label("odd"), f.label("end")
    block = 4 * _AT_ONCE
    f("subs", left, left, f"#{block}")
    f("blt", few)
    with f.loop("blocks", "blocks") as again:
        for word in words:
            f("ldr", word, f"[{source}], #4")
        for word in words:
            f("str", word, f"[{to}], #4")
        f("subs", left, left, f"#{block}")
        f("bge", again)
    f.place(few)
    f("adds", left, left, f"#{block - 4}")
    f("blt", odd)
    with f.loop("words", "words") as again:
        f("ldr", words[0], f"[{source}], #4")
        f("str", words[0], f"[{to}], #4")
        f("subs", left, left, "#4")
        f("bge", again)
    f.place(odd)
    f("adds", left, left, "#4")
    f("beq", end)
    with f.loop("bytes", "bytes") as again:
        f("ldrb", words[0], f"[{source}], #1")
        f("strb", words[0], f"[{to}], #1")
        f("subs", left, left, "#1")
        f("bne", again)
    f.place(end)
    return f.done()


def copied(nbytes: int) -> Runs:
    """Return the runs of copying ``nbytes`` bytes."""
    block = 4 * _AT_ONCE
    return copy().runs(blocks=nbytes // block, words=nbytes % block // 4, bytes=nbytes % 4)
