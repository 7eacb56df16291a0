"""Copying and filling, in tail-predicated loops."""

from functools import cache, lru_cache

from crtgen.compiler.kernels.asm import Function, Routine

__all__ = ["copy", "copy_window", "fill"]


@cache
def copy() -> Routine:
    f = Function("copy", "void *to", "const void *from", "uint32_t bytes", purpose="Copies bytes.")
    to, source, count = f.arguments
    vector = f.vector("bytes")
    with f.predicated_while("vectors", 8, "vectors", count):
        f("vldrb.8", vector, f"[{source}], #16")
        f("vstrb.8", vector, f"[{to}], #16")
    return f.done()


@cache
def fill() -> Routine:
    """Write ``fill(to, value, bytes)``, which sets bytes to a value."""
    f = Function("fill", "void *to", "int32_t value", "uint32_t bytes", purpose="Sets bytes to a value.")
    to, value, count = f.arguments
    vector = f.vector("bytes")
    f("vdup.8", vector, value)
    with f.predicated_while("vectors", 8, "vectors", count):
        f("vstrb.8", vector, f"[{to}], #16")
    return f.done()


@lru_cache(maxsize=256)
def copy_window(rows: int, words: int, pitch: int) -> Routine:
    """Write ``window(to, from)``, which copies ``words`` words of each of ``rows`` rows, ``pitch`` bytes
    apart.
    """
    f = Function("window", "void *to", "const void *from", purpose="Copies a window.")
    to, source = f.arguments
    vector, row = f.vector("words"), f.core("a row")
    with f.repeated("rows", rows):
        f("mov", row, source)
        with f.predicated_loop("vectors", 32, words):
            f("vldrw.u32", vector, f"[{row}], #16")
            f("vstrw.32", vector, f"[{to}], #16")
        if words % 4:
            f.advance(to, 4 * (words % 4 - 4))
        f.advance(source, pitch)
    return f.done()
