"""Cache of built images: a second ``run`` of the same model builds nothing.

Each is a folder in ``$XDG_CACHE_HOME/crtgen/images``, whose name is a digest of crtgen itself, the options,
the board and the compiler. ``kept.json`` lists every source file and every kept file with its SHA-256: an
image is used only if none of them has changed. Its first line is the user's mark over the rest
(``crtgen.base.trust``), since others may fill a cache: a CI runner, a copied home directory.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from crtgen import api
from crtgen.api.report import Report
from crtgen.base import files, trust
from crtgen.base.errors import UsageError
from crtgen.base.resources import code_digest
from crtgen.boards import Board
from crtgen.cli.output import note
from crtgen.firmware.builder import TOOLCHAINS, BuiltImage, find_toolchain
from crtgen.firmware.project import read_manifest, toolchains_of
from crtgen.firmware.project.manifest import MANIFEST

__all__ = ["KeptImage", "by_age", "cache_folder", "entry"]

_CONTENT = "kept.json"
# Images that are kept, the newest: about 30 MB.
_MOST = 32

# Environment variables that change compilers or their options.
_VARIABLES = ("PATH", "CFLAGS", "ASFLAGS", "LDFLAGS")


@dataclass(frozen=True, slots=True)
class _Content:
    """Files that were ``read`` and ``made``, by path, with their SHA-256; ``made`` paths are relative to the
    folder.

    ``notes`` are the notes on the model.
    """

    read: dict[str, str]
    made: dict[str, str]
    notes: tuple[str, ...]
    reports: tuple[Report, ...]


_ADAPTER = TypeAdapter(_Content)


def entry(board: Board, toolchain: str | None, *options: object) -> "KeptImage":
    """Return the entry of the image cache for a board; ``options`` are all other options that the image
    depends on.
    """
    chosen = toolchain or toolchains_of(board, board.platform(None))[0]
    recipe = TOOLCHAINS.get(chosen)
    named = [os.environ.get(name, "") for name in (*_VARIABLES, *(recipe.variables if recipe else ()))]
    key = repr((code_digest(), board, chosen, named, options))
    return KeptImage(_images() / hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest())


def cache_folder() -> Path:
    """Return the folder of everything that crtgen caches and can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crtgen"


def _images() -> Path:
    return cache_folder() / "images"


@dataclass(frozen=True, slots=True)
class KeptImage:
    folder: Path

    def find(self) -> api.Image | None:
        content = self._content()
        if content is None:
            return None
        made = {str(self.folder / path): digest for path, digest in content.made.items()}
        if not all(_is(path, digest) for path, digest in (content.read | made).items()):
            return None
        os.utime(self.folder / _CONTENT)
        for line in content.notes:
            note(line)
        manifest = read_manifest(self.folder)
        built = BuiltImage(self.folder / "build" / manifest.artefact, self.folder, manifest)
        size = content.reports[0].image
        assert size is not None, "reports of images are kept"
        return api.Image(built, size, known=content.reports)

    def _content(self) -> _Content | None:
        text = trust.read_marked(self.folder / _CONTENT)
        if text is None:
            return None
        try:
            return _ADAPTER.validate_json(text)
        except ValidationError:  # another version of a library wrote it, or a disk that was full
            return None

    def keep(
        self, image: api.Image, read: dict[str, str], notes: Sequence[str], toolchain: str | None
    ) -> None:
        """Cache an image that was made from the files ``read``, if this computer keeps a cache."""
        project = image.built.project
        kept = [project / MANIFEST, *image.files]
        with suppress(UsageError):
            files.make_directory(self.folder / "build")
            made = {}
            for path in kept:
                name = path.relative_to(project).as_posix()
                data = path.read_bytes()
                files.write(self.folder / name, data, durable=False)
                (self.folder / name).chmod(path.stat().st_mode)  # a program of this computer is run
                made[name] = hashlib.sha256(data).hexdigest()
            compiler = find_toolchain(toolchain or image.built.manifest.toolchain).program
            read = {**read, str(compiler): files.digest(compiler)}
            content = _Content(read, made, tuple(notes), image.reports)
            text, path = _ADAPTER.dump_json(content), self.folder / _CONTENT
            mark = trust.Seal(path).mark([text])
            files.write(path, [mark.encode(), b"\n", text], durable=False)
            _remove_old(self.folder.parent)


def _is(path: str, digest: str) -> bool:
    return Path(path).is_file() and files.digest(Path(path)) == digest


def _remove_old(folder: Path) -> None:
    # Remove all but the newest.
    for path in by_age(folder.glob(f"*/{_CONTENT}"))[:-_MOST]:
        shutil.rmtree(path.parent, ignore_errors=True)


def by_age(paths: Iterable[Path]) -> list[Path]:
    """Sort files, oldest first, skipping those that another process removes meanwhile."""
    found = {}
    for path in paths:
        with suppress(FileNotFoundError):
            found[path] = path.stat().st_mtime
    return sorted(found, key=found.__getitem__)
