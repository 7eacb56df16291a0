"""The table of instructions: a function for each family, by name."""

from collections.abc import Callable
from typing import TypeAlias

from crtgen.prove.image import Instruction
from crtgen.prove.machine import Machine, Step
from crtgen.prove.refusal import Refusal

__all__ = ["Family", "compile_instruction", "family"]

Family: TypeAlias = Callable[[Machine, Instruction], Step]

_FAMILIES: dict[str, Family] = {}


def family(*names: str) -> Callable[[Family], Family]:
    """What makes a step of the instructions with these names."""

    def add(made: Family) -> Family:
        for name in names:
            _FAMILIES[name] = made
        return made

    return add


def compile_instruction(m: Machine, i: Instruction) -> Step:
    """The step of an instruction. Raises ``Refusal`` for one that the checker does not know."""
    if i.name not in _FAMILIES:
        raise Refusal("the checker does not know this instruction")
    try:
        return _FAMILIES[i.name](m, i)
    except (KeyError, IndexError, ValueError):
        raise Refusal("the checker does not know this form of the instruction") from None
