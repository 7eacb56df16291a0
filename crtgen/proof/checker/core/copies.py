"""The compiler's library functions that copy memory, taken at their word.

A copy whose size is a symbol is a loop that cannot be followed. So ``memcpy`` and ``memmove`` are replaced by
what C says of them: bytes move from one place to another. A caller of this module may take copies itself, by
``taken``. ``tried`` runs the image's own functions, in the alignments that were used, on all sizes up to 40
bytes and on those that were used; whoever uses this has to name the functions as trusted.
"""

from collections.abc import Callable, Mapping

from crtgen.proof.checker.algebra.value import STACK_TOP, Symbol, Word, place_of, unknown
from crtgen.proof.checker.core.layout import allow_stack
from crtgen.proof.checker.core.machine import Machine
from crtgen.proof.checker.refusal import Refusal

__all__ = ["LibraryCopies"]

_NAMES = ("memcpy", "memmove", *(f"__aeabi_mem{w}{n}" for w in ("cpy", "move") for n in ("", "4", "8")))
_CHANGED, _FRAME = (1, 2, 3, 12, 14), 8
"""Registers that a callee may change, and words of stack that it may use."""
_SMALL, _LARGE = 40, 4096
_TO, _FROM = 0xC8000000, 0xC8100000
_MOST_INSTRUCTIONS = 1_000_000


class LibraryCopies:
    """Stand-ins for a machine's functions. ``taken`` gets target, source and size of each copy, and returns
    True if it has made the copy.
    """

    def __init__(self, machine: Machine, taken: Callable[[Word, Word, Word], bool]) -> None:
        self.machine, self.taken = machine, taken
        self.code: set[int] = set()
        self._used: dict[str, set[tuple[int, int, int]]] = {}
        for name in _NAMES:
            if name in machine.image.symbols:
                machine.instead[machine.image.symbols[name]] = self._stand_in(name)

    def _stand_in(self, name: str) -> Callable[[Machine], None]:
        def copy(machine: Machine) -> None:
            to, source, size = machine.r[:3]
            used = self._used.setdefault(name, set())
            if not self.taken(to, source, size):
                self._copy(name, to, source, size)
                used.add((place_of(to) or 0, place_of(source) or 0, int(size)))  # type: ignore[arg-type]
            machine.spoil(_CHANGED, _FRAME)
            machine.r[0] = unknown() if name.startswith("__aeabi") else to

        return copy

    def _copy(self, name: str, to: Word, source: Word, size: Word) -> None:
        at, first = place_of(to), place_of(source)
        if at is None or first is None or not isinstance(size, int):
            raise Refusal(f"{name} of memory whose place or size depends on an input")
        if "cpy" in name and at < first + size and first < at + size:
            raise Refusal(f"{name} of {size} bytes that overlap")
        memory = self.machine.memory
        for i, byte in enumerate([memory.byte(first + i) for i in range(size)]):
            memory.store_byte(at + i, byte)

    def tried(self) -> Mapping[str, int]:
        # Run the image's functions that were used; return how many copies of each were tried. Raises
        # ``Refusal`` for the first that does not copy.
        return {name: self._tried(name, used) for name, used in self._used.items()}

    def _tried(self, name: str, used: set[tuple[int, int, int]]) -> int:
        tries = {(to, source, n) for to in range(4) for source in range(4) for n in range(_SMALL + 1)}
        tries |= {(to & 3, source & 3, min(n, _LARGE)) for to, source, n in used}
        if name.endswith(("4", "8")):
            tries = {(0, 0, n) for _, _, n in tries}
        machine = Machine(self.machine.image, _MOST_INSTRUCTIONS)
        allow_stack(machine)
        for to, source, size in sorted(tries):
            self._try(machine, name, _TO + to, _FROM + source, size)
            if "move" in name and size:  # also onto itself, in both directions
                self._try(machine, name, _FROM, _FROM + size // 3, size)
                self._try(machine, name, _FROM + size // 3, _FROM, size)
        self.code |= machine.code
        return len(tries)

    def _try(self, machine: Machine, name: str, to: int, source: int, size: int) -> None:
        allowed = machine.memory.writable, machine.memory.parts
        machine.memory.writable, machine.memory.parts = set(allowed[0]), dict(allowed[1])
        machine.memory.allow(to, to + size)
        machine.memory.allow(source, source + size)
        machine.count = 0
        symbols = [Symbol(-2, i, -128, 127) for i in range(size)]
        for i, symbol in enumerate(symbols):
            machine.memory.store_byte(source + i, symbol)
        machine.r[:3] = to, source, size
        machine.run(self.machine.image.symbols[name], STACK_TOP)
        moved = all(machine.memory.byte(to + i) is symbol for i, symbol in enumerate(symbols))
        if not moved or (machine.r[0] != to and not name.startswith("__aeabi")):
            raise Refusal(f"{name} of {size} bytes does not copy them")
        for i in machine.memory.writable - allowed[0]:
            machine.memory.words.pop(i, None)
        machine.memory.writable, machine.memory.parts = allowed
