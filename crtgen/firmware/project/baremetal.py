"""The platform of a bare-metal project: start-up, linker script, drivers, toolchain files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crtgen.base.errors import UsageError
from crtgen.boards import (
    BOOTS,
    FLASH_DRIVERS,
    MAILBOX_SIZE,
    NPU_WINDOW,
    Board,
    BoardNpu,
    Boot,
    Core,
    Memory,
    Slot,
    Slots,
    Timer,
    Uart,
    Watchdog,
    all_steps,
)
from crtgen.compiler.codegen.names import ARENA, KERNELS, PARAM, arena_symbol
from crtgen.compiler.codegen.render import render
from crtgen.compiler.codegen.slot_image import SIGNATURE_BYTES, SlotTensor, header_bytes
from crtgen.firmware.project.firmware import FirmwareRequest
from crtgen.firmware.project.mlperftiny import BenchmarkView
from crtgen.firmware.project.protection import Region, protection, regions
from crtgen.firmware.project.steps import StepView, registers, step_view
from crtgen.firmware.project.toolchains import BARE_METAL

__all__ = ["SlotsView", "platform_files", "slot_files", "slots_view", "toolchain_files"]

_CORE_HANDLERS = 15
_READ_CHUNK = 64
_LONGEST_WAIT = (1 << 31) - 1  # ticks for which the NPU's watchdog can wait
# Bytes of the stack that the report of a fault runs on.
_FAULT_STACK = {"server": 448, "standalone": 320, "mlperftiny": 320}

# The input sections that the parts of a model are made of.
_PARTS = {
    "arena": f"*(.bss.*{ARENA})",
    "kernels": f"*{KERNELS}.*(.text .text.*)",
    "weights": f"*(.rodata.{PARAM}*)",
}


@dataclass(frozen=True, slots=True)
class _MemoryView:
    name: str
    access: str
    origin: str
    size: str


@dataclass(frozen=True, slots=True)
class _PlaceView:
    """A part of a memory; ``load`` is the memory from which start-up copies it, if any."""

    name: str
    patterns: tuple[str, ...]
    memory: str
    load: str
    attribute: str


@dataclass(frozen=True, slots=True)
class _UartView:
    title: str
    driver: str
    base: str
    irq: int
    error_irq: int | None
    baud: int
    rate: Mapping[str, int]
    tx: int | None
    rx: int | None
    interrupts: bool
    holds_back: bool


@dataclass(frozen=True, slots=True)
class _TimerView:
    base: str
    irq: int | None


@dataclass(frozen=True, slots=True)
class _SlotView:
    name: str
    origin: str
    size: int
    stack: int
    in_ram: bool


@dataclass(frozen=True, slots=True)
class SlotsView:
    """The slots of a board; ``symbol`` is the C object of the flash driver, ``linkage`` the text before its
    declaration.
    """

    driver: str
    symbol: str
    linkage: str
    flash_origin: str
    flash_size: int
    erase_size: int
    write_size: int
    torn: str
    places: tuple[_SlotView, ...]
    work: str
    work_size: int
    log: str
    log_size: int
    tries: int


@dataclass(frozen=True, slots=True)
class _SlotImageView:
    """The image of a model for a slot, with ``header`` bytes before it and ``reserved`` bytes after it."""

    board: str
    model: str
    has_npu: bool
    slot: Slot
    header: int
    reserved: int
    work: int
    work_size: int


@dataclass(frozen=True, slots=True)
class _BareMetalView:
    board: str
    is_host: bool
    is_server: bool
    has_backend: bool
    clock: int
    receive_buffer: int
    pool: int
    chunk: int
    benchmark: BenchmarkView | None
    handlers: int
    uart: _UartView
    timer: _TimerView
    start: tuple[StepView, ...]
    registers: tuple[tuple[str, str, str], ...]
    has_pairs: bool
    boot: Boot | None
    mailbox: str
    has_fpu: bool
    has_lob: bool
    has_stack_limit: bool
    has_cfsr: bool
    has_vtor: bool
    has_caches: bool
    memories: tuple[_MemoryView, ...]
    vectors: str
    code: str
    data: str
    stack: int
    fault_stack: int
    mpu: str
    regions: tuple[Region, ...]
    watchdog: Watchdog | None
    placed: tuple[_PlaceView, ...]
    copied: tuple[str, ...]
    slots: SlotsView | None
    second_core: str
    second_stack: int
    npu: BoardNpu | None
    npu_limit: int
    npu_mailbox: str
    npu_window: int


@dataclass(frozen=True, slots=True)
class _ToolchainView:
    gcc_flags: str
    zig_flags: str


def platform_files(firmware: FirmwareRequest) -> dict[str, str]:
    view = _view(firmware)
    board = firmware.board
    uart, timer = _devices(board)
    main = f"main_{firmware.type}.c"
    templates = {
        "platform.h": "common/platform.h",
        "main.c": f"common/{main}",
        "startup.c": "baremetal/startup.c",
        "linker.ld": "baremetal/linker.ld",
        "fault.c": "baremetal/fault.c",
        f"clock_{timer.kind}.c": f"baremetal/clock_{timer.kind}.c",
    }
    if firmware.options.rtt:
        templates["serial_rtt.c"] = "baremetal/serial_rtt.c"
    else:
        templates[f"serial_{uart.kind}.c"] = "baremetal/serial.c"
    if board.boot:
        templates[f"boot_{board.boot}.c"] = f"baremetal/boot_{board.boot}.c"
    if view.slots is not None:
        templates["slots.c"] = "baremetal/slots.c"
    if view.second_core:
        templates[f"second_{view.second_core}.c"] = f"baremetal/second_{view.second_core}.c"
    if view.mailbox:
        templates["mailbox.c"] = "common/mailbox.c"
    if view.npu is not None:
        templates["npu.c"] = "baremetal/npu.c"
    if view.npu_mailbox:
        templates["npu_mailbox.c"] = "common/npu_mailbox.c"
    if view.watchdog is not None:
        templates[f"watchdog_{view.watchdog.kind}.c"] = f"baremetal/watchdog_{view.watchdog.kind}.c"
    return {name: render(f"project/{template}.j2", v=view) for name, template in templates.items()}


def slot_files(firmware: FirmwareRequest) -> dict[str, str]:
    slots, info = firmware.board.slots, firmware.models[0]
    assert slots is not None
    tensors = [tuple(map(SlotTensor.of, interfaces)) for interfaces in (info.inputs, info.outputs)]
    view = _SlotImageView(
        board=firmware.board.name,
        model=info.name,
        has_npu=firmware.has_npu,
        slot=slots.find(firmware.options.slot),
        header=header_bytes(*tensors),
        reserved=SIGNATURE_BYTES,
        work=slots.work,
        work_size=slots.work_size,
    )
    templates = {"slot.c": "slot.c", "linker.ld": "slot.ld"}
    return {name: render(f"project/baremetal/{template}.j2", v=view) for name, template in templates.items()}


def toolchain_files(core: Core) -> dict[str, str]:
    view = _ToolchainView(" ".join(core.gcc_flags), " ".join(core.zig_flags))
    return {f"{t}.cmake": render(f"project/baremetal/{t}.cmake.j2", v=view) for t in BARE_METAL}


def _view(firmware: FirmwareRequest) -> _BareMetalView:
    board = firmware.board
    uart, timer = _devices(board)
    is_server = firmware.listens
    slots = board.slots if firmware.options.slots else None
    mailbox = board.mailbox if firmware.type == "server" else None
    placed = tuple(
        _place(board, part, memory)
        for part, memory in sorted(firmware.request.place.items())
        if part in _PARTS
    )
    placed += tuple(
        _part(part, memory)
        for part in sorted(firmware.parts)
        if (memory := firmware.memory_of_part(part)) != board.data
    )
    placed += tuple(_resident(board, memory, names) for memory, names in sorted(firmware.resident.items()))
    holding_code = [place.memory for place in placed if place.load and place.name == "kernels"]
    return _BareMetalView(
        board=board.name,
        is_host=False,
        is_server=is_server,
        has_backend=firmware.has_backend,
        clock=timer.clock,
        receive_buffer=firmware.receive_buffer,
        pool=firmware.pool,
        chunk=_READ_CHUNK,
        benchmark=firmware.benchmark,
        handlers=_handlers(uart, timer, is_server and not firmware.options.rtt),
        uart=_uart(uart, is_server and not firmware.options.rtt),
        timer=_TimerView(f"{timer.base:#010x}", timer.irq),
        start=tuple(step_view(step) for step in board.start),
        registers=registers(board),
        has_pairs=any(step.operation == "pairs" for step in all_steps(board.start)),
        boot=BOOTS[board.boot] if board.boot else None,
        mailbox=f"{mailbox:#010x}" if mailbox is not None else "",
        has_fpu=board.core.fpu != "none",
        has_lob=board.core.arch == "armv8.1-m.main",
        has_stack_limit=board.core.arch.startswith("armv8") and not board.core.narrow,
        has_cfsr=not board.core.narrow,
        has_vtor=board.core.has_vtor and board.first_vector != 0,
        has_caches=board.core.has_caches and board.is_real,  # simulators have none
        memories=tuple(_memory(m, board.free(m) if slots else m.size) for m in board.memories),
        vectors=board.vectors,
        code=board.code,
        data=board.data,
        stack=firmware.stack,
        fault_stack=_FAULT_STACK[firmware.type],
        mpu=protection(board.core),
        regions=regions(board, holding_code, mailbox, slots, npu=firmware.has_npu),
        watchdog=_watchdog(firmware),
        placed=placed,
        copied=tuple(place.name for place in placed if place.load),
        slots=slots_view(board, slots, firmware.stack // 2) if slots else None,
        second_core=board.second_core if firmware.request.cores == 2 else "",
        second_stack=firmware.stack // 2,
        npu=board.npu if firmware.has_npu else None,
        npu_limit=min(board.npu.seconds * timer.clock, _LONGEST_WAIT) if board.npu else 0,
        npu_mailbox=f"{mailbox + MAILBOX_SIZE:#010x}" if mailbox is not None and firmware.has_npu else "",
        npu_window=NPU_WINDOW,
    )


def slots_view(board: Board, slots: Slots, stack: int, symbol: str = "") -> SlotsView:
    """Return the slots for templates; ``symbol`` is the flash driver's, and makes it visible to other
    files.
    """
    driver = FLASH_DRIVERS[slots.driver]
    return SlotsView(
        driver=slots.driver,
        symbol=symbol or "flash",
        linkage="" if symbol else "static ",
        flash_origin=f"{board.memory(board.code).origin:#010x}",
        flash_size=board.flash,
        erase_size=driver.erase_size,
        write_size=driver.write_size,
        torn=driver.torn,
        places=tuple(
            _SlotView(s.name, f"{s.origin:#010x}", s.size, stack, board.memory(s.memory).kind == "ram")
            for s in slots.places
        ),
        work=f"{slots.work:#010x}",
        work_size=slots.work_size,
        log=f"{slots.log:#010x}",
        log_size=slots.log_size,
        tries=slots.tries,
    )


def _watchdog(firmware: FirmwareRequest) -> Watchdog | None:
    # The one that a server image starts: one that only resets would hide what the firmware did.
    watchdog = firmware.board.watchdog
    return watchdog if firmware.type == "server" and watchdog is not None and watchdog.reports else None


def _handlers(uart: Uart, timer: Timer, is_server: bool) -> int:
    # Entries of the vector table behind the stack pointer: up to the last interrupt that is used.
    irqs = [*uart.irqs] if is_server or uart.is_usb else []
    irqs += [timer.irq] if timer.irq is not None else []
    return _CORE_HANDLERS + max((irq + 1 for irq in irqs), default=0)


# Driver's file and title of each kind of UART.
_UART_TITLES = {
    "cmsdk": ("cmsdk", "a CMSDK APB UART"),
    "pl011": ("pl011", "a PL011"),
    "stm32_v1": ("stm32_v1", "a USART of the older STM32"),
    "stm32_v2": ("stm32_v2", "a USART of the newer STM32"),
    "stm32_lpuart": ("stm32_v2", "an LPUART of STM32"),
    "nrf_uart": ("nrf_uart", "a UART of Nordic's"),
    "nrf_uarte": ("nrf_uarte", "a UARTE of Nordic's"),
    "nrf54_uarte": ("nrf54_uarte", "a UARTE of nRF54L"),
    "kinetis": ("kinetis", "a UART of Kinetis"),
    "nxp_lpuart": ("nxp_lpuart", "an LPUART of NXP's"),
    "sam_sercom": ("sam_sercom", "a SERCOM of SAM"),
    "ra_sci": ("ra_sci", "an SCI of Renesas' RA4"),
    "ra_sci_b": ("ra_sci_b", "an SCI of Renesas' RA8 (SCI_B)"),
    "rp2350_usb": ("rp2350_usb", "USB, as a modem without commands (CDC ACM)"),
    "rp2040_usb": ("rp2040_usb", "USB, as a modem without commands (CDC ACM)"),
}


def _uart(uart: Uart, is_server: bool) -> _UartView:
    driver, title = _UART_TITLES[uart.kind]
    return _UartView(
        title=title,
        driver=driver,
        base=f"{uart.base:#010x}",
        irq=uart.irq,
        error_irq=uart.error_irq,
        baud=uart.baud,
        rate=uart.rate.fields,
        tx=uart.tx,
        rx=uart.rx,
        interrupts=is_server or uart.is_usb,
        holds_back=uart.is_usb,
    )


def _place(board: Board, part: str, memory: str) -> _PlaceView:
    is_ram = any(m.name == memory and m.kind == "ram" for m in board.memories)
    copied = is_ram and part != "arena"
    return _PlaceView(
        name=part,
        patterns=(_PARTS[part],),
        memory=memory,
        load=board.code if copied else "",
        attribute=" (NOLOAD)" if part == "arena" else "",
    )


def _part(part: str, memory: str) -> _PlaceView:
    # A part of the arena in a memory of its own.
    name = arena_symbol("", part)
    return _PlaceView(name.removeprefix("_"), (f"*(.bss.*{name})",), memory, load="", attribute=" (NOLOAD)")


def _resident(board: Board, memory: str, symbols: Sequence[str]) -> _PlaceView:
    patterns = tuple(f"*(.rodata.{symbol})" for symbol in symbols)
    return _PlaceView(f"weights_{memory}", patterns, memory, load=board.code, attribute="")


def _memory(memory: Memory, size: int) -> _MemoryView:
    access = "rx" if memory.kind == "flash" else "rwx"
    return _MemoryView(memory.name, access, f"{memory.origin:#010x}", f"{size:#x}")


def _devices(board: Board) -> tuple[Uart, Timer]:
    if board.uart is None or board.timer is None:
        raise UsageError(
            "the board has no UART or no timer",
            where=board.name,
            hint="--type library makes code without a main",
        )
    return board.uart, board.timer
