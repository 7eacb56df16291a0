"""Tar archives as mappings of path to bytes: read with suspicion, written reproducibly.

Nothing is ever unpacked by ``tarfile``: an archive is checked and read in memory, and ``extract`` writes only
the files that ``read_tar`` or a caller named by safe relative paths.
"""

import io
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from crtgen.errors import CorruptModelError

__all__ = ["check_path", "extract", "read_tar", "write_tar"]

_BLOCK = 512
_GZIP_MAGIC = b"\x1f\x8b"
_MOST = 1 << 30
"""The most that a gzipped archive may hold, in bytes."""


def check_path(path: str, where: str) -> str:
    """The path without ``./``; refused if it could lead out of the directory that it is relative to."""
    pure = PurePosixPath(path)
    if not path or "\0" in path or "\\" in path or pure.is_absolute() or ":" in path.partition("/")[0]:
        raise CorruptModelError(f"the path {path!r} is not a relative path", where=where)
    if ".." in pure.parts:
        raise CorruptModelError(f"the path {path!r} leads out of the archive", where=where)
    return str(pure)


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
        raise CorruptModelError(f"it is no tar archive, or a damaged one: {error}", where=where) from error
    tail = data[end:]
    if len(tail) < 2 * _BLOCK or any(tail):
        raise CorruptModelError("the archive is truncated: it has no end mark", where=where)
    for path in files:
        if not files.keys().isdisjoint(str(parent) for parent in PurePosixPath(path).parents):
            raise CorruptModelError(f"{path} lies within another file", where=where)
    return files


def _unzipped(data: bytes, where: str) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    try:
        plain = stream.decompress(data, _MOST)
    except zlib.error as error:
        raise CorruptModelError(f"it is damaged: {error}", where=where) from error
    if stream.unconsumed_tail:
        raise CorruptModelError(f"it holds more than {_MOST >> 20} MiB", where=where)
    if not stream.eof or stream.unused_data:
        raise CorruptModelError("the archive is truncated, or something follows its end", where=where)
    return plain


def _add(files: dict[str, bytes], tar: tarfile.TarFile, member: tarfile.TarInfo, where: str) -> None:
    path = check_path(member.name, where)
    if member.isdir():
        return
    if not member.isreg() or member.issparse():
        raise CorruptModelError(f"{member.name} is a link or a special file", where=where)
    if path == "." or path in files:
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


def extract(files: Mapping[str, bytes], directory: Path) -> None:
    """Write the files below a directory; all paths are checked before the first is written."""
    targets = {directory / check_path(path, str(directory)): data for path, data in files.items()}
    root = directory.resolve()
    for target in targets:
        if not target.resolve().is_relative_to(root):
            raise CorruptModelError(f"{target} leads out of {directory} by a link", where=str(directory))
    for target, data in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
