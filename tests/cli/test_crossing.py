"""Every option that decides what is computed, with every command: it is used, or refused by name.

Where one command ignored what another one knows, a network was verified that is not the one that is shipped.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from crtgen import api
from crtgen.cli.app import app
from crtgen.cli.settings import _CODE, _OWN_CODE, _READS_MODELS, _long_name
from tests.support import ROOT

_MORE: dict[str, Sequence[str]] = {
    "eval": ["digits.onnx", "labelled.npz", "--board", "host"],
    "replay": ["digits.npz", "digits.onnx"],
    "slot": ["--slot", "a", "--board", "nucleo_l4r5zi"],
    "check": ["--update"],
    "generate": ["firmware"],
}
"""Arguments that a command needs besides the model of crtgen.toml, to get as far as compiling it."""


def _commands() -> dict[str, click.Command]:
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group) or hasattr(group, "commands")
    commands: dict[str, click.Command] = group.commands
    return {
        name: command
        for name, command in commands.items()
        if name not in _OWN_CODE
        and any(p.param_type_name == "argument" and p.name in _READS_MODELS for p in command.params)
    }


class _CompiledError(Exception):
    """A command asked for a compilation."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose settings say otherwise than every default."""
    (tmp_path / ".git").mkdir()
    for name in ("digits.onnx", "digits.npz"):
        shutil.copy(ROOT / "demo" / name, tmp_path)
    np.savez(tmp_path / "labelled.npz", x=np.zeros((2, 8, 8, 1), np.float32), y=np.arange(2))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", sorted(_commands()))
def test_settings_reach_what_is_compiled(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'boards = ["mps2_an386"]\nkeep_inputs = true\nchannels = "last"\n[[model]]\nfile = "digits.onnx"\n'
    if name == "tune":
        text = text.replace("keep_inputs = true\n", "")
    (folder / "crtgen.toml").write_text(text)
    seen: list[tuple[Any, dict[str, Any]]] = []

    def compiles(models: Sequence[Any], board: Any = None, **choices: Any) -> None:
        seen.append((models, choices))
        raise _CompiledError

    for module in ("crtgen.api", "crtgen.api.model"):
        monkeypatch.setattr(f"{module}.compile", compiles)
    done = CliRunner().invoke(app, [name, *_MORE.get(name, ())])
    assert isinstance(done.exception, _CompiledError), done.output
    ((model, *_), choices) = seen[0]
    assert isinstance(model, api.Model)
    assert model.inputs[0].shape == (1, 8, 8, 1)
    assert choices.get("keep_inputs") is (None if name == "tune" else True)


@pytest.mark.parametrize("key", sorted(_CODE))
def test_no_option_of_code_is_ignored(key: str, folder: Path) -> None:
    """A command that does not have it says so, before it reads a model."""
    (folder / "crtgen.toml").write_text(f'{key.replace("-", "_")} = "x"\n[[model]]\nfile = "digits.onnx"\n')
    without = [
        name
        for name, command in _commands().items()
        if key not in {name, *(_long_name(p) for p in command.params if p.param_type_name == "option")}
    ]
    assert set(without) <= {"tune", "slot"}
    for name in without:
        done = CliRunner().invoke(app, [name, *_MORE.get(name, ())])
        assert done.exit_code == 2, name
        assert f"crtgen {name} has no --{key}" in done.output
