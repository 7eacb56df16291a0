"""Estimates an image's flash and RAM before any compiler runs.

Constants and RAM are known once models are planned. Assembly is counted exactly; C is estimated from the
measured size of its blocks (``crtgen.compiler.kernels.engine.cost``). The rest of the image was measured for
each core with GCC 12.2: ``python -m benchmarks.fit_footprints`` writes it to ``footprints.csv``.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any

from crtgen.base.errors import DoesNotFitError
from crtgen.base.formats.tables import rows_of
from crtgen.base.resources import footprints_file
from crtgen.boards import BOOTS, Board
from crtgen.compiler.codegen.module import ModelInfo
from crtgen.compiler.codegen.twins import constants_bytes
from crtgen.compiler.kernels import Kernel
from crtgen.compiler.plan import Plan
from crtgen.firmware.project.firmware import FirmwareRequest
from crtgen.network.ir import DType

__all__ = ["ALIGN", "Around", "Footprint", "around", "check_footprint", "footprint", "kernel_code"]

_GUARD = 32  # CRT_ARENA_GUARD, around each arena of a server and each part of one
_COPIED = 16  # the greatest alignment of a constant
_BLOCK = 8  # an entry of the table of crt/pool.h
ALIGN = {"library": 1, "standalone": 4, "server": 16, "mlperftiny": 4}
"""The RAM of an image is a multiple of this."""

# Bytes of what a benchmark receives beside its input.
_LINES = 352

# An image takes at least this fraction of its estimated flash.
_CERTAIN = 0.97


@dataclass(frozen=True, slots=True)
class Around:
    """Bytes apart from the models: in flash in total, per layer call, and for float32 arithmetic without an
    FPU; in RAM without the parts that options decide.
    """

    flash: float = 0.0
    layer: float = 0.0
    floats: float = 0.0
    ram: float = 0.0


@dataclass(frozen=True, slots=True)
class Footprint:
    """Size of an image in bytes: ``flash`` is estimated; ``ram`` is exact, except on Zephyr; ``stack`` is
    separate.

    ``weights``, ``arena`` and ``state`` are parts of them. ``memories`` has the contents of each memory of
    the board, with the stack; it is empty for a library, and for a core without a board.
    """

    type: str
    platform: str
    flash: int
    ram: int
    stack: int
    weights: int
    arena: int
    state: int
    memories: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@cache
def around(core: str, flag: str, type: str) -> Around:
    """Return the measured size apart from the models, for a core, a compiler flag and a type of image.

    The type ``zephyr`` is the part that Zephyr adds.
    """
    with footprints_file().open(encoding="utf-8", newline="") as file:
        names, *rows = rows_of(file)
        for row in (dict(zip(names, each, strict=True)) for each in rows):
            if (row["core"], row["flag"], row["type"]) == (core, flag, type):
                return Around(*(float(row[field.name]) for field in fields(Around)))
    raise KeyError((core, flag, type))


def footprint(firmware: FirmwareRequest, plans: Sequence[Plan]) -> Footprint:
    models = firmware.models
    is_server = firmware.type == "server"
    flash, ram = _rest(firmware, plans)
    weights = sum(map(constants_bytes, plans))
    arenas = [firmware.shared_arena] if firmware.shared_arena else [info.arena for info in models]
    arena = sum(size + _GUARD * is_server for size in arenas if size)
    apart = _apart(firmware)
    state = sum(info.state for info in models)
    ram += state
    if is_server:
        ram += firmware.pool + firmware.receive_buffer + _BLOCK * firmware.blocks
    if firmware.benchmark:
        ram += firmware.benchmark.received + _LINES
    ram += _of_options(firmware)
    npu_flash, npu_ram = _of_npu(firmware, plans)
    flash, ram = flash + npu_flash, ram + npu_ram
    kernels = round(kernel_code(plans))
    beside = 0 if "arena" in firmware.request.place else arena  # in the section with all other variables
    if firmware.has_npu and firmware.type != "library":
        ram += -(-(-beside // 4) * 4) % _NPU_ALIGN  # the driver's variables come behind the arena
    ram += -(ram + beside) % ALIGN[firmware.type]
    if firmware.type != "library" and firmware.platform == "baremetal" and firmware.board.is_usb:
        ram += _USB_RAM
    stack = 0 if firmware.type == "library" else firmware.stack
    copied = {
        part: size for part, size in (("weights", weights), ("kernels", kernels)) if _copied(firmware, part)
    }
    resident = _resident(firmware)
    parts = {"weights": weights, "kernels": kernels, "arena": arena}
    return Footprint(
        type=firmware.type,
        platform=firmware.platform,
        flash=flash + weights + kernels,
        ram=ram + arena + sum(apart.values()) + sum(copied.values()) + sum(resident.values()),
        stack=stack,
        weights=weights,
        arena=arena + sum(apart.values()),
        state=state,
        memories=_memories(firmware, parts, copied, [resident, apart], flash, ram + stack),
    )


def _apart(firmware: FirmwareRequest) -> dict[str, int]:
    # Bytes of the arenas' parts, by the memory; empty for a core without a board.
    found: dict[str, int] = {}
    guard = _GUARD if firmware.type == "server" else 0
    for part, size in firmware.parts.items():
        memory = firmware.memory_of_part(part)
        # In a section of its own it ends at a multiple of 4, else the next array begins at one of 16.
        unit = _COPIED if memory == firmware.board.data else 4
        guards = guard * sum(part in info.parts for info in firmware.models)
        found[memory] = found.get(memory, 0) + -(-(size + guards) // unit) * unit
    return found


def _resident(firmware: FirmwareRequest) -> dict[str, int]:
    # Bytes of constants that start-up copies, by the memory.
    sizes = {param.symbol: param.nbytes for module in firmware.modules for param in module.params}
    return {
        memory: sum(-(-sizes[symbol] // _COPIED) * _COPIED for symbol in symbols)
        for memory, symbols in firmware.resident.items()
    }


def _rest(firmware: FirmwareRequest, plans: Sequence[Plan]) -> tuple[int, int]:
    # Flash and RAM of all that is not of the models, as it was measured.
    core = firmware.board.core
    is_zephyr = firmware.platform == "zephyr" and firmware.type != "library"
    kind = "standalone" if firmware.benchmark else firmware.type
    kinds = [kind, *(["zephyr"] if is_zephyr else [])]
    known = [around(core.measured, firmware.request.target.flag, kind) for kind in kinds]
    layers = sum(len(info.layers) for info in firmware.models)
    floats = core.fpu == "none" and any(map(_has_floats, plans))
    flash = sum(each.flash + each.layer * layers + each.floats * floats for each in known)
    if firmware.type != "library" and not is_zephyr:
        flash += _chip(firmware.board)
    return round(flash), round(sum(each.ram for each in known))


# Bytes of RAM: a port by RTT beside one of a UART, the profile of layers, counts of what a model meets
# (struct crt_drift), what is beside the stack of a second core.
_RTT, _PROFILE, _DRIFT, _SECOND = 1856, 48, 100, 48


def _of_options(firmware: FirmwareRequest) -> int:
    # Bytes of RAM of what options add to an image.
    if firmware.type == "library":
        return 0
    options = firmware.options
    found = _RTT * options.rtt + _PROFILE * options.profile + _DRIFT * len(firmware.watched)
    found += (firmware.stack // 2 + _SECOND) * (firmware.request.cores == 2)
    return found + sum(_black_box(info, options.record) for info in firmware.models if options.record)


def _black_box(info: ModelInfo, runs: int) -> int:
    # CRT_RECORD_BYTES of crt/record.h, and what is beside it.
    words = [-(-i.nbytes // 4) * 4 for i in (*info.inputs, *info.outputs)]
    return 32 + 2 * (-(-info.state // 4) * 4) + runs * (8 + sum(words))


_STEP, _CACHES, _USB, _USB_RAM = 16, 170, 1200, 56
"""Bytes of a step of the start, of starting caches, and of a port over USB beside one of a UART."""


def _chip(board: Board) -> int:
    # Bytes that a chip wants beside what every board has: steps, caches, a boot header.
    header = max(BOOTS[board.boot].at, BOOTS[board.boot].vectors) if board.boot else 0
    caches = _CACHES if board.is_real and board.core.has_caches else 0
    usb = _USB if board.is_usb else 0
    return _STEP * len(board.start) + header + caches + usb


# Bytes of the NPU's driver, of its variables, of its port in a program and in QEMU, of a clock there, and of
# each call beside the figures of a kernel.
_NPU_ALIGN = 8
_NPU, _NPU_RAM, _NPU_PORT, _NPU_MAILBOX, _NPU_CLOCK, _NPU_CALL = 572, 20, 40, 416, 8, 64


def _of_npu(firmware: FirmwareRequest, plans: Sequence[Plan]) -> tuple[int, int]:
    # Flash and RAM.
    if not firmware.has_npu:
        return 0, 0
    calls = sum(step.kernel.estimate is not None for plan in plans for step in plan.all_steps())
    board, kind = firmware.board, firmware.type
    mailbox = kind == "server" and board.mailbox is not None
    flash = _NPU + _NPU_CALL * calls + _NPU_PORT * (kind != "library") + _NPU_MAILBOX * mailbox
    return flash, _NPU_RAM + _NPU_CLOCK * mailbox


def _has_floats(plan: Plan) -> bool:
    return any(value.dtype is DType.FLOAT32 for value in plan.graph.values.values())


def kernel_code(plans: Sequence[Plan]) -> float:
    """Return the bytes of the kernels' functions; shared ones count once."""
    known: dict[Hashable, float] = {}
    for plan in plans:
        for step in plan.all_steps():
            _add_code(step.kernel, known)
    return sum(known.values())


def _add_code(kernel: Kernel, known: dict[Hashable, float]) -> Hashable:
    # Add the kernel's own code, its routines and its parts, each by what makes it equal to others.
    known |= {routine: float(routine.code_bytes) for routine in kernel.routines}
    called = tuple(_add_code(part.kernel, known) for part in kernel.parts)
    key = (kernel.function, called)
    beside = sum(r.code_bytes for r in kernel.routines) + sum(p.kernel.cost.code for p in kernel.parts)
    known[key] = kernel.cost.code - beside
    return key


def _copied(firmware: FirmwareRequest, part: str) -> bool:
    # True if start-up copies the part to RAM.
    place = firmware.request.place
    return part in place and firmware.board.memory(place[part]).kind == "ram"


def _memories(
    firmware: FirmwareRequest,
    parts: Mapping[str, int],
    copied: Mapping[str, int],
    others: Sequence[Mapping[str, int]],
    flash: int,
    ram: int,
) -> dict[str, int]:
    # Bytes in each memory of the board: its parts, what they are copied from, and the rest.
    board, place = firmware.board, firmware.request.place
    if firmware.type == "library" or not board.memories:
        return {}
    found = dict.fromkeys((memory.name for memory in board.memories), 0)
    for part, size in parts.items():
        found[place.get(part, board.data if part == "arena" else board.code)] += size
    for memory, size in (item for sizes in others for item in sizes.items()):
        found[memory] += size
    found[board.code] += flash + sum(copied.values())
    found[board.data] += ram
    return found


def check_footprint(firmware: FirmwareRequest, plans: Sequence[Plan]) -> None:
    """Raise ``DoesNotFitError`` for an image that certainly does not fit its board, whatever the compiler
    does.

    The size of Zephyr depends on its configuration, so for its images only the linker can tell.
    """
    if firmware.platform == "zephyr":
        return
    needs = footprint(firmware, plans)
    for name, size, memory in _overfull(firmware, needs):
        raise DoesNotFitError(
            f"{name} needs about {size:,} bytes, and has {memory:,}",
            where=firmware.board.name,
            hint="crtgen fit shows what would fit: another level, placement, pool or board",
        )


def _overfull(firmware: FirmwareRequest, needs: Footprint) -> Iterator[tuple[str, int, int]]:
    for memory in firmware.board.memories:
        size = needs.memories.get(memory.name, 0)
        certain = size * _CERTAIN if memory.kind == "flash" else size
        if certain > memory.size:
            yield memory.name, size, memory.size
