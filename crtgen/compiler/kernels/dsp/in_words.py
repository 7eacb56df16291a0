"""Loops over elements of a byte each, four of them in a word."""

from collections.abc import Callable

from crtgen.compiler.kernels.asm import Function

__all__ = ["in_words"]

_BLOCK = 4  # words at a time


def in_words(f: Function, elements: int, some: Callable[[str, int], None]) -> None:
    """Append ``some`` for each word, with ``ldr`` and 4 bytes, then for each byte that is left, with ``ldrb``
    and 1.
    """

    def words(count: int) -> None:
        for _ in range(count):
            some("ldr", 4)

    f.rounds("words", elements // 4, _BLOCK, words)
    if elements % 4:
        with f.repeated("elements", elements % 4):
            some("ldrb", 1)
