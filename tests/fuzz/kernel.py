"""What a process and its children do, as the kernel sees it: by strace, a file for each thread.

Watched are calls that start a program, connect to something, or change a file: those that succeed, and those
that only fail here. A process says where it is by ``chdir`` into a clone: from then on until the next one,
what any of its threads and children does belongs to that clone.
"""

import codecs
import os
import re
import subprocess
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import absent, require_tool

__all__ = ["escapes", "traced"]

_STARTS = ("execve", "execveat")
_CONNECTS = ("connect", "bind", "sendto", "sendmsg")
_OPENS = ("open", "openat", "openat2", "creat")
_CHANGES = (
    *("unlink", "unlinkat", "rmdir", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "link", "linkat"),
    *(
        "symlink",
        "symlinkat",
        "truncate",
        "chmod",
        "fchmodat",
        "chown",
        "lchown",
        "fchownat",
        "mknod",
        "mknodat",
    ),
    *("utimensat", "setxattr", "lsetxattr", "removexattr", "mount", "chroot"),
)
_WRITES = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)")
_CALL = re.compile(r"(\d+\.\d+) (\w+)\((.*)\)\s+= (-?\d+|\?)(?:<(.*)>)?(.*)", re.DOTALL)
_PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
_DEVICES = ("/dev/null", "/dev/tty", "/dev/full", "/dev/ptmx", "/proc/self/")
_NAMES = ("nscd", "systemd")
"""Services that the C library asks for the name of a user."""


def traced(command: Sequence[str], log: Path, environment: Mapping[str, str], folder: Path) -> Path:
    """Run a command to its end under strace; the folder with what it did."""
    strace = require_tool("strace", "apt install strace")
    log.mkdir()
    calls = ",".join(f"?{name}" for name in (*_STARTS, *_CONNECTS, *_OPENS, *_CHANGES, "chdir"))
    options = [
        "-ff",
        "-ttt",
        "--seccomp-bpf",
        "-y",
        "-qq",
        "-s",
        "4096",
        "-e",
        "signal=none",
        "-e",
        f"trace={calls}",
    ]
    done = subprocess.run(
        [strace, *options, "-e", f"trace={calls}", "-o", str(log / "calls"), *command],
        cwd=folder,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if "ptrace" in done.stderr and "not permitted" in done.stderr:
        absent("ptrace", "let the container trace: --cap-add SYS_PTRACE")
    assert done.returncode == 0, done.stderr
    return log


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the kernel, at a time; ``real`` is the path behind a descriptor that it made."""

    time: float
    name: str
    arguments: str
    result: str
    real: str | None


def escapes(log: Path, clones: Path, mine: Path) -> Iterator[tuple[str, str]]:
    """The clone, and what was done from there beyond it and the folder of the person's own files."""
    threads = [list(_calls(file)) for file in sorted(log.iterdir())]
    every = (call for calls in threads for call in calls)
    moves = sorted((call.time, _target(call)) for call in every if _is_move(call, clones))
    times = [time for time, _ in moves]
    for calls in threads:
        folder = None
        for call in calls:
            if call.name == "chdir":
                folder = _target(call) if call.result == "0" else folder
                continue
            number = bisect(times, call.time)
            place = moves[number - 1][1] if number else clones
            what = "" if place == clones else _escape(call, folder or place, place, mine)
            if what:
                yield str(place), what


def _calls(file: Path) -> Iterator[_Call]:
    for line in file.read_text(errors="surrogateescape").splitlines():
        if (found := _CALL.match(line)) is not None:
            time, name, arguments, result, real, _ = found.groups()
            yield _Call(float(time), name, arguments, result, real)


def _target(call: _Call) -> Path:
    return Path(_paths(call.arguments)[-1][1])


def _is_move(call: _Call, clones: Path) -> bool:
    """True for a ``chdir`` into a clone, or, when all is done, to where the clones are."""
    return call.name == "chdir" and call.result == "0" and clones in (_target(call), _target(call).parent)


def _paths(arguments: str) -> list[tuple[str, str]]:
    """Each path of a call, with the folder that it is relative to if the call names one."""
    found = []
    for folder, text in _PATH.findall(arguments):
        plain = codecs.escape_decode(text.encode("latin-1", "replace"))[0]
        found.append((folder, os.fsdecode(plain)))
    return found


def _escape(call: _Call, folder: Path, place: Path, mine: Path) -> str:
    name, arguments = call.name, call.arguments
    if name in _STARTS:
        return f"it starts {_paths(arguments)[0][1]}"
    if name in _CONNECTS:
        is_plain = "AF_UNIX" in arguments and any(service in arguments for service in _NAMES)
        is_connected = "sa_family" not in arguments or "AF_NETLINK" in arguments
        # A page of crtgen view listens, and only this computer reaches it.
        listens = name == "bind" and 'sin_port=htons(0), sin_addr=inet_addr("127.0.0.1")' in arguments
        return "" if is_plain or is_connected or listens else f"it connects: {name} {arguments[:100]}"
    paths = _paths(arguments)
    if name in _OPENS:
        if name != "creat" and not _WRITES.search(arguments.rpartition('"')[2]):
            return ""
        paths = [("", call.real)] if call.real else paths[:1]
    elif name.startswith("symlink"):
        paths = paths[1:]
    for outer, path in paths:
        parent, last = os.path.split(os.path.join(outer or folder, path))
        target = path if call.real else os.path.join(os.path.realpath(parent), last)
        if not _is_inside(target.removesuffix(" (deleted)"), place, mine):
            return f"{name} {target}"
    return ""


def _is_inside(target: str, place: Path, mine: Path) -> bool:
    if target.startswith(_DEVICES):
        return True
    if ".git" in Path(target).parts:
        return False
    return Path(target).is_relative_to(place) or Path(target).is_relative_to(mine)
