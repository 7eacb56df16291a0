"""Tar archives as mappings of path to bytes: read defensively, written reproducibly.

Nothing is ever unpacked to disk: an archive is checked and read in memory.
"""

import io
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from crtgen.base import budget
from crtgen.base.errors import CorruptModelError
from crtgen.base.files import relative_path

__all__ = ["check_path", "read_tar", "write_tar"]

_BLOCK = 512
_GZIP_MAGIC = b"\x1f\x8b"
_MOST_FILES = 1 << 14
_FILE, _DIRECTORY, _PAX = b"0", b"5", b"x"
_LONGEST_PAX = 1 << 12
_HARMLESS = frozenset((b"mtime", b"atime", b"ctime", b"uid", b"gid", b"uname", b"gname", b"comment"))
_HINT = "tar --format=ustar, and shorter names"


def check_path(path: str, where: str) -> str:
    """Return the path without ``./``; a path that could lead out of its directory is refused."""
    try:
        return relative_path(path)
    except ValueError as error:
        raise CorruptModelError(str(error), where=where) from error


def read_tar(data: bytes, where: str) -> dict[str, bytes]:
    """Return the files of a tar archive, plain or gzipped; links, devices, unsafe paths and truncated files
    are refused.

    The format is ustar, as crtgen, TVM and GNU tar write it. Python also writes PAX headers with times, which
    are ignored; PAX headers that change a file's name or size are refused.
    """
    files: dict[str, bytes] = {}
    data = _unzipped(data, where) if data[:2] == _GZIP_MAGIC else data
    budget.current().take(len(data), "what the archive holds")
    if len(data) < _BLOCK:
        raise CorruptModelError("the file is not a tar archive, or only the beginning of one", where=where)
    at, extended = 0, False
    while len(data) - at >= _BLOCK and any(data[at : at + _BLOCK]):
        member = _member(data[at : at + _BLOCK], where)
        at += _BLOCK
        content = data[at : at + member.size] if member.kind != _DIRECTORY else b""
        if len(content) < member.size and member.kind != _DIRECTORY:
            raise CorruptModelError(f"the archive is truncated within {member.name}", where=where)
        at += -(-len(content) // _BLOCK) * _BLOCK
        if member.kind == _FILE:
            _add(files, member.name, content, where)
        elif member.kind == _PAX:
            _check_pax(content, extended, where)
        extended = member.kind == _PAX
    if len(data) - at < 2 * _BLOCK or data.count(0, at) < len(data) - at:
        raise CorruptModelError("the archive is truncated: it has no end mark", where=where)
    for path in files:
        if not files.keys().isdisjoint(str(parent) for parent in PurePosixPath(path).parents):
            raise CorruptModelError(f"{path} is inside another file", where=where)
    return files


@dataclass(frozen=True, slots=True)
class _Member:
    """A header of a tar member: its checked path, its size in bytes, and its kind (file, directory, PAX
    header).
    """

    name: str
    size: int
    kind: bytes


def _member(header: bytes, where: str) -> _Member:
    # POSIX 1003.1, pax, section ustar.
    if header[257:262] != b"ustar":
        raise CorruptModelError(
            "the file is not a tar archive, or it is damaged: it has no ustar header", where=where
        )
    if _octal(header[148:156], where) != sum(header[:148]) + 8 * ord(" ") + sum(header[156:]):
        raise CorruptModelError("the archive is damaged: the checksum of a header is wrong", where=where)
    name = _text(header[:100], where)
    prefix = _text(header[345:500], where) if header[262:263] == b"\0" else ""  # GNU has other fields there
    path = f"{prefix}/{name}" if prefix else name
    kind = header[156:157]
    kind = _FILE if kind == b"\0" else kind
    if kind in (b"L", b"K"):
        raise CorruptModelError(f"{path} is stored with a GNU long name", where=where, hint=_HINT)
    if kind not in (_FILE, _DIRECTORY, _PAX):
        raise CorruptModelError(f"{path} is a link or a special file", where=where)
    if kind == _FILE or (kind == _DIRECTORY and path not in (".", "./")):
        path = check_path(path, where)
    return _Member(path, _octal(header[124:136], where), kind)


def _check_pax(content: bytes, twice: bool, where: str) -> None:
    # Refuse a header of PAX (POSIX: lines ``length key=value``) that says more than times and owners.
    if twice or len(content) > _LONGEST_PAX:
        raise CorruptModelError("the PAX headers of the archive are too long", where=where)
    keys = [line.partition(b" ")[2].partition(b"=")[0] for line in content.splitlines()]
    if not set(keys) <= _HARMLESS:
        found = b", ".join(sorted(set(keys) - _HARMLESS))[:100].decode(errors="replace")
        raise CorruptModelError(f"a header of PAX has {found}", where=where, hint=_HINT)


def _text(field: bytes, where: str) -> str:
    try:
        return field.partition(b"\0")[0].decode()
    except UnicodeDecodeError as error:
        raise CorruptModelError(f"a name is not UTF-8: {error.reason}", where=where) from error


def _octal(field: bytes, where: str) -> int:
    digits = field.strip(b" \0")
    if not digits.isdigit() or max(digits) > ord("7"):
        raise CorruptModelError("the archive is damaged: a number in a header is not octal", where=where)
    return int(digits, 8)


def _unzipped(data: bytes, where: str) -> bytes:
    stream, most = zlib.decompressobj(wbits=31), budget.memory_limit(8)
    try:
        plain = stream.decompress(data, most)
    except zlib.error as error:
        raise CorruptModelError(f"the archive is damaged: {error}", where=where) from error
    if stream.unconsumed_tail:
        hint = f"crtgen --limit-memory {2 * budget.memory_limit()} allows twice as much"
        raise CorruptModelError(f"the archive holds more than {most >> 20} MiB", where=where, hint=hint)
    if not stream.eof or stream.unused_data:
        raise CorruptModelError("the archive is truncated, or something follows its end", where=where)
    return plain


def _add(files: dict[str, bytes], path: str, content: bytes, where: str) -> None:
    if len(files) >= _MOST_FILES:
        raise CorruptModelError(f"the archive has more than {_MOST_FILES} files", where=where)
    if path in files:
        raise CorruptModelError(f"{path} is in the archive twice", where=where)
    budget.current().take(len(content), path)
    files[path] = content


def write_tar(files: Mapping[str, bytes], mtime: int) -> bytes:
    """Return a plain tar: entries sorted by path, owner root, mode 0644, ``mtime`` in seconds since 1970."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(files):
            info = tarfile.TarInfo(f"./{check_path(path, 'archive')}")
            info.size, info.mtime, info.mode = len(files[path]), mtime, 0o644
            info.uname = info.gname = "root"
            tar.addfile(info, io.BytesIO(files[path]))
    return buffer.getvalue()
