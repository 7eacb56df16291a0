"""``crtgen trust``: shows what a folder's files ask for, and records the user's answer."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen import api
from crtgen.base import files, trust
from crtgen.base.errors import UsageError
from crtgen.base.folder import SETTINGS, current_folder, ignored_folder
from crtgen.base.formats.database import is_database
from crtgen.base.formats.toml_text import parse_toml_to_edit
from crtgen.cli.output import Debug, Json, guarded, log
from crtgen.cli.settings import asks_of
from crtgen.device.local_boards import asks_of_map
from crtgen.firmware.library import SUFFIXES
from crtgen.firmware.project.manifest import MANIFEST, read_manifest
from crtgen.lab.settings import Settings, read_settings
from crtgen.lab.sweep.matrix import asks_of_sweep
from crtgen.lab.sweep.store import adopt, measurements_in

__all__ = ["command"]

_MAPS = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class _Request:
    """A file, what it asks for, and its digest; ``is_code`` if the file itself would run.

    State has no digest: ``accept`` makes it this user's.
    """

    file: Path
    asks: Sequence[str]
    digest: str = ""
    is_code: bool = False
    accept: Callable[[], None] | None = None

    def allow(self) -> None:
        if self.accept is not None:
            self.accept()
        else:
            trust.allow(self.digest, None if self.is_code else self.file)


def command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Archives, maps, sweeps, stores, projects; default: what crtgen.toml names.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Agree without being asked, for CI.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Allow what a folder's files ask for.

    Running a program or the code of an archive, opening a line and writing outside of the folder need your
    permission. It holds until the file changes.
    """
    with guarded(as_json, debug) as out:
        settings = _settings(paths)
        requests = _requests(paths, settings)
        _agree(requests, yes)
        for each in requests:
            each.allow()
        pinned = False
        if settings is not None:
            agreed = any(each.file == settings.path for each in requests) or settings.is_allowed
            pinned = _pin(settings, {r.file: r.digest for r in requests if r.is_code}, agreed)
            trust.claim(settings.folder)
        allowed = {str(r.file): list(r.asks) for r in requests}

        def render(console: Console) -> None:
            for file in allowed:
                console.print(f"allowed: {file}")
            if pinned and settings is not None:
                console.print(f"{settings.path} has the digests now: commit it")

        out.result({"allowed": allowed}, render)


def _settings(paths: Sequence[Path] | None) -> Settings | None:
    # The settings around; those that are not used yet only where somebody means them.
    named = next((path.parent for path in paths or () if path.name == SETTINGS), None)
    folder = named or current_folder() or (None if paths else ignored_folder())
    settings = read_settings(folder) if folder is not None else None
    if settings is None and (named is not None or not paths):
        hint = "name a file: crtgen trust ARCHIVE"
        raise UsageError(f"there is no {SETTINGS} here", where=str(named or ""), hint=hint)
    return settings


def _requests(paths: Sequence[Path] | None, settings: Settings | None) -> list[_Request]:
    # Consent that each file asks for.
    if paths is None or (settings and any(path.name == SETTINGS for path in paths)):
        assert settings is not None
        hardware_map = settings.options.get("hardware-map")
        inner = [m.file for m in settings.models if m.file.name.endswith(SUFFIXES)]
        inner += [settings.folder / hardware_map] if isinstance(hardware_map, str) else []
        whole = _Request(settings.path, asks_of(settings), settings.digest)
        return [whole, *map(_request, inner), *(_request(p) for p in paths or () if p.name != SETTINGS)]
    return [_request(path) for path in paths]


def _request(path: Path) -> _Request:
    if path.name.endswith(SUFFIXES):
        loaded = api.load(path)
        assert isinstance(loaded, api.Imported)
        return _Request(path, ("has code, which is compiled and run",), loaded.package.digest, is_code=True)
    if path.suffix == ".toml":
        asks, content = asks_of_sweep(path)
        return _Request(path, asks, content)
    if path.suffix in _MAPS:
        asks, content = asks_of_map(path)
        return _Request(path, asks, content)
    if path.is_file() and is_database(path):
        asks = (f"holds {measurements_in(path):,} measurements, which are believed",)
        return _Request(path, asks, accept=lambda: adopt(path))
    if (path / MANIFEST).is_file():
        read_manifest(path)
        asks = ("is a project, whose CMake files run what they say when it is built",)
        return _Request(path, asks, accept=lambda: trust.claim(path))
    hint = f"archives, libraries, hardware maps (.yaml), sweeps, stores, projects and {SETTINGS} need one"
    raise UsageError("this file needs no permission", where=str(path), hint=hint)


def _agree(requests: Sequence[_Request], yes: bool) -> None:
    # Show what is asked for, and ask. Raises ``UsageError`` for a no.
    for each in requests:
        for ask in each.asks:
            log.print(f"{each.file}: it {ask}", soft_wrap=True)
    if yes or not any(each.asks for each in requests):
        return
    if not _somebody_is_there():
        raise UsageError(
            "there is no terminal to ask on", hint="read the lines above, then: crtgen trust --yes"
        )
    if not typer.confirm("Allow this?", err=True):
        raise UsageError("nothing was allowed", hint="answer y to go on")


def _somebody_is_there() -> bool:
    return sys.stdin.isatty()


def _pin(settings: Settings, pins: Mapping[Path, str], agreed: bool) -> bool:
    # Write the digests of archives beside their names; whether that changed the file. What was ``agreed`` to
    # of the file stays allowed. Raises ``UsageError`` if it is not as it was shown.
    before = files.read(settings.path, "the settings")
    if trust.digest(before) != settings.digest:
        raise UsageError(
            "the file was changed while you read it",
            where=str(settings.path),
            hint="run the command again and read the new content",
        )
    document = parse_toml_to_edit(before.decode(), settings.path, "the settings")
    by_file = {file.resolve(): content for file, content in pins.items()}
    tables = document.get("model", [])
    for table, model in zip(tables, settings.models, strict=True):
        pin = by_file.get(model.file.resolve())
        if pin is not None:
            table["trust"] = pin
    content = document.as_string().encode()
    if agreed or not asks_of(settings):
        trust.allow(trust.digest(content), settings.path)
    if content == before:
        return False
    files.write(settings.path, content)
    return True
