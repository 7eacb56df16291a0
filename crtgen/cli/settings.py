"""How ``crtgen.toml`` reaches the commands: as what their parameters are where nobody says otherwise."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from crtgen.errors import UsageError
from crtgen.settings import SETTINGS, ModelSettings, Settings, read_settings

__all__ = ["DIRECTORY", "cases_file", "chosen_models", "defaults"]

DIRECTORY = "firmware"
"""Where the project of a folder goes."""

_PER_MODEL = ("check", "test")
"""Commands that take each model with its own boards, see ``chosen_models``."""


def defaults(settings: Settings, commands: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By command, what its parameters are: ``commands`` are those of Click.

    Where one model is wanted it is the first, and so is the board. Raises ``UsageError`` for an option that
    no command has.
    """
    settings.check_options(
        {p.name for c in commands.values() for p in c.params if p.param_type_name == "option"}
    )
    found = {}
    for name, command in commands.items():
        values = {p.name: _value(settings, p) for p in command.params}
        left_out = ("models", "board") if name in _PER_MODEL else ()
        found[name] = {key: v for key, v in values.items() if v is not None and key not in left_out}
    return found


def _value(settings: Settings, parameter: Any) -> Any:
    """What a parameter is; None if the settings do not say."""
    several = parameter.multiple if parameter.param_type_name == "option" else parameter.nargs == -1
    files = [str(model.file) for model in settings.models]
    known: dict[str, Sequence[str]] = {"board": settings.boards}
    if parameter.param_type_name == "argument":
        known = {"models": files, "model": files, "source": files, "directory": (DIRECTORY,)}
    if parameter.name in known:
        values = list(known[parameter.name])
        return values if several else next(iter(values), None)
    return settings.options.get(parameter.name) if parameter.param_type_name == "option" else None


def cases_file(source: Path, expect: Path | None) -> Path | None:
    """The file of cases that is named, or else that of the model in ``crtgen.toml``."""
    settings = read_settings(Path()) if expect is None else None
    return next((m.expect for m in settings.models if m.file == source), None) if settings else expect


def chosen_models(models: Sequence[Path] | None, boards: Sequence[str] | None) -> list[ModelSettings]:
    """The models that are named, or else all of ``crtgen.toml``, with what it says of them.

    ``boards`` stand in the place of theirs. Raises ``UsageError`` if there is no model.
    """
    settings = read_settings(Path())
    known = {model.file: model for model in (settings.models if settings else ())}
    if models:
        named = [
            known.get(path, ModelSettings(path, None, settings.boards if settings else (), {}))
            for path in models
        ]
    else:
        named = list(known.values())
    if not named:
        raise UsageError(
            "no model is named", hint=f"name one, or list them in {SETTINGS}: crtgen init makes it"
        )
    return [replace(model, boards=tuple(boards)) for model in named] if boards else named
