"""``project.json``: the description of a generated project, for crtgen itself."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from crtgen.base import files
from crtgen.base.contents import Contents
from crtgen.base.errors import CorruptModelError, UsageError
from crtgen.boards import all_boards, name_board
from crtgen.compiler.codegen.checks import check_c_names, check_file, check_word
from crtgen.compiler.codegen.module import ModelInfo
from crtgen.firmware.project.frameworks import FRAMEWORKS
from crtgen.firmware.project.options import ProjectOptions

__all__ = [
    "BOARD_FILE",
    "FORMAT",
    "LOCKED",
    "MANIFEST",
    "Manifest",
    "digest_of",
    "digests_of",
    "manifest_text",
    "read_manifest",
]

BOARD_FILE = "board.toml"
"""The board file of a project, for a board that is not one of crtgen's."""

MANIFEST = "project.json"
FORMAT = 3
LOCKED = "model"
"""The directory that is locked while a project is written or built."""

_RENEWED = (f"{LOCKED}/", "runtime/", "crtgen.cmake")
_FLAT = "src"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of ``project.json``; ``files`` has the SHA-256 of every other file that crtgen wrote.

    ``optimize`` and ``place`` are those of the request. ``artefact`` is the path of the build's product below
    ``build/``; ``toolchain`` names ``cmake/<it>.cmake``; ``functions`` are the symbols of the functions in
    the image's registry. While the project is being written, ``unfinished`` lists files that existed before,
    with their possible contents.
    """

    format: int
    version: str
    name: str
    board: str
    optimize: str
    place: Mapping[str, str]
    toolchain: str
    artefact: str
    options: ProjectOptions
    models: tuple[ModelInfo, ...]
    functions: tuple[str, ...]
    files: Mapping[str, str]
    unfinished: Mapping[str, tuple[str, ...]] | None = None

    def __post_init__(self) -> None:
        words = {"name": self.name, "platform": self.platform, "board": self.board, "type": self.type}
        words |= {"toolchain": self.toolchain, "version": self.version, "optimize": self.optimize}
        for what, word in words.items():
            check_word(what, word)
        for word in (*self.place, *self.place.values()):
            check_word("a place", word)
        for path in (self.artefact, *self.files, *(self.unfinished or ())):
            check_file(path)
        check_c_names("a function", self.functions)

    @property
    def type(self) -> str:
        return self.options.type

    @property
    def platform(self) -> str:
        return self.options.platform

    @property
    def is_flat(self) -> bool:
        """True if all generated sources are in one folder, as some frameworks require."""
        return bool(self.options.framework) and FRAMEWORKS[self.options.framework].flat

    @property
    def locked(self) -> str:
        return _FLAT if self.is_flat else LOCKED

    @property
    def renewed(self) -> tuple[str, ...]:
        """Files that ``generate`` always overwrites; any other file belongs to the user once it was
        edited.
        """
        return (f"{_FLAT}/",) if self.is_flat else _RENEWED

    def marked(self, unfinished: Mapping[str, tuple[str, ...]]) -> "Manifest":
        return replace(self, unfinished=unfinished)


_ADAPTER = TypeAdapter(Manifest)


def digests_of(sources: Contents[bytes]) -> dict[str, str]:
    return {path: digest_of(sources.pieces(path)) for path in sorted(sources)}


def digest_of(pieces: Iterable[bytes]) -> str:
    sha = hashlib.sha256()
    for piece in pieces:
        sha.update(piece)
    return sha.hexdigest()


def manifest_text(manifest: Manifest) -> bytes:
    return _ADAPTER.dump_json(manifest, indent=1) + b"\n"


def read_manifest(directory: Path) -> Manifest:
    """Return the manifest of the project in ``directory``; raises ``UsageError`` if it is missing or
    unusable.
    """
    file = directory / MANIFEST
    again = "generate the project again, into a new directory"
    if not file.exists():
        hint = "name a directory that crtgen generated"
        raise UsageError("there is no project: the file cannot be read", where=str(file), hint=hint)
    try:
        manifest = _ADAPTER.validate_json(files.read(file))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UsageError(f"{first['msg']} ({key})", where=str(file), hint=again) from error
    except CorruptModelError as error:
        raise UsageError(error.message, where=str(file), hint=again) from error
    if manifest.format != FORMAT:
        raise UsageError(
            f"the project has format {manifest.format}, this crtgen reads format {FORMAT}",
            where=str(file),
            hint=again,
        )
    own = directory / BOARD_FILE
    if own.exists() and all(board.name != manifest.board for board in all_boards()):
        name_board(own, manifest.board)
    return manifest
