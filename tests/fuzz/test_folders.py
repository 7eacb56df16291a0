"""A hostile clone, as the kernel sees it: no command starts a program, connects, or writes beyond it."""

import os
import sys
from pathlib import Path

import pytest
import typer

from crtgen.cli.app import app
from tests.fuzz.folders import COMMANDS, Leftovers, fuzz_folders
from tests.fuzz.kernel import escapes, traced
from tests.support import ROOT, nightly


@pytest.mark.parametrize("inputs", [4, nightly(len(COMMANDS))])
def test_hostile_clones_under_the_kernel(inputs: int) -> None:
    outcome = fuzz_folders(seed=0, inputs=inputs)
    assert not outcome.found, "\n".join(wrong for _, wrong in outcome.found.values())
    assert outcome.inputs == inputs
    assert outcome.accepted


def test_every_command_is_typed() -> None:
    group = typer.main.get_command(app)
    assert {command for command, *_ in COMMANDS} == group.commands.keys()  # type: ignore[attr-defined]


_ACTIONS = """
import os, socket, sqlite3, sys, threading
base = sys.argv[1]
def journal(): sqlite3.connect("sweep.db").execute("SELECT * FROM sqlite_master").fetchall()
def spawned(): os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
def connected(): socket.socket().connect_ex(("127.0.0.1", 1))
def through_a_link(): open("link/new", "w")
def hooked(): open(".git/hooks/pre-commit", "w")
def removed(): os.remove("../../victim/other")
def renamed(): os.replace("mine", "../mine")
def by_a_thread():
    thread = threading.Thread(target=open, args=(base + "/new", "w"))
    thread.start()
    thread.join()
def by_a_child():
    if not os.fork():
        os.mkdir(base + "/made")
        os._exit(0)
    os.wait()
def fine():
    open("new", "w"); os.replace("new", "old"); open("/dev/null", "w"); open("/etc/passwd")
actions = [journal, spawned, connected, through_a_link, hooked, removed, renamed, by_a_thread, by_a_child]
actions.append(fine)
open(base + "/before", "w")
for number, action in enumerate(actions):
    os.chdir(f"{base}/clones/clone-{number}")
    action()
os.chdir(base + "/clones")
open(base + "/after", "w")
"""


def test_the_kernel_sees(tmp_path: Path) -> None:
    """What Python's audit hook does not: SQLite removing a file, threads, children."""
    base = tmp_path.resolve()
    leftovers = Leftovers(base)
    (base / "victim").mkdir()
    for name in ("key", "other"):
        (base / "victim" / name).write_text("mine")
    for number in range(10):
        clone = base / "clones" / f"clone-{number}"
        (clone / ".git" / "hooks").mkdir(parents=True)
        (clone / "link").symlink_to(base / "victim")
        (clone / "mine").touch()
    (base / "clones" / "clone-0" / "sweep.db").write_bytes(leftovers.store.read_bytes())
    (base / "clones" / "clone-0" / "sweep.db-journal").write_bytes(leftovers.journal())
    log = traced([sys.executable, "-c", _ACTIONS, str(base)], base / "log", os.environ, ROOT)
    found = {place.rpartition("-")[2]: what for place, what in escapes(log, base / "clones", base / "home")}
    assert found == {
        "0": f"unlink {base}/victim/key",
        "1": "it starts /bin/true",
        "2": found["2"],
        "3": f"openat {base}/victim/new",
        "4": f"openat {base}/clones/clone-4/.git/hooks/pre-commit",
        "5": f"unlink {base}/victim/other",
        "6": f"rename {base}/clones/mine",
        "7": f"openat {base}/new",
        "8": f"mkdir {base}/made",
    }
    assert found["2"].startswith("it connects: connect")
    assert not (base / "victim" / "key").exists(), "the attack works where nobody refuses the journal"
