"""``project.json``: what a generated project tells crtgen about itself."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from crtgen import files
from crtgen.codegen.checks import check_c_names, check_file, check_sizes, check_word
from crtgen.codegen.module import ModelInfo
from crtgen.errors import CorruptModelError, UsageError

__all__ = [
    "FORMAT",
    "LOCKED",
    "MANIFEST",
    "RECEIVE_BUFFER",
    "STACK",
    "Manifest",
    "Options",
    "digest_of",
    "manifest_text",
    "read_manifest",
]

MANIFEST = "project.json"
FORMAT = 2
LOCKED = "model"
"""The directory of a project that is locked by who writes or builds it; every project has it."""

_MOST_BLOCKS = 1 << 16

RECEIVE_BUFFER = 2048
STACK = 8 * 1024
"""Bytes, where nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class Options:
    """Choices of a project; sizes in bytes.

    ``receive_buffer`` limits the packets of the RPC, ``pool`` is what a host may allocate on the device, in
    at most ``blocks`` blocks; None is what the models need, see ``Firmware``. ``stack`` is reserved for the
    stack, ``profile`` reports each layer, ``optimize`` is ``size``, ``balanced`` or ``speed``. ``place``
    names a memory of the board for ``arena``, ``weights`` or ``kernels``; what it does not name lies with
    the other data or code.
    """

    receive_buffer: int = RECEIVE_BUFFER
    pool: int | None = None
    blocks: int | None = None
    stack: int = STACK
    profile: bool = False
    optimize: str = "balanced"
    place: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_sizes(receive_buffer=self.receive_buffer, pool=self.pool or 0, stack=self.stack)
        check_sizes(_MOST_BLOCKS, blocks=self.blocks or 0)
        for word in (*self.place, *self.place.values()):
            check_word("a place", word)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of ``project.json``; ``files`` has the SHA-256 of every other file that crtgen wrote.

    ``artefact`` is what the build makes, below ``build/``; ``toolchain`` names ``cmake/<it>.cmake``;
    ``functions`` are the symbols of the functions in the image's registry. While the project is being
    written, ``unfinished`` are the files that were there before, with all that may be in them.
    """

    format: int
    version: str
    name: str
    platform: str
    board: str
    type: str
    toolchain: str
    artefact: str
    options: Options
    models: tuple[ModelInfo, ...]
    functions: tuple[str, ...]
    files: Mapping[str, str]
    unfinished: Mapping[str, tuple[str, ...]] | None = None

    def __post_init__(self) -> None:
        words = {"name": self.name, "platform": self.platform, "board": self.board, "type": self.type}
        for what, word in {**words, "toolchain": self.toolchain, "version": self.version}.items():
            check_word(what, word)
        for path in (self.artefact, *self.files, *(self.unfinished or ())):
            check_file(path)
        check_c_names("a function", self.functions)

    def marked(self, unfinished: Mapping[str, tuple[str, ...]]) -> "Manifest":
        """The same while the project is being written."""
        return replace(self, unfinished=unfinished)


_ADAPTER = TypeAdapter(Manifest)


def digest_of(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def manifest_text(manifest: Manifest) -> bytes:
    """The file."""
    return _ADAPTER.dump_json(manifest, indent=1) + b"\n"


def read_manifest(directory: Path) -> Manifest:
    """The manifest of the project in ``directory``; raises ``UsageError`` if there is no usable one."""
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
            f"its format is {manifest.format}, this crtgen reads {FORMAT}", where=str(file), hint=again
        )
    return manifest
