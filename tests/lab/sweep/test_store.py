"""The store: a row for each job, whatever happens."""

import os
import sqlite3
import struct
from pathlib import Path

import pytest

from crtgen.base import trust
from crtgen.base.errors import UsageError
from crtgen.lab.sweep.job import Outcome
from crtgen.lab.sweep.store import JobStore, StoreEntry, adopt

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
    trust.claim(file)
    file.write_text("a text that is long enough to be no header of a database, whatever it says")
    with pytest.raises(UsageError, match="file is not a database"):
        JobStore(file)
    file.unlink()
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE job (id INTEGER)")
    with pytest.raises(UsageError, match="not a store of sweeps"):
        JobStore(file)
    with pytest.raises(UsageError, match="the directory of this path does not exist"):
        JobStore(tmp_path / "x" / "s.db")


def test_a_store_of_a_later_version(tmp_path: Path) -> None:
    JobStore(tmp_path / "s.db").__exit__()
    with sqlite3.connect(tmp_path / "s.db") as db:
        db.execute("PRAGMA user_version = 3")
    with pytest.raises(UsageError, match="the store is of version 3, this crtgen knows 2"):
        JobStore(tmp_path / "s.db")


def damage(path: Path, *statements: str) -> None:
    with JobStore(path) as store:
        sweep = store.begin("x", [entry("a")])
        store.finish([("a", GOOD)])
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    db.close()
    adopt(path)  # a mark would show it before
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
    with pytest.raises(
        UsageError, match="the store is damaged: the tables of the store are not those that crtgen makes"
    ):
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


# What came along.


def with_rows(path: Path) -> None:
    with JobStore(path) as store:
        store.begin("x", [entry("a"), entry("b")])
        store.finish([("a", GOOD)])


def hot_journal(path: Path, victim: Path) -> None:
    """A rollback journal that names a file as its super-journal: SQLite would remove that."""
    magic, name = bytes.fromhex("d9d505f920a163d7"), os.fsencode(victim)
    head = magic + struct.pack(">5I", 0, 1234, path.stat().st_size // 4096, 512, 4096)
    page = 0x40000000 // 4096 + 1
    check = sum(struct.unpack(f"{len(name)}b", name)) & 0xFFFFFFFF
    end = struct.pack(">I", page) + name + struct.pack(">II", len(name), check) + magic
    path.with_name(f"{path.name}-journal").write_bytes(head.ljust(512, b"\0") + end)


def test_a_journal_removes_nothing(tmp_path: Path) -> None:
    path, victim = tmp_path / "s.db", tmp_path / "victim"
    for mode in ("wal", "delete"):
        with_rows(path)
        with sqlite3.connect(path) as db:
            db.execute(f"PRAGMA journal_mode = {mode}")
        db.close()
        victim.write_text("mine")
        hot_journal(path, victim)
        for use in (JobStore, adopt):
            with pytest.raises(UsageError, match="a rollback journal, which could make SQLite remove"):
                use(path)
        assert victim.read_text() == "mine"
        path.with_name("s.db-journal").unlink()
        path.unlink()


def test_a_new_store_takes_no_log_that_was_there(tmp_path: Path) -> None:
    for end in ("-wal", "-shm", "-journal"):
        beside = tmp_path / f"s.db{end}"
        beside.write_bytes(b"x")
        with pytest.raises(
            UsageError, match=r"the file belongs to a database that does not exist|rollback journal"
        ):
            JobStore(tmp_path / "s.db")
        beside.unlink()


def test_a_store_that_came_along_is_believed_once_the_person_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    with_rows(path)
    with_rows(path)  # it goes on
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "a colleague"))
    with pytest.raises(
        UsageError, match="you did not make this store, so crtgen does not use the store"
    ) as caught:
        JobStore(path)
    assert caught.value.hint.startswith(f"crtgen trust {path} makes crtgen use it")
    adopt(path)
    with_rows(path)


def test_a_store_that_was_moved_is_not_believed(tmp_path: Path) -> None:
    with_rows(tmp_path / "s.db")
    (tmp_path / "s.db").rename(tmp_path / "t.db")
    trust.claim(tmp_path / "t.db")
    with pytest.raises(UsageError, match="you did not make the measurement a"):
        JobStore(tmp_path / "t.db")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE job SET figures = '{\"instructions\": 1}' WHERE digest = 'a'",
        "UPDATE job SET state = 'done' WHERE digest = 'b'",
        "UPDATE job SET digest = 'c' WHERE digest = 'a'",
        "UPDATE job SET mark = ''",
        "UPDATE job SET mark = (SELECT mark FROM job WHERE digest = 'b')",
    ],
)
def test_a_row_that_a_pull_changed_is_not_believed(tmp_path: Path, change: str) -> None:
    path = tmp_path / "s.db"
    with_rows(path)
    with sqlite3.connect(path) as db:
        db.execute(change)
    db.close()
    with pytest.raises(
        UsageError, match=r"you did not make the measurement [abc], so crtgen does not use the store"
    ):
        JobStore(path)
    os.environ[trust.VARIABLE] = "1"
    try:
        JobStore(path).__exit__()
    finally:
        del os.environ[trust.VARIABLE]
