"""How long a core takes over instructions in a row: a model, with memory that never waits.

A core issues instructions in order, up to ``width`` in a cycle. Each waits for what it reads, for its unit,
and for those before it that nothing overlaps. Where the numbers come from:

- Cortex-M0+, M3 and M4: the tables of their Technical Reference Manuals, section 3.3. The M33 issues one
  instruction at a time, too, and has the M4's numbers, since Arm publishes none; the M23 has the M0+'s.
- Cortex-M7: the scheduling model of LLVM. Two instructions a cycle, one multiplication, two words of loads.
- Cortex-M55 and M85: the same. A vector instruction keeps its unit (memory, multiplication, other) for two
  cycles, and those of different units overlap. Gathers and scatters take a cycle per element or two.

Compiled C is counted, not looked at: its cycles for an instruction are those of kws in portable C, 6.8 M
instructions, executed with the costs of the M3 and the M4; those of the other cores are assumed.

``python -m pytest tests/kernels/asm`` holds the M7 and the M55 against ``llvm-mca`` where that is installed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from crtgen.boards.core import Core
from crtgen.kernels.asm.effects import FLAGS, base_of, effects, follows, words_of
from crtgen.kernels.asm.encoding import is_branch
from crtgen.kernels.asm.routine import Instruction

__all__ = ["Clock", "CorePipeline", "Timing", "pipeline_of"]


@dataclass(frozen=True, slots=True)
class Timing:
    """What an instruction keeps busy, in cycles.

    Its ``unit`` is busy for ``hold``, all others for ``alone``; a result is there after ``latency``, an
    address that moves on after ``address``. It fills ``slots`` of those that are issued in a cycle.
    """

    unit: str
    hold: int = 1
    alone: int = 0
    latency: int = 1
    slots: int = 1
    address: int = 1


@dataclass(frozen=True, slots=True)
class CorePipeline:
    """A core's: how many instructions it issues in a cycle, what each takes, and a branch that is taken.

    ``overlaps``: it matters in which order instructions stand that do not wait for each other. An instruction
    of compiled C takes ``compiled`` cycles.
    """

    width: int
    branch: int
    overlaps: bool
    compiled: float
    timing: Callable[[Instruction], Timing]

    def cycles(self, lines: Sequence[Instruction], again: bool = False) -> int:
        """Of instructions in a row; ``again``: of each round of a loop over them."""
        clock = Clock(self)
        clock.run(lines)
        once = clock.end
        if again:
            clock.run(lines)
        branches = bool(lines) and _goes_away(lines[-1])
        return clock.end - once * again + self.branch * branches


@dataclass(slots=True)
class Clock:
    """Goes through instructions: when each begins."""

    pipeline: CorePipeline
    now: int = 0
    issued: int = 0
    others: int = 0
    units: dict[str, int] = field(default_factory=dict)
    ready: dict[str, int] = field(default_factory=dict)
    _alone: tuple[str, int] = ("", 0)

    @property
    def end(self) -> int:
        """When the next instruction can begin that waits for nothing."""
        return max(self.now + (self.issued > 0), self._alone[1])

    def start(self, line: Instruction) -> int:
        """When the instruction would begin if it were next."""
        timing = self.pipeline.timing(line)
        at = max((self.ready.get(word, 0) for word in effects(line).reads), default=0)
        at = max(at, self.now, self.units.get(timing.unit, 0))
        if self._alone[0] != timing.unit:
            at = max(at, self._alone[1])
        full = at == self.now and self.issued + timing.slots > self.pipeline.width
        return at + (full and self.issued > 0)

    def issue(self, line: Instruction) -> None:
        """The instruction is next."""
        at, timing, done = self.start(line), self.pipeline.timing(line), effects(line)
        self.issued = timing.slots + (self.issued if at == self.now else 0)
        self.now = at
        self.units[timing.unit] = at + timing.hold
        if timing.alone:
            self._alone = timing.unit, at + timing.alone
        for word in done.writes:
            late = 1 if word == FLAGS else timing.address if word in done.updated else timing.latency
            self.ready[word] = at + late

    def run(self, lines: Iterable[Instruction]) -> None:
        """All of these. The end of a hardware loop takes no time."""
        for line in lines:
            if line.mnemonic not in ("le", "letp"):
                self.issue(line)


def pipeline_of(core: Core) -> CorePipeline | None:
    """That of a core; None where nobody knows it."""
    return _PIPELINES.get(core.pipeline)


def _goes_away(line: Instruction) -> bool:
    returns = any("pc}" in operand for operand in line.operands)
    return returns or is_branch(line.mnemonic) or line.mnemonic == "bx"


_MULTIPLIES = ("mul", "mla", "mls", "smul", "smla", "smm", "smus", "smua", "umul", "umla", "smls", "umaal")
_DIVIDES = ("sdiv", "udiv")
_SHIFTED = ("lsl ", "lsr ", "asr ", "ror ")


def _is_multiplication(name: str) -> bool:
    return name.startswith(_MULTIPLIES)


def _length(line: Instruction) -> int:
    """Words that a load or a store moves, of general registers and of the FPU."""
    return sum(
        len(words_of(operand)) for operand in line.operands if "[" not in operand and "!" not in operand
    )


def _one(cycles: int) -> Timing:
    """An instruction that nothing overlaps."""
    return Timing("core", cycles, cycles, cycles)


@lru_cache(maxsize=8192)
def _m4(line: Instruction) -> Timing:
    name, done = base_of(line.mnemonic), effects(line)
    if done.loads or done.stores:
        words = _listed_words(line, name)
        if words > 1:
            return Timing("memory", words + 1, words + 1, words + 1)
        return Timing("memory", 1, 2, 2) if done.loads else Timing("memory", 1, 1)
    if name in _DIVIDES:
        return _one(7)
    if name in ("vdiv", "vsqrt"):
        return _one(14)
    if name.startswith(("vfma", "vfms", "vmla", "vmls", "vfnm", "vnml")):
        return _one(3)
    return _one(1)


def _listed_words(line: Instruction, name: str) -> int:
    """As many words as are moved one after the other."""
    return _length(line) - (name.startswith(("ldm", "stm", "vldm", "vstm")) and "!" not in line.operands[0])


@lru_cache(maxsize=1024)
def _m0(line: Instruction) -> Timing:
    done = effects(line)
    if done.loads or done.stores:
        return _one(1 + max(1, _listed_words(line, base_of(line.mnemonic))))
    return _one(1)


@lru_cache(maxsize=8192)
def _m3(line: Instruction) -> Timing:
    name = base_of(line.mnemonic)
    if name in ("mla", "mls"):
        return _one(2)
    if name in ("smull", "umull"):
        return _one(4)
    if name in ("smlal", "umlal"):
        return _one(6)
    return _m4(line)


@lru_cache(maxsize=8192)
def _m7(line: Instruction) -> Timing:
    name, done = base_of(line.mnemonic), effects(line)
    if done.loads or done.stores:
        words = _listed_words(line, name)
        slots = min(2, words + bool(done.updated)) if done.loads else 1
        late = 3 if done.stores or name.startswith(("ldrs", "ldrh")) else 2
        return Timing("stores" if done.stores else "loads", -(-words // 2), 0, 2, slots, late)
    if _is_multiplication(name):
        return Timing("multiplier", 1, 0, 1 if name.startswith(("smla", "mla", "smmla", "smlsd")) else 2)
    if name in _DIVIDES:
        return Timing("divider", 8, 8, 8)
    if name in ("vdiv", "vsqrt"):
        return Timing("float", 16, 0, 16)
    if name[0] == "v":
        return Timing("float", 1, 0, 4 if name.startswith(("vfma", "vmla", "vfms", "vmls")) else 3)
    late = 2 if name.startswith(("ssat", "usat", "bfi", "ubfx", "sxta", "uxta", "rsb")) else 1
    shifts = name.startswith(("lsl", "lsr", "asr", "ror", "sxt", "uxt", "pkh")) or late > 1
    shifts = shifts or line.operands[-1].startswith(_SHIFTED)
    return Timing("shifter", 1, 0, late) if shifts else Timing("any", 0)


@lru_cache(maxsize=8192)
def _m55(line: Instruction) -> Timing:
    name, done = base_of(line.mnemonic), effects(line)
    vectors = any("q" in operand for operand in line.operands)
    if done.loads or done.stores:
        if vectors:
            lanes = 128 // int(line.mnemonic.rpartition(".")[2].lstrip("usf"))
            gathers = "q" in line.operands[-1]
            return Timing("memory", max(4, lanes) if gathers else 2, 0, 1 + gathers)
        return Timing("memory", -(-_listed_words(line, name) // 2), 0, 2)
    if vectors and line.mnemonic != "vmov":
        return _m55_vector(line, name)
    if follows(line.mnemonic):
        return Timing("core", 0, 0, 0, 0)
    if _is_multiplication(name):
        return Timing("multiplier", 1, 0, 2)
    if name in _DIVIDES:
        return Timing("core", 8, 8, 8)
    if name in ("vdiv", "vsqrt"):
        return Timing("float", 16, 0, 16)
    late = name.startswith(_LATE) or (line.operands[-1:] and line.operands[-1].startswith(_SHIFTED))
    return Timing("core", 1, 0, 2 if late or (name[0] == "v" and name != "vmov") else 1)


_LATE = (
    "ssat",
    "usat",
    "ubfx",
    "sbfx",
    "bfi",
    "pkh",
    "sadd",
    "ssub",
    "sasx",
    "ssax",
    "uadd",
    "usub",
    "shadd",
)
_NARROWS = ("vqrshrn", "vrshrn", "vshrn", "vqmovn", "vqmovun", "vmovn")
_TIMES = ("vmul", "vml", "vfm", "vqdm", "vqrdm", "vrml", "vrmul")


def _m55_vector(line: Instruction, name: str) -> Timing:
    times = name.startswith(_TIMES) or ".f" in line.mnemonic
    to_core = not line.operands[0].startswith("q")
    latency = 3 if name.startswith(_NARROWS) else 2 if times and to_core else 1
    return Timing("multiplier" if times else "vectors", 2, 0, latency)


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
