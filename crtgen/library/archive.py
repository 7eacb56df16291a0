"""Tar archives as mappings of path to bytes: read with suspicion, written reproducibly.

Nothing is ever unpacked: an archive is checked and read in memory.
"""

import io
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath

from crtgen.errors import CorruptModelError
from crtgen.files import memory_limit, relative_path

__all__ = ["check_path", "read_tar", "write_tar"]

_BLOCK = 512
_GZIP_MAGIC = b"\x1f\x8b"
_MOST_FILES = 1 << 14


def check_path(path: str, where: str) -> str:
    """The path without ``./``; refused if it could lead out of the directory that it is relative to."""
    try:
        return relative_path(path)
    except ValueError as error:
        raise CorruptModelError(str(error), where=where) from error


def read_tar(data: bytes, where: str) -> dict[str, bytes]:
    """The files of a tar archive, plain or gzipped; refuses links, devices, doubtful paths and truncation."""
    files: dict[str, bytes] = {}
    end = 0
    data = _unzipped(data, where) if data[:2] == _GZIP_MAGIC else data
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar:
                end = member.offset_data + (-(-member.size // _BLOCK) * _BLOCK if member.isfile() else 0)
                _add(files, tar, member, where)
    except (tarfile.TarError, ValueError, OverflowError, EOFError, OSError) as error:
        raise CorruptModelError(f"it is not a tar archive, or it is damaged: {error}", where=where) from error
    tail = data[end:]
    if len(tail) < 2 * _BLOCK or any(tail):
        raise CorruptModelError("the archive is truncated: it has no end mark", where=where)
    for path in files:
        if not files.keys().isdisjoint(str(parent) for parent in PurePosixPath(path).parents):
            raise CorruptModelError(f"{path} lies within another file", where=where)
    return files


def _unzipped(data: bytes, where: str) -> bytes:
    stream, most = zlib.decompressobj(wbits=31), memory_limit(8)
    try:
        plain = stream.decompress(data, most)
    except zlib.error as error:
        raise CorruptModelError(f"it is damaged: {error}", where=where) from error
    if stream.unconsumed_tail:
        hint = f"crtgen --limit-memory {2 * memory_limit()} allows twice as much"
        raise CorruptModelError(f"it holds more than {most >> 20} MiB", where=where, hint=hint)
    if not stream.eof or stream.unused_data:
        raise CorruptModelError("the archive is truncated, or something follows its end", where=where)
    return plain


def _add(files: dict[str, bytes], tar: tarfile.TarFile, member: tarfile.TarInfo, where: str) -> None:
    if member.isdir() and member.name in (".", "./"):
        return
    path = check_path(member.name, where)
    if member.isdir():
        return
    if len(files) >= _MOST_FILES:
        raise CorruptModelError(f"it has more than {_MOST_FILES} files", where=where)
    if not member.isreg() or member.issparse():
        raise CorruptModelError(f"{member.name} is a link or a special file", where=where)
    if path in files:
        raise CorruptModelError(f"{path} is in the archive twice", where=where)
    content = tar.extractfile(member)
    data = content.read() if content is not None else b""
    if len(data) != member.size:
        raise CorruptModelError(f"the archive is truncated within {path}", where=where)
    files[path] = data


def write_tar(files: Mapping[str, bytes], mtime: int) -> bytes:
    """A plain tar: entries sorted by path, owner root, mode 0644, ``mtime`` in seconds since 1970."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(files):
            info = tarfile.TarInfo(f"./{check_path(path, 'archive')}")
            info.size, info.mtime, info.mode = len(files[path]), mtime, 0o644
            info.uname = info.gname = "root"
            tar.addfile(info, io.BytesIO(files[path]))
    return buffer.getvalue()
