"""A board: its core, its memories and the way to talk to it. The data lives in ``boards/<name>.toml``."""

from dataclasses import dataclass

from crtgen.boards.core import Core

__all__ = ["Board", "Memory", "Qemu", "Timer", "Uart"]


@dataclass(frozen=True, slots=True)
class Memory:
    """A range of addresses, in bytes; ``kind`` is ``flash`` (holds code and constants) or ``ram``."""

    name: str
    kind: str
    origin: int
    size: int

    @property
    def end(self) -> int:
        """The first address behind it."""
        return self.origin + self.size


@dataclass(frozen=True, slots=True)
class Uart:
    """The serial port of the RPC: the driver (``cmsdk``), register base, clock in Hz, receive interrupt."""

    kind: str
    base: int
    clock: int
    irq: int
    baud: int


@dataclass(frozen=True, slots=True)
class Timer:
    """What counts ticks: the driver (``systick``) and its clock in Hz."""

    kind: str
    clock: int


@dataclass(frozen=True, slots=True)
class Qemu:
    """How QEMU simulates the board: the machine and any further arguments. The RPC's UART is serial 0."""

    machine: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Board:
    """A board that firmware is generated for.

    ``vectors``, ``code`` and ``data`` name the memories that hold the vector table, code with constants,
    and variables with the stack. The board ``host`` is this computer: it has none of them.
    """

    name: str
    summary: str
    core: Core
    memories: tuple[Memory, ...] = ()
    vectors: str = ""
    code: str = ""
    data: str = ""
    uart: Uart | None = None
    timer: Timer | None = None
    qemu: Qemu | None = None

    @property
    def is_host(self) -> bool:
        return self.core.arch == "host"

    @property
    def flash(self) -> int:
        """Bytes for code and constants; 0 on the host, which has no limit."""
        return 0 if self.is_host else self.memory(self.code).size

    @property
    def ram(self) -> int:
        """Bytes for variables and the stack; 0 on the host, which has no limit."""
        return 0 if self.is_host else self.memory(self.data).size

    def memory(self, name: str) -> Memory:
        """The memory of that name."""
        return next(m for m in self.memories if m.name == name)

    def fits(self, flash: int, ram: int) -> bool:
        """Whether an image of so many bytes fits."""
        return self.is_host or (flash <= self.flash and ram <= self.ram)
