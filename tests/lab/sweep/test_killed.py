"""A sweep that is killed goes on where it was: no row is lost or there twice, figures are the same."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from crtgen.lab.sweep.changes import is_same
from tests.lab.sweep.jobs import MOST
from tests.support import ROOT, model_path, require_tool

pytest.importorskip("distributed")


def finished(store: Path) -> int:
    """Jobs with an outcome, as somebody else sees them."""
    if not store.exists():
        return 0
    with sqlite3.connect(store) as db:
        try:
            return int(db.execute("SELECT count(*) FROM job WHERE state != 'waiting'").fetchone()[0])
        except sqlite3.OperationalError:  # it is being made
            return 0


def rows(store: Path) -> list[tuple[object, ...]]:
    """What does not differ from run to run."""
    with sqlite3.connect(store) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return db.execute("SELECT digest, state, project, error FROM job ORDER BY digest").fetchall()


def figures(store: Path) -> list[dict[str, float]]:
    """In the same order; the time is as exact as the instructions are."""
    with sqlite3.connect(store) as db:
        return [json.loads(text) for (text,) in db.execute("SELECT figures FROM job ORDER BY digest")]


def run_until(command: Sequence[str], store: Path, count: int) -> int | None:
    """Kill the sweep as soon as so many jobs are done, a moment later; its exit code."""
    environment = {**os.environ, MOST: str(count + 2)}
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, env=environment)
    deadline = time.monotonic() + 600
    try:
        while finished(store) < count and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(random.random() * 0.02)
    finally:
        process.kill()
    return process.wait(60)


def kill_and_resume(command: list[str], store: Path, moments: Sequence[int], count: int) -> None:
    """Kill at each of the moments, then let it end: every row is there."""
    for moment in moments:
        assert run_until([*command, str(store)], store, moment) == -signal.SIGKILL, moment
        assert moment <= finished(store) < count
    assert run_until([*command, str(store)], store, count + 1) == 0
    assert len(rows(store)) == count


def test_jobs_that_cost_nothing(tmp_path: Path) -> None:
    """Their figures are known."""
    command = [sys.executable, "-m", "tests.lab.sweep.killed", "20"]
    store = tmp_path / "s.db"
    kill_and_resume(command, store, [random.randrange(15)], 20)
    assert {(state, error) for _, state, _, error in rows(store)} == {("done", "")}
    assert sorted(each["instructions"] for each in figures(store)) == [n * n + 7 for n in range(20)]


@pytest.mark.nightly
@pytest.mark.models
@pytest.mark.qemu
def test_networks(tmp_path: Path) -> None:
    """The command itself, with its processes, at ten moments."""
    require_tool("qemu-system-arm")
    file = tmp_path / "sweep.toml"
    models = ", ".join(f'"{model_path(name)}"' for name in ("hello_world_int8", "kws_int8"))
    file.write_text(
        f'models = [{models}]\nboards = ["mps2_an385", "mps2_an386"]\noptimize = ["speed", "size"]\n'
        "fold = [true, false]\ncases = 1\n"
    )
    command = [sys.executable, "-m", "crtgen", "sweep", str(file), "--workers", "2", "--store"]
    store, undisturbed = tmp_path / "a.db", tmp_path / "b.db"
    kill_and_resume(command, store, sorted(random.sample(range(15), 10)), 16)
    assert subprocess.run([*command, str(undisturbed)], cwd=ROOT, timeout=900, check=False).returncode == 0
    assert rows(store) == rows(undisturbed)
    for found, wanted in zip(figures(store), figures(undisturbed), strict=True):
        assert found.keys() == wanted.keys()
        for metric in found.keys() - {"seconds"}:
            assert is_same(metric, wanted[metric], found[metric]), metric


def is_group_gone(leader: int) -> bool:
    """Whether all processes of a group end; a minute is for busy machines."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.killpg(leader, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.nightly
@pytest.mark.cc
def test_an_interrupt(tmp_path: Path) -> None:
    """It says that nothing is lost, leaves no worker, and the same command goes on."""
    require_tool("cc")
    file, store = tmp_path / "sweep.toml", tmp_path / "s.db"
    model = ROOT / "demo" / "digits.tflite"
    levels = '["speed", "balanced", "size"]'
    file.write_text(f'models = ["{model}"]\nboards = ["host"]\noptimize = {levels}\nfold = [true, false]\n')
    command = [sys.executable, "-m", "crtgen", "sweep", str(file), "--store", str(store), "--workers", "2"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        deadline = time.monotonic() + 300
        while not finished(store) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=120)[1]
    finally:
        process.kill()
    assert process.returncode == 130
    assert "start the same command again, and it goes on" in said
    assert "Traceback" not in said
    assert is_group_gone(process.pid)
    assert 0 < finished(store) < 6
    assert subprocess.run(command, cwd=ROOT, timeout=300, check=False).returncode == 0
    assert finished(store) == 6
