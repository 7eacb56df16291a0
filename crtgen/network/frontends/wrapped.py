"""Models inside other files: C arrays, zip archives, MediaPipe bundles, Edge Impulse exports."""

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from crtgen.base import budget, files
from crtgen.base.errors import UsageError
from crtgen.base.formats.zips import opened_zip

__all__ = ["WRAPPINGS", "Wrapped", "unwrap"]

_SOURCES = (".c", ".cc", ".cpp", ".h", ".hpp")
_ARCHIVES = (".zip", ".task")
WRAPPINGS = (*_SOURCES, *_ARCHIVES)
"""The suffixes of files that may hold a model."""

_COMMENT = re.compile(rb"//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/|\Z)")
# Operations.
_PER_COMMENT = 500

_NUMBERS = re.compile(rb"=\s*+\{([\s0-9a-fA-FxX,]*+)\}")
_WORD = (string.ascii_letters + string.digits + "_").encode()
# Bytes of a declaration before its numbers.
_LONGEST = 400

# Bytes of C in which the first eight numbers are, unless somebody hides them.
_FIRST = 400

_BYTE = re.compile(rb"0[xX][0-9a-fA-F]{1,2}|\d{1,3}")
_ARENA = re.compile(
    rb"#define\s++EI_CLASSIFIER_TFLITE_LARGEST_ARENA_SIZE\s++(\d{1,12})\b"
    rb"|kTensorArenaSize\s*+=\s*+(\d{1,12})\s*+;"
)
_COMPILED = re.compile(r"(^|/)tflite_learn_\d+_compiled\.(c|cpp)$")


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A model inside a file: its bytes, its ``kind`` (a suffix), and its position.

    ``arena_bytes`` is the arena size that the file sets for TensorFlow Lite Micro, if any.
    """

    data: bytes
    kind: str
    where: str
    arena_bytes: int | None = None


def unwrap(path: Path) -> Wrapped:
    """Return the only model in a file. Raises ``UsageError`` if it contains none, or several."""
    with budget.spending(str(path)):
        data = files.read(path, "the file")
        archive = path.suffix.lower() in _ARCHIVES
        found = list(_in_archive(path, data) if archive else _in_source(path.name, data))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(model.where for model in found)
        raise UsageError(
            f"the file holds {len(found)} models: {names}", where=str(path), hint="take out the one you mean"
        )
    what = "no .tflite, no .onnx and no array" if archive else "no array of bytes"
    raise UsageError(
        f"the file holds no model: {what} that is one",
        where=str(path),
        hint="unpack it and name the .tflite or .onnx within",
    )


def _in_source(name: str, text: bytes) -> Iterator[Wrapped]:
    # Arrays of bytes with a TensorFlow Lite model. The text stays bytes: C needs no more.
    plain = _without_comments(text)
    arena = _arena(plain)
    for found in _NUMBERS.finditer(plain):
        array = _declared(plain[max(found.start() - _LONGEST, 0) : found.start()])
        if not array or _bytes(found[1][:_FIRST])[4:8] != b"TFL3":
            continue
        budget.current().take(len(found[1]) // 2, f"an array of {name}")
        if data := _bytes(found[1]):
            yield Wrapped(data, ".tflite", f"the array {array} of {name}", arena)


def _without_comments(text: bytes) -> bytearray:
    budget.current().compute(_PER_COMMENT * (text.count(b"/*") + text.count(b"//")), "leaving out comments")
    plain, end = bytearray(), 0
    for comment in _COMMENT.finditer(text):
        plain += text[end : comment.start()] + b" "
        end = comment.end()
    plain += memoryview(text)[end:]
    return plain


def _declared(head: bytearray) -> str:
    # The name of the array that a declaration ends with; empty if it is none: ``name[...] words``.
    head = head[max(head.rfind(mark) for mark in (b";", b"{", b"=")) + 1 :]
    before = head[: head.rfind(b"[", 0, max(head.rfind(b"]"), 0))].rstrip()
    word = before[len(before.rstrip(_WORD)) :]
    return word.decode()


def _bytes(numbers: bytes | bytearray) -> bytes:
    # The numbers of an array; none where one of them is no byte.
    try:
        return bytes(int(number[0], 0) for number in _BYTE.finditer(numbers))
    except ValueError:
        return b""


def _arena(text: bytes | bytearray) -> int | None:
    # Size of the arena in a source file.
    found = _ARENA.search(text)
    return int(found[1] or found[2]) if found else None


def _in_archive(path: Path, data: bytes) -> Iterator[Wrapped]:
    # Models in a zip archive, and in sources there; names in it are never paths.
    with opened_zip(path, "the archive", data=data) as members:
        names, arena, found = members.names, None, []
        for name in names:
            suffix = PurePosixPath(name).suffix.lower()
            if suffix in (".tflite", ".onnx"):
                found.append(Wrapped(members.read(name), suffix, name))
            elif suffix in _SOURCES:
                text = members.read(name)
                found += _in_source(name, text)
                arena = arena or _arena(text)
    if not found and any(map(_COMPILED.search, names)):
        raise UsageError(
            "the archive holds the model as code of the EON compiler only",
            where=str(path),
            hint="export it from Edge Impulse again without the EON compiler",
        )
    for model in found:
        yield Wrapped(model.data, model.kind, model.where, model.arena_bytes or arena)
