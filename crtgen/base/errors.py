"""Everything that crtgen raises on purpose.

::

    CrtgenError                 1   anything below, or an ordinary failure
    ├── UsageError              2   an argument that makes no sense
    ├── ModelError              3   the model cannot be used
    │   ├── CorruptModelError       the file is damaged, or breaks the rules of its format
    │   └── UnsupportedError        an operator, type or option that crtgen does not have
    ├── DoesNotFitError         4   the image is larger than the board
    ├── BuildError              5   a compiler, linker or CMake failed
    │   └── ToolMissingError        a program is not installed
    ├── FlashError              6   a flash runner failed
    ├── LinkError               7   the connection to the device failed
    │   ├── LinkTimeoutError        the device did not answer in time
    │   ├── LinkClosedError         the line died
    │   ├── SessionLostError        the device restarted or ended the session
    │   ├── ProtocolError           the device sent something that the protocol forbids
    │   ├── RemoteError             the device answered with an exception of its own
    │   └── DeviceFault             the device's processor stopped at a fault
    └── MismatchError           8   the device computed something else than expected

The number is the exit code of the command line.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

__all__ = [
    "BuildError",
    "CorruptModelError",
    "CrtgenError",
    "DeviceFault",
    "DoesNotFitError",
    "FlashError",
    "LinkClosedError",
    "LinkError",
    "LinkTimeoutError",
    "MismatchError",
    "ModelError",
    "ProtocolError",
    "RemoteError",
    "SessionLostError",
    "ToolMissingError",
    "UnsupportedError",
    "UsageError",
]


class CrtgenError(Exception):
    """A failure that the user can act on.

    ``message`` says what failed and why, ``where`` names the place (a file, a layer, a board, a port),
    ``hint`` says what to do next, ``log`` keeps the output of the program that failed, if any. A class of
    errors that always have the same next step defines it as ``usual_hint``.
    """

    exit_code: ClassVar[int] = 1
    usual_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, where: str = "", hint: str = "", log: str = "") -> None:
        super().__init__(message)
        hint = hint or self.usual_hint
        if hint:
            self.add_note(f"hint: {hint}")
        self.message = message
        self.where = where
        self.hint = hint
        self.log = log

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class UsageError(CrtgenError):
    """A wrong argument: an unknown board, a wrong shape, a file that is not there."""

    exit_code = 2


class ModelError(CrtgenError):
    """The model cannot be used."""

    exit_code = 3


class CorruptModelError(ModelError):
    """The file is truncated, damaged or inconsistent with its own format."""

    usual_hint = "the file may be damaged: copy or export it again"


class UnsupportedError(ModelError):
    """An operator, a type or an option that crtgen does not implement."""

    usual_hint = "docs/operators.md and docs/onnx.md list what is supported"


class DoesNotFitError(CrtgenError):
    """The image needs more memory than the board has."""

    exit_code = 4


class BuildError(CrtgenError):
    """A compiler, the linker or CMake failed."""

    exit_code = 5


class ToolMissingError(BuildError):
    """A program that is needed is not installed; the hint is the command that installs it."""


class FlashError(CrtgenError):
    """A flash runner failed."""

    exit_code = 6


class LinkError(CrtgenError):
    """The connection between host and device failed."""

    exit_code = 7


class LinkTimeoutError(LinkError):
    """The device did not answer in time."""


class LinkClosedError(LinkError):
    """The connection broke: the process ended, the socket closed, or the port disappeared."""


class SessionLostError(LinkError):
    """The device restarted or terminated the session."""


class ProtocolError(LinkError):
    """The device sent something that the protocol does not allow."""


class RemoteError(LinkError):
    """The device answered with an exception of its own; the message is the device's."""


class DeviceFault(LinkError):
    """The device's processor stopped at a fault, and the device reports it; it restarts by itself.

    ``kind`` says what happened; ``status`` is the bits of the fault status registers in words; ``registers``
    are r0 to r12, sp, lr, pc and xpsr by name (lr, pc and xpsr are 0 if a stack overflow kept the core from
    storing them); ``fault_registers`` are CFSR, HFSR, MMFAR and BFAR. ``address`` is the one whose access
    failed, if the core knows it. ``function``, ``layer`` and ``callers`` (innermost first, read from the
    stack) are names in the image; they are empty without the image. Stack sizes are in bytes, ``uptime`` in
    seconds; ``memory`` is the part of its memory that the device sent, by address.

    The kind ``guard`` is detected by software after a call: ``model`` is the one that wrote outside its
    arena, ``function`` the function that was called, ``address`` a byte that it wrote; the registers are 0.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        status: tuple[str, ...],
        registers: Mapping[str, int],
        fault_registers: Mapping[str, int],
        address: int | None,
        function: str,
        layer: str,
        callers: tuple[str, ...],
        stack_used: int,
        stack_size: int,
        uptime: float,
        memory: Mapping[int, bytes],
        model: str = "",
        where: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.kind = kind
        self.status = status
        self.registers = registers
        self.fault_registers = fault_registers
        self.address = address
        self.function = function
        self.layer = layer
        self.callers = callers
        self.stack_used = stack_used
        self.stack_size = stack_size
        self.uptime = uptime
        self.memory = memory
        self.model = model

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON, with registers in hexadecimal and without the memory."""
        return {
            "kind": self.kind,
            "status": list(self.status),
            "model": self.model,
            "function": self.function,
            "layer": self.layer,
            "callers": list(self.callers),
            "address": None if self.address is None else f"{self.address:#010x}",
            "registers": {name: f"{value:#010x}" for name, value in self.registers.items()},
            **{name: f"{value:#010x}" for name, value in self.fault_registers.items()},
            "stack_used": self.stack_used,
            "stack_size": self.stack_size,
            "uptime_seconds": self.uptime,
        }


class MismatchError(CrtgenError):
    """The device computed something other than expected."""

    exit_code = 8
