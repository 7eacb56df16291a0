"""A function in assembly as data: its lines, its registers and stack, and its cost."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from math import prod
from typing import NamedTuple

from crtgen.compiler.kernels.asm.isa import find, is_narrow

__all__ = [
    "BasicBlock",
    "Instruction",
    "Label",
    "Line",
    "Routine",
    "RoutineCall",
    "Runs",
    "StackFrame",
    "listed",
]

_HIGH = ("r8", "r9", "r10", "r11")
# Range of a narrow branch in bytes, with a condition and without.
_NEAR = {True: (-252, 258), False: (-2044, 2050)}


class Instruction(NamedTuple):
    mnemonic: str
    operands: tuple[str, ...]
    note: str = ""

    @property
    def size(self) -> int:
        return 2 if is_narrow(self.mnemonic, self.operands) else 4


class Label(NamedTuple):
    name: str


Line = Instruction | Label


@dataclass(frozen=True, slots=True)
class BasicBlock:
    """Instructions that run one after another, after ``label`` if there is one; only the last may be a
    branch.

    They run ``factor`` times the product of the iterations of the named ``loops``. With ``again``, the branch
    goes back to the label.
    """

    label: Label | None
    lines: tuple[Instruction, ...]
    loops: tuple[str, ...]
    factor: int

    @property
    def branches(self) -> bool:
        return bool(self.lines) and find(self.lines[-1].mnemonic).ends

    @property
    def again(self) -> bool:
        return self.branches and self.label is not None and self.label.name in self.lines[-1].operands

    @property
    def straight(self) -> tuple[Instruction, ...]:
        return self.lines[: len(self.lines) - self.branches]

    @property
    def end(self) -> tuple[Instruction, ...]:
        return self.lines[len(self.lines) - self.branches :]

    def runs(self, rounds: Mapping[str, float]) -> float:
        return self.factor * prod(map(rounds.__getitem__, self.loops))


@dataclass(frozen=True, slots=True)
class StackFrame:
    """Stack frame of a function, from the top down.

    Saved ``core`` registers and ``vectors`` (q4 to q7), arguments that are ``kept``, and ``local`` bytes
    below, where the stack pointer stays. ``narrow``: PUSH and POP only reach r0 to r7.
    """

    core: tuple[str, ...]
    vectors: tuple[str, ...]
    kept: tuple[str, ...]
    local: int
    narrow: bool = False

    @property
    def bytes(self) -> int:
        return 4 * len(self.core) + 16 * len(self.vectors) + 4 * len(self.kept) + self.local

    @property
    def begin(self) -> tuple[Instruction, ...]:
        """The prologue. Kept arguments are pushed together with the registers if nothing is between them."""
        together = () if self.vectors or self._high else self.kept
        lines = [_list("push", (*together, *self._low))]
        if self._high:
            lines += [*self._moves(to_low=True), _list("push", self._through), _list("push", self.kept)]
        if self.vectors:
            lines += [_list("vpush", _doubles(self.vectors)), _list("push", self.kept)]
        if self.local:
            lines.append(Instruction("sub", ("sp", "sp", f"#{self.local}")))
        return tuple(line for line in lines if line.operands != ("{}",))

    @property
    def end(self) -> tuple[Instruction, ...]:
        drop = self.local + 4 * len(self.kept)
        lines = [Instruction("add", ("sp", "sp", f"#{drop}"))] if drop else []
        lines += [_list("vpop", _doubles(self.vectors))] if self.vectors else []
        if self._high:
            lines += [_list("pop", self._through), *self._moves(to_low=False)]
        if not self.core:
            return (*lines, Instruction("bx", ("lr",)))
        return (*lines, _list("pop", (*self._low[:-1], "pc")))

    def saved(self, line: int) -> tuple[str, ...]:
        instruction = self.begin[line]
        pushed = tuple(instruction.operands[0].strip("{}").split(", "))
        return self._high if line and self._high and pushed == self._through else pushed

    @property
    def _high(self) -> tuple[str, ...]:
        return tuple(r for r in self.core if self.narrow and r in _HIGH)

    @property
    def _low(self) -> tuple[str, ...]:
        high = self._high
        return tuple(r for r in self.core if r not in high)

    @property
    def _through(self) -> tuple[str, ...]:
        return self._low[: len(self._high)]

    def _moves(self, to_low: bool) -> list[Instruction]:
        pairs = zip(self._through, self._high, strict=True)
        return [Instruction("mov", pair if to_low else pair[::-1]) for pair in pairs]


def listed(registers: Iterable[str]) -> str:
    return f"{{{', '.join(registers)}}}"


def _list(mnemonic: str, registers: Iterable[str]) -> Instruction:
    return Instruction(mnemonic, (listed(registers),))


def _doubles(vectors: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"d{2 * int(q[1:]) + half}" for q in vectors for half in (0, 1))


@dataclass(frozen=True)
class Routine:
    """A function in assembly without a symbol; equal routines become one function.

    ``name`` begins its symbol, ``purpose`` is a sentence about it, ``returns`` and ``parameters`` are C.
    ``roles`` describe the registers' contents. ``blocks`` are the code between prologue and epilogue.
    ``tables`` are words of constants by name.
    """

    name: str
    purpose: str
    returns: str
    parameters: tuple[str, ...]
    roles: tuple[tuple[str, tuple[str, ...]], ...]
    frame: StackFrame
    blocks: tuple[BasicBlock, ...]
    tables: tuple[tuple[str, tuple[int, ...]], ...] = ()
    no_alias: bool = False
    """True if no load reads what a store of the same block wrote, except on the stack."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.parameters, self.frame, self.blocks, self.tables))

    def instructions(self, **rounds: float) -> float:
        """Return the instructions that one call executes, given the iterations of each named loop."""
        return _instructions(self, tuple(rounds.items())) + self._around

    @cached_property
    def _around(self) -> int:
        return len(self.frame.begin) + len(self.frame.end)

    @property
    def body(self) -> Iterator[Line]:
        for block in self.blocks:
            if block.label:
                yield block.label
            yield from block.lines

    def runs(self, **rounds: float) -> "Runs":
        return Runs((RoutineCall(1.0, self, rounds),))

    def prototype(self, symbol: str) -> str:
        return f"{self.returns} {symbol}({', '.join(self.parameters)})"

    @property
    def uses_fpu(self) -> bool:
        return any(register.startswith("s") for _, taken in self.roles for register in taken)

    @property
    def stack(self) -> int:
        return self.frame.bytes

    @cached_property
    def code_bytes(self) -> int:
        """Bytes of the instructions; branches have the length that their distance requires."""
        around = sum(line.size for line in (*self.frame.begin, *self.frame.end))
        sizes = [sum(line.size for line in block.lines) for block in self.blocks]
        near = {n: block.end[0] for n, block in enumerate(self.blocks) if block.branches}
        while True:
            *places, end = accumulate(sizes, initial=0)
            labels = {b.label.name: place for b, place in zip(self.blocks, places, strict=True) if b.label}
            far = [n for n, line in near.items() if _is_far(line, places[n] + sizes[n] - 2, labels)]
            if not far:
                return around + end + sum(4 * len(words) for _, words in self.tables)
            for n in far:
                sizes[n] += 2
                del near[n]


@dataclass(frozen=True, slots=True, eq=False)
class RoutineCall:
    """``times`` calls of a routine, with the iterations of its named loops.

    ``in_ram``: the constants that it reads have been copied to RAM.
    """

    times: float
    routine: Routine
    rounds: Mapping[str, float]
    in_ram: bool = False

    @property
    def loops(self) -> tuple[tuple[str, float], ...]:
        # ``rounds`` as a key.
        return tuple(self.rounds.items())


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    calls: tuple[RoutineCall, ...] = ()

    def __add__(self, other: "Runs") -> "Runs":
        return Runs((*self.calls, *other.calls))

    def __sub__(self, other: "Runs") -> "Runs":
        return self + -1 * other

    def __mul__(self, times: float) -> "Runs":
        return Runs(tuple(replace(call, times=times * call.times) for call in self.calls))

    __rmul__ = __mul__

    @classmethod
    def sum(cls, runs: "Iterable[Runs]") -> "Runs":
        return cls(tuple(call for each in runs for call in each.calls))

    @property
    def instructions(self) -> float:
        return sum(call.times * call.routine.instructions(**call.rounds) for call in self.calls)

    @property
    def in_ram(self) -> "Runs":
        return Runs(tuple(replace(call, in_ram=True) for call in self.calls))


@lru_cache(maxsize=8192)
def _instructions(routine: Routine, rounds: tuple[tuple[str, float], ...]) -> float:
    # Those of the blocks. The same loops are asked for again and again: on other memories, in other plans.
    times = dict(rounds)
    return sum(block.runs(times) * len(block.lines) for block in routine.blocks)


def _is_far(line: Instruction, place: int, labels: Mapping[str, int]) -> bool:
    if not find(line.mnemonic).branch:
        return False
    low, high = _NEAR[line.mnemonic != "b"]
    return not low <= labels[line.operands[0]] - place <= high
