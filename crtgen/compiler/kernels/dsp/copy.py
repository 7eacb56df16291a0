"""Copies rows in scratch, word by word, without any alignment.

This is the shortest writer of assembly, so it is explained line by line. Longer ones are classes derived from
``Writer``.
"""

from functools import cache

from crtgen.compiler.kernels.asm import Function, Routine, Runs

__all__ = ["copied", "copy"]

_AT_ONCE = 4  # words


@cache  # equal calls return the same routine, and equal routines are one function of the firmware
def copy() -> Routine:
    """Write ``copy(to, from, bytes)``, which copies forwards: ``to`` may overlap ``from`` if it is lower."""
    # The parameters are C and arrive in r0, r1, r2. The purpose becomes the comment above the code.
    f = Function("copy", "void *to", "const void *from", "uint32_t bytes", purpose="Copies bytes, forwards.")
    to, source, left = f.arguments
    # Four free registers, here r3 to r6. Generating fails if none is left, or if one was used but not taken.
    words = f.cores("words", _AT_ONCE)
    few, odd, end = f.label("few"), f.label("odd"), f.label("end")
    block = 4 * _AT_ONCE
    f("subs", left, left, f"#{block}")
    # A branch ends a block. Within a block the scheduler may change the order of instructions.
    f("blt", few)
    # The second name counts the rounds: ``copy().runs(blocks=4, words=0, bytes=1)`` is a call of 65 bytes.
    with f.loop("blocks", "blocks") as again:
        # Python's loop writes four LDR in a row: a load behind a load takes a cycle less on M4.
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
    # Adds push and pop of r4 to r6, and computes size, stack and instructions without an assembler.
    return f.done()


def copied(nbytes: int) -> Runs:
    block = 4 * _AT_ONCE
    return copy().runs(blocks=nbytes // block, words=nbytes % block // 4, bytes=nbytes % 4)
