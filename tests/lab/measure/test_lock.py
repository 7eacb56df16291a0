"""Locks: written, read, compared; and the committed one: no reference model became slower or bigger."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import crtgen
from benchmarks import wake_word
from crtgen.base.errors import UsageError
from crtgen.firmware.builder import find_toolchain
from crtgen.lab.measure.evaluation import evaluate
from crtgen.lab.measure.lock import Lock, LockEntry, compare, lock_entry, over, read_lock, write_lock
from crtgen.lab.measure.subject import Subject, run_of
from tests.network.pipeline.files import sound_dir
from tests.support import ROOT, model_path, require_tool

FIGURES = {"instructions": 100_000, "arena_bytes": 4_000, "ram_bytes": 4_010, "flash_bytes": 50_000}
LAYERS = {"model/a": 60_000, 'odd "name"\\': 30_000, "c": 10_000}
COMMITTED = read_lock(ROOT / "benchmarks" / "crtgen.lock.json")


def entry(figures: dict[str, int] | None = None, layers: dict[str, int] | None = None) -> LockEntry:
    return LockEntry("net", "board", "speed", "d1", "gcc", FIGURES | (figures or {}), LAYERS | (layers or {}))


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    lock = Lock((entry(), LockEntry("other", "board", "size", "", "", {"flash_bytes": 1}, {})), 0.01)
    write_lock(tmp_path / "lock.json", lock)
    assert read_lock(tmp_path / "lock.json") == lock


def test_entries_are_replaced_and_sorted() -> None:
    old = Lock((entry(), LockEntry("aaa", "board", "speed", "", "", {}, {})), 0.01)
    new = old.updated([entry({"instructions": 5})])
    assert [(e.model, e.figures.get("instructions")) for e in new.entries] == [("aaa", None), ("net", 5)]
    assert new.tolerance == 0.01
    assert new.find(("net", "board", "speed"), "gcc") == entry({"instructions": 5})
    assert new.find(("net", "board", "size"), "gcc") is None


def test_each_compiler_has_its_entry() -> None:
    other = replace(entry({"instructions": 7}), toolchain="gcc 14")
    lock = Lock((entry(),)).updated([other])
    assert [e.toolchain for e in lock.entries] == ["gcc", "gcc 14"]
    assert [lock.find(other.key, name) for name in ("gcc", "gcc 14", "clang")] == [entry(), other, other]


@pytest.mark.parametrize(
    ("figures", "tolerance", "worse"),
    [
        ({"instructions": 100_500}, 0.005, []),
        ({"instructions": 100_501}, 0.005, ["instructions"]),
        ({"instructions": 90_000, "flash_bytes": 50_251}, 0.005, ["flash_bytes"]),
        ({"arena_bytes": 4_100}, 0.0, []),
        ({"arena_bytes": 4_101, "ram_bytes": 9_000}, 0.0, ["arena_bytes", "ram_bytes"]),
    ],
)
def test_what_is_worse(figures: dict[str, int], tolerance: float, worse: list[str]) -> None:
    assert [e.metric for e in compare(entry(), entry(figures), tolerance)] == worse


def test_layers_are_blamed_the_worst_first() -> None:
    actual = entry({"instructions": 142_000}, {"model/a": 62_000, "c": 9_000, "new": 40_000})
    (excess,) = compare(entry(), actual)
    assert str(excess).splitlines() == [
        "net on board: instructions 142,000, allowed 100,000 (+42.0%)",
        "  new: 40,000 instructions, before 0 (+40,000)",
        "  model/a: 62,000 instructions, before 60,000 (+2,000)",
    ]
    assert excess.to_dict()["blame"][1] == {"layer": "model/a", "before": 60_000, "after": 62_000}


def test_a_budget_is_a_limit_to_the_byte() -> None:
    assert over({"flash_bytes": 50_000, "instructions": 100_000}, entry()) == ()
    found = over({"flash_bytes": 49_999, "instructions": 90_000}, entry({}, {"c": 12_000}), entry())
    assert [(e.metric, e.allowed, e.actual) for e in found] == [
        ("flash_bytes", 49_999, 50_000),
        ("instructions", 90_000, 100_000),
    ]
    assert found[1].blame == (("c", 10_000, 12_000),)
    with pytest.raises(UsageError, match="net on board: the lock has no figure stack_bytes"):
        over({"stack_bytes": 1}, entry())


ROW = {
    "model": "a",
    "board": "b",
    "optimize": "size",
    "digest": "",
    "toolchain": "",
    "figures": {},
    "layers": {},
}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "the lock cannot be read"),
        ("[" * 100_000, "the lock cannot be read: maximum recursion depth"),
        ({"tolerance": 0.1}, "'entries'"),
        ({"entries": [], "tolerance": "much"}, "the tolerance is a part of one"),
        ({"entries": [], "tolerance": -0.1}, "the tolerance is a part of one"),
        ({"entries": [{"model": "a"}], "tolerance": 0}, "missing"),
        ({"entries": [3], "tolerance": 0}, "must be a mapping"),
        ({"entries": [ROW | {"board": 3}], "tolerance": 0}, "names are texts"),
        ({"entries": [ROW | {"figures": {"cycles": 3}}], "tolerance": 0}, "there is no figure cycles"),
        ({"entries": [ROW | {"figures": {"ram_bytes": 3.5}}], "tolerance": 0}, "figures are integers"),
    ],
)
def test_broken_locks(tmp_path: Path, data: Any, message: str) -> None:
    path = tmp_path / "crtgen.lock.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    with pytest.raises(UsageError, match=message) as caught:
        read_lock(path)
    assert caught.value.hint == "crtgen check --update writes it anew"
    with pytest.raises(UsageError, match="cannot be read"):
        read_lock(tmp_path / "none.json")


def test_a_lock_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"lock\.json: the file cannot be written: No such file"):
        write_lock(tmp_path / "absent" / "lock.json", Lock())


_ON_A_PUSH = {
    ("ad01_int8", "mps2_an386", "size"),
    ("marvin", "mps2_an386", "speed"),
}
"""Others are counted by ``tests/compiler/kernels/test_instructions.py``, with limits of its own."""


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize(
    "locked",
    [
        pytest.param(
            e,
            id="-".join((*e.key, e.toolchain.split()[-2])),
            marks=() if e.key in _ON_A_PUSH else pytest.mark.nightly,
        )
        for e in COMMITTED.entries
    ],
)
def test_reference_models_are_no_worse_than_locked(locked: LockEntry, tmp_path: Path) -> None:
    require_tool("qemu-system-arm")
    if find_toolchain("gcc").version != locked.toolchain:
        pytest.skip(f"locked by {locked.toolchain}")
    file = wake_word.write(sound_dir(), tmp_path) if locked.quality else model_path(locked.model)
    model = crtgen.load(file)
    assert isinstance(model, crtgen.Model)
    compiled = model.compile(locked.board, optimize=locked.optimize)
    worse = compare(locked, replace(lock_entry(compiled), digest=locked.digest), COMMITTED.tolerance)
    assert "\n".join(map(str, worse)) == ""
    if locked.quality:
        with compiled.generate("server").build().run(counting=False) as session:
            found = evaluate(Subject.of(model), tmp_path / "events.csv", run_of(session))
        assert found.figures == locked.quality
