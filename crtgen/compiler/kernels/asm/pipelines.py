"""Cycle model of instruction sequences, for memory without wait states.

A core issues instructions in order, up to ``width`` per cycle. Each one waits for its operands, for its unit,
and for earlier instructions that cannot overlap. Sources of the figures:

- Cortex-M0+, M3 and M4: tables in section 3.3 of their Technical Reference Manuals. The M33 also issues one
  instruction at a time and gets the M4's figures, since Arm publishes none; the M23 gets the M0+'s.
- Cortex-M7: the scheduling model of LLVM. Two instructions per cycle, one multiplication, two words of loads.
- Cortex-M55 and M85: the same. A vector instruction occupies its unit (memory, multiplication, other) for two
  cycles, and different units overlap. Gathers and scatters take one or two cycles per element.

Compiled C is not modelled: its cycles per instruction are those of kws in portable C, 6.8 M instructions,
executed with the costs of the M3 and the M4; those of other cores are assumed.

``pytest tests/compiler/kernels/asm`` compares the M7 and the M55 with ``llvm-mca`` if that is installed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from crtgen.boards.core import Core
from crtgen.compiler.kernels.asm.effects import FLAGS, effects, words_of
from crtgen.compiler.kernels.asm.isa import SHIFTED, find, follows
from crtgen.compiler.kernels.asm.routine import Instruction

__all__ = ["Clock", "CorePipeline", "Demand", "Timing", "pipeline_of"]


@dataclass(frozen=True, slots=True)
class Timing:
    """Timing of an instruction, in cycles.

    Its ``unit`` is busy for ``hold`` cycles, all other units for ``alone``; the result is available after
    ``latency``, an updated address after ``address``. It fills ``slots`` of the issue slots of a cycle.
    """

    unit: str
    hold: int = 1
    alone: int = 0
    latency: int = 1
    slots: int = 1
    address: int = 1


@dataclass(frozen=True, slots=True)
class CorePipeline:
    """Pipeline of a core: issue width, timing of instructions, cost of a taken branch.

    ``overlaps``: the order of independent instructions matters. Each instruction of compiled C takes
    ``compiled`` cycles.
    """

    width: int
    branch: int
    overlaps: bool
    compiled: float
    timed: Callable[[Instruction], Timing]

    def demands(self, lines: Iterable[Instruction]) -> list["Demand"]:
        return [_demand(line, self.timed) for line in lines if line.mnemonic not in ("le", "letp")]

    def cycles(self, lines: Sequence[Instruction], again: bool = False) -> int:
        """Return the cycles of a sequence; with ``again``, of one iteration of a loop over it."""
        clock, demands = Clock(self.width), self.demands(lines)
        clock.run(demands)
        once = clock.end
        if again:
            clock.run(demands)
        branches = bool(lines) and _goes_away(lines[-1])
        return clock.end - once * again + self.branch * branches


class Demand(NamedTuple):
    """Demand of one instruction: units, operands, and cycles until each result is available."""

    timing: Timing
    reads: tuple[str, ...]
    writes: tuple[tuple[str, int], ...]


@lru_cache(maxsize=16384)
def _demand(line: Instruction, timed: Callable[[Instruction], Timing]) -> Demand:
    timing, done = timed(line), effects(line)
    late = {word: timing.address if word in done.updated else timing.latency for word in done.writes}
    if FLAGS in late:
        late[FLAGS] = 1
    return Demand(timing, tuple(done.reads), tuple(late.items()))


@dataclass(slots=True)
class Clock:
    """Steps through instructions, up to ``width`` per cycle, and tells when each begins."""

    width: int
    now: int = 0
    issued: int = 0
    others: int = 0
    units: dict[str, int] = field(default_factory=dict)
    ready: dict[str, int] = field(default_factory=dict)
    _alone: tuple[str, int] = ("", 0)

    @property
    def end(self) -> int:
        """Time at which an instruction without dependences can begin next."""
        return max(self.now + (self.issued > 0), self._alone[1])

    def start(self, demand: Demand) -> int:
        """Return the time at which the instruction would begin if it were next."""
        timing = demand.timing
        at = max(self.now, self.units.get(timing.unit, 0))
        if self._alone[0] != timing.unit:
            at = max(at, self._alone[1])
        for word in demand.reads:
            if word in self.ready and self.ready[word] > at:
                at = self.ready[word]
        full = at == self.now and self.issued + timing.slots > self.width
        return at + (full and self.issued > 0)

    def issue(self, demand: Demand) -> None:
        at, timing = self.start(demand), demand.timing
        self.issued = timing.slots + (self.issued if at == self.now else 0)
        self.now = at
        self.units[timing.unit] = at + timing.hold
        if timing.alone:
            self._alone = timing.unit, at + timing.alone
        for word, late in demand.writes:
            self.ready[word] = at + late

    def run(self, demands: Iterable[Demand]) -> None:
        for demand in demands:
            self.issue(demand)


def pipeline_of(core: Core) -> CorePipeline | None:
    return _PIPELINES.get(core.pipeline)


def _goes_away(line: Instruction) -> bool:
    returns = any("pc}" in operand for operand in line.operands)
    return returns or find(line.mnemonic).branch or line.mnemonic == "bx"


def _is_shifted(line: Instruction) -> bool:
    return bool(line.operands) and line.operands[-1].startswith(SHIFTED)


def _words(line: Instruction) -> int:
    # Words that a load or store moves one after the other, in general registers and FPU registers.
    moved = (operand for operand in line.operands if "[" not in operand and "!" not in operand)
    words = sum(len(words_of(operand)) for operand in moved)
    return words - (find(line.mnemonic).lists and "!" not in line.operands[0])


def _one(cycles: int) -> Timing:
    return Timing("core", cycles, cycles, cycles)


def _m4(line: Instruction) -> Timing:
    row = find(line.mnemonic)
    if row.moves:
        words = _words(line)
        if words > 1:
            return Timing("memory", words + 1, words + 1, words + 1)
        return Timing("memory", 1, 2, 2) if row.moves == "load" else Timing("memory", 1, 1)
    if row.unit == "divide":
        return _one(14 if row.vector else 7)
    return _one(3 if row.unit == "mac" and row.vector else 1)


def _m0(line: Instruction) -> Timing:
    return _one(1 + max(1, _words(line)) if find(line.mnemonic).moves else 1)


_M3 = {"mla": 2, "mls": 2, "smull": 4, "umull": 4, "smlal": 6, "umlal": 6}


def _m3(line: Instruction) -> Timing:
    return _one(_M3[line.mnemonic]) if line.mnemonic in _M3 else _m4(line)


def _m7(line: Instruction) -> Timing:
    row, done = find(line.mnemonic), effects(line)
    if row.moves:
        words = _words(line)
        if row.moves == "store":
            return Timing("stores", -(-words // 2), 0, 2, 1, 3)
        late = 3 if row.unit == "extend" else 2
        return Timing("loads", -(-words // 2), 0, 2, min(2, words + bool(done.updated)), late)
    if row.vector:
        if row.unit == "divide":
            return Timing("float", 16, 0, 16)
        return Timing("float", 1, 0, 4 if row.unit == "mac" else 3)
    if row.unit in ("multiply", "mac"):
        return Timing("multiplier", 1, 0, 1 if row.unit == "mac" else 2)
    if row.unit == "divide":
        return Timing("divider", 8, 8, 8)
    late = row.unit in ("saturate", "field", "extend and add", "reverse")
    if late or row.unit in ("shift", "extend", "pack") or _is_shifted(line):
        return Timing("shifter", 1, 0, 1 + late)
    return Timing("any", 0)


def _m55(line: Instruction) -> Timing:
    row = find(line.mnemonic)
    vectors = any("q" in operand for operand in line.operands)
    if row.moves:
        if vectors:
            lanes = 128 // int(line.mnemonic.rpartition(".")[2].lstrip("usf"))
            gathers = "q" in line.operands[-1]
            return Timing("memory", max(4, lanes) if gathers else 2, 0, 1 + gathers)
        return Timing("memory", -(-_words(line) // 2), 0, 2)
    if vectors and line.mnemonic != "vmov":
        times = row.unit in ("multiply", "mac") or ".f" in line.mnemonic
        to_core = not line.operands[0].startswith("q")
        latency = 3 if row.unit == "narrow" else 2 if times and to_core else 1
        return Timing("multiplier" if times else "vectors", 2, 0, latency)
    if follows(line.mnemonic):
        return Timing("core", 0, 0, 0, 0)
    if row.unit == "divide":
        return Timing("float", 16, 0, 16) if row.vector else Timing("core", 8, 8, 8)
    if row.unit in ("multiply", "mac") and not row.vector:
        return Timing("multiplier", 1, 0, 2)
    late = row.unit in ("saturate", "field", "pack", "lanes") or _is_shifted(line)
    return Timing("core", 1, 0, 2 if late or (row.vector and row.name != "vmov") else 1)


_NARROW = CorePipeline(1, 1, False, 1.45, _m0)
_SINGLE = CorePipeline(1, 2, False, 1.41, _m4)
_HELIUM = CorePipeline(1, 0, True, 1.2, _m55)
_PIPELINES: Mapping[str, CorePipeline] = {
    "cortex-m0plus": _NARROW,
    "cortex-m3": CorePipeline(1, 2, False, 1.71, _m3),
    "cortex-m4": _SINGLE,
    "cortex-m33": _SINGLE,
    "cortex-m7": CorePipeline(2, 0, True, 0.9, _m7),
    "cortex-m55": _HELIUM,
}
