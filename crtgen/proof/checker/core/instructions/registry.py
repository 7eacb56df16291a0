"""The table of instructions: one function per family of names."""

import re
from collections.abc import Callable
from typing import TypeAlias

from crtgen.proof.checker.binary.image import DecodedInstruction
from crtgen.proof.checker.core.machine import Machine, Step
from crtgen.proof.checker.core.operands import REGISTERS, register, register_list
from crtgen.proof.checker.refusal import Refusal

__all__ = ["Family", "compile_instruction", "family"]

Family: TypeAlias = Callable[[Machine, DecodedInstruction], Step]

_SINGLE = re.compile(r"\{?s\d+")
_FAMILIES: dict[str, Family] = {}


def family(*names: str) -> Callable[[Family], Family]:
    """Register a function that compiles the instructions with these names.

    ``vadd:s`` is VADD of a float32 register, ``vadd:q`` that of Helium's lanes.
    """

    def add(made: Family) -> Family:
        for name in names:
            _FAMILIES[name] = made
        return made

    return add


def compile_instruction(m: Machine, i: DecodedInstruction) -> Step:
    """Return the step of an instruction. Raises ``Refusal`` if the checker does not know it."""
    name = i.name + _of_reals(i)
    if name not in _FAMILIES:
        raise Refusal("the checker does not know this instruction")
    if _is_unpredictable(i):
        raise Refusal("an instruction whose result the architecture leaves open: one register in two places")
    try:
        return _FAMILIES[name](m, i)
    except (KeyError, IndexError, ValueError):
        raise Refusal("the checker does not know this form of the instruction") from None


_TWO_RESULTS = re.compile(r"ldrd|[su]mull|[su]mlal\w*|asrl|lsll|lsrl")
_TRANSFER = re.compile(r"v?(ldr|str)\w*")
_GATHER = re.compile(r"\[\w+, (q\d)\b.*|\[(q\d)\b.*")


def _is_unpredictable(i: DecodedInstruction) -> bool:
    # UNPREDICTABLE: a register is written twice, or is both a result and the base that is written back.
    q = i.operands
    if (_TWO_RESULTS.fullmatch(i.name) or (i.name == "vmov" and len(q) == 4)) and q[0] == q[1]:
        return True
    if i.name.startswith(("ldm", "stm")) and q[0].endswith("!"):
        return register(q[0][:-1]) in register_list(q[1])
    if not _TRANSFER.fullmatch(i.name):
        return False
    moved = {name for name in q if name in REGISTERS}
    base = next((name for name in q if name[0] == "["), "")
    if base.endswith("!") or q[-1][0] == "#":  # written back
        return re.split(r"[\[\], !]+", base)[1] in moved
    gather = _GATHER.match(base)
    return gather is not None and i.name.startswith("vldr") and q[0] in gather.groups()


def _of_reals(i: DecodedInstruction) -> str:
    # Suffix of an instruction's name for float32.
    if i.name[0] != "v":
        return ""
    if i.name in ("vmrs", "vmsr") and "fpscr" in i.operands:
        return ":s"
    if any(_SINGLE.match(operand) for operand in i.operands):
        return ":s"
    return ":q" if "f32" in i.kind else ""
