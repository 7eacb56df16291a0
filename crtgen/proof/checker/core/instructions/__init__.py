"""Semantics of instructions: Thumb-2 from Armv6-M to Armv8.1-M, the DSP extension, Helium, and float32.

An instruction is compiled once to a *step*, a function without arguments that changes the machine. Compiling
looks at the operands (``operands``) and refuses forms that are not known; running a step looks at contents.

Each operation is written once, in ``meaning``, and works on integers, on numpy arrays and on symbolic words
alike: a step applies it to words, and the tests apply the same function to random integers and compare with
QEMU, register by register and flag by flag. So what is tested is what a proof uses.

Three rules keep a step sound. It sets every register and flag that the instruction sets, or marks it as
unknown. Whatever the architecture leaves open (a base register in its own list, results called UNKNOWN) is
refused. A word that several operations could describe gets its simplest form in ``words``, since two words
are equal for the checker only if they are the same expression.

Families register themselves: ``data`` and ``multiply`` (integers), ``packed`` (DSP), ``transfers`` (loads and
stores), ``branches``, ``reals`` (FPU), ``vectors``, ``lanes`` and ``narrow`` (Helium).
"""

from crtgen.proof.checker.core.instructions import (  # noqa: F401  each registers its families
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
from crtgen.proof.checker.core.instructions.registry import compile_instruction

__all__ = ["compile_instruction"]
