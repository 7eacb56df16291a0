"""Endless loops are found by Brent's algorithm ("An improved Monte Carlo factorization algorithm", 1980).

The machine is deterministic: if it returns to a place with the same registers, flags and memory, it does so
forever. To compare each state with all earlier ones would be too much. One earlier state is enough if it is
replaced after 1, 2, 4, 8, ... times a first number of instructions: once the distance to the next replacement
is longer than the loop, the loop comes back to the kept state. States are looked at only where a branch goes
backward; each loop has one.

Loads of devices give a new unknown word each time, so a loop that waits for a device is not endless for this
module; like one that counts, it ends at the limit of instructions.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from crtgen.proof.checker.refusal import Refusal

if TYPE_CHECKING:
    from crtgen.proof.checker.core.machine import Machine

_FIRST = 1 << 18


@dataclass
class LoopRounds:
    """The kept state, and the count of instructions at which another one replaces it."""

    next: int = _FIRST
    place: int = -1
    state: tuple[object, ...] = ()
    memory: dict[int, object] | None = None

    def back(self, machine: "Machine", to: int) -> int:
        """Return ``to``, the target of a backward branch. Raises ``Refusal`` if the state is the kept one."""
        if machine.count >= self.next:
            self.next, self.place, self.state = 2 * machine.count, to, _state(machine)
            self.memory = {i: list(w) if isinstance(w, list) else w for i, w in machine.memory.words.items()}
        elif to == self.place and self.memory is not None and _same(self.state, _state(machine)):
            words = machine.memory.words
            if len(words) == len(self.memory) and all(_same(w, words.get(i)) for i, w in self.memory.items()):
                raise Refusal(
                    "an endless loop: registers, flags and memory are as they were one round before"
                )
            self.memory = None  # memory counts; comparing it in each round would cost more than the loop
        return to


def _state(machine: "Machine") -> tuple[object, ...]:
    kept = machine.flags, machine.tail, machine.block, len(machine.returns)
    return (*machine.r, *(w for q in machine.q for w in q), *kept)


def _same(a: object, b: object) -> bool:
    # Unknown words that are made anew in each round count as different.
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(_same, a, b))
    return a is b or (isinstance(a, int | str) and a == b)
