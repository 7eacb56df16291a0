"""``crtgen init``: prepares a folder with models so that every command works without arguments."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen import api
from crtgen.base import files, trust
from crtgen.base.errors import UsageError
from crtgen.base.folder import SETTINGS, current_folder
from crtgen.base.resources import demo_dir
from crtgen.base.version import __version__
from crtgen.boards import find_board
from crtgen.cli import options
from crtgen.cli.output import Debug, Json, guarded
from crtgen.compiler.codegen.render import render
from crtgen.firmware.library import SUFFIXES

__all__ = ["command"]

_CI = {"github": ".github/workflows/crtgen.yml", "gitlab": ".gitlab-ci.yml"}


def command(
    models: options.MoreModels = None,
    board: options.Boards = None,
    ci: Annotated[str | None, typer.Option(help="Also write the CI file of github or gitlab.")] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Begin with crtgen's example, a model that reads digits.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write crtgen.toml: every command works without arguments."""
    with guarded(as_json, debug) as out:
        if ci is not None and ci not in _CI:
            raise UsageError(f"unknown CI {ci}", hint=f"known: {', '.join(_CI)}")
        boards = [find_board(name).name for name in board or ("mps2_an386",)]
        made = _example() if example else {}
        _write(made)
        found = _models(models)
        if not found:
            hint = "name one: crtgen init MODEL.tflite, or begin with crtgen's: crtgen init --example"
            raise UsageError("there is no model here", hint=hint)
        texts = {} if ci and Path(SETTINGS).exists() else {SETTINGS: _settings(found, boards)}
        if ci is not None:
            texts[_CI[ci]] = render(f"settings/{ci}.yml.j2", version=__version__)
        _write({name: text.encode() for name, text in texts.items()})
        made |= dict.fromkeys(texts, b"")
        if current_folder() is None:
            trust.claim(Path())
        code = [file for file, _ in found if file.endswith(SUFFIXES)]

        def render_lines(console: Console) -> None:
            for name in made:
                console.print(f"wrote {name}")
            if code:
                console.print(f"{', '.join(code)}: code; if you trust whoever made it: crtgen trust")
            console.print("crtgen check --update locks what the models cost; crtgen test verifies them")

        out.result({"files": list(made), "models": [file for file, _ in found]}, render_lines)


def _settings(models: Sequence[tuple[str, str]], boards: Sequence[str]) -> str:
    return render("settings/crtgen.toml.j2", models=models, boards=boards)


def _example() -> dict[str, bytes]:
    # The demonstration model, its cases and one input.
    names = ("digits.tflite", "digits.npz", "digit.npz")
    return {name: files.read(demo_dir() / name) for name in names}


def _write(made: Mapping[str, bytes]) -> None:
    for name in made:
        if Path(name).exists():
            raise UsageError("the file exists already", where=name, hint="edit it, or remove it first")
    for name, content in made.items():
        files.make_directory(Path(name).parent)
        files.write(Path(name), content)


def _models(named: list[Path] | None) -> list[tuple[str, str]]:
    # Models given by name, or else found in this folder.
    return [_model(path) for path in named or sorted([*Path().glob("*.tflite"), *Path().glob("*.onnx")])]


def _model(path: Path) -> tuple[str, str]:
    # A model's file and that of its cases, which has its name; empty if there is none.
    api.load(path)
    if path.is_absolute() or ".." in path.parts:
        raise UsageError("the model is not in this folder", where=str(path), hint="go where the models are")
    cases = path.with_suffix(".npz")
    return path.as_posix(), cases.as_posix() if cases.exists() else ""
