"""The loop of a fuzzer: mutate, run, and see that nothing but our own errors comes out and nothing gets out.

While an input runs, the interpreter itself reports what is opened, made, removed, started or connected to: a
file that is written outside of the folder of the run, or a process, is a finding like any other exception.
"""

import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from crtgen.base import budget
from crtgen.base.errors import CrtgenError

__all__ = ["EscapedError", "Outcome", "Target", "allowing", "fuzz", "run_one"]

SECONDS = 20
MEMORY = 256 << 20
ROOM = 3 << 30
"""Address space that an input may take beyond what the process has before."""


@dataclass(frozen=True)
class Target:
    """A reader: ``seeds`` are good inputs, ``mutate`` makes others, ``run`` says whether one was accepted.

    With ``seconds`` of the processor an input has these and no other bounds but ``room``, and the limits that
    crtgen has by itself.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    mutate: Callable[[Random, Sequence[bytes]], bytes]
    run: Callable[[bytes, Path], bool]
    seconds: float | None = None
    room: int = ROOM


@dataclass
class Outcome:
    """How many inputs ran, how many of them were accepted, and what was found: input and traceback.

    ``slowest`` is the most seconds of the processor that an input took.
    """

    inputs: int = 0
    accepted: int = 0
    slowest: float = 0.0
    found: dict[str, tuple[bytes, str]] = field(default_factory=dict)


class EscapedError(BaseException):
    """Something reached beyond the folder."""


class SlowError(BaseException):
    """An input took too long."""


_allowed: tuple[Path, ...] = ()
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_STARTS = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.forkpty",
    "socket.connect",
)
_CHANGES = {
    "os.mkdir": (0, 2),
    "os.remove": (0, 1),
    "os.rename": (1, 3),
    "os.rmdir": (0, 1),
    "os.link": (1, 3),
    "os.symlink": (1, 2),
    "os.truncate": (0, 1),
    "os.chmod": (0, 2),
}
"""Which arguments are the path that is changed, and the directory that it is relative to."""


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if not _allowed:
        return
    if event in _STARTS:
        raise EscapedError(f"{event} {args!r}")
    if event == "open" and isinstance(args[2], int) and args[2] & _WRITING:
        _inside(event, args[0])
    elif event == "sqlite3.connect":
        _inside("open", args[0])
    elif event in _CHANGES:
        _inside(event, args[_CHANGES[event][0]], args[_CHANGES[event][1]])


_TEMPLATES = Path(tempfile.gettempdir()).resolve() / f"_jinja2-cache-{os.getuid()}"
"""Where compiled templates are kept."""


def _inside(event: str, path: Any, directory: Any = -1) -> None:
    if isinstance(path, int) or "__pycache__" in str(path):
        return
    named = os.fsdecode(path)
    if isinstance(directory, int) and directory >= 0:
        named = os.path.join(os.readlink(f"/proc/self/fd/{directory}"), named)
    parent, name = os.path.split(named)
    # A link that is removed or replaced is not followed; one that is opened is.
    place = Path(os.path.realpath(named) if event == "open" else os.path.join(os.path.realpath(parent), name))
    if not any(map(place.is_relative_to, (*_allowed, _TEMPLATES))):
        raise EscapedError(f"{event} {place}")


@contextmanager
def allowing(*folders: Path) -> Iterator[None]:
    """Other folders in the place of that of the run; none: nothing is watched."""
    global _allowed
    before, _allowed = _allowed, tuple(folder.resolve() for folder in folders)
    try:
        yield
    finally:
        _allowed = before


sys.addaudithook(_watch)


@contextmanager
def _limited(folder: Path, target: Target) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    timer, number = signal.ITIMER_REAL, signal.SIGALRM
    if target.seconds is not None:
        timer, number = signal.ITIMER_PROF, signal.SIGPROF
    old = signal.signal(number, _late)
    resource.setrlimit(resource.RLIMIT_AS, (size + target.room, before[1]))
    budget.limit_memory(MEMORY if target.seconds is None else budget.DEFAULT_MEMORY)
    signal.setitimer(timer, target.seconds or SECONDS)
    try:
        with allowing(folder):
            yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, old)
        budget.limit_memory()
        resource.setrlimit(resource.RLIMIT_AS, before)


def _late(number: int, frame: object) -> None:
    raise SlowError("it takes too long")


def run_one(target: Target, data: bytes, folder: Path) -> tuple[bool, str]:
    """Whether an input is accepted, and the traceback of what must not have happened."""
    try:
        with _limited(folder, target):
            return target.run(data, folder), ""
    except CrtgenError as error:
        # Every error has to be one that can be shown.
        return False, "" if str(error) else f"an error without a message: {error!r}"
    except (Exception, EscapedError, SlowError):
        return False, traceback.format_exc()


def fuzz(target: Target, *, seed: int, inputs: int = 0, seconds: float = 0.0) -> Outcome:
    """So many inputs, or for so long; equal seeds make equal inputs."""
    outcome = Outcome()
    random = Random(f"{target.name} {seed}")
    seeds = target.seeds()
    end = time.monotonic() + seconds
    with TemporaryDirectory(prefix="fuzz-") as folder:
        while outcome.inputs < inputs or (not inputs and time.monotonic() < end):
            data = target.mutate(random, seeds)
            start = time.process_time()
            accepted, wrong = run_one(target, data, Path(folder))
            outcome.slowest = max(outcome.slowest, time.process_time() - start)
            outcome.inputs += 1
            outcome.accepted += accepted
            if wrong:
                outcome.found.setdefault(_kind(wrong), (data, wrong))
    return outcome


def _kind(wrong: str) -> str:
    """The same for the same fault: the place in the code, and the kind of exception."""
    places = [line.strip() for line in wrong.splitlines() if line.strip().startswith("File ")]
    last = wrong.strip().splitlines()[-1].partition(":")[0]
    return f"{sha256((''.join(places[-3:]) + last).encode()).hexdigest()[:12]} {last}"
