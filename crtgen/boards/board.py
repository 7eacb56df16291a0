"""A board: its core, its memories, and how to communicate with it. The data is in ``boards/<name>.toml``."""

from dataclasses import dataclass
from pathlib import Path

from crtgen.base.errors import UsageError
from crtgen.boards.chip import BOOTS, Errata, RegisterStep
from crtgen.boards.core import Core
from crtgen.boards.energy import Energy
from crtgen.boards.slots import Slots
from crtgen.boards.uart import UARTS, Rate

__all__ = [
    "FVP_BOARDS",
    "MAILBOX_SIZE",
    "NPU_WINDOW",
    "PLATFORMS",
    "RUNNERS",
    "WATCHDOGS",
    "Board",
    "Flash",
    "Fvp",
    "Memory",
    "Qemu",
    "Serial",
    "Timer",
    "Uart",
    "Watchdog",
    "ZephyrName",
]

PLATFORMS = ("host", "baremetal", "zephyr")

RUNNERS = {
    "west": "",
    "pyocd": "target",
    "openocd": "configuration files",
    "jlink": "device",
    "nrfjprog": "family",
    "nrfutil": "",
    "stm32cubeprogrammer": "",
    "linkserver": "device and board",
    "probe-rs": "chip",
    "bossac": "offset in the flash, 0 where the boot loader adds it",
    "dfu-util": "USB id of the boot loader",
    "uf2": "Board-ID of the boot loader's drive",
    "picotool": "",
    "gdb": "",
}
"""Ways to write an image to a board, and the facts about the board that each needs."""

NPU_WINDOW = 16 << 20
"""Bytes behind the mailbox through which jobs of an NPU go to its model on the host."""

MAILBOX_SIZE = 1 << 20
"""Bytes that firmware may use at the start of the memory that QEMU shares."""


@dataclass(frozen=True, slots=True)
class FlashReads:
    """Read timing of a memory at the core's highest clock.

    A read returns ``width`` bytes and waits ``wait_states`` cycles. ``code_cache`` and ``data_cache`` are
    cache sizes in bytes. ``ahead``: the next line is prefetched while one is executed. ``write_back``, for
    a RAM, is the wait in cycles when a cache writes ``width`` bytes back, which it has read before.
    """

    wait_states: int
    width: int
    code_cache: int = 0
    data_cache: int = 0
    ahead: bool = False
    write_back: int = 0

    def waits(self, nbytes: float, written: float = 0.0) -> float:
        """Return the wait cycles for reading ``nbytes``, of which ``written`` are also written back."""
        return (nbytes * self.wait_states + written * self.write_back) / self.width


ASSUMED_READS = FlashReads(wait_states=5, width=8, code_cache=1 << 10, data_cache=256, ahead=True)
"""The STM32L4's flash, for boards that do not describe theirs.

It is one of the slower ones. Code that is optimised for it loses little on others: docs/cycles.md.
"""

ASSUMED_CACHED_READS = FlashReads(wait_states=7, width=32, code_cache=4 << 10, data_cache=4 << 10)
"""The STM32F7's flash, for boards that do not describe theirs and whose core has caches."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A range of addresses, in bytes; ``kind`` is ``flash`` (holds code and constants) or ``ram``.

    ``reached_by`` are the bus masters that can access it; empty if all can, or if unknown.
    """

    name: str
    kind: str
    origin: int
    size: int
    reads: FlashReads | None = None
    reached_by: tuple[str, ...] = ()

    @property
    def reach(self) -> str:
        """Return `` (reached by A only)`` for messages; empty if all masters reach the memory, or if
        unknown.
        """
        return f" (reached by {', '.join(self.reached_by)} only)" if self.reached_by else ""

    @property
    def end(self) -> int:
        return self.origin + self.size


@dataclass(frozen=True, slots=True)
class Uart:
    """The serial port of the RPC: the driver, a key of ``UARTS``, register base, clock in Hz, interrupt.

    ``tx`` and ``rx`` are pin numbers, for UARTs that have registers for them (Nordic's).
    """

    kind: str
    base: int
    clock: int
    irq: int
    baud: int
    tx: int | None = None
    rx: int | None = None

    @property
    def is_usb(self) -> bool:
        """True if the serial port is a USB device of the chip itself."""
        return self.kind in ("rp2040_usb", "rp2350_usb")

    @property
    def error_irq(self) -> int | None:
        """Interrupt of the UART's errors, if errors have one of their own: ``irq`` + 1."""
        return self.irq + 1 if self.kind in ("ra_sci", "ra_sci_b") else None

    @property
    def irqs(self) -> tuple[int, ...]:
        return (self.irq,) if self.error_irq is None else (self.irq, self.error_irq)

    @property
    def rate(self) -> Rate:
        return UARTS[self.kind](self.clock, self.baud)


@dataclass(frozen=True, slots=True)
class Timer:
    """Source of ticks: driver (``systick``, ``nrf_timer``) and clock in Hz.

    ``systick`` is part of the core and counts its cycles; other timers have a register base and an interrupt.
    """

    kind: str
    clock: int
    base: int = 0
    irq: int | None = None


WATCHDOGS = ("cmsdk", "stm32_iwdg", "nrf_wdt", "rp2040", "rp2350")
"""Drivers of watchdogs. Only the first has an interrupt before its reset, which can tell of a fault."""


@dataclass(frozen=True, slots=True)
class Watchdog:
    """A watchdog: driver, register base, clock in Hz, and the longest duration of a run in seconds."""

    kind: str
    base: int
    clock: int
    seconds: int

    @property
    def reports(self) -> bool:
        """True if it can report a fault before it resets; server images only start a watchdog that can."""
        return self.kind == "cmsdk"


@dataclass(frozen=True, slots=True)
class BoardNpu:
    """The NPU of a board: its configuration, the address of its registers, its interrupt.

    A job may take up to ``seconds``. ``reaches`` are the memories that the NPU can access; empty means all.
    """

    config: str
    base: int
    irq: int
    seconds: int = 10
    reaches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Qemu:
    """The board in QEMU: machine and further arguments; the RPC's UART is the next serial port.

    ``memory`` is the machine's main memory, if QEMU can share it and no image uses it: the RPC's mailbox is
    at its start. ``since`` is the first QEMU release with this machine, such as (9, 0), if that is recent.
    ``counts``: always run with instruction counting, since the UART otherwise takes a second per byte.
    """

    machine: str
    args: tuple[str, ...] = ()
    memory: Memory | None = None
    since: tuple[int, ...] = ()
    counts: bool = False

    @property
    def release(self) -> str:
        return ".".join(map(str, self.since))


FVP_BOARDS = ("mps3_board", "mps4_board")


@dataclass(frozen=True, slots=True)
class Fvp:
    """The Fixed Virtual Platform that simulates the board. The RPC is on its first UART.

    ``board``, one of ``FVP_BOARDS``, is the component that has the UARTs.
    """

    program: str
    board: str = FVP_BOARDS[0]


@dataclass(frozen=True, slots=True)
class ZephyrName:
    """The board's name in Zephyr since release ``since``, such as (3, 7)."""

    since: tuple[int, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Flash:
    """Ways to flash the board: its runners, the preferred one first.

    ``targets`` holds, by runner, the arguments that ``RUNNERS`` requires. ``uf2_family`` is the chip's family
    ID in UF2 files, 0 if it has none.
    """

    runners: tuple[str, ...]
    targets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    uf2_family: int = 0

    def target(self, runner: str) -> tuple[str, ...]:
        """Arguments that tell a runner which board it is; may be empty."""
        return dict(self.targets).get(runner, ())


@dataclass(frozen=True, slots=True)
class Serial:
    """The serial port on this computer: its baud rate, and its possible USB ids (``0483:374b``)."""

    baud: int
    usb: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Board:
    """A board that firmware is generated for.

    ``vectors``, ``code`` and ``data`` name the memories that hold the vector table, code with constants, and
    variables with the stack. ``start`` are register accesses that are done before anything else. ``boot`` is
    a key of ``BOOTS`` for a chip whose boot ROM requires a structure in flash. ``second_core``, one of
    ``SECOND_CORES``, is the way to start a second core of the same kind; empty if there is none. ``clock`` is
    the core's highest, in Hz, 0 if unknown. ``rp2040js``: that simulator supports the board. ``source`` says
    where the values come from, ``file`` is the file that was read. The board ``host`` is this computer and
    has none of these.
    """

    name: str
    summary: str
    core: Core
    clock: int = 0
    memories: tuple[Memory, ...] = ()
    vectors: str = ""
    code: str = ""
    data: str = ""
    uart: Uart | None = None
    timer: Timer | None = None
    start: tuple[RegisterStep, ...] = ()
    boot: str = ""
    second_core: str = ""
    errata: Errata | None = None
    watchdog: Watchdog | None = None
    qemu: Qemu | None = None
    later_qemu: Qemu | None = None
    """Machine of a later QEMU than the installed one; ``qemu`` is None then."""
    fvp: Fvp | None = None
    rp2040js: bool = False
    zephyr: tuple[ZephyrName, ...] = ()
    flash_with: Flash | None = None
    serial: Serial | None = None
    energy: Energy | None = None
    slots: Slots | None = None
    npu: BoardNpu | None = None
    source: str = ""
    file: Path | None = None

    @property
    def platforms(self) -> tuple[str, ...]:
        if self.is_host:
            return ("host",)
        bare = ("baremetal",) if self.uart is not None and self.timer is not None else ()
        return (*bare, "zephyr") if self.zephyr else bare

    @property
    def is_usb(self) -> bool:
        """True if its serial port on bare metal is a USB device of the chip itself."""
        return self.uart is not None and self.uart.is_usb

    @property
    def first_vector(self) -> int:
        offset = BOOTS[self.boot].vectors if self.boot else 0
        return self.memory(self.vectors).origin + offset

    @property
    def mailbox(self) -> int | None:
        """Address of the RPC's mailbox in memory that QEMU shares; None if there is none."""
        shared = self.qemu.memory if self.qemu is not None else None
        return None if shared is None else shared.origin

    @property
    def simulator(self) -> str:
        """The program that simulates the board on this computer; empty if there is none."""
        known = {"QEMU": self.qemu is not None, "FVP": self.fvp is not None, "rp2040js": self.rp2040js}
        return next((name for name, has in known.items() if has), "")

    def reads(self, name: str) -> FlashReads | None:
        """Return the read timing of a memory; None if reads never wait, as in RAM and simulated flash."""
        memory = next((m for m in self.memories if m.name == name), None)
        if memory is not None and (memory.reads is not None or memory.kind == "ram"):
            return memory.reads
        if self.is_host or (self.simulator and not self.is_real):
            return None
        return ASSUMED_CACHED_READS if self.core.has_caches else ASSUMED_READS

    @property
    def reads_are_assumed(self) -> bool:
        """True if the board's file does not describe the flash that holds the code."""
        reads = self.reads(self.code)
        return reads is ASSUMED_READS or reads is ASSUMED_CACHED_READS

    @property
    def is_real(self) -> bool:
        return self.flash_with is not None

    def platform(self, wanted: str | None, *, library: bool = False) -> str:
        """Return ``wanted``, or the board's first platform. Raises ``UsageError`` if the board does not have
        it.

        A ``library`` for bare metal needs only the core of a board.
        """
        platforms = self.platforms
        if library and not self.is_host:
            platforms = tuple(dict.fromkeys(("baremetal", *platforms)))
        if wanted is None:
            return platforms[0]
        if wanted not in PLATFORMS:
            raise UsageError(f"unknown platform {wanted}", hint=f"known: {', '.join(PLATFORMS)}")
        if wanted not in platforms:
            hint = f"it has {', '.join(platforms)}"
            raise UsageError(f"the board has no platform {wanted}", where=self.name, hint=hint)
        return wanted

    def zephyr_name(self, version: tuple[int, ...]) -> str:
        """Return the board's name in a release of Zephyr. Raises ``UsageError`` if the release is too old for
        it.
        """
        known = [entry.name for entry in self.zephyr if entry.since <= version]
        if not known:
            release = ".".join(map(str, version))
            needs = ".".join(map(str, self.zephyr[0].since)) if self.zephyr else ""
            hint = f"it needs Zephyr {needs}" if needs else "use --platform baremetal"
            raise UsageError(f"Zephyr {release} does not know this board", where=self.name, hint=hint)
        return known[-1]

    @property
    def is_host(self) -> bool:
        return self.core.arch == "host"

    @property
    def flash(self) -> int:
        """Bytes available for code and constants; 0 if there is no limit, or if only the core is known."""
        return self.memory(self.code).size if self.code else 0

    @property
    def ram(self) -> int:
        """Bytes for variables and the stack; 0 as for ``flash``."""
        return self.memory(self.data).size if self.data else 0

    def memory(self, name: str) -> Memory:
        return next(m for m in self.memories if m.name == name)

    def free(self, memory: Memory) -> int:
        """Return the bytes at the start of a memory that slots and their data leave free."""
        inside = (
            at
            for _, at, size in (self.slots.ranges if self.slots else ())
            if size and memory.origin <= at < memory.end
        )
        return min(inside, default=memory.end) - memory.origin

    def fits(self, flash: int, ram: int) -> bool:
        return self.is_host or (flash <= self.flash and ram <= self.ram)
