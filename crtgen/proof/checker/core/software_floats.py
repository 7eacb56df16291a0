"""Functions of the compiler's library for float32, on cores without an FPU.

Their loops depend on their operands, so they are not followed. Callers may put the operation that each of
them stands for in its place, and have to say so in the verdict: that the library's function computes it is
trusted. ``tried`` runs the image's own code on operands that are hard (borders of rounding, subnormals,
infinities, NaN in comparisons) and on random ones, which finds a library that is broken, not one that is
wrong for a single operand.
"""

from collections.abc import Callable, Mapping

import numpy as np

from crtgen.proof.checker.algebra.meaning import OPS, apply
from crtgen.proof.checker.algebra.value import M32, STACK_TOP, signed
from crtgen.proof.checker.binary.image import DecodedImage
from crtgen.proof.checker.core.layout import allow_stack
from crtgen.proof.checker.core.machine import Machine
from crtgen.proof.checker.refusal import Refusal

__all__ = ["replace_software_floats", "tried"]

_MEANINGS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "__aeabi_fadd": ("f_add", (0, 1)),
    "__aeabi_fsub": ("f_sub", (0, 1)),
    "__aeabi_frsub": ("f_sub", (1, 0)),
    "__aeabi_fmul": ("f_mul", (0, 1)),
    "__aeabi_fdiv": ("f_div", (0, 1)),
    "__aeabi_i2f": ("f_of", (0,)),
    "__aeabi_f2iz": ("f_int", (0,)),
    "__aeabi_fcmpeq": ("f_eq", (0, 1)),
    "__aeabi_fcmplt": ("f_lt", (0, 1)),
    "__aeabi_fcmple": ("f_le", (0, 1)),
    "__aeabi_fcmpge": ("f_ge", (0, 1)),
    "__aeabi_fcmpgt": ("f_gt", (0, 1)),
}
"""Operation and registers of its operands (Run-time ABI for the Arm Architecture, 4.1.2)."""
_CHANGED, _FRAME = (1, 2, 3, 12, 14), 32
"""Registers that a callee may change, and words of stack that it may use."""
_MOST_INSTRUCTIONS = 1_000_000
_EDGES = (0, 1, 0x7FFFFF, 0x800000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x4B000001, 0x7F7FFFFF, 0x7F800000)
_NAN, _TRIES = 0x7FC00001, 40


def replace_software_floats(machine: Machine) -> set[str]:
    """Let these functions be operations; return a set to which each that is called is added."""
    called = set[str]()
    for name, (operation, registers) in _MEANINGS.items():
        if name in machine.image.symbols:
            stand_in = _stand_in(name, operation, registers, called)
            machine.instead[machine.image.symbols[name]] = stand_in
    return called


def _stand_in(
    name: str, operation: str, registers: tuple[int, ...], called: set[str]
) -> Callable[[Machine], None]:
    def compute(machine: Machine) -> None:
        called.add(name)
        result = apply(operation, *(machine.r[n] for n in registers))
        machine.spoil(_CHANGED, _FRAME)
        machine.r[0] = result

    return compute


def tried(image: DecodedImage, name: str, constants: tuple[int, ...]) -> int:
    """Run a function on operands, the bits of ``constants`` among them, and return how many were tried.

    Raises ``Refusal`` for the first wrong result.
    """
    operation, registers = _MEANINGS[name]
    machine = Machine(image, _MOST_INSTRUCTIONS)
    machine.computes_jumps = True
    allow_stack(machine)
    numbers = np.random.default_rng(len(name))
    edges = [e ^ sign for e in (*_EDGES, *constants) for sign in (0, 1 << 31)]
    edges += [int(v) for v in numbers.integers(0, 1 << 32, _TRIES)]
    if name == "__aeabi_f2iz":  # beyond an integer, and of NaN, its result is open
        edges = [e for e in edges if e & 0x7F800000 < 0x4F000000]
    others = edges if name.startswith("__aeabi_fcmp") else [e for e in edges if not _is_nan(e)]
    others += [_NAN] if name.startswith("__aeabi_fcmp") else []
    pairs = [(a, numbers.choice(others)) for a in others] + [(a, c) for a in others for c in constants]
    for a, b in pairs:
        machine.r[:2] = int(a), int(b)
        wanted = _wanted(operation, [(int(a), int(b))[n] for n in registers])
        if wanted is None:
            continue
        machine.run(image.symbols[name], STACK_TOP)
        if machine.r[0] != wanted:
            raise Refusal(f"{name} of {a:#x} and {b:#x} gives {machine.r[0]}, not {wanted:#x}")
    return len(pairs)


def _is_nan(bits: int) -> bool:
    return bits & 0x7FFFFFFF > 0x7F800000


def _wanted(operation: str, operands: list[int]) -> int | None:
    # The result; None where it is NaN, whose bits are open.
    if any(map(_is_nan, operands)) and operation != "f_of":
        return 0  # of a comparison
    try:
        return int(OPS[operation](*map(signed, operands))) & M32
    except Refusal:
        return None
