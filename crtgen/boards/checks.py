"""Consistency checks of board descriptions: one small function per rule.

A check yields the key at fault and the reason; the loader's errors contain both.
"""

from collections.abc import Callable, Iterator
from itertools import combinations

from crtgen.base.errors import UsageError
from crtgen.boards.board import MAILBOX_SIZE, NPU_WINDOW, RUNNERS, Board
from crtgen.boards.chip import BOOTS, all_steps
from crtgen.boards.slots import FLASH_DRIVERS

__all__ = ["CHECKS", "check_board"]

Finding = tuple[str, str]

_VECTOR_ENTRY = 4
_BAUD_TOLERANCE = 0.02
_CORE_EXCEPTIONS = 16


def check_board(board: Board, where: str) -> None:
    """Raise ``UsageError`` for the first rule that the board breaks."""
    for name, check in CHECKS.items():
        for key, reason in check(board):
            raise UsageError(reason, where=f"{where}: {key}", hint=f"the rule is: {name}")


def _memories_present(board: Board) -> Iterator[Finding]:
    if board.is_host:
        if board.memories:
            yield "memory", "the host has no memories of its own"
        return
    for kind, place in (("flash", board.code), ("ram", board.data)):
        if not place:
            yield "memory", f"there is no memory of kind {kind}"


def _memories_apart(board: Board) -> Iterator[Finding]:
    for a, b in combinations(board.memories, 2):
        if a.origin < b.end and b.origin < a.end:
            yield f"memory.{b.name}", f"it overlaps memory.{a.name} ({a.origin:#x} to {a.end - 1:#x})"


def _memories_addressable(board: Board) -> Iterator[Finding]:
    for memory in board.memories:
        if memory.size == 0:
            yield f"memory.{memory.name}.size", "it is empty"
        if memory.end > 1 << 32:
            yield f"memory.{memory.name}.size", "it ends behind the 32-bit address space"


def _memories_used(board: Board) -> Iterator[Finding]:
    for memory in board.memories:
        if memory.kind == "flash" and memory.reads is not None and memory.reads.write_back:
            yield f"memory.{memory.name}.reads.write_back", "a run writes no flash"
        if memory.reached_by and "core" not in memory.reached_by:
            yield f"memory.{memory.name}.reached_by", "the core does not reach it"


def _places_have_kinds(board: Board) -> Iterator[Finding]:
    if board.is_host:
        return
    for key, place, kind in (
        ("vectors", board.vectors, "flash"),
        ("code", board.code, "flash"),
        ("data", board.data, "ram"),
    ):
        if (actual := board.memory(place).kind) != kind:
            yield f"layout.{key}", f"{place} is of kind {actual}, expected {kind}"


def _vector_table_fits(board: Board) -> Iterator[Finding]:
    if board.is_host or board.uart is None:
        return
    memory = board.memory(board.vectors)
    needed = _vector_table(board)
    if memory.size < needed:
        yield "layout.vectors", f"the vector table needs {needed} B, {memory.name} has {memory.size} B"
    if board.boot and BOOTS[board.boot].at > BOOTS[board.boot].vectors:
        room = BOOTS[board.boot].at - BOOTS[board.boot].vectors
        if room < needed:
            yield "boot", f"the vector table needs {needed} B, but the header is {room} B behind its start"


def _vector_table(board: Board) -> int:
    # Bytes of the vector table, up to the last interrupt that is used.
    irqs = [*board.uart.irqs] if board.uart is not None else []
    irqs += [board.timer.irq] if board.timer is not None and board.timer.irq is not None else []
    return _VECTOR_ENTRY * (_CORE_EXCEPTIONS + 1 + max(irqs, default=0))


def _vector_table_aligned(board: Board) -> Iterator[Finding]:
    if board.is_host:
        return
    multiple = max(128, 1 << (_vector_table(board) - 1).bit_length())
    if board.first_vector % multiple:
        yield f"memory.{board.vectors}.origin", f"a vector table has to start at a multiple of {multiple}"


def _steps_fit_registers(board: Board) -> Iterator[Finding]:
    names: dict[str, int] = {}
    for n, step in enumerate(all_steps(board.start), 1):
        key = f"start {n}.register"
        if step.address % (step.bits // 8):
            yield key, f"{step.address:#x} is no multiple of {step.bits // 8}"
        if max(step.mask, step.value) >> step.bits:
            yield key, f"the register has {step.bits} bits"
        if step.value & ~step.mask:
            yield key, "the expected value has bits outside of the mask"
        if names.setdefault(step.register, step.address) != step.address:
            yield key, f"it was at {names[step.register]:#x} before"


def _pins_are_known(board: Board) -> Iterator[Finding]:
    if board.uart is None:
        return
    for key, pin in (("tx", board.uart.tx), ("rx", board.uart.rx)):
        if board.uart.kind.startswith("nrf") and pin is None:
            yield f"uart.{key}", "the key is missing: the UART is told its pins"
        if not board.uart.kind.startswith("nrf") and pin is not None:
            yield f"uart.{key}", "the pins of this UART are chosen by registers of the chip: see start"


def _devices_outside_memories(board: Board) -> Iterator[Finding]:
    if board.uart is None:
        return
    for memory in board.memories:
        if memory.origin <= board.uart.base < memory.end:
            yield "uart.base", f"it lies inside memory.{memory.name}"


def _watchdog_can_wait(board: Board) -> Iterator[Finding]:
    if board.watchdog is not None and board.watchdog.reports:
        most = ((1 << 32) - 1) // board.watchdog.clock
        if not 1 <= board.watchdog.seconds <= most:
            yield "watchdog.seconds", f"1 to {most} s can be counted at this clock"


def _can_talk_and_count(board: Board) -> Iterator[Finding]:
    bare = board.uart is not None or board.timer is not None
    for key, device in (("uart", board.uart), ("timer", board.timer)):
        if board.is_host and device is not None:
            yield key, "the host has no such device"
        if not board.is_host and device is None and (bare or not board.zephyr):
            yield key, "the board has none, but the firmware needs it"


def _zephyr_is_for_boards(board: Board) -> Iterator[Finding]:
    if board.is_host and board.zephyr:
        yield "zephyr", "the host runs no Zephyr"


def _one_simulator(board: Board) -> Iterator[Finding]:
    if (board.qemu is not None) + (board.fvp is not None) + board.rp2040js > 1:
        yield "fvp" if board.fvp else "rp2040js", f"{board.simulator} simulates it already"


def _npu_reaches_memories(board: Board) -> Iterator[Finding]:
    known = {memory.name for memory in board.memories}
    for name in board.npu.reaches if board.npu is not None else ():
        if name not in known:
            yield "npu.reaches", f"there is no memory {name}"


def _mailbox_has_room(board: Board) -> Iterator[Finding]:
    if board.qemu is None or board.qemu.memory is None:
        return
    shared = board.qemu.memory
    if shared.size < MAILBOX_SIZE or shared.origin % MAILBOX_SIZE:
        yield "qemu.memory", f"it has to start at a multiple of {MAILBOX_SIZE} and have as many bytes"
    end = shared.origin + MAILBOX_SIZE + (NPU_WINDOW if board.npu else 0)
    for memory in board.memories:
        if memory.origin < end and shared.origin < memory.end:
            yield "qemu.memory", f"the mailbox at its start overlaps memory.{memory.name}"


def _real_board_can_be_reached(board: Board) -> Iterator[Finding]:
    if board.is_host or board.simulator:
        return
    if board.flash_with is None:
        yield "flash", "nothing simulates the board, and nothing says how to write an image to it"
    if board.serial is None:
        yield "serial", "nothing simulates the board, and nothing says what its serial port is"


def _runners_have_targets(board: Board) -> Iterator[Finding]:
    if board.flash_with is None:
        return
    if not board.flash_with.runners:
        yield "flash.runners", "there is none"
    for runner, needed in RUNNERS.items():
        named = bool(board.flash_with.target(runner))
        if needed and runner in board.flash_with.runners and not named:
            yield f"flash.{runner}", f"the runner is listed, but not what it calls the board: {needed}"
        if runner not in board.flash_with.runners and named:
            yield f"flash.{runner}", "the runner is not listed"
    if ("uf2" in board.flash_with.runners) != bool(board.flash_with.uf2_family):
        yield "flash.uf2_family", "the runner uf2 and uf2_family belong together"
    if "west" in board.flash_with.runners and not board.zephyr:
        yield "flash.runners", "west is for boards that Zephyr has"


def _figures_have_a_source(board: Board) -> Iterator[Finding]:
    if not board.is_host and not board.source:
        yield "source", "nothing says where the figures come from"


def _baud_reachable(board: Board) -> Iterator[Finding]:
    if board.serial is not None and not 1200 <= board.serial.baud <= 12_000_000:
        yield "serial.baud", "expected a rate from 1,200 to 12,000,000"
    if board.uart is not None and board.uart.baud:
        actual = board.uart.rate.baud
        if abs(actual / board.uart.baud - 1) > _BAUD_TOLERANCE:
            clock = board.uart.clock
            yield "uart.baud", f"a clock of {clock} Hz makes {actual:.0f} baud of it, not {board.uart.baud}"


def _slots_have_room(board: Board) -> Iterator[Finding]:
    if board.slots is None:
        return
    slots = board.slots
    if not slots.places:
        yield "slots", "there is no slot: add a section slot.a"
    kinds = {
        slot.name: next((m.kind for m in board.memories if m.name == slot.memory), "")
        for slot in slots.places
    }
    for slot in slots.places:
        if not _within(board, slot.origin, slot.size, slot.memory):
            yield f"slot.{slot.name}", f"it is not within a memory {slot.memory}"
    if not _within(board, slots.work, slots.work_size, *(m.name for m in board.memories if m.kind == "ram")):
        yield "slots.work", "it is not within a memory of kind ram"
    if slots.log_size and not _within(board, slots.log, slots.log_size):
        yield "slots.log", "it is not within a memory"
    if "flash" in kinds.values() and not slots.log_size:
        yield "slots.log_size", "slots in flash need a log of two erase blocks or more"


def _slots_apart(board: Board) -> Iterator[Finding]:
    ranges = board.slots.ranges if board.slots else ()
    for (one, a, size), (other, b, other_size) in combinations(ranges, 2):
        if a < b + other_size and b < a + size:
            yield other, f"it overlaps {one}"


def _within(board: Board, origin: int, size: int, *names: str) -> bool:
    memories = [m for m in board.memories if not names or m.name in names]
    return size > 0 and any(m.origin < origin and origin + size <= m.end for m in memories)


def _slots_are_blocks(board: Board) -> Iterator[Finding]:
    if board.slots is None:
        return
    erased = FLASH_DRIVERS[board.slots.driver].erase_size
    for key, origin, size in board.slots.ranges:
        if key != "work" and (origin % erased or size % erased):
            yield key, f"origin and size have to be multiples of {erased} B, which are erased at once"
    if board.slots.log_size and board.slots.log_size < 2 * erased:
        yield "slots.log_size", f"it needs two blocks of {erased} B or more"


CHECKS: dict[str, Callable[[Board], Iterator[Finding]]] = {
    "a board has flash and ram, the host has neither": _memories_present,
    "memories do not overlap": _memories_apart,
    "memories lie in the address space": _memories_addressable,
    "the core reaches all memories, and runs write to RAM only": _memories_used,
    "code lies in flash, variables in ram": _places_have_kinds,
    "bare metal needs a UART and a timer, the host has neither": _can_talk_and_count,
    "the vector table fits its memory": _vector_table_fits,
    "the vector table is aligned": _vector_table_aligned,
    "steps of the start fit their registers": _steps_fit_registers,
    "a UART is told its pins where it chooses them": _pins_are_known,
    "devices lie outside the memories": _devices_outside_memories,
    "the baud rate can be reached": _baud_reachable,
    "the watchdog can count its seconds": _watchdog_can_wait,
    "Zephyr runs on boards, not on the host": _zephyr_is_for_boards,
    "a board has one simulator": _one_simulator,
    "the NPU reaches memories of the board": _npu_reaches_memories,
    "the mailbox in the memory that QEMU shares is apart from the memories": _mailbox_has_room,
    "a board that nothing simulates can be flashed and talked to": _real_board_can_be_reached,
    "each runner knows what it calls the board": _runners_have_targets,
    "slots lie in memories, behind the firmware": _slots_have_room,
    "slots do not overlap": _slots_apart,
    "slots are whole blocks of the flash": _slots_are_blocks,
    "a board says where its figures come from": _figures_have_a_source,
}
