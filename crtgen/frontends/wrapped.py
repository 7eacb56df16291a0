"""Models inside other files: arrays of C, zip archives, bundles of MediaPipe, exports of Edge Impulse."""

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile, ZipFile, ZipInfo

from crtgen import files
from crtgen.errors import UsageError

__all__ = ["WRAPPINGS", "Wrapped", "unwrap"]

_SOURCES = (".c", ".cc", ".cpp", ".h", ".hpp")
_ARCHIVES = (".zip", ".task")
WRAPPINGS = (*_SOURCES, *_ARCHIVES)
"""The suffixes of files that may hold a model."""

_ARRAY = re.compile(r"\b(\w+)\s*\[[^\]]*\][^={;]{0,200}=\s*\{([\s0-9a-fA-FxX,]*)\}")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_BYTE = re.compile(r"0[xX][0-9a-fA-F]{1,2}|\d{1,3}")
_ARENA = re.compile(
    r"#define\s+EI_CLASSIFIER_TFLITE_LARGEST_ARENA_SIZE\s+(\d+)|kTensorArenaSize\s*=\s*(\d+)\s*;"
)
_COMPILED = re.compile(r"(^|/)tflite_learn_\d+_compiled\.(c|cpp)$")


_DAMAGES = (
    BadZipFile,
    EOFError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
    struct.error,
    zlib.error,
)
"""What Python raises of damaged archives."""


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A model in a file: its bytes, ``kind`` (a suffix), and where it is.

    ``arena_bytes`` are what the file reserves for TensorFlow Lite Micro, if it does.
    """

    data: bytes
    kind: str
    where: str
    arena_bytes: int | None = None


def unwrap(path: Path) -> Wrapped:
    """The only model in a file. Raises ``UsageError`` if there is none, or several."""
    data = files.read(path, "the file")
    archive = path.suffix.lower() in _ARCHIVES
    found = list(_in_archive(path, data) if archive else _in_source(path.name, _text(path, data)))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(model.where for model in found)
        raise UsageError(
            f"it holds {len(found)} models: {names}", where=str(path), hint="take out the one you mean"
        )
    what = "no .tflite, no .onnx and no array" if archive else "no array of bytes"
    raise UsageError(f"it holds no model: {what} that is one", where=str(path))


def _in_source(name: str, text: str) -> Iterator[Wrapped]:
    """Arrays of bytes with a TensorFlow Lite model."""
    plain = _COMMENT.sub(" ", text)
    arena = next((int(a or b) for a, b in _ARENA.findall(plain)), None)
    for array, body in _ARRAY.findall(plain):
        numbers = [int(n, 0) for n in _BYTE.findall(body)] if body.count(",") >= 7 else []
        if numbers and max(numbers) < 256 and bytes(numbers[4:8]) == b"TFL3":
            yield Wrapped(bytes(numbers), ".tflite", f"the array {array} of {name}", arena)


def _in_archive(path: Path, data: bytes) -> Iterator[Wrapped]:
    """Models in a zip archive, and in sources there; names in it are never paths."""
    try:
        with ZipFile(BytesIO(data)) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            size = sum(member.file_size for member in members)
            if size > files.memory_limit(4):
                raise UsageError(
                    f"it holds {size:,} bytes; at most {files.memory_limit(4):,} are read", where=str(path)
                )
            arena = None
            found = []
            for member in members:
                suffix = PurePosixPath(member.filename).suffix.lower()
                if suffix in (".tflite", ".onnx"):
                    found.append(Wrapped(_content(archive, member), suffix, member.filename))
                elif suffix in _SOURCES:
                    text = _content(archive, member).decode(errors="replace")
                    found += _in_source(member.filename, text)
                    arena = arena or next((int(a or b) for a, b in _ARENA.findall(text)), None)
    except _DAMAGES as error:
        raise UsageError(f"the archive cannot be read: {error}", where=str(path)) from error
    if not found and any(_COMPILED.search(member.filename) for member in members):
        raise UsageError(
            "EON has compiled the model in it to code",
            where=str(path),
            hint="export it from Edge Impulse again without the EON compiler",
        )
    for model in found:
        yield Wrapped(model.data, model.kind, model.where, model.arena_bytes or arena)


def _content(archive: ZipFile, member: ZipInfo) -> bytes:
    """A member, no longer than it says."""
    with archive.open(member) as file:
        return file.read(member.file_size)


def _text(path: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"it is no text: {error}", where=str(path)) from error
