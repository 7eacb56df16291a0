"""Effects of an instruction: the registers, flags and memory that it reads and writes.

Vectors and FPU registers share storage, so both are identified by their words: q1 is s4 to s7.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from crtgen.compiler.kernels.asm.isa import Mnemonic, find
from crtgen.compiler.kernels.asm.routine import Instruction

__all__ = ["FLAGS", "Effects", "effects", "words_of"]

FLAGS, PREDICATE = "flags", "vpr"
_ADDRESS = re.compile(r"\[(.*?)\](!?)(?:, (.*))?$")
_NAMES = re.compile(r"\b(?:r1[0-2]|r\d|lr|sp|[qds]\d+)\b")
_RANGE = re.compile(r"([sd])(\d+)-[sd](\d+)")


@dataclass(frozen=True, slots=True)
class Effects:
    """Registers that are read and written; ``loads`` and ``stores`` are memory accesses.

    ``updated`` are address registers, which are ready earlier than loaded values.
    """

    reads: frozenset[str]
    writes: frozenset[str]
    updated: frozenset[str] = frozenset()
    loads: bool = False
    stores: bool = False


@lru_cache(maxsize=4096)
def words_of(operand: str) -> tuple[str, ...]:
    """Return the registers in an operand; FPU registers as words."""
    text = _RANGE.sub(_listed, operand)
    return tuple(word for name in _NAMES.findall(text) for word in _words(name))


@lru_cache(maxsize=16384)
def effects(line: Instruction) -> Effects:
    """Return the effects of one instruction. Raises ``ValueError`` if it is not in the table."""
    row, operands = find(line.mnemonic), line.operands
    if row.moves:
        return _access(row, operands)
    lanes = row.name == "vmov" and "[" in operands[0]
    written = 2 if row.name == "vmov" and len(operands) == 4 else row.writes
    reads = {word for operand in operands[written:] for word in words_of(operand)}
    writes = {word for operand in operands[:written] for word in words_of(operand)}
    if row.accumulates or lanes or (row.two and len(operands) < 3):
        reads |= writes
    if row.steps:
        writes |= set(words_of(operands[1]))
    if row.sets:
        writes.add(FLAGS)
    if row.uses:  # what runs on a condition may leave its target as it was
        reads |= {FLAGS, *writes}
    if row.predicate:
        writes.add(PREDICATE)
    if row.vector:
        reads.add(PREDICATE)
    return Effects(frozenset(reads), frozenset(writes))


def _access(row: Mnemonic, operands: tuple[str, ...]) -> Effects:
    # Loads and stores: of lists behind a register, of one or two registers before an address.
    if row.lists or row.stack:
        used = words_of("sp") if row.stack else words_of(operands[0])
        moved = used if row.stack or operands[0].endswith("!") else ()
        data = words_of(operands[-1])
    else:
        found = _ADDRESS.search(operands[-1])
        if found is None:
            raise ValueError(f"{row.name} {', '.join(operands)}: an address is expected")
        used = words_of(f"{found[1]} {found[3] or ''}")
        moved = words_of(found[1].partition(",")[0]) if found[2] or found[3] else ()
        data = tuple(word for operand in operands[:-1] for word in words_of(operand))
    reads = {*used, PREDICATE} if row.vector else set(used)
    if row.moves == "store":
        return Effects(frozenset({*reads, *data}), frozenset(moved), frozenset(moved), stores=True)
    return Effects(frozenset(reads), frozenset({*moved, *data}), frozenset(moved) - set(data), loads=True)


def _words(name: str) -> tuple[str, ...]:
    kind, rest = name[0], name[1:]
    if kind == "q":
        return tuple(f"s{4 * int(rest) + n}" for n in range(4))
    if kind == "d":
        return f"s{2 * int(rest)}", f"s{2 * int(rest) + 1}"
    return (name,)


def _listed(found: "re.Match[str]") -> str:
    return " ".join(f"{found[1]}{n}" for n in range(int(found[2]), int(found[3]) + 1))
