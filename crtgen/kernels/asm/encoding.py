"""Which Thumb-2 instructions are two bytes long and which are four, and what registers they name.

The rules are those by which assemblers choose the narrow encoding in unified syntax (Armv8-M Architecture
Reference Manual, C2.4): low registers, short offsets, and flags set where the narrow one sets them. What no
rule names is wide, as all of Helium and of the DSP extension is.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

__all__ = ["ends_block", "is_branch", "is_narrow", "registers_in"]

_REGISTER = re.compile(r"\b(?:r1[0-2]|r\d|lr|q[0-7]|s[12]?\d|s3[01])\b")
_LOW = re.compile(r"r[0-7]")
_ADDRESS = re.compile(r"\[(\w+)(?:, (?:#(\d+)|(\w+)))?\]")
_SCALE = {"ldr": 4, "str": 4, "ldrh": 2, "strh": 2, "ldrb": 1, "strb": 1}
_SHIFTS = ("lsl ", "lsr ", "asr ", "ror ")
_LINK = {"push": "lr", "pop": "pc"}

Operands = tuple[str, ...]


def is_branch(mnemonic: str) -> bool:
    """B, with a condition or without: its length depends on how far it goes."""
    return mnemonic in _BRANCHES


def ends_block(mnemonic: str) -> bool:
    """Whether what follows may run another number of times: branches, heads and ends of hardware loops."""
    return mnemonic in _BRANCHES or mnemonic.startswith(_HARDWARE_LOOPS)


@lru_cache(maxsize=4096)
def registers_in(operand: str) -> frozenset[str]:
    """The general registers, vectors and registers of the FPU that an operand names."""
    return frozenset(_REGISTER.findall(operand))


@lru_cache(maxsize=16384)
def is_narrow(mnemonic: str, operands: Operands) -> bool:
    """Whether the instruction, no branch, takes two bytes."""
    rule = _RULES.get(mnemonic)
    shifted = operands and operands[-1].startswith(_SHIFTS)
    return rule is not None and not shifted and rule(mnemonic, operands)


def _low(*operands: str) -> bool:
    return all(_LOW.fullmatch(operand) for operand in operands)


def _number(operand: str) -> int | None:
    return int(operand[1:], 0) if re.fullmatch(r"#\d+", operand) else None


def _below(operand: str, limit: int, multiple: int = 1) -> bool:
    number = _number(operand)
    return number is not None and number < limit and number % multiple == 0


def _listed(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def _stack_list(mnemonic: str, operands: Operands) -> bool:
    return _low(*(_listed(operands[0]) - {_LINK[mnemonic]}))


def _multiple(mnemonic: str, operands: Operands) -> bool:
    base, listed = operands[0].rstrip("!"), _listed(operands[1])
    return operands[0].endswith("!") and _low(base, *listed) and base not in listed


def _access(mnemonic: str, operands: Operands) -> bool:
    found = _ADDRESS.fullmatch(operands[1]) if len(operands) == 2 else None
    if found is None or not _low(operands[0]):
        return False
    base, offset, index = found[1], int(found[2] or 0), found[3]
    if index is not None:
        return _low(base, index)
    scale = _SCALE.get(mnemonic)
    if scale is None or offset % scale:
        return False
    if base == "sp":
        return scale == 4 and offset <= 1020
    return _low(base) and offset < 32 * scale


def _add(mnemonic: str, operands: Operands) -> bool:
    """Without flags: any two registers, or what has to do with the stack pointer."""
    target, *rest = operands if len(operands) > 2 else (operands[0], *operands)
    if "sp" in rest:
        other = rest[-1]
        return _below(other, 512, 4) if target == "sp" else _low(target) and _below(other, 1021, 4)
    if rest[-1].startswith("#") or mnemonic == "sub":
        return False
    return target in rest[:2]


def _add_flags(mnemonic: str, operands: Operands) -> bool:
    first, last = operands[0], operands[-1]
    if not _low(*(o for o in operands if not o.startswith("#"))):
        return False
    return not last.startswith("#") or _below(last, 256 if operands[-2] == first else 8)


def _multiply(mnemonic: str, operands: Operands) -> bool:
    return _low(*operands) and (len(operands) == 2 or operands[0] in operands[1:])


def _compare(mnemonic: str, operands: Operands) -> bool:
    return not operands[1].startswith("#") or (_low(operands[0]) and _below(operands[1], 256))


def _move(mnemonic: str, operands: Operands) -> bool:
    return not operands[1].startswith("#") and len(operands) == 2


def _move_flags(mnemonic: str, operands: Operands) -> bool:
    return _low(operands[0]) and (_below(operands[1], 256) or _low(operands[1]))


def _move_if(mnemonic: str, operands: Operands) -> bool:
    """Within an IT block: any registers, or a number of eight bits."""
    return not operands[1].startswith("#") or _move_flags(mnemonic, operands)


def _shift_flags(mnemonic: str, operands: Operands) -> bool:
    last = operands[-1]
    if last.startswith("#"):
        return _low(*operands[:-1])
    return _low(*operands) and (len(operands) == 2 or operands[0] == operands[1])


def _extend(mnemonic: str, operands: Operands) -> bool:
    return len(operands) == 2 and _low(*operands)


def _always(mnemonic: str, operands: Operands) -> bool:
    return True


_CONDITIONS = ("eq", "ne", "cs", "cc", "hs", "lo", "mi", "pl", "hi", "ls", "ge", "lt", "gt", "le")
_HARDWARE_LOOPS = ("le", "dls", "wls", "bx", "cb")
_BRANCHES = frozenset(("b", *(f"b{condition}" for condition in _CONDITIONS)))
_RULES: Mapping[str, Callable[[str, Operands], bool]] = {
    **dict.fromkeys(("push", "pop"), _stack_list),
    **dict.fromkeys(("ldm", "stm"), _multiple),
    **dict.fromkeys((*_SCALE, "ldrsb", "ldrsh"), _access),
    **dict.fromkeys(("add", "sub"), _add),
    **dict.fromkeys(("adds", "subs"), _add_flags),
    **dict.fromkeys(("lsls", "lsrs", "asrs"), _shift_flags),
    "muls": _multiply,
    **dict.fromkeys(("sxtb", "sxth", "uxtb", "uxth", "rev", "mvns"), _extend),
    **dict.fromkeys(("bx", "it", "itt", "ite", "nop"), _always),
    "movs": _move_flags,
    **dict.fromkeys((f"mov{condition}" for condition in _CONDITIONS), _move_if),
    "cmp": _compare,
    "mov": _move,
}
