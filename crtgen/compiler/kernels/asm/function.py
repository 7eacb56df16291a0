"""The builder of assembly functions: registers taken by role, instructions, loops; prologue and epilogue are
derived.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

from crtgen.compiler.kernels.asm.isa import find, is_narrow
from crtgen.compiler.kernels.asm.routine import BasicBlock, Instruction, Label, Routine, StackFrame

__all__ = ["CORE", "EVEN", "FAR", "HIGH", "LISTED", "LOW", "NEAR", "ODD", "Function"]

LOW = tuple(f"r{n}" for n in range(8))
"""Registers that narrow instructions reach."""
CORE = (*LOW, "r12", *(f"r{n}" for n in range(8, 12)), "lr")
"""General registers in the order in which they are taken: first those that make code short and need not be
saved.
"""
HIGH = ("r8", "r9", "r10", "r11")
"""Further registers, which a function has to save."""
EVEN = ("r0", "r2", "r4", "r6", "r12", "r8", "r10", "lr")
LISTED = tuple(f"r{n}" for n in range(13))
"""General registers in the order in which LDM and STM list them."""
ODD = ("r1", "r3", "r5", "r7", "r9", "r11")
FAR = 4095
"""Largest offset of a load or a store, and largest number that ADDW and SUBW add."""
NEAR = 255
"""Largest step by which a load or a store moves its pointer."""
_VECTORS = tuple(f"q{n}" for n in range(8))
_SINGLES = tuple(f"s{n}" for n in range(32))
_SAVED = (*(f"r{n}" for n in range(4, 12)), "lr")
_REGISTER = re.compile(r"\b(?:r1[0-2]|r\d|lr|q[0-7]|s[12]?\d|s3[01])\b")
_MOST_ARGUMENTS = 4


class Function:
    """A function in assembly under construction; calling it appends an instruction.

    ``parameters`` are C declarations, at most four of one word each; they arrive in r0 to r3, which count as
    taken. ``keep`` are indices of parameters that the prologue also stores on the stack, where ``kept`` finds
    them. ``local`` is the number of words of stack below these, from ``[sp]`` on. ``no_alias``: see
    ``Routine``; loads may then be moved before earlier stores. ``narrow``: for cores with narrow instructions
    only; others are refused.
    """

    def __init__(
        self,
        name: str,
        *parameters: str,
        purpose: str = "",
        returns: str = "void",
        keep: Sequence[int] = (),
        local: int = 0,
        no_alias: bool = False,
        narrow: bool = False,
    ) -> None:
        if len(parameters) > _MOST_ARGUMENTS:
            raise ValueError(f"{name} has {len(parameters)} parameters, not {_MOST_ARGUMENTS} at most")
        self._about = (name, purpose, returns, parameters)
        self._no_alias = no_alias
        self._narrow = narrow
        self._blocks: list[BasicBlock] = []
        self._label: Label | None = None
        self._block: list[Instruction] = []
        self._loops: tuple[str, ...] = ()
        self._factor = 1
        self._tables: list[tuple[str, tuple[int, ...]]] = []
        self._roles: dict[str, list[str]] = {}
        self._taken: set[str] = set()
        self._used: set[str] = set()
        self._labels: set[str] = set()
        self._local = 4 * local
        self._kept = tuple(LOW[n] for n in sorted(keep))
        self.kept = {n: f"[sp, #{self._local + 4 * i}]" for i, n in enumerate(sorted(keep))}
        """The address of each parameter on the stack, by its number."""
        self.arguments = LOW[: len(parameters)]
        """The registers of the parameters, in order."""
        for number, parameter in enumerate(parameters):
            self._take((self.arguments[number],), parameter.split()[-1].lstrip("*"), 1)

    def __call__(self, mnemonic: str, *operands: str, note: str = "") -> None:
        """Append an instruction of the table in ``isa``; all registers that it names must be taken."""
        row = find(mnemonic)
        for operand in operands:
            if not _registers_in(operand) <= self._taken:
                unknown = ", ".join(_registers_in(operand) - self._taken)
                raise ValueError(f"{mnemonic} {', '.join(operands)}: {unknown} is not taken")
        if self._narrow and not is_narrow(mnemonic, operands):
            raise ValueError(f"{mnemonic} {', '.join(operands)}: is no narrow instruction")
        self._block.append(Instruction(mnemonic, operands, note))
        if row.ends:
            self._close()

    def core(self, role: str, among: Iterable[str] = CORE) -> str:
        """Take a free general register. Raises ``ValueError`` if none ``among`` these is free."""
        return self._take(among, role, 1)[0]

    def cores(self, role: str, count: int, among: Iterable[str] = CORE) -> tuple[str, ...]:
        return self._take(among, role, count)

    def vector(self, role: str, among: Iterable[str] = _VECTORS) -> str:
        return self._take(among, role, 1)[0]

    def vectors(self, role: str, count: int) -> tuple[str, ...]:
        return self._take(_VECTORS, role, count)

    def singles(self, role: str, count: int) -> tuple[str, ...]:
        """Take ``count`` single-precision registers of the FPU, which are parts of the vectors."""
        return self._take(_SINGLES, role, count)

    def free(self, *registers: str) -> None:
        self._taken -= set(registers)

    def moved(self, register: str, role: str, among: Iterable[str] = CORE) -> str:
        other = self.core(role, among)
        self("mov", other, register)
        self.free(register)
        return other

    def number(self, register: str, value: int) -> None:
        """Append ``register = value``, for a 32-bit value, signed or unsigned."""
        bits = value & 0xFFFFFFFF
        if self._narrow:
            self._narrow_number(register, bits)
            return
        if bits >> 8 == 0xFFFFFF:
            self("mvn", register, f"#{bits ^ 0xFFFFFFFF}")
            return
        self("movw", register, f"#{bits & 0xFFFF}")
        if bits >> 16:
            self("movt", register, f"#{bits >> 16}")

    def _narrow_number(self, register: str, bits: int) -> None:
        # Byte by byte, from the highest one that is not 0 on; those of negative numbers inverted.
        inverted = bits >> 31 > 0
        first, *rest = (bits ^ (0xFFFFFFFF if inverted else 0)).to_bytes(4, "big").lstrip(b"\0") or b"\0"
        self("movs", register, f"#{first}")
        for byte in rest:
            self("lsls", register, register, "#8")
            if byte:
                self("adds", register, register, f"#{byte}")
        if inverted:
            self("mvns", register, register)

    def constant(self, role: str, value: int) -> str:
        register = self.core(role)
        self.number(register, value)
        return register

    def advance(self, register: str, by: int, spare: str = "") -> None:
        """Append ``register += by``; large steps need a spare register, or take one temporarily."""
        if abs(by) <= FAR:
            if by:
                self("add" if by > 0 else "sub", register, register, f"#{abs(by)}")
            return
        other = spare or self.core("a far step")
        self.number(other, abs(by))
        self("add" if by > 0 else "sub", register, register, other)
        if not spare:
            self.free(other)

    def add(self, to: str, register: str, by: int) -> None:
        if by <= FAR:
            self("add", to, register, f"#{by}")
        else:
            self.number(to, by)
            self("add", to, to, register)

    def store_each(self, store: str, registers: Sequence[str], to: str, step: int, spare: str = "") -> None:
        """Append stores of registers, ``step`` bytes apart from ``to`` on; ``to`` advances beyond them."""
        for number, register in enumerate(registers):
            self(store, register, f"[{to}], #{step}" if step <= NEAR else f"[{to}, #{number * step}]")
        if step > NEAR:
            self.advance(to, len(registers) * step, spare=spare)

    def table(self, name: str, words: Sequence[int]) -> Callable[[str], None]:
        """Add constants to the function; return a function that loads their address into a register."""
        self._tables.append((name, tuple(word & 0xFFFFFFFF for word in words)))

        def address(register: str) -> None:
            self("movw", register, f"#:lower16:.L_{name}")
            self("movt", register, f"#:upper16:.L_{name}")

        return address

    def label(self, meaning: str) -> str:
        label = base = ".L_" + meaning.replace(" ", "_")
        number = 2
        while label in self._labels:
            label, number = f"{base}_{number}", number + 1
        self._labels.add(label)
        return label

    def place(self, label: str) -> None:
        self._close()
        self._label = Label(label)

    @contextmanager
    def loop(self, meaning: str, rounds: int | str) -> Iterator[str]:
        """Repeat the body ``rounds`` times; it must end with a branch to the label that it receives.

        ``rounds`` is a name if only the caller knows the count.
        """
        label = self.label(meaning)
        self.place(label)
        with self._repeated(rounds):
            yield label

    @contextmanager
    def counted_loop(self, meaning: str, counter: str, rounds: int, place: str = "") -> Iterator[None]:
        """Repeat the body while counting a register down; with ``place``, the counter is in memory during the
        body.
        """
        self.number(counter, rounds)
        if place:
            self("str", counter, place)
        with self.loop(meaning, rounds) as label:
            yield
            if place:
                self("ldr", counter, place)
            self("subs", counter, counter, "#1")
            if place:
                self("str", counter, place)
            self("bne", label)

    @contextmanager
    def repeated(self, meaning: str, rounds: int) -> Iterator[None]:
        """Repeat the body with a counter; without a loop if it runs once."""
        if rounds == 1:
            yield
            return
        counter = self.core(f"{meaning} left")
        with self.counted_loop(meaning, counter, rounds):
            yield
        self.free(counter)

    def rounds(self, meaning: str, count: int, at_once: int, some: Callable[[int], None]) -> None:
        """Call ``some`` for ``at_once`` items at a time in a loop, then for the remaining ones."""
        whole, rest = divmod(count, at_once)
        if whole:
            with self.repeated(meaning, whole):
                some(at_once)
        if rest:
            some(rest)

    @contextmanager
    def low_overhead_loop(self, meaning: str, rounds: int | str, count: str = "") -> Iterator[None]:
        """Repeat the body with DLS and LE, using lr; if the caller knows the count, it is in the register
        ``count``.

        A single iteration makes no loop.
        """
        if rounds == 1:
            yield
            return
        lr = self.core("rounds", ("lr",))
        if not count:
            self.number(lr, int(rounds))
        self("dls", lr, count or lr)
        with self.loop(meaning, rounds) as label:
            yield
            self("le", lr, label)
        self.free(lr)

    @contextmanager
    def predicated_loop(self, meaning: str, bits: int, elements: int) -> Iterator[None]:
        """Repeat the body with DLSTP and LETP; the last iteration is predicated to the remaining ``elements``
        of ``bits`` bits.
        """
        lr = self.core("elements left", ("lr",))
        self.number(lr, elements)
        self(f"dlstp.{bits}", lr, lr)
        with self.loop(meaning, -(-elements * bits // 128)) as label:
            yield
            self("letp", lr, label)
        self.free(lr)

    @contextmanager
    def predicated_while(self, meaning: str, bits: int, rounds: str, elements: str) -> Iterator[None]:
        """Repeat the body with WLSTP and LETP: ``elements`` is a register, and may be 0; ``rounds`` is a
        name.
        """
        lr, end = self.core("elements left", ("lr",)), self.label(f"no_{meaning}")
        self(f"wlstp.{bits}", lr, elements, end)
        with self.loop(meaning, rounds) as label:
            yield
            self("letp", lr, label)
        self.place(end)
        self.free(lr)

    def done(self) -> Routine:
        self._close()
        name, purpose, returns, parameters = self._about
        core = tuple(r for r in _SAVED if r in self._used)
        core = core if not core or core[-1] == "lr" else (*core, "lr")
        if self._narrow:  # the high ones are saved through low ones
            high = sum(r in HIGH for r in core)
            core = tuple(r for r in _SAVED if r in core or r in LOW[4 : 4 + high])
        highest = max(map(_vector, self._used.intersection((*_VECTORS, *_SINGLES))), default=0)
        return Routine(
            name=name,
            purpose=purpose,
            returns=returns,
            parameters=parameters,
            roles=tuple((role, tuple(dict.fromkeys(taken))) for role, taken in self._roles.items()),
            frame=StackFrame(core, _VECTORS[4 : highest + 1], self._kept, self._local, self._narrow),
            blocks=tuple(self._blocks),
            tables=tuple(self._tables),
            no_alias=self._no_alias,
        )

    def _take(self, among: Iterable[str], role: str, count: int) -> tuple[str, ...]:
        found = tuple(r for r in among if r not in self._taken)[:count]
        if len(found) < count:
            raise ValueError(f"{self._about[0]}: no register is free for {role}")
        self._taken |= set(found)
        self._used |= set(found)
        self._roles.setdefault(role, []).extend(found)
        return found

    @contextmanager
    def _repeated(self, rounds: int | str) -> Iterator[None]:
        before = self._loops, self._factor
        self._cut()
        if isinstance(rounds, str):
            self._loops += (rounds,)
        else:
            self._factor *= rounds
        yield
        self._close()
        self._loops, self._factor = before

    def _cut(self) -> None:
        # Ends the current block, since the code after it runs another number of times; a block of a label
        # alone goes on.
        if self._block:
            self._close()

    def _close(self) -> None:
        # The block so far is whole.
        if self._label or self._block:
            self._blocks.append(BasicBlock(self._label, tuple(self._block), self._loops, self._factor))
        self._label, self._block = None, []


@lru_cache(maxsize=4096)
def _registers_in(operand: str) -> frozenset[str]:
    # The general registers, vectors and registers of the FPU that an operand names.
    return frozenset(_REGISTER.findall(operand))


def _vector(register: str) -> int:
    # The number of a vector, or of the one that a register of the FPU is a quarter of.
    number = int(register[1:])
    return number if register in _VECTORS else number // 4
