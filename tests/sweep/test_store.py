"""The store: a row for each job, whatever happens."""

import sqlite3
from pathlib import Path

import pytest

from crtgen.errors import UsageError
from crtgen.sweep.job import Outcome
from crtgen.sweep.store import JobStore, StoreEntry

GOOD = Outcome({"instructions": 7, "seconds": 0.5}, {"conv": 5}, project="p", worker="w", seconds=1.5)
BAD = Outcome(error="BuildError", message="it failed", log="line")


def entry(name: str, **changes: str) -> StoreEntry:
    fields = {
        "kind": "model",
        "model": f"{name}.tflite",
        "board": "host",
        "label": "speed",
        "source": "s",
        "settings": "{}",
        "code": "c",
        "toolchain": "t",
    }
    return StoreEntry(digest=name, **{**fields, **changes})


def test_rows_have_what_came_of_their_jobs(tmp_path: Path) -> None:
    with JobStore(tmp_path / "s.db") as store:
        sweep = store.begin("x", [entry("a"), entry("b"), entry("c")])
        assert store.counts(sweep) == {"waiting": 3, "done": 0, "failed": 0}
        store.finish([("a", GOOD), ("b", BAD)])
        assert store.waiting(sweep) == {"c"}
    with JobStore(tmp_path / "s.db") as store:
        first, second, third = store.rows(sweep)
        assert (first.state, first.figures, first.layers) == ("done", GOOD.figures, GOOD.layers)
        assert (first.instructions, first.flash_bytes, first.seconds, first.worker) == (7, None, 1.5, "w")
        assert (second.state, second.error, second.message, second.log) == (
            "failed",
            "BuildError",
            "it failed",
            "line",
        )
        assert third.state == "waiting"
        store.retry(sweep)
        assert store.waiting(sweep) == {"b", "c"}
        store.finish([("b", GOOD)])
        assert [row.error for row in store.rows(sweep)] == ["", "", ""]


def test_the_same_jobs_are_the_same_sweep(tmp_path: Path) -> None:
    """One that is run again is the latest; a row that two sweeps share is there once."""
    with JobStore(tmp_path / "s.db") as store:
        first = store.begin("x", [entry("a"), entry("b")])
        store.finish([("a", GOOD)])
        assert store.before(first) is None
        second = store.begin("x", [entry("b"), entry("c")])
        other = store.begin("y", [entry("d")])
        assert store.before(second) == first
        assert store.before(other) is None
        again = store.begin("x", [entry("b"), entry("a")])
        assert again == first
        assert store.before(again) == second
        assert store.waiting(again) == {"b"}
    count = sqlite3.connect(tmp_path / "s.db").execute("SELECT count(*) FROM job").fetchone()
    assert count == (4,)


def test_all_outcomes_of_a_batch_or_none(tmp_path: Path) -> None:
    with JobStore(tmp_path / "s.db") as store:
        sweep = store.begin("x", [entry("a"), entry("b")])
        broken = [("a", GOOD), ("b", Outcome({"instructions": {1}}))]  # type: ignore[dict-item]
        with pytest.raises(TypeError):
            store.finish(broken)
        assert store.counts(sweep)["waiting"] == 2


def test_what_is_no_store(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    file.write_text("a text that is long enough to be no header of a database, whatever it says")
    with pytest.raises(UsageError, match="file is not a database"):
        JobStore(file)
    file.unlink()
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE job (id INTEGER)")
    with pytest.raises(UsageError, match="no store of sweeps"):
        JobStore(file)
    with pytest.raises(UsageError, match="directory does not exist"):
        JobStore(tmp_path / "x" / "s.db")


def test_a_store_of_a_later_version(tmp_path: Path) -> None:
    JobStore(tmp_path / "s.db").__exit__()
    with sqlite3.connect(tmp_path / "s.db") as db:
        db.execute("PRAGMA user_version = 2")
    with pytest.raises(UsageError, match="the store is of version 2, this crtgen knows 1"):
        JobStore(tmp_path / "s.db")


def damage(path: Path, *statements: str) -> None:
    with JobStore(path) as store:
        sweep = store.begin("x", [entry("a")])
        store.finish([("a", GOOD)])
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    db.close()
    with JobStore(path) as store:
        assert store.counts(sweep)["waiting"] == 0
        list(store.rows(sweep))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("figures = 'x'", "the figures of job a are no JSON"),
        ("figures = x'ff'", "the figures of job a are no JSON"),
        ("figures = '[1]'", "the figures of job a are no numbers by name"),
        ('layers = \'{"conv": "5"}\'', "the layers of job a are no numbers by name"),
        ("layers = '{\"conv\": NaN}'", "the layers of job a are no numbers by name"),
        ("figures = replace(hex(zeroblob(50000)), '00', '[')", "the figures of job a are no JSON"),
        ("log = x'00'", "the log of job a is a bytes"),
        ("seconds = 'soon'", "the seconds of job a is a str"),
        ("model = cast(x'ff' as text)", "the store cannot be used: Could not decode to UTF-8"),
    ],
)
def test_damaged_rows(tmp_path: Path, change: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        damage(tmp_path / "s.db", f"UPDATE job SET {change}")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE job DROP COLUMN figures",
        "ALTER TABLE job RENAME TO other",
        "DROP TABLE member",
        "CREATE TRIGGER t AFTER UPDATE ON job BEGIN DELETE FROM sweep; END",
        "CREATE VIEW v AS SELECT 1",
    ],
)
def test_other_tables(tmp_path: Path, statement: str) -> None:
    with pytest.raises(UsageError, match="the store is damaged: its tables are not those that crtgen makes"):
        damage(tmp_path / "s.db", statement)


def test_damaged_pages(tmp_path: Path) -> None:
    """Whatever byte of the file is another one: the rows, or an error of our own."""
    path = tmp_path / "s.db"
    damage(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 499):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x15]) + whole[place + 1 :])
        try:
            with JobStore(path) as store:
                list(store.rows(store.begin("x", [entry("a")])))
        except UsageError:
            continue
