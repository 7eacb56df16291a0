"""Commands killed at any moment: nothing of them stays, and the next one does what it always does."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.fuzz.engine import Outcome
from tests.support import ROOT

__all__ = ["kill_commands"]

_DIGITS = ROOT / "demo" / "digits.tflite"
_MARK = "CRTGEN_KILLED"
_PATIENCE = 120.0
_COMMANDS: dict[str, tuple[str, ...]] = {
    "compile": ("compile", str(_DIGITS), "-o", "out/a.tar", "--board", "host"),
    "generate": ("generate", str(_DIGITS), "out/p", "--board", "host"),
    "build": ("build", "built"),
    "run": ("run", str(_DIGITS), "--board", "host", "--json"),
}
_RESULTS: dict[str, Callable[[Path], Sequence[Path]]] = {
    "compile": lambda folder: sorted(p for p in (folder / "out").iterdir() if p.is_file()),
    "generate": lambda folder: sorted(p for p in (folder / "out" / "p").rglob("*") if p.is_file()),
    "build": lambda folder: [folder / "built" / "build" / "firmware"],
    "run": lambda folder: [],
}
_MADE = {"compile": "out", "generate": "out", "build": "built/build"}
"""What is removed before every other kill, so that the command begins with nothing."""

_PROGRAM = """
import os, signal, sys
from crtgen.cli.app import app
import crtgen.base.temporary
crtgen.base.temporary._YOUNG = -1.0
for line in sys.stdin:
    mark, *args = line.rstrip("\\n").split("\\t")
    child = os.fork()
    if child == 0:
        os.environ["CRTGEN_KILLED"] = mark
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open("printed", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        code = 70
        try:
            app(args)
        except SystemExit as end:
            code = end.code or 0
        finally:
            os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class _Commands:
    """crtgen, loaded once: each command is a fork of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": str(ROOT)}
        environment["SOURCE_DATE_EPOCH"] = "0"
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment,
        )

    def start(self, mark: str, command: Sequence[str]) -> int:
        """The process of a command."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join((mark, *command)) + "\n")
        self._process.stdin.flush()
        return self._number()

    def wait(self) -> int:
        """The exit code of the command; negative if it was killed."""
        return self._number()

    def close(self) -> None:
        """End."""
        self._process.kill()
        self._process.wait()

    def _number(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


def kill_commands(*, seed: int, inputs: int = 0, seconds: float = 0.0) -> Outcome:
    """So many kills, or for so long."""
    random, outcome = Random(f"kills {seed}"), Outcome()
    end = time.monotonic() + seconds
    with TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        for part in ("tmp", "out"):
            (folder / part).mkdir()
        commands = _Commands(folder)
        try:
            expected, took = _undisturbed(commands)
            while outcome.inputs < inputs or (not inputs and time.monotonic() < end):
                kind = random.choice([*_COMMANDS])
                wrong = _kill(commands, kind, random.uniform(0, took[kind]), expected[kind], outcome.inputs)
                outcome.inputs += 1
                if wrong:
                    outcome.found.setdefault(f"{kind} {wrong.splitlines()[0]}", (b"", wrong))
        finally:
            commands.close()
    return outcome


def _undisturbed(commands: _Commands) -> tuple[dict[str, str], dict[str, float]]:
    """The digest of each command's result, and the seconds that it takes."""
    digests, took = {}, {}
    commands.start("0", ("generate", str(_DIGITS), "built", "--board", "host"))
    assert commands.wait() == 0
    for kind, command in _COMMANDS.items():
        start = time.monotonic()
        commands.start("0", command)
        assert commands.wait() == 0, (commands.folder / "printed").read_text()
        took[kind] = time.monotonic() - start
        digests[kind] = _digest(commands.folder, kind)
    return digests, took


def _kill(commands: _Commands, kind: str, after: float, expected: str, number: int) -> str:
    """What went wrong; empty if nothing did."""
    mark = f"{os.getpid()}.{number}"
    if number % 2 and kind in _MADE:
        shutil.rmtree(commands.folder / _MADE[kind])
        (commands.folder / "out").mkdir(exist_ok=True)
    process = commands.start(mark, _COMMANDS[kind])
    time.sleep(after)
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    commands.wait()
    if left := _left(mark):
        return f"still there: {left}"
    commands.start(mark, _COMMANDS[kind])
    if commands.wait() != 0:
        return f"the next one fails\n{(commands.folder / 'printed').read_text()}"
    if _digest(commands.folder, kind) != expected:
        return "the next one gives something else"
    stays = [p.name for p in (commands.folder / "tmp").glob("crtgen-work-*")]
    return f"temporary directories stay: {stays}" if kind == "run" and stays else ""


def _digest(folder: Path, kind: str) -> str:
    sha = hashlib.sha256()
    for path in _RESULTS[kind](folder):
        sha.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return sha.hexdigest()


def _left(mark: str) -> list[str]:
    """The processes that a command has left, after some time to end."""
    wanted = f"{_MARK}={mark}".encode()
    deadline = time.monotonic() + _PATIENCE
    while True:
        found = [p.parent.name for p in Path("/proc").glob("[0-9]*/environ") if wanted in _environment(p)]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.02)


def _environment(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []
