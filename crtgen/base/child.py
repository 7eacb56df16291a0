"""Child processes. None outlives the process that started it, even if that one is killed.

On POSIX each program leads a process group. A shell in that group holds the reading end of a pipe that only
this process can write to. When this process ends, however it does, the pipe closes and the shell kills the
group.
"""

import codecs
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from threading import Lock, Thread
from typing import IO

__all__ = ["GRACE", "Child", "Command", "run_to_end"]

Command = Sequence[str | os.PathLike[str]]

GRACE = 2.0
"""Seconds that a program has to end by itself before it is killed."""

_GUARD = '(read -r _ || kill -KILL 0) <"/dev/fd/$0" >/dev/null 2>&1 & exec "$@"'
_GUARD_WITH_LIMIT = f'ulimit -f "$1"; shift; {_GUARD}'
# Bytes of the unit of ``ulimit -f``.
_BLOCK = 512

# Characters of a program's output that are kept; what comes after is read and dropped.
_LONGEST_OUTPUT = 16 << 20

_CHUNK = 1 << 16
# Chunks that are read ahead of whoever takes them.
_READ_AHEAD = 8


class Child(subprocess.Popen[bytes]):
    """A program in a process group of its own; ``end`` ends the whole group.

    The system ends a program that writes a file of more than ``most_written`` bytes. It inherits the
    descriptors ``shared``, and keeps its temporary files where this process does, whatever ``TMPDIR`` says.
    """

    def __init__(
        self,
        command: Command,
        *,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.STDOUT,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        most_written: int | None = None,
        shared: tuple[int, ...] = (),
    ) -> None:
        self._lifeline, self._lock = -1, Lock()
        if not hasattr(os, "killpg"):  # Windows: a program that outlives this process is the user's to end
            super().__init__(
                command, stdin=stdin, stdout=stdout, stderr=stderr, env=environment, cwd=directory
            )
            return
        given = os.environ if environment is None else environment
        theirs, self._lifeline = os.pipe()
        script, limit = _GUARD, []
        if most_written is not None:
            script, limit = _GUARD_WITH_LIMIT, [str(most_written // _BLOCK)]
        try:
            super().__init__(
                ["/bin/sh", "-c", script, str(theirs), *limit, *command],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env={**given, "TMPDIR": tempfile.gettempdir()},
                cwd=directory,
                pass_fds=(theirs, *shared),
                start_new_session=True,
            )
        except BaseException:
            self._drop_lifeline()
            raise
        finally:
            os.close(theirs)

    def end(self, grace: float = GRACE) -> None:
        """End the program and everything that it started, and wait for it.

        Any thread may call it, at any time; after the first call it has no effect.
        """
        for ending, wait in ((self._terminate, grace), (self._kill, GRACE)):
            if self.poll() is not None:
                break
            ending()
            with suppress(subprocess.TimeoutExpired):
                self.wait(wait)
        self._drop_lifeline()

    def _terminate(self) -> None:
        if self._lifeline < 0:
            self.terminate()
        else:
            self._signal_group(signal.SIGTERM)

    def _kill(self) -> None:
        if self._lifeline < 0:
            self.kill()
        else:
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _drop_lifeline(self) -> None:
        # Ends whatever is left of the process group. Once: the number may be another file's afterwards.
        with self._lock:
            lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)


def run_to_end(
    command: Command,
    *,
    time_limit: float,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    each: Callable[[str], None] = lambda line: None,
) -> tuple[int | None, str]:
    """Run a program without input; return its exit code and output. ``each`` is called with every line as it
    arrives.

    The exit code is None if the program and all that it started were ended after ``time_limit`` seconds.
    """
    deadline = time.monotonic() + time_limit
    child = Child(command, environment=environment, directory=directory)
    chunks: Queue[bytes] = Queue(_READ_AHEAD)
    Thread(target=_read, args=(child, chunks), daemon=True).start()
    output = _ChildOutput(each)
    try:
        while chunk := chunks.get(timeout=_left(deadline)):
            output.feed(chunk)
            if not _left(deadline):
                return None, output.text()
        return child.wait(_left(deadline)), output.text()
    except (Empty, subprocess.TimeoutExpired):
        return None, output.text()
    finally:
        child.end(grace=0)
        with suppress(Empty):  # room for the little that is left, so that the thread ends
            while True:
                chunks.get_nowait()


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _read(child: Child, chunks: "Queue[bytes]") -> None:
    # Put what comes, and at the end an empty chunk.
    assert child.stdout is not None  # it was started with stdout=PIPE
    with child.stdout as pipe:
        while chunk := os.read(pipe.fileno(), _CHUNK):
            chunks.put(chunk)
    chunks.put(b"")


class _ChildOutput:
    """Collects the output and passes its lines to ``each``; a very long line is passed in pieces."""

    def __init__(self, each: Callable[[str], None]) -> None:
        self._each = each
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept: list[str] = []
        self._length = 0
        self._line = ""

    def feed(self, chunk: bytes) -> None:
        text = self._decoder.decode(chunk)
        self._length += len(text)
        if self._length <= _LONGEST_OUTPUT:
            self._kept.append(text)
        *complete, self._line = (self._line + text).split("\n")
        for line in complete:
            self._each(line)
        if len(self._line) > _CHUNK:
            self._each(self._line)
            self._line = ""

    def text(self) -> str:
        # All of it, up to the limit.
        return "".join(self._kept)
