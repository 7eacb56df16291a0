"""Everything that crtgen raises on purpose.

::

    CrtgenError                 1   anything below, or an ordinary failure
    ├── UsageError              2   an argument that cannot be meant
    ├── ModelError              3   the model cannot be used
    │   ├── CorruptModelError       it is not what its format says
    │   └── UnsupportedError        an operator, type or option that crtgen does not have
    ├── DoesNotFitError         4   the image is larger than the board
    ├── BuildError              5   a compiler, linker or CMake failed
    │   └── ToolMissingError        a program is not installed
    ├── FlashError              6   a flash runner failed
    ├── LinkError               7   the way to the device
    │   ├── LinkTimeoutError        it did not answer in time
    │   ├── LinkClosedError         the line died
    │   ├── SessionLostError        the device restarted or ended the session
    │   ├── ProtocolError           it answered what the protocol does not allow
    │   └── RemoteError             it answered with an exception of its own
    └── MismatchError           8   the device computed something else than expected

The number is the exit code of the command line.
"""

from typing import ClassVar

__all__ = [
    "BuildError",
    "CorruptModelError",
    "CrtgenError",
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
    ``hint`` says what to do next, ``log`` keeps the output of the program that failed, if one did.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, where: str = "", hint: str = "", log: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self.log = log

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class UsageError(CrtgenError):
    """An argument that cannot be meant: an unknown board, a wrong shape, a file that is not there."""

    exit_code = 2


class ModelError(CrtgenError):
    """The model cannot be used."""

    exit_code = 3


class CorruptModelError(ModelError):
    """The file is truncated, damaged or inconsistent with its own format."""


class UnsupportedError(ModelError):
    """An operator, a type or an option that crtgen does not implement."""


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
    """Something on the way between the host and the device."""

    exit_code = 7


class LinkTimeoutError(LinkError):
    """The device did not answer in time."""


class LinkClosedError(LinkError):
    """The line died: the process ended, the socket closed, the port went away."""


class SessionLostError(LinkError):
    """The device restarted or terminated the session."""


class ProtocolError(LinkError):
    """The device answered what the protocol does not allow."""


class RemoteError(LinkError):
    """The device answered with an exception of its own; the message is the device's."""


class MismatchError(CrtgenError):
    """The device computed something else than expected."""

    exit_code = 8
