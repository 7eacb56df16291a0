"""Tar archives: nothing doubtful is read, nothing is written outside, the same files give the same bytes."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtgen.base import budget
from crtgen.base.errors import CorruptModelError
from crtgen.firmware.library.archive import read_tar, write_tar

FILES = {"metadata.json": b"{}", "codegen/host/src/a.c": b"int a;\n", "empty": b""}
PLAIN = write_tar(FILES, 1_700_000_000)


def tar_of(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.DEFAULT_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def special(kind: bytes, name: str = "x", target: str = "metadata.json") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return tar_of((info, b""))


def test_writes_sorted_entries_owned_by_root() -> None:
    with tarfile.open(fileobj=io.BytesIO(PLAIN)) as tar:
        members = tar.getmembers()
    assert [m.name for m in members] == ["./codegen/host/src/a.c", "./empty", "./metadata.json"]
    assert {(m.uid, m.gid, m.uname, m.gname, m.mode, m.mtime) for m in members} == {
        (0, 0, "root", "root", 0o644, 1_700_000_000)
    }


def test_the_order_of_the_files_does_not_matter() -> None:
    assert write_tar(dict(reversed(FILES.items())), 1_700_000_000) == PLAIN


paths = st.lists(st.text("abc._-", min_size=1, max_size=4), min_size=1, max_size=3).map("/".join)


@given(st.dictionaries(paths, st.binary(max_size=1100), max_size=4))
def test_round_trip(files: dict[str, bytes]) -> None:
    try:
        back = read_tar(write_tar(files, 0), "x")
    except CorruptModelError:
        parts = [path.split("/") for path in files]
        doubtful = any(part.endswith(".") for p in parts for part in p)
        nested = any(a != b and a == b[: len(a)] for a in parts for b in parts)
        assert doubtful or nested
        return
    assert list(back.values()) == [files[path] for path in sorted(files)]


def test_gzipped() -> None:
    assert read_tar(gzip.compress(PLAIN), "x") == FILES


@pytest.mark.parametrize("size", [*range(0, 7 * 512, 97), 512, 1024, 2048, 5 * 512, 6 * 512])
def test_truncated_before_the_end_mark(size: int) -> None:
    """Three headers and two blocks of data: the end mark ends with block 7."""
    with pytest.raises(CorruptModelError):
        read_tar(PLAIN[:size], "x")


def test_padding_after_the_end_mark_is_not_needed() -> None:
    assert read_tar(PLAIN[: 7 * 512], "x") == FILES


@pytest.mark.parametrize("cut", [1, 4, 8, 30, 100])
def test_truncated_gzip(cut: int) -> None:
    with pytest.raises(CorruptModelError):
        read_tar(gzip.compress(PLAIN)[:-cut], "x")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../evil", "leads out"),
        ("a/../../evil", "leads out"),
        ("a/..", "leads out"),
        ("/etc/passwd", "not a relative path"),
        ("C:/evil", "has characters that no path may have"),
        ("a\\..\\evil", "has characters that no path may have"),
    ],
)
def test_paths_that_lead_out(name: str, reason: str) -> None:
    with pytest.raises(CorruptModelError, match=reason):
        read_tar(tar_of((tarfile.TarInfo(name), b"evil")), "x")
    with pytest.raises(CorruptModelError, match=reason):
        write_tar({name: b""}, 0)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE]
)
def test_links_and_special_files(kind: bytes) -> None:
    with pytest.raises(CorruptModelError, match="x is a link or a special file"):
        read_tar(special(kind), "x")


def test_a_directory_that_leads_out() -> None:
    with pytest.raises(CorruptModelError, match="leads out"):
        read_tar(special(tarfile.DIRTYPE, "../evil/"), "x")


def test_one_path_twice() -> None:
    twice = [(tarfile.TarInfo("./a"), b"1"), (tarfile.TarInfo("a"), b"2")]
    with pytest.raises(CorruptModelError, match="a is in the archive twice"):
        read_tar(tar_of(*twice), "x")


def test_a_file_below_a_file() -> None:
    with pytest.raises(CorruptModelError, match="a/b is inside another file"):
        read_tar(tar_of((tarfile.TarInfo("a"), b"1"), (tarfile.TarInfo("a/b"), b"2")), "x")


def test_a_gzip_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(bytes(16 << 20))
    budget.limit_memory(16 << 20)
    try:
        with pytest.raises(CorruptModelError, match="the archive holds more than 2 MiB") as caught:
            read_tar(bomb, "x")
    finally:
        budget.limit_memory()
    assert caught.value.hint == f"crtgen --limit-memory {32 << 20} allows twice as much"


def test_damage_in_the_middle_does_not_hide_files() -> None:
    damaged = bytearray(PLAIN)
    damaged[2 * 512 : 2 * 512 + 8] = b"\xff" * 8
    with pytest.raises(CorruptModelError):
        read_tar(bytes(damaged), "x")


@given(st.binary(max_size=600))
def test_any_bytes(data: bytes) -> None:
    with pytest.raises(CorruptModelError):
        read_tar(data, "x")


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_reads_what_other_tools_write(form: int) -> None:
    directory = tarfile.TarInfo("a")
    directory.type = tarfile.DIRTYPE
    members = [(tarfile.TarInfo("./a.txt"), b"x" * 513), (directory, b""), (tarfile.TarInfo("a/b"), b"1")]
    assert read_tar(tar_of(*members, form=form), "x") == {"a.txt": b"x" * 513, "a/b": b"1"}


def test_a_long_path_is_split() -> None:
    path = f"{'a' * 90}/{'b' * 90}"
    assert read_tar(write_tar({path: b"1"}, 0), "x") == {path: b"1"}


def header(kind: bytes, name: str, content: bytes) -> bytes:
    """A member as GNU tar writes it, without an end mark."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content)
    return info.tobuf(tarfile.GNU_FORMAT) + content.ljust(-(-len(content) // 512) * 512, b"\0")


@pytest.mark.parametrize(
    ("kind", "content", "reason"),
    [
        (tarfile.GNUTYPE_LONGNAME, b"abc\0", "is stored with a GNU long name"),
        (tarfile.XHDTYPE, b"12 path=abc\n", "a header of PAX has path"),
        (tarfile.XHDTYPE, b"11 mtime=1\n", "the PAX headers of the archive are too long"),
        (tarfile.XHDTYPE, b"0" * 200_000 + b"\n", "the PAX headers of the archive are too long"),
        (tarfile.XGLTYPE, b"1111111111 GNU.sparse.size=" * 2000, "a special file"),
    ],
)
def test_headers_of_headers_are_refused(kind: bytes, content: bytes, reason: str) -> None:
    """Python's reader takes them by recursion, and by an expression that is quadratic."""
    chained = header(kind, "x", content) * 3000 if len(content) < 100 else header(kind, "x", content)
    with pytest.raises(CorruptModelError, match=reason):
        read_tar(chained + header(b"0", "a", b"") + bytes(1024), "x")


def test_times_as_python_writes_them(tmp_path: Path) -> None:
    """In a header of PAX before each member, since they are fractions of a second."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"1")
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        tar.add(tmp_path / "in", arcname=".")
    data = (tmp_path / "x.tar").read_bytes()
    assert data[156:157] == tarfile.XHDTYPE
    assert read_tar(data, "x") == {"a": b"1"}


@pytest.mark.parametrize(
    ("at", "field", "reason"),
    [
        (257, b"\0", "no ustar header"),
        (0, b"b", "the checksum of a header is wrong"),
        (124, b"9", "a number in a header is not octal"),
        (124, b"\x80", "a number in a header is not octal"),
        (0, b"\xff", "a name is not UTF-8"),
    ],
)
def test_damaged_headers(at: int, field: bytes, reason: str) -> None:
    damaged = bytearray(header(b"0", "a", b""))
    damaged[at : at + 1] = field
    if reason != "the checksum of a header is wrong":
        damaged[148:156] = b"%06o\0 " % (sum(damaged[:148]) + 256 + sum(damaged[156:512]))
    with pytest.raises(CorruptModelError, match=reason):
        read_tar(bytes(damaged) + bytes(1024), "x")
