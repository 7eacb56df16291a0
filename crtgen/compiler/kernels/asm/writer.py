"""Base class for writers of assembly functions with many registers and parts."""

from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from crtgen.compiler.kernels.asm.function import Function
from crtgen.compiler.kernels.asm.routine import Routine

__all__ = ["Writer"]


class Writer:
    """Writer of a function: the constructor takes registers, ``write`` appends the instructions."""

    f: Function

    def write(self) -> None:
        raise NotImplementedError

    @classmethod
    def routine(cls, *given: Hashable) -> Routine:
        """Return the function for the arguments of ``__init__``, cached because several candidates request
        the same one.
        """
        kind: Any = cls
        return _written(kind, given)


@lru_cache(maxsize=4096)
def _written(kind: Any, given: tuple[Hashable, ...]) -> Routine:
    writer: Writer = kind(*given)
    writer.write()
    return writer.f.done()
