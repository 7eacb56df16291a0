"""A core that runs machine code on symbolic words, instruction by instruction.

Problem
    To say something of every input, the code cannot be run with inputs. But a general symbolic execution
    follows each path on its own, and a network of a million instructions has too many.

Idea
    Compiled networks have hardly any control flow that depends on the input: shapes are constants, so are
    loop counts and addresses. So registers and memory hold *words* that are integers or expressions of
    symbols, while the program counter is always an integer. The code is run once, loops are just run round
    by round, and what is computed becomes an expression.

Where the input does decide
    - *Conditional instructions* (IT blocks) with one target register become ``sel(condition, new, old)``.
    - *Branches*: both ways are run, each from the same state, to the point where they meet again (``flow``
      finds it: the immediate postdominator). There each register and each word of memory that either way
      changed becomes ``sel(condition, a, b)``. While a way runs, its condition is an assumption that
      expressions may use.
    - *Addresses, jumps and loop counts* must not depend on the input: ``Refusal``. (A load from a constant
      table is the exception; see ``memory``.)

Why that is right
    For any input, the core takes one of the two ways. After the merge every word has the value that it has
    on that way, because ``sel`` picks it. Other state on which the ways disagree (flags but C, predicates)
    becomes unknown, and unknown contents prove nothing. What the machine does not
    model is refused where it is met, so an instruction is never skipped.

Time
    ``count`` adds up the most instructions of a run, ``slack`` what the shorter ways save: a run takes from
    ``count - slack`` to ``count`` instructions. ``cycles`` is an upper bound of cycles. A merge takes the
    longer way for the most, and the shorter way for the least.

Example
    ``cmp r0, #0; bge 1f; rsb r0, r0, #0; 1:`` with r0 = x runs ``rsb`` on one way only and gives
    r0 = sel(x >= 0, x, -x), 2 to 3 instructions.

The hard step is a branch in a loop (``branch``). If the compiler has copied the loop's end into both ways,
their common postdominator is behind the loop, and both ways would run all further rounds, each with branches
of its own: two to the power of the rounds. A way that comes back to its own branch is therefore stopped, and
the first point that both ways pass is where they are merged.

Each instruction is compiled once, when it is first reached, to a Python function; loops then cost a call per
instruction. IT and VPT blocks, the tail of a predicated loop, and the loop counter are state of the machine,
as on a core: a branch into a block, or code that reads LR after a loop, sees what the core would see.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from crtgen.proof.checker.algebra.meaning import apply, wrap
from crtgen.proof.checker.algebra.products import SymbolProducts
from crtgen.proof.checker.algebra.real import REAL_CONDITIONS, REAL_NEGATED
from crtgen.proof.checker.algebra.value import (
    M32,
    RETURN_ADDRESS,
    LinearSum,
    Word,
    WordOp,
    place_of,
    signed,
    stack_word,
    unknown,
)
from crtgen.proof.checker.algebra.words import add, is_same, select
from crtgen.proof.checker.binary.image import DecodedImage, DecodedInstruction
from crtgen.proof.checker.core.cycles import UNKNOWN, CoreTiming
from crtgen.proof.checker.core.division import Divided, divided
from crtgen.proof.checker.core.endless import LoopRounds
from crtgen.proof.checker.core.flow import meeting_points
from crtgen.proof.checker.core.invalid import Made, flagged
from crtgen.proof.checker.core.long_product import as_product
from crtgen.proof.checker.core.memory import Content, WordMemory
from crtgen.proof.checker.refusal import Refusal

__all__ = ["LR", "PC", "PREDICATED", "SP", "CallSite", "Machine", "Step", "condition"]

Step: TypeAlias = Callable[[], int | None]
"""Function that runs an instruction. It returns the address of the next one, or None for the following
one.
"""

Flags: TypeAlias = tuple[str, Word, Any, Word]
"""Origin of the flags. ``sub``: a - b. ``add``: a + b + c. ``result``: N and Z of a; C is b, or that of the
flags b. ``real``: a comparison of two numbers. ``none``: nothing is known.
"""

SP, LR, PC = 13, 14, 15
_NONE: Flags = ("none", 0, 0, 0)
# Functions of the ABI for numbers of float32 and float64 on cores without an FPU.
_SOFTWARE_FLOATS = re.compile(r"__aeabi_(c?[fd]|u?[il]2[fd])")
PREDICATED = re.compile("v(ldr|str)[bhw]t|vaddt")
"""Instructions of a VPST or VPT block; others are not followed there."""

_MOST_WAYS = 40
_END = 0xFFFFFFFE


@dataclass(frozen=True, slots=True)
class CallSite:
    before: tuple[int, int]
    target: int
    depth: int


class _Again(Exception):
    """Raised when a path returns to a branch whose path is being run."""


class Machine:
    """A core with the image's memory. A run executes at least ``count - slack`` and at most ``count``
    instructions.

    ``cycles`` is an upper bound, if the core's timing is known.
    """

    starts = False
    """True if it starts from a reset, when it may still set up registers that a function must leave alone."""

    def __init__(self, image: DecodedImage, limit: int, timing: CoreTiming = UNKNOWN) -> None:
        self.image, self.limit, self.timing = image, limit, timing
        self.ends_early = image.architecture == "armv7-m"
        """True if a long product takes fewer cycles for small numbers (Cortex-M3 TRM, 3.3.1)."""
        self.memory = WordMemory(image.constant, image.unaligned, self._split)
        self.r: list[Word] = [unknown() for _ in range(16)]
        self.q: list[list[Word]] = [[unknown() for _ in range(4)] for _ in range(8)]
        self.flags: Flags = _NONE
        self.products: SymbolProducts | None = None
        """Products of symbols that are added up in 64 bits, if the network has such sums."""
        self.greater: tuple[str, Word, Word] | None = None
        """Operands of SSUB8 ("bytes") or SADD16 ("halves"), whose results' signs SEL asks for."""
        self.compared: tuple[Word, Word] | None = None
        """Result of the FPU's last comparison."""
        self.made: Made = None
        """Float32 operations since the FPU's flag of invalid ones was cleared."""
        self.read_flag: tuple[WordOp, Made] | None = None
        """The flag when it was last read, with the operations before that."""
        self.predicate: int | None = None
        """Predicate of 16 bytes for operations that use it; None if nothing has set it."""
        self.conditions: tuple[list[Word], int] | None = None
        """Predicates of lanes that depend on inputs, with the bytes of a lane."""
        self.tail = 0
        """Bytes of an element, within a loop with tail predication."""
        self.block: int | None = None
        """Next instruction of the IT or VPT block that is being run."""
        self.uses_unit = False
        """True once an instruction of the FPU or of Helium was run."""
        self.count = self.slack = self.cycles = 0
        self.varying: dict[str, int] = {}
        """Causes of a duration that depends on an input, with the first address of each."""
        self.sp: Word = self.r[SP]
        self.lowest = self.memory.floor
        """The lowest value that SP has had."""
        self.unaligned = False
        """True once an access was unaligned."""
        self.returns: list[tuple[int, tuple[Word, ...]]] = []
        """Open calls: return address, and r0 to r3 at the call."""
        self.calls: list[CallSite] = []
        self.steps: dict[int, tuple[Step, int, int]] = {}
        """Compiled instructions by address: the step, the next address, the most cycles."""
        self.divisions: dict[tuple[int, int, int, int], Divided] = {}
        self._floats = {at: name for name, at in image.symbols.items() if _SOFTWARE_FLOATS.match(name)}
        self.meetings: dict[int, dict[int, int | None]] = {}
        self.instead: dict[int, Callable[[Machine], None]] = {}
        """Functions that are not followed, by address, and what stands in for each."""
        self.computes_jumps = False
        """True if MOV may write PC, as in the compiler's library; else this is refused."""
        self.ways = 0
        self.open: set[tuple[int, int]] = set()
        """Branches whose paths are being run: address and depth of calls."""
        self.nearer: dict[int, int] = {}
        """Point where the paths of a branch meet, if that is before the common postdominator."""
        self.rounds = LoopRounds()

    # ---- running

    def run(self, entry: int, stack: int) -> None:
        """Call the function at ``entry`` with SP at ``stack``. Raises ``Refusal`` for anything that the
        checker does not follow.
        """
        pc, r = entry, self.r
        r[SP], r[LR] = stack_word(stack), RETURN_ADDRESS
        self.sp, self.lowest, self.memory.floor = r[SP], stack, stack
        kept = [*r[4:12], *(w for q in self.q[4:] for w in q)]
        self.returns = [(_END, ())]
        with self.located():
            while self.returns:
                pc = self.one(pc)
        if self.tail:
            raise Refusal("a loop with tail predication is left before its end")
        if place_of(r[SP]) != stack or pc != _END:
            raise Refusal("the function does not give the stack back as it was")
        for before, after in zip(kept, [*r[4:12], *(w for q in self.q[4:] for w in q)], strict=True):
            if before is not after:
                raise Refusal("a register that a callee has to keep (r4 to r11, d8 to d15) is changed")

    @contextmanager
    def located(self) -> Iterator[None]:
        self.at = 0
        try:
            yield
        except (Refusal, RecursionError, LookupError, ArithmeticError, ValueError) as error:
            where = f"{self.at:#x} in {self.image.function_of(self.at)}"
            text = self.image.instructions[self.at].text if self.at in self.image.instructions else "?"
            raise Refusal(f"{where}, {text!r}: {error}") from None

    def one(self, pc: int) -> int:
        entry = self.steps.get(pc)
        if entry is None:
            self.at = pc
            entry = self.steps[pc] = self.compiled(pc)
        self.at = pc
        self.count += 1
        self.cycles += entry[2]
        if self.count > self.limit:
            raise Refusal(f"more than {self.limit:,} instructions: it may not end")
        to = entry[0]()
        if self.r[SP] is not self.sp:
            self.stack_moved()
        return entry[1] if to is None else to

    def stack_moved(self) -> None:
        at = place_of(self.r[SP])
        low, high = 4 * self.memory.stack.start, 4 * self.memory.stack.stop
        if at is None or not low <= at <= high:
            raise Refusal("the stack pointer leaves the stack")
        if at & 3:
            raise Refusal("the stack pointer is not aligned")
        self.sp = self.r[SP]
        if at > self.memory.floor:
            self.memory.give_back(at)
        self.memory.floor = at
        self.lowest = min(self.lowest, at)

    def write_back(self, n: int, word: Word) -> None:
        """Update the base register of an access. If it is SP, the stack grows before a store and shrinks
        after a load.
        """
        self.r[n] = word
        if n == SP:
            at = place_of(word)
            if at is None or at < self.memory.floor:
                self.stack_moved()

    def _split(self) -> None:
        self.unaligned = True
        self.cycles += self.timing.split

    def compiled(self, pc: int) -> tuple[Step, int, int]:
        from crtgen.proof.checker.core.instructions import compile_instruction

        instruction = self.image.instructions.get(pc)
        if instruction is None:
            raise Refusal("there is no instruction that two decoders know")
        step = compile_instruction(self, instruction)
        self.uses_unit |= instruction.name[0] == "v"
        if instruction.condition or PREDICATED.fullmatch(instruction.name):
            step = self._in_block(instruction, step)
        return step, instruction.following, self.timing.most(instruction)

    @property
    def code(self) -> set[int]:
        return set(self.steps).union(*(d.code for d in self.divisions.values()))

    def call(self, target: int, following: int) -> int:
        """Run BL. The return address is also remembered, because the call must return there."""
        if divided(self, target):
            return following
        if target in self.instead:
            self.instead[target](self)
            return following
        if target in self._floats and not all(isinstance(w, int) for w in self.r[:2]):
            name = self._floats[target]
            raise Refusal(f"float32 in software ({name}) is not followed: take a core with an FPU")
        self.r[LR] = following | 1
        self.returns.append((following, tuple(self.r[:4])))
        self.calls.append(CallSite((self.count - self.slack, self.count), target, len(self.returns)))
        return target

    def give_back(self, to: Word) -> int:
        address = self.returns[-1][0]
        back = RETURN_ADDRESS if address == _END else address | 1
        if not is_same(to, back):
            if is_same(add(to, 1), back):
                raise Refusal("a return to an even address, which is no Thumb code")
            raise Refusal("a return that does not go back to where the call was")
        address, arguments = self.returns.pop()
        if arguments and isinstance(self.r[0], WordOp) and isinstance(self.r[1], WordOp):
            self.r[:2] = as_product(arguments, self.r[0], self.r[1])
        return address

    def leave(self, to: Word) -> int:
        """Load PC: a return, or a linker veneer's jump to the called function."""
        if isinstance(to, int) and to & 1 and any(to - 1 == first for first, _, _ in self.image.functions):
            return to - 1
        return self.give_back(to)

    def alike(self) -> "Machine":
        """Return another core with the same image, whose writable memory is still empty."""
        return Machine(self.image, self.limit, self.timing)

    def limit_stack(self, word: Word) -> None:
        """Set the stack limit. Raises ``Refusal`` except on the way from reset."""
        raise Refusal("a register that is not followed")

    def rename(self, word: Word, symbol: Word) -> None:
        """Replace a word by a symbol that was shown to equal it in all bits, in every register that holds the
        word.
        """
        self.r[:] = [symbol if w is word else w for w in self.r]
        self.q[:] = [[symbol if w is word else w for w in q] for q in self.q]

    def forget_flags(self) -> None:
        self.flags = _NONE

    def spoil(self, registers: Iterable[int], frame: int) -> None:
        """Mark these registers and the flags as unknown, after a call that used ``frame`` words of stack."""
        for n in registers:
            self.r[n] = unknown()
        self.forget_flags()
        before = self.r[SP]
        for sp in (add(before, -4 * frame & M32), before):
            self.r[SP] = sp
            self.stack_moved()

    # ---- conditions

    def holds(self, c: str) -> bool | WordOp:
        """Return True or False if a condition is decided, otherwise the operation that decides it."""
        kind, a, b, carry = self.flags
        if c in ("vs", "vc") or kind == "none":
            raise Refusal(f"flags that are not followed: {c}")
        if kind == "sub" and isinstance(a, LinearSum) and isinstance(b, LinearSum):
            a, b = self._distance(a, b)
        found = _CONDITIONS[kind](c, a, b, carry)
        return bool(found) if isinstance(found, int) else self.decided(condition(found))

    def decided(self, condition: WordOp) -> bool | WordOp:
        # An address in the stack above the lowest SP is not 0: as much stack as a run needs is there.
        if condition.name not in ("eq", "ne") or not isinstance(condition.args[1], int) or condition.args[1]:
            return condition
        at = place_of(condition.args[0])
        is_inside = at is not None and self.lowest < at < 4 * self.memory.stack.stop
        return condition.name == "ne" if is_inside else condition

    def _distance(self, a: LinearSum, b: LinearSum) -> tuple[Word, Word]:
        # Numbers that compare as two addresses within the stack do, which never wraps; all else as it is.
        ends = 4 * self.memory.stack.start, 4 * self.memory.stack.stop
        x, y = place_of(a), place_of(b)
        if x is None or y is None or not all(ends[0] <= at <= ends[1] for at in (x, y)):
            return a, b
        return x - ends[0], y - ends[0]

    def carry(self) -> Word:
        return self._carry_of(self.flags)

    def _carry_of(self, flags: Flags) -> Word:
        if flags[0] == "result":
            if not isinstance(flags[2], tuple):
                return _word(flags[2])
            flags = flags[2]
        kind, a, b, carry = flags
        if kind == "sub":
            return apply("cs", a, b)
        if kind == "add":
            return apply("carry", a, b, carry)
        raise Refusal("the carry is not followed")

    def set_result(self, v: Word, carry: Word) -> None:
        self.flags = ("result", v, carry, 0)

    def set_sign(self, v: Word) -> None:
        before = self.flags
        self.flags = ("result", v, before[2] if before[0] == "result" else before, 0)

    # ---- what depends on inputs

    def _in_block(self, i: DecodedInstruction, step: Step) -> Step:
        # The step of an instruction in an IT or VPT block, which only the block's own begin leads to.
        address, after = i.address, self.image.instructions.get(i.following)
        if i.condition:
            step = self._conditional(i, step)
            following = i.following if after is not None and after.condition else None
        else:
            following = i.following if after is not None and PREDICATED.fullmatch(after.name) else None

        def in_block() -> int | None:
            if self.block != address:
                raise Refusal("a branch into a block of IT, VPST or VPT")
            self.block = following
            return step()

        return in_block

    def _conditional(self, i: DecodedInstruction, step: Step) -> Step:
        r, condition = self.r, i.condition
        target = _single_target(i)

        def conditional() -> int | None:
            holds = self.holds(condition)
            if not isinstance(holds, WordOp):
                return step() if holds else None
            if target is not None:  # it takes a cycle, as an instruction whose condition does not hold
                old, flags = r[target], self.flags
                step()
                r[target] = select(holds, r[target], old)
                self.flags = flags
                return None
            self.varies("a condition")
            self.both(holds, lambda: step() or i.following, lambda: i.following)
            return None

        return conditional

    def varies(self, cause: str, *operands: Word) -> None:
        """Record that this instruction's duration depends on an input (only if one of ``operands`` does, when
        given).
        """
        if not operands or not all(isinstance(word, int) for word in operands):
            self.varying.setdefault(cause, self.at)

    def branch(self, holds: WordOp, pc: int, taken: int, following: int) -> int:
        """Run both paths of a branch that depends on an input, up to the point where they meet.

        If a compiler copied the end of a loop into both paths, they meet in the next round of the loop.
        """
        here = pc, len(self.returns)
        self.varies("a branch")
        if here in self.open:
            raise _Again  # a way came back to its own branch: the ways meet before their postdominator
        meet = {self._meeting(pc), self.nearer.get(pc)}
        start, ways, calls = self._state(), self.ways, len(self.calls)
        self.open.add(here)
        try:
            return self.both(holds, self._until(taken, meet), self._until(following, meet))
        except _Again:
            # Run both ways again, up to the return to the branch, and note where they pass. The first address
            # that both pass is the meeting point from now on. If there is none, an outer branch has to look
            # for one.
            common: list[int] = []
            if pc not in self.nearer:
                self._restore(start, {})
                self.ways = ways
                both = ((taken, True), (following, False))
                before = [self._trace(start, here[1], first, (holds, way)) for first, way in both]
                common = [at for at in before[0] if at in before[1]]
            if not common and len(self.open) == 1:
                raise Refusal("the ways of a branch do not meet") from None
            if not common:
                raise
            self.nearer[pc] = common[0]
            del self.calls[calls:]
        finally:
            self.open.discard(here)
        return self.branch(holds, pc, taken, following)

    def _until(self, first: int, meet: set[int | None]) -> Callable[[], int]:
        # Runs from an address to the meeting point, or to the return.
        depth = len(self.returns)

        def run() -> int:
            at = first
            while len(self.returns) >= depth and (len(self.returns) > depth or at not in meet):
                at = self.one(at)
            return at

        return run

    def _trace(self, start: "_MachineState", depth: int, first: int, way: tuple[WordOp, bool]) -> list[int]:
        # The addresses of the same call that a way passes before it is at an open branch again.
        passed: list[int] = []

        def run() -> int:
            at = first
            while len(self.returns) >= depth:
                if len(self.returns) == depth:
                    passed.append(at)
                at = self.one(at)
            return at

        try:
            changed = self._way(run, *way)[2]
            self._restore(start, changed)
        except _Again:
            self._restore(start, {})
        return passed

    def _meeting(self, pc: int) -> int | None:
        for first, end, _ in self.image.functions:
            if first <= pc < end:
                if first not in self.meetings:
                    self.meetings[first] = meeting_points(self.image.instructions, first, end)
                return self.meetings[first][pc]
        raise Refusal("a branch outside of any function depends on an input")

    def both(self, holds: WordOp, one: Callable[[], int], other: Callable[[], int]) -> int:
        """Run both paths. Afterwards each register and word of memory has the value from whichever path was
        taken.
        """
        self.ways += 1
        if self.ways > _MOST_WAYS:
            raise Refusal("branches that depend on inputs are too deep")
        # The second way starts from the state before the first one, memory included: what the first way wrote
        # is taken back, and kept aside for the merge.
        start = self._state()
        a, after_a, changed_a = self._way(one, holds, True)
        self._restore(start, changed_a)
        b, after_b, changed_b = self._way(other, holds, False)
        same_stack = place_of(self.r[SP]) == place_of(after_a.r[SP])
        if a != b or not same_stack or after_a.rest[1:3] != after_b.rest[1:3]:
            raise Refusal("the ways of a branch do not meet")
        if after_a.rest != after_b.rest:
            self.predicate = self.conditions = None
        self._merge(holds, start, after_a, after_b, changed_a, changed_b)
        self.ways -= 1
        return a

    def _way(
        self, run: Callable[[], int], condition: WordOp, holds: bool
    ) -> "tuple[int, _MachineState, dict[int, Changed]]":
        # Destination of a way, the state there, and the words that it wrote: before and after.
        log: dict[int, Content | None] = {}
        self.memory.undo.append(log)
        self.memory.assumed.append((condition, holds))
        if self.read_flag and self.read_flag == (flagged(condition), self.made):
            self.made = () if holds == (condition.name == "eq") else self.made  # the flag is 0 on this way
        try:
            at = run()
        except _Again:
            self._undo(log)
            raise
        finally:
            self.memory.undo.pop()
            self.memory.assumed.pop()
        changed = {i: (before, self.memory.words.get(i)) for i, before in log.items()}
        return at, self._state(), changed

    def _state(self) -> "_MachineState":
        rest = (self.predicate, self.tail, tuple(self.returns), self.conditions)
        return _MachineState(
            self.r[:],
            self.q[:],
            self.flags,
            self.greater,
            self.compared,
            (self.made, self.read_flag),
            rest,
            self.count,
            self.slack,
            self.cycles,
        )

    def _restore(self, s: "_MachineState", changed: "dict[int, Changed]") -> None:
        self.r[:], self.q[:], self.flags, self.greater = s.r, s.q, s.flags, s.greater
        self.compared, (self.made, self.read_flag) = s.compared, s.flag
        self.predicate, self.tail, returns, self.conditions = s.rest
        self.returns[:] = returns
        self.count, self.slack, self.cycles = s.count, s.slack, s.cycles
        self.sp, self.memory.floor = s.r[SP], place_of(s.r[SP]) or 0
        self._undo({i: before for i, (before, _) in changed.items()})

    def _undo(self, log: Mapping[int, Content | None]) -> None:
        for i, before in log.items():
            self.memory.words[i] = unknown() if before is None else before

    def _merge(
        self,
        holds: WordOp,
        start: "_MachineState",
        a: "_MachineState",
        b: "_MachineState",
        changed_a: "dict[int, Changed]",
        changed_b: "dict[int, Changed]",
    ) -> None:
        def pick(x: Word, y: Word) -> Word:
            return select(holds, x, y)

        for i in range(15):
            if i != SP:  # which is the same
                self.r[i] = pick(a.r[i], b.r[i])
        for i, (p, q) in enumerate(zip(a.q, b.q, strict=True)):
            self.q[i] = q if p is q else [pick(u, v) for u, v in zip(p, q, strict=True)]
        self.flags = b.flags if a.flags is b.flags else self._merged(pick, a.flags, b.flags)
        self.greater = b.greater if a.greater is b.greater else None
        self.compared = b.compared if a.compared is b.compared else None
        (self.made, self.read_flag) = b.flag if a.flag[0] == b.flag[0] else (None, None)
        least = min(a.count - a.slack, b.count - b.slack)
        self.count = max(a.count, b.count)
        self.slack = self.count - least
        self.cycles = max(a.cycles, b.cycles)
        # A word that one way did not write has on that way the content from before.
        for i in {**changed_a, **changed_b}:
            before = (changed_a.get(i) or changed_b[i])[0]
            x = changed_a[i][1] if i in changed_a else before
            y = changed_b[i][1] if i in changed_b else before
            self.memory.merge(i, x, y, pick)

    def _merged(self, pick: Callable[[Word, Word], Word], a: Flags, b: Flags) -> Flags:
        # Of two sets of flags only C is merged.
        try:
            return ("result", unknown(), pick(self._carry_of(a), self._carry_of(b)), 0)
        except Refusal:
            return _NONE


Changed: TypeAlias = tuple[Content | None, Content | None]
"""A word of memory before and after a path."""


@dataclass(frozen=True, slots=True)
class _MachineState:
    r: list[Word]
    q: list[list[Word]]
    flags: Flags
    greater: tuple[str, Word, Word] | None
    compared: tuple[Word, Word] | None
    flag: tuple[Made, tuple[WordOp, Made] | None]
    rest: tuple[int | None, int, tuple[tuple[int, tuple[Word, ...]], ...], tuple[list[Word], int] | None]
    count: int
    slack: int
    cycles: int


def condition(v: Word) -> WordOp:
    """Return an operation that gives 1 or 0 as one that may be negated."""
    assert isinstance(v, WordOp)  # conditions are operations
    inner = v.args[0] if v.name in ("eq", "ne") and v.args[1] == 0 else 0
    if isinstance(inner, WordOp) and inner.name in REAL_NEGATED:  # 1 or 0, as the compiler's library says it
        return inner if v.name == "ne" else WordOp(REAL_NEGATED[inner.name], *inner.args)
    return v


def _word(v: Any) -> Word:
    found: Word = v
    return found


def _of_difference(c: str, a: Word, b: Word, _: Word) -> Word:
    return apply(c, a, b)


def _of_sum(c: str, a: Word, b: Word, carry: Word) -> Word:
    # Flags of a + b + carry: Z and N of the word; N differs from V if the sum over the integers is negative.
    if c in ("eq", "ne", "mi", "pl"):
        return apply(c, add(add(a, b), carry), 0)
    if c in ("lt", "ge"):
        return apply("sum_" + c, a, b, carry)
    if c in ("cs", "cc"):
        return _is_set(apply("carry", a, b, carry), c == "cs")
    if isinstance(a, int) and isinstance(b, int) and isinstance(carry, int):
        total = signed(a) + signed(b) + carry
        zero, high = wrap(total) == 0, (a + b + carry) >> 32
        greater, above = not zero and total >= 0, bool(high) and not zero
        return int({"gt": greater, "le": not greater, "hi": above, "ls": not above}[c])
    raise Refusal(f"flags of a sum: {c}")


def _of_result(c: str, a: Word, carry: Any, _: Word) -> Word:
    # Flags of a logical operation or a shift; V is unchanged and not followed.
    if c in ("eq", "ne", "mi", "pl"):
        return apply(c, a, 0)
    if isinstance(carry, tuple):
        raise Refusal(f"flags of a result: {c}")
    if c in ("cs", "cc"):
        return _is_set(carry, c == "cs")
    if c in ("hi", "ls") and isinstance(a, int) and isinstance(carry, int):
        return int((bool(carry) and a != 0) == (c == "hi"))
    raise Refusal(f"flags of a result: {c}")


def _is_set(flag: Word, wanted: bool) -> Word:
    return apply("ne" if wanted else "eq", flag, 0)


def _of_numbers(c: str, a: Word, b: Word, _: Word) -> Word:
    # Flags of a float32 comparison.
    return apply(REAL_CONDITIONS[c], a, b)


_CONDITIONS = {"sub": _of_difference, "add": _of_sum, "result": _of_result, "real": _of_numbers}

_PLAIN = frozenset(
    (
        "mov",
        "mvn",
        "add",
        "sub",
        "rsb",
        "and",
        "orr",
        "eor",
        "bic",
        "lsl",
        "lsr",
        "asr",
        "sxtb",
        "uxtb",
        "movw",
    )
)


def _single_target(i: DecodedInstruction) -> int | None:
    # The register that an instruction writes, where it does nothing else.
    from crtgen.proof.checker.core.operands import REGISTERS

    return REGISTERS.get(i.operands[0]) if i.name in _PLAIN else None
