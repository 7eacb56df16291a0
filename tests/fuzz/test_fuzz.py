"""A short run of every fuzzer, the same each time; and that a fuzzer sees what it is there for."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.compared import compare_mutants
from tests.fuzz.engine import Target, fuzz, run_one
from tests.fuzz.kills import kill_commands
from tests.fuzz.targets import TARGETS

_INPUTS = {
    "params": 2000,
    "graphs": 500,
    "models": 800,
    "exported": 300,
    "onnx": 400,
    "slots": 3000,
}
FOUND = Path(__file__).parent / "found"


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_short_run(name: str) -> None:
    outcome = fuzz(TARGETS[name], seed=0, inputs=_INPUTS.get(name, 60))
    assert not outcome.found, "\n".join(wrong for _, wrong in outcome.found.values())


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_seeds_are_accepted(name: str, tmp_path: Path) -> None:
    seeds = TARGETS[name].seeds()
    results = [run_one(TARGETS[name], seed, tmp_path) for seed in (seeds[0], seeds[len(seeds) // 2])]
    assert (True, "") in results
    assert not any(wrong for _, wrong in results)


@pytest.mark.cc
def test_mutants_compute_what_the_reference_does() -> None:
    outcome = compare_mutants(seed=0, inputs=12, batch=12)
    assert outcome.accepted == 12
    assert not outcome.found, "\n".join(wrong for _, wrong in outcome.found.values())


@pytest.mark.parametrize("file", sorted(FOUND.glob("*/*")), ids=lambda f: f"{f.parent.name}/{f.name}")
def test_what_was_found_once(file: Path, tmp_path: Path) -> None:
    assert run_one(TARGETS[file.parent.name], file.read_bytes(), tmp_path)[1] == ""


def _write_outside(data: bytes, folder: Path) -> bool:
    (folder.parent / "outside").write_bytes(b"")
    return True


def _start(data: bytes, folder: Path) -> bool:
    subprocess.run([sys.executable, "-c", ""], check=True)
    return True


def _remove_outside(data: bytes, folder: Path) -> bool:
    os.remove(folder.parent / "a")
    return True


def _allocate(data: bytes, folder: Path) -> bool:
    return len(bytearray(64 << 30)) > 0


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (_write_outside, "EscapedError: open"),
        (_start, "EscapedError: subprocess.Popen"),
        (_remove_outside, "EscapedError: os.remove"),
        (_allocate, "MemoryError"),
        (lambda data, folder: data[99] == 0, "IndexError"),
    ],
)
def test_a_fuzzer_sees(tmp_path: Path, action: Callable[[bytes, Path], bool], said: str) -> None:
    (tmp_path / "in").mkdir()
    target = Target("test", lambda: (b"",), lambda random, seeds: b"", action)
    accepted, wrong = run_one(target, b"", tmp_path / "in")
    assert not accepted
    assert said in wrong
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.nightly
@pytest.mark.cc
def test_killed_commands_leave_nothing() -> None:
    outcome = kill_commands(seed=0, inputs=1)
    assert outcome.inputs == 1
    assert not outcome.found, "\n".join(wrong for _, wrong in outcome.found.values())
