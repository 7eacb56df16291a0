"""Interrupt handlers, which may run between any two instructions of the network.

The core saves r0 to r3, r12, LR, PC, the flags and the FPU registers that calls do not preserve on the stack
(Armv7-M Architecture Reference Manual, B1.5.7). A handler is run with unknown registers, variables and
devices. It must return, restore all other registers and the stack, and write neither to the network's memory,
nor to the stack of others, nor to core registers that the network needs. Then an interrupted call ends
exactly as it would have without the interrupt. On the way from reset, words that handlers write are unknown.

Any handler may interrupt any other one, once: the worst stack is that of all together.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from crtgen.proof.checker.algebra.value import STACK_TOP
from crtgen.proof.checker.binary.image import DecodedImage
from crtgen.proof.checker.core import registers
from crtgen.proof.checker.core.layout import variables
from crtgen.proof.checker.core.memory import WordMemory
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.surroundings.reset import StartingCore, entry_of

__all__ = ["Interrupts", "interrupts_of"]

_RESET, _HARD_FAULT = 1, 3
_WITH_UNIT = frozenset(("armv7e-m", "armv8-m.main", "armv8.1-m.main"))
_FRAME, _FRAME_WITH_UNIT, _FRAME_OF_TWO_WORLDS = 40, 112, 40
"""Bytes that the core pushes for a handler, including a word of alignment; the last is for a handler of the
non-secure world.
"""


@dataclass(frozen=True, slots=True)
class Interrupts:
    """Effect of an image's handlers: ``stack`` is the most bytes that they use together, ``written`` the
    words that they may change, ``devices`` the other addresses that they read or write.
    """

    handlers: int = 0
    stack: int = 0
    written: frozenset[int] = frozenset()
    code: frozenset[int] = frozenset()
    devices: frozenset[tuple[int, str]] = frozenset()


def interrupts_of(image: DecodedImage, name: str) -> Interrupts:
    """Run the handlers of an image. Raises ``Refusal`` for a handler that may disturb the network
    ``name``.
    """
    entry_of(image)  # the table is one
    entries = _entries(image)
    ran = {entry: _ran(image, name, entry) for entry in set(entries)}
    frame = _FRAME_WITH_UNIT if image.architecture in _WITH_UNIT else _FRAME
    frame += _FRAME_OF_TWO_WORLDS if image.architecture.startswith("armv8") else 0
    return Interrupts(
        len(entries),
        sum(frame + STACK_TOP - ran[entry].lowest for entry in entries),
        frozenset[int]().union(*(m.words.stored for m in ran.values())),
        frozenset[int]().union(*(m.code for m in ran.values())),
        frozenset[tuple[int, str]]().union(*(m.devices.used for m in ran.values())),
    )


def _entries(image: DecodedImage) -> list[int]:
    # Entry points of handlers, one per exception. Fault handlers are left out: nothing is claimed after a
    # fault.
    first, end = image.span("crt_vectors")
    memory = WordMemory(image.constant, image.unaligned)
    table = [memory.load(at) for at in range(first, end, 4)]
    faults = table[_HARD_FAULT] if len(table) > _HARD_FAULT else 0
    return [entry - 1 for entry in table[_RESET + 1 :] if isinstance(entry, int) and entry not in (0, faults)]


def _ran(image: DecodedImage, name: str, entry: int) -> "_Handler":
    machine = _Handler(image, name)
    try:
        machine.run(entry, STACK_TOP)
    except Refusal as refusal:
        raise Refusal(f"the interrupt {image.function_of(entry)}: {refusal}") from None
    return machine


class _Handler(StartingCore):
    def __init__(self, image: DecodedImage, name: str) -> None:
        super().__init__(image, {}, image.constant)
        own = [*image.arenas(name).values(), *variables(image, name)]
        own.append((image.symbols["crt_stack_bottom"], image.symbols["crt_stack_top"]))
        for first, end in _without([(s.address, s.end) for s in image.segments if s.is_written], own):
            self.memory.allow(first, end)
        self.memory.allow_stack(STACK_TOP - _MOST_STACK, STACK_TOP)
        self.limit = _MOST_INSTRUCTIONS
        for at in registers.FOLLOWED:
            del self.words[at >> 2]

    def run(self, entry: int, stack: int) -> None:
        # Run a handler. Raises ``Refusal`` if it changes what the network needs.
        super().run(entry, stack)
        changed = [at for at in (*registers.FOLLOWED, registers.VTOR) if at >> 2 in self.words]
        if changed:
            raise Refusal(f"writes {registers.NAMES[changed[0]]}")


_MOST_STACK = 1 << 16
_MOST_INSTRUCTIONS = 100_000


def _without(spans: Iterable[tuple[int, int]], others: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    # Address ranges minus others.
    left = list(spans)
    for low, high in others:
        parts = [((first, min(end, low)), (max(first, high), end)) for first, end in left]
        left = [span for pair in parts for span in pair if span[0] < span[1]]
    return left
