"""Requantisation of 64-bit sums to int16 outputs."""

from crtgen.compiler.kernels.asm.function import Function

__all__ = ["scale_wide"]


def scale_wide(
    f: Function, acc: tuple[str, str], multiplier: str, right: int, result: tuple[str, str]
) -> None:
    """Append ``sat16(acc * multiplier / 2**right)``, with ties up, for a 64-bit sum.

    The result is in the first register of ``result``; the other is spare. The value before saturation must
    fit into 32 bits; ``right`` is 8 or more.
    """
    low, high = result
    f("umull", low, high, acc[0], multiplier)
    f("mla", high, acc[1], multiplier, high)
    if right <= 32:
        f("adds", low, low, f"#{1 << (right - 1)}")
        f("adc", high, high, "#0")
    else:
        f("add", high, high, f"#{1 << (right - 33)}")
    if right < 32:
        f("lsr", low, low, f"#{right}")
        f("orr", low, low, high, f"lsl #{32 - right}")
        f("ssat", low, "#16", low)
    else:
        f("ssat", low, "#16", high, *([f"asr #{right - 32}"] if right > 32 else []))
