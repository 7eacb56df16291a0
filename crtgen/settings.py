"""``crtgen.toml``: the models of a folder, and what every command does with them there.

::

    boards = ["mps2_an386", "nucleo_l4r5zi"]   # the first one is where a single board is wanted
    optimize = "speed"                         # as any other option of a command, by its long name

    [[model]]
    file = "kws.tflite"
    expect = "kws.npz"                         # cases; without them, the numpy reference
    boards = ["mps2_an386"]                    # in the place of those above

    [model.budget]                             # at most, on each of its boards
    instructions = 2_400_000
    flash_bytes = 60_000
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from crtgen.errors import UsageError
from crtgen.toml import Table, load_toml, text

__all__ = ["METRICS", "SETTINGS", "ModelSettings", "Settings", "read_settings"]

SETTINGS = "crtgen.toml"

METRICS = ("instructions", "arena_bytes", "ram_bytes", "flash_bytes", "stack_bytes", "cycles_estimated")
"""What a budget may limit."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """A model: its file, its cases if it has any, its boards, and what it may cost on each of them."""

    file: Path
    expect: Path | None
    boards: tuple[str, ...]
    budget: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a ``crtgen.toml`` says; ``options`` are those of commands, by name with underscores."""

    path: Path
    boards: tuple[str, ...]
    models: tuple[ModelSettings, ...]
    options: Mapping[str, Any]

    def check_options(self, known: Iterable[str]) -> None:
        """Raise ``UsageError`` for an option that no command has."""
        names = sorted(known)
        for name in self.options:
            if name not in names:
                close = get_close_matches(name, [*names, "boards", "model"], n=1)
                hint = f"did you mean {close[0]}?" if close else "see docs/settings.md"
                raise UsageError("no command has this option", where=f"{self.path}: {name}", hint=hint)


def read_settings(folder: Path) -> Settings | None:
    """The settings of a folder; None if it has none. Raises ``UsageError`` naming file and key."""
    path = folder / SETTINGS
    if not path.exists():
        return None
    content = load_toml(path, "the settings")
    boards = content.get("boards", _names, ())
    models = tuple(_model(folder, boards, each) for each in content.tables("model"))
    options = {key.replace("-", "_"): content.get(key, _plain) for key in content.rest()}
    return Settings(path, boards, models, options)


def _model(folder: Path, boards: tuple[str, ...], content: Table) -> ModelSettings:
    def path(value: Any) -> Path:
        return folder / text(value)

    model = ModelSettings(
        file=content.get("file", path),
        expect=content.get("expect", path, None),
        boards=content.get("boards", _names, boards),
        budget=_budget(content.section("budget")),
    )
    content.finish()
    return model


def _budget(content: Table | None) -> dict[str, int]:
    if content is None:
        return {}
    limits = {key: content.get(key, _limit, None) for key in METRICS}
    content.finish()
    return {key: limit for key, limit in limits.items() if limit is not None}


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("a list of texts is wanted")
    return tuple(map(text, value))


def _limit(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("a whole number is wanted")
    return value


def _plain(value: Any) -> Any:
    """What an option may be: a text, a number, true or false, or a list of them."""
    if isinstance(value, dict):
        raise ValueError("no table is wanted: those are model and model.budget")
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, str | int | float):
            raise ValueError("a text, a number, or true or false is wanted")
    return value
