"""``project.json``: what a generated project tells crtgen about itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, TypeAdapter, ValidationError

from crtgen.codegen.module import ModelInfo
from crtgen.errors import UsageError

__all__ = ["FORMAT", "MANIFEST", "Manifest", "Options", "manifest_text", "read_manifest"]

MANIFEST = "project.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Options:
    """Choices of a project; sizes in bytes.

    ``receive_buffer`` limits the packets of the RPC, ``pool`` is what a host may allocate on the device,
    ``stack`` is reserved for the stack, ``profile`` reports each layer, ``optimize`` is ``size``,
    ``balanced`` or ``speed``. ``place`` names a memory of the board for ``arena``, ``weights`` or
    ``kernels``; what it does not name lies with the other data or code.
    """

    receive_buffer: int = 2048
    pool: int = 64 * 1024
    stack: int = 8 * 1024
    profile: bool = False
    optimize: str = "balanced"
    place: Mapping[str, str] = field(default_factory=dict)


def _inside(path: str) -> str:
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ValueError("the path leaves the project")
    return path


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of ``project.json``; ``files`` are the paths that crtgen wrote, itself included.

    ``artefact`` is what the build makes, below ``build/``; ``toolchain`` names ``cmake/<it>.cmake``;
    ``functions`` are the symbols of the functions in the image's registry.
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
    files: tuple[Annotated[str, AfterValidator(_inside)], ...]


_ADAPTER = TypeAdapter(Manifest)


def manifest_text(manifest: Manifest) -> bytes:
    """The file."""
    return _ADAPTER.dump_json(manifest, indent=1) + b"\n"


def read_manifest(directory: Path) -> Manifest:
    """The manifest of the project in ``directory``; raises ``UsageError`` if there is no usable one."""
    file = directory / MANIFEST
    try:
        manifest = _ADAPTER.validate_json(file.read_bytes())
    except OSError as error:
        hint = "name a directory that crtgen generated"
        raise UsageError(f"cannot be read: {error.strerror}", where=str(file), hint=hint) from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        hint = "generate the project again, into a new directory"
        raise UsageError(f"{first['msg']} ({key})", where=str(file), hint=hint) from error
    if manifest.format != FORMAT:
        raise UsageError(
            f"its format is {manifest.format}, this crtgen reads {FORMAT}",
            where=str(file),
            hint="generate the project again, into a new directory",
        )
    return manifest
