"""Semantics of instructions: Thumb-2 from Armv6-M to Armv8.1-M, the DSP extension, Helium, and float32."""

from crtgen.proof.checker.instructions import (  # noqa: F401  each registers its families
    branches,
    data,
    lanes,
    multiply,
    narrow,
    packed,
    reals,
    transfers,
    vectors,
)
from crtgen.proof.checker.instructions.registry import compile_instruction

__all__ = ["compile_instruction"]
