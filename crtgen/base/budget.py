"""Limits of what a file may cost: bytes and operations of a load, all counted here.

Each load, together with compiling its result, has one ``Budget``. Before crtgen stores or computes anything
whose size a file decides, it estimates the cost and asks the budget. Operations are estimated as well, not
timed, so a file is refused on every machine or on none. A limit in CPU seconds, checked between steps, is the
backstop.
"""

import mmap
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from crtgen.base.errors import UnsupportedError, UsageError

__all__ = [
    "CALL",
    "DEFAULT_MEMORY",
    "DEFAULT_SECONDS",
    "Budget",
    "current",
    "limit_memory",
    "limit_seconds",
    "memory_limit",
    "seconds_limit",
    "spending",
]

DEFAULT_MEMORY = 384 << 20
"""Default limit in bytes, beside the 120 MB of the program itself. Models for microcontrollers stay far
below.
"""

DEFAULT_SECONDS = 120
CALL = 20_000
"""Cost of any numpy call, in operations."""

# Operations per second of the limit; computing constants gets about a hundredth of the time.
_OPERATIONS = 1 << 23

_UNLIMITED = 1 << 62
# Bytes that allocators map before they are used.
_SLACK = 16 << 20

_memory = DEFAULT_MEMORY
_seconds = DEFAULT_SECONDS


def limit_memory(nbytes: int = DEFAULT_MEMORY) -> None:
    """Set the memory that the content of files may take, in bytes; ``UsageError`` below 16 MiB."""
    global _memory
    if nbytes < 16 << 20:
        raise UsageError(f"{nbytes} bytes of memory are too few", hint="allow at least 16777216 (16 MiB)")
    _memory = nbytes


def limit_seconds(seconds: int = DEFAULT_SECONDS) -> None:
    """Set the limit of CPU seconds for a load; ``UsageError`` below 1."""
    global _seconds
    if seconds < 1:
        raise UsageError(f"{seconds} seconds are too few", hint="at least 1")
    _seconds = seconds


def memory_limit(divisor: int = 1) -> int:
    return _memory // divisor


def seconds_limit() -> int:
    return _seconds


@dataclass(slots=True)
class Budget:
    """Remaining limits of one load. ``where`` is the file, ``place`` the part of it in progress.

    ``taken`` counts bytes and never decreases; ``spent`` counts operations, each of about a nanosecond.
    """

    where: str = ""
    memory: int = field(default_factory=lambda: _memory)
    seconds: int = field(default_factory=lambda: _seconds)
    place: str = ""
    taken: int = 0
    spent: int = 0
    _start: float = field(default_factory=time.thread_time)

    def take(self, nbytes: int, what: str) -> None:
        """Count ``nbytes`` as taken. Raises ``UnsupportedError`` if the limit is exceeded."""
        self.hold(nbytes, what)
        self.taken += nbytes

    def hold(self, nbytes: int, what: str) -> None:
        """Check that the limit allows another ``nbytes`` bytes, which will soon be released."""
        if self.taken + nbytes > self.memory:
            total = self.taken + nbytes
            reason = f"{what} makes {total:,} bytes in all; {self.memory:,} may be taken"
            raise self._over(reason, f"crtgen --limit-memory {_round_up(total)} allows it")

    def compute(self, operations: int, what: str) -> None:
        """Count operations as spent. Raises ``UnsupportedError`` if the limit, or the time, is exceeded."""
        most = self.seconds * _OPERATIONS
        if self.spent + operations > most:
            needed = -(-(self.spent + operations) // _OPERATIONS)
            reason = f"{what} takes {self.spent + operations:,} operations in all; {most:,} may be spent"
            raise self._over(reason, f"crtgen --limit-seconds {needed} allows it")
        self.spent += operations
        self.check()

    def check(self) -> None:
        """Raise ``UnsupportedError`` if the time limit is exceeded."""
        if time.thread_time() - self._start > self.seconds:
            hint = f"crtgen --limit-seconds {5 * self.seconds} allows more"
            raise self._over(f"the load takes more than {self.seconds} seconds", hint)

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Limit the process's memory to the remaining budget, if the system can, so that native code is
        limited, too.

        Raises ``MemoryError``, or the error that the native code makes of it.
        """
        size = _address_space()
        if size is None or self.memory >= _UNLIMITED:
            yield
            return
        import resource  # Windows has no such module

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = size + self.memory - self.taken + _SLACK
        resource.setrlimit(resource.RLIMIT_AS, (most if soft < 0 else min(most, soft), hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

    def _over(self, reason: str, hint: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self.place}: {reason}" if self.place else reason, where=self.where, hint=hint
        )


def _round_up(nbytes: int) -> int:
    # To whole powers of two: what was refused is seldom the last that is asked for.
    return 1 << nbytes.bit_length()


def _address_space() -> int | None:
    # Bytes that the process has mapped; None where the system does not say.
    if sys.platform != "linux":
        return None
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * mmap.PAGESIZE


_FREE = Budget(memory=_UNLIMITED, seconds=_UNLIMITED)
_current: ContextVar[Budget | None] = ContextVar("budget", default=None)


def current() -> Budget:
    """Return the budget of the load in progress, or one without limits."""
    return _current.get() or _FREE


@contextmanager
def spending(where: str, taken: int = 0) -> Iterator[Budget]:
    """Use a new budget within the block, or the one that is already in use.

    ``taken`` is the number of bytes that are already held.
    """
    around = _current.get()
    if around is not None:
        yield around
        return
    token = _current.set(Budget(where, taken=taken))
    try:
        yield current()
    except MemoryError as error:
        reason = "it takes more memory than there is"
        hint = "close other programs, or crtgen --limit-memory BYTES with less"
        raise UnsupportedError(reason, where=where, hint=hint) from error
    finally:
        _current.reset(token)
