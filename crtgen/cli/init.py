"""``crtgen init``: a folder with models becomes one in which every command works without arguments."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen import api, files
from crtgen.boards import find_board
from crtgen.cli import options
from crtgen.cli.output import Debug, Json, guarded
from crtgen.codegen.render import render
from crtgen.errors import UsageError
from crtgen.settings import SETTINGS

__all__ = ["command"]

_CI = {"github": ".github/workflows/crtgen.yml", "gitlab": ".gitlab-ci.yml"}


def command(
    models: options.MoreModels = None,
    board: options.Boards = None,
    ci: Annotated[str | None, typer.Option(help="Write the file of a CI, too: github or gitlab.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write crtgen.toml: every command works without arguments."""
    with guarded(as_json, debug) as out:
        if ci is not None and ci not in _CI:
            raise UsageError(f"unknown CI {ci}", hint=f"known: {', '.join(_CI)}")
        boards = [find_board(name).name for name in board or ("mps2_an386",)]
        found = [
            _model(path) for path in models or sorted([*Path().glob("*.tflite"), *Path().glob("*.onnx")])
        ]
        if not found:
            raise UsageError("there is no model here", hint="name one: crtgen init MODEL.tflite")
        made = {SETTINGS: render("settings/crtgen.toml.j2", models=found, boards=boards)}
        if ci is not None:
            made[_CI[ci]] = render(f"settings/{ci}.yml.j2", models=found)
        for name in made:
            if Path(name).exists():
                raise UsageError("it is there already", where=name, hint="edit it, or remove it first")
        for name, text in made.items():
            files.make_directory(Path(name).parent)
            files.write(Path(name), text.encode())

        def render_lines(console: Console) -> None:
            for name in made:
                console.print(f"wrote {name}")
            console.print("crtgen check --update locks what the models cost; crtgen test verifies them")

        out.result({"files": list(made), "models": [file for file, _ in found]}, render_lines)


def _model(path: Path) -> tuple[str, str]:
    """A model's file and that of its cases, which has its name; empty if there is none."""
    api.load(path)
    if path.is_absolute() or ".." in path.parts:
        raise UsageError("it is not in this folder", where=str(path), hint="go where the models are")
    cases = path.with_suffix(".npz")
    return path.as_posix(), cases.as_posix() if cases.exists() else ""
