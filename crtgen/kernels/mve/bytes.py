"""Copying and filling, in loops that mask the last vector by themselves."""

from functools import cache

from crtgen.kernels.asm import Function, Routine

__all__ = ["copy", "fill"]


@cache
def copy() -> Routine:
    """``copy(to, from, bytes)``."""
    f = Function("copy", "void *to", "const void *from", "uint32_t bytes", purpose="Copies bytes.")
    to, source, count = f.arguments
    vector = f.vector("bytes")
    with f.predicated_while("vectors", 8, "vectors", count):
        f("vldrb.8", vector, f"[{source}], #16")
        f("vstrb.8", vector, f"[{to}], #16")
    return f.done()


@cache
def fill() -> Routine:
    """``fill(to, value, bytes)``."""
    f = Function("fill", "void *to", "int32_t value", "uint32_t bytes", purpose="Sets bytes to a value.")
    to, value, count = f.arguments
    vector = f.vector("bytes")
    f("vdup.8", vector, value)
    with f.predicated_while("vectors", 8, "vectors", count):
        f("vstrb.8", vector, f"[{to}], #16")
    return f.done()
