"""Child processes that run commands for the page, with the limits that commands have.

Each command runs in a process of its own, as if it had been typed, and its answer is what it prints with
``--json``. Importing crtgen takes seconds, so one child is started ahead: it imports, and waits for a line
with its command. After the command the child ends, so nothing of a model stays in memory.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, TimeoutExpired
from threading import Lock, Semaphore
from typing import IO, Any

from crtgen.base.budget import memory_limit, seconds_limit
from crtgen.base.child import Child
from crtgen.base.errors import CrtgenError
from crtgen.base.folder import named_folder
from crtgen.base.text import printable

__all__ = ["Answer", "Jobs", "Live"]

LONGEST = 900.0
"""Seconds that a command may take."""

_MOST_WRITTEN, _MOST_READ = 1 << 30, 64 << 20
_AT_ONCE, _WAITING = 2, 16
_STEP = 0.05
# Lines of a child's errors that go to the terminal, if it failed without an answer.
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Answer:
    # Exit code of a command, and the JSON that it printed.

    exit_code: int
    result: Any


class _Worker:
    # A child that waits for a line of JSON: ``{"arguments": [...]}`` or ``{"live": ...}``.

    def __init__(self, command: Sequence[str], *, talks: bool = False) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.child = Child(
            command,
            stdin=PIPE,
            stdout=PIPE if talks else self._output,
            stderr=self._errors,
            most_written=_MOST_WRITTEN,
        )

    def tell(self, request: Mapping[str, Any]) -> None:
        assert self.child.stdin is not None  # it was started with stdin=PIPE
        with suppress(BrokenPipeError):  # it ended, which the answer will say
            self.child.stdin.write(json.dumps(request).encode() + b"\n")
            self.child.stdin.flush()

    def answer(self) -> Answer:
        # Return what a child that ended printed; its errors go to the terminal if that is no JSON.
        try:
            self._output.seek(0)
            return Answer(self.child.returncode, json.loads(self._output.read(_MOST_READ)))
        except ValueError:
            if self._output.closed:  # by ``Jobs.close``, which ended the child
                raise _ended() from None
            self.show()
            raise CrtgenError(
                f"the command ended with code {self.child.returncode} and without an answer",
                hint="the terminal of crtgen view shows its messages",
            ) from None

    def show(self) -> None:
        try:
            self._errors.seek(0)
            lines = self._errors.read(_MOST_READ).decode(errors="replace").splitlines()
        except ValueError:  # ``Jobs.close`` closed the file, perhaps just now
            return
        sys.stderr.write("\n".join([*map(printable, lines[-_SHOWN:]), ""]))

    def close(self) -> None:
        self.child.end(grace=0.5)
        for file in (self.child.stdin, self.child.stdout, self._output, self._errors):
            if file is not None:
                with suppress(OSError):
                    file.close()


class Jobs:
    # Runs commands, a few at once. ``command`` starts a child that waits.

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._running = Semaphore(_AT_ONCE)
        self._places = Semaphore(_AT_ONCE + _WAITING)
        self._lock = Lock()
        self._workers: list[_Worker] = []
        self._ready: _Worker | None = None
        self._closed = False

    @property
    def children(self) -> tuple[int, ...]:
        with self._lock:
            return tuple(worker.child.pid for worker in self._workers)

    def prepare(self) -> None:
        # Start a child ahead, if none waits.
        with self._lock:
            if self._ready is None and not self._closed:
                self._ready = self._start()

    def run(
        self, arguments: Sequence[str], is_gone: Callable[[], bool] = lambda: False, longest: float = LONGEST
    ) -> Answer:
        """Run a command to its end. Raises ``CrtgenError`` if it gives no answer.

        The command is ended after ``longest`` seconds, or when ``is_gone`` reports that nobody waits for the
        answer.
        """
        if not self._places.acquire(blocking=False):
            raise CrtgenError("too many requests wait already", hint="wait for the answers")
        try:
            with self._running:
                return self._run(arguments, is_gone, longest)
        finally:
            self._places.release()

    def live(self, arguments: Sequence[str]) -> "Live":
        # Start a child that answers inputs until it is closed.
        with self._lock:
            worker = self._start(talks=True)
        worker.tell({"arguments": [*_options(), "run", *arguments], "live": True})
        return Live(worker, self._end)

    def close(self) -> None:
        # End every child, and start none any more.
        with self._lock:
            self._closed, workers = True, list(self._workers)
        for worker in workers:
            self._end(worker)

    def _run(self, arguments: Sequence[str], is_gone: Callable[[], bool], longest: float) -> Answer:
        worker = self._take()
        try:
            worker.tell({"arguments": [*_options(), *arguments, "--json"], "live": False})
            end = time.monotonic() + longest
            while not _has_ended(worker):
                if is_gone():
                    raise CrtgenError("nobody waits for the answer")
                if time.monotonic() > end:
                    raise CrtgenError(f"the command took more than {longest:g} seconds and was ended")
            return worker.answer()
        finally:
            self._end(worker)
            self.prepare()

    def _take(self) -> _Worker:
        with self._lock:
            worker, self._ready = self._ready, None
            return worker or self._start()

    def _start(self, *, talks: bool = False) -> _Worker:
        if self._closed:
            raise _ended()
        worker = _Worker(self._command, talks=talks)
        self._workers.append(worker)
        return worker

    def _end(self, worker: _Worker) -> None:
        worker.close()
        with self._lock, suppress(ValueError):
            self._workers.remove(worker)


class Live:
    # A model in a host image, which a child keeps running. One request at a time.

    def __init__(self, worker: _Worker, end: Callable[[_Worker], None]) -> None:
        self._worker, self._end = worker, end
        self._lock = Lock()

    def run(self, file: Path | None = None) -> Any:
        # Return the answer to an input, or the first one: what the model reads and computes.
        output, line = self._worker.child.stdout, b""
        assert output is not None  # it was started with stdout=PIPE
        with self._lock, suppress(ValueError):  # it was closed meanwhile
            if file is not None:
                self._worker.tell({"input": str(file)})
            line = output.readline(_MOST_READ)
        if not line.endswith(b"\n"):
            self._worker.show()
            self.close()
            raise CrtgenError("the model has stopped", hint="start it again")
        return json.loads(line)

    def close(self) -> None:
        self._end(self._worker)


def _ended() -> CrtgenError:
    return CrtgenError("crtgen view has ended", hint="start it again")


def _options() -> list[str]:
    # What this program was told before the name of its command.
    named = named_folder()
    limits = ["--limit-memory", str(memory_limit()), "--limit-seconds", str(seconds_limit())]
    return [*limits, *([] if named is None else ["--folder", str(named)])]


def _has_ended(worker: _Worker) -> bool:
    with suppress(TimeoutExpired):
        worker.child.wait(_STEP)
    return worker.child.returncode is not None
