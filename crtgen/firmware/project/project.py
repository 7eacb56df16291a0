"""A project: all its files with a digest, and how they are written to a disk."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from crtgen.base import files
from crtgen.base.contents import Contents
from crtgen.base.errors import UsageError
from crtgen.compiler.codegen.checks import check_file, check_word
from crtgen.firmware.project.manifest import (
    MANIFEST,
    Manifest,
    digest_of,
    digests_of,
    manifest_text,
    read_manifest,
)

__all__ = ["Project"]

# By path, the digests that a file written by crtgen may have.
_Digests: TypeAlias = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True, eq=False)
class Project:
    """Firmware sources that build on their own. Equal requests give equal files, byte by byte.

    ``files`` maps a path (with ``/``, below the project) to its content, ``manifest`` describes them.
    """

    manifest: Manifest
    sources: Mapping[str, bytes]

    def __post_init__(self) -> None:
        check_word("a project", self.name)
        for path in self.sources:
            check_file(path)

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def platform(self) -> str:
        return self.manifest.platform

    @property
    def board(self) -> str:
        return self.manifest.board

    @property
    def type(self) -> str:
        """``server``, ``standalone``, ``library`` or ``mlperftiny``."""
        return self.manifest.type

    @property
    def files(self) -> Contents[bytes]:
        entries = Contents.of(self.sources).entries
        return Contents({**entries, MANIFEST: manifest_text(self.manifest)})

    @property
    def digest(self) -> str:
        """SHA-256 of the paths and digests of all files, in hexadecimal."""
        rows = (f"{digest} {path}\n" for path, digest in digests_of(self.files).items())
        return digest_of(row.encode() for row in rows)

    def extract(self, directory: Path, *, force: bool = False) -> tuple[str, ...]:
        """Write this project to ``directory``; return the paths of edited files that were kept.

        A new or empty directory is filled. An earlier project is updated: equal files are not touched, so
        that a build stays incremental, and files that no longer belong to it are removed. Files that somebody
        edited are kept, unless ``force`` is set; those in ``Manifest.renewed`` are always overwritten. Any
        other directory is refused with ``UsageError``.

        A power cut, a full disk or a kill at any point leaves a directory into which the project can be
        generated again, with the same result.
        """
        with files.locked(directory / self.manifest.locked):
            return self._extract(directory, force)

    def _extract(self, directory: Path, force: bool) -> tuple[str, ...]:
        earlier = _earlier(directory)
        update = _Update(directory, self, earlier, force)
        if update.is_done:
            return update.kept
        files.make_directory(directory)
        _mark(directory, self.manifest, earlier)
        update.run()
        files.write(directory / MANIFEST, manifest_text(self.manifest))
        return update.kept


class _Update:
    # Files to write, to remove and to keep, so that a directory holds a project.
    def __init__(self, directory: Path, project: Project, earlier: _Digests, force: bool) -> None:
        self.sources = Contents.of(project.sources)
        self.earlier = earlier
        self.force = force
        self.renewed = project.manifest.renewed
        self.places = files.inside(directory, {*self.sources, *earlier, MANIFEST})
        wanted = project.manifest.files
        found = {
            path: _digest(self.places[path], {wanted.get(path, ""), *earlier.get(path, ())})
            for path in {*self.sources, *earlier}
        }
        self.changes = sorted(path for path, digest in found.items() if digest != wanted.get(path))
        self.kept = tuple(sorted(self._kept(found)))
        self.changes = [path for path in self.changes if path not in self.kept]
        own = digest_of([manifest_text(project.manifest)])
        described = _digest(self.places[MANIFEST], {own}) == own
        self.is_done = described and not self.changes

    def _kept(self, found: Mapping[str, str | None]) -> Iterator[str]:
        for path in self.changes:
            digest = found[path]
            if digest is None or self.force or digest in self.earlier.get(path, ()):
                continue
            if not path.startswith(self.renewed):
                yield path
            elif path not in self.earlier:
                place = str(self.places[path])
                hint = "move it away, or overwrite it with --force"
                raise UsageError(
                    "the path is taken by a file that crtgen did not write", where=place, hint=hint
                )

    def run(self) -> None:
        # Removed first, so that a file can take the place of a directory's.
        for path in self.changes:
            if path not in self.sources:
                files.remove(self.places[path])
        for path in self.changes:
            if path in self.sources:
                files.make_directory(self.places[path].parent)
                durable = not path.startswith(self.renewed)
                files.write(self.places[path], self.sources.pieces(path), durable=durable)


def _digest(path: Path, known: Container[str]) -> str | None:
    # The SHA-256 of a file; None if there is none. Git on Windows writes CRLF: that is no edit.
    if not path.exists():
        return None
    digest = files.digest(path)
    if digest in known:
        return digest
    plain = digest_of([files.read(path).replace(b"\r\n", b"\n")])
    return plain if plain in known else digest


def _earlier(directory: Path) -> _Digests:
    # Files that crtgen wrote into the directory before, with the digests that they may have. Raises
    # ``UsageError`` if crtgen may not write there.
    if not directory.exists():
        return {}
    if not directory.is_dir():
        raise UsageError(
            "the path is a file, expected a directory",
            where=str(directory),
            hint="name a directory for the project",
        )
    if (directory / MANIFEST).is_file():
        manifest = read_manifest(directory)
        return _digests(manifest.files, manifest.unfinished or {})
    if any(not entry.name.endswith(files.LEFTOVER) for entry in directory.iterdir()):
        raise UsageError(
            "the directory is not empty and holds no project of crtgen",
            where=str(directory),
            hint="name a new directory",
        )
    return {}


def _digests(*tables: Mapping[str, Iterable[str] | str]) -> _Digests:
    found: dict[str, set[str]] = {}
    for table in tables:
        for path, digests in table.items():
            found.setdefault(path, set()).update([digests] if isinstance(digests, str) else digests)
    return {path: frozenset(digests) for path, digests in found.items()}


def _mark(directory: Path, manifest: Manifest, earlier: _Digests) -> None:
    # Say in the manifest that the project is being written, and what its files may be meanwhile.
    unfinished = {path: tuple(sorted(digests)) for path, digests in earlier.items()}
    files.write(directory / MANIFEST, manifest_text(manifest.marked(unfinished)))
