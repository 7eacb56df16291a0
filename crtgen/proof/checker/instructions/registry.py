"""The table of instructions: a function for each family, by name."""

import re
from collections.abc import Callable
from typing import TypeAlias

from crtgen.proof.checker.image import DecodedInstruction
from crtgen.proof.checker.machine import Machine, Step
from crtgen.proof.checker.refusal import Refusal

__all__ = ["Family", "compile_instruction", "family"]

Family: TypeAlias = Callable[[Machine, DecodedInstruction], Step]

_SINGLE = re.compile(r"\{?s\d+")
_FAMILIES: dict[str, Family] = {}


def family(*names: str) -> Callable[[Family], Family]:
    """What makes a step of the instructions with these names.

    ``vadd:s`` is VADD of float32, ``vadd:q`` that of Helium's lanes.
    """

    def add(made: Family) -> Family:
        for name in names:
            _FAMILIES[name] = made
        return made

    return add


def compile_instruction(m: Machine, i: DecodedInstruction) -> Step:
    """The step of an instruction. Raises ``Refusal`` for one that the checker does not know."""
    name = i.name + _of_reals(i)
    if name not in _FAMILIES:
        raise Refusal("the checker does not know this instruction")
    try:
        return _FAMILIES[name](m, i)
    except (KeyError, IndexError, ValueError):
        raise Refusal("the checker does not know this form of the instruction") from None


def _of_reals(i: DecodedInstruction) -> str:
    """What the name of an instruction has behind it where it is about numbers of float32."""
    if i.name[0] != "v":
        return ""
    if i.name == "vmrs" and i.operands[0] == "APSR_nzcv":
        return ":s"
    if any(_SINGLE.match(operand) for operand in i.operands):
        return ":s"
    return ":q" if "f32" in i.kind else ""
