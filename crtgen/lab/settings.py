"""``crtgen.toml``: the models of a folder, and the defaults of every command for them.

::

    boards = ["mps2_an386", "nucleo_l4r5zi"]   # the first one is where a single board is wanted
    optimize = "speed"                         # as any other option of a command, by its long name

    [[model]]
    file = "kws.tflite"
    expect = "kws.npz"                         # cases; without them, the numpy reference
    boards = ["mps2_an386"]                    # instead of those above
    trust = "sha256:..."                       # of an archive: this code may run; crtgen trust writes it
    proven = true                              # check proves its image for each of its boards
    data = "clips"                             # labelled data, as crtgen eval takes them

    [model.budget]                             # at most, on each of its boards
    instructions = 2_400_000
    flash_bytes = 60_000
    accuracy = 0.9                             # at least, on its data

    [slots]                                    # with [slot.a] and so on: as in a board's file
    driver = "stm32l4"

Paths are relative to the file. It is data: what it asks for beyond that, ``Settings.require`` looks up.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from crtgen.base import trust
from crtgen.base.errors import UsageError
from crtgen.base.folder import SETTINGS, current_folder
from crtgen.base.quality import QUALITY, limits_of
from crtgen.base.toml import TomlTable, load_toml, text
from crtgen.boards import Slots, parse_size, parse_slots

__all__ = ["METRICS", "ModelSettings", "Settings", "current_settings", "read_settings", "trust_of"]

METRICS = (
    *("instructions", "arena_bytes", "ram_bytes", "flash_bytes"),
    *("image_ram_bytes", "image_flash_bytes", "stack_bytes", "cycles_estimated", "energy_uj"),
)
"""Figures that a budget may limit: flash and RAM of the model as a library, or of an image."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """A model: its file, its cases if it has any, its boards, and its budget on each of them.

    ``trust`` is the digest of an archive whose code may run, empty if the file does not give one. ``proven``
    requires a proof of its image on each board. ``quality`` are limits for the results of ``evaluate`` on its
    ``data``, whose ``labels`` are the lines of a file.
    """

    file: Path
    expect: Path | None
    boards: tuple[str, ...]
    budget: Mapping[str, int]
    trust: str = ""
    proven: bool = False
    data: Path | None = None
    labels: Path | None = None
    quality: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """Content of a ``crtgen.toml``; ``options`` are options of commands, by their long names (``core-dump``).

    ``digest`` is that of the file; ``slots`` replace the board's slots.
    """

    path: Path
    boards: tuple[str, ...]
    models: tuple[ModelSettings, ...]
    options: Mapping[str, Any]
    digest: str
    slots: Slots | None = None

    @property
    def folder(self) -> Path:
        """Folder of the file; its paths are relative to it."""
        return self.path.parent

    @property
    def is_allowed(self) -> bool:
        return trust.is_allowed(self.digest, self.path)

    def require(self, asks: Sequence[str]) -> None:
        """Raise ``UsageError`` if the file ``asks`` for something that the user did not allow."""
        trust.require(self.path, self.digest, asks)

    def leads_out(self, path: Path) -> bool:
        """True if a path, with links resolved, is outside of the folder."""
        return not path.resolve().is_relative_to(self.folder.resolve())

    def hidden_part(self, path: Path) -> str:
        """First component of a path, with links resolved, that begins with a dot, such as ``.git``; empty
        without one.
        """
        place, folder = path.resolve(), self.folder.resolve()
        return next((part for part in place.relative_to(folder).parts if part.startswith(".")), "")

    def check_options(self, known: Iterable[str]) -> None:
        """Raise ``UsageError`` for an option that no command has."""
        names = sorted(known)
        for name in self.options:
            if name not in names:
                close = get_close_matches(name, [*names, "boards", "model"], n=1)
                hint = f"did you mean {close[0]}?" if close else "see docs/settings.md"
                raise UsageError("no command has this option", where=f"{self.path}: {name}", hint=hint)


def read_settings(folder: Path) -> Settings | None:
    """Return the settings of a folder; None if it has none. Raises ``UsageError`` naming file and key."""
    path = folder / SETTINGS
    if not path.exists():
        return None
    content = load_toml(path, "the settings")

    def names(value: Any) -> tuple[str, ...]:
        """Return boards; a board file is relative to the settings' folder."""
        return tuple(str(folder / name) if name.endswith(".toml") else name for name in _names(value))

    boards = content.get("boards", names, ())
    models = tuple(_model(folder, names, boards, each) for each in content.tables("model"))
    slots = parse_slots(content)
    options = {key.replace("_", "-"): content.get(key, _plain) for key in content.rest()}
    return Settings(path, boards, models, options, content.digest, slots)


def current_settings() -> Settings | None:
    folder = current_folder()
    return None if folder is None else read_settings(folder)


def trust_of(path: Path) -> str:
    """Return the digest of the code that the current settings trust in the archive ``path``; empty if none.

    It only counts if the user allowed it.
    """
    settings = current_settings()
    if settings is None or not settings.is_allowed:
        return ""
    models = (m for m in settings.models if m.trust and m.file.resolve() == path.resolve())
    return next((model.trust for model in models), "")


def _model(folder: Path, names: Any, boards: tuple[str, ...], content: TomlTable) -> ModelSettings:
    def path(value: Any) -> Path:
        return folder / text(value)

    def file(value: Any) -> Path:
        if path(value).is_dir():
            raise ValueError(f"{value} is a folder, not a model")
        return path(value)

    budget, quality = _budget(content.section("budget"))
    data = content.get("data", path, None)
    if quality and data is None:
        what = f"{next(iter(quality))} is a budget, and no labelled data are named"
        raise content.error("data", what)
    model = ModelSettings(
        file=content.get("file", file),
        expect=content.get("expect", path, None),
        boards=content.get("boards", names, boards),
        budget=budget,
        trust=content.get("trust", _digest, ""),
        proven=content.get("proven", _truth, False),
        data=data,
        labels=content.get("labels", path, None),
        quality=quality,
    )
    content.finish()
    return model


def _budget(content: TomlTable | None) -> tuple[dict[str, int], dict[str, float]]:
    # Limits of cost, and limits of quality.
    if content is None:
        return {}, {}
    limits = {key: content.get(key, _limit, None) for key in METRICS}
    quality = dict(content.get("goal", _goal, {}))
    quality |= {key: limit for key in QUALITY if (limit := content.get(key, _quality, None)) is not None}
    content.finish()
    return {key: limit for key, limit in limits.items() if limit is not None}, quality


def _goal(value: Any) -> Mapping[str, float]:
    try:
        return limits_of(text(value))
    except UsageError as error:
        raise ValueError(f"{error.message}; {error.hint}") from error


def _quality(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e6:
        raise ValueError("expected a number from 0 on")
    return float(value)


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("expected a list of texts")
    return tuple(map(text, value))


def _digest(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("sha256:[0-9a-f]{64}", value):
        raise ValueError("expected the digest of the archive, which crtgen trust writes")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _limit(value: Any) -> int:
    # A number, or a size as the files of boards write it: ``60_000``, ``"60K"``, ``"60 KiB"``.
    if isinstance(value, str):
        return parse_size(value)
    if type(value) is not int or value < 0:
        raise ValueError("expected an integer")
    return value


def _plain(value: Any) -> Any:
    # Options may be a text, a number, a boolean, or a list of these.
    if isinstance(value, dict):
        raise ValueError("expected no table: those are model and model.budget")
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, str | int | float):
            raise ValueError("expected a text, a number, or true or false")
    return value
