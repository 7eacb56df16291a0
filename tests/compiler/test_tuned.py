"""Tune files: what they say is done, the same file gives the same bytes, and a stale one is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crtgen import api
from crtgen.base.errors import UsageError
from crtgen.cli.app import app
from crtgen.compiler.tuned import KernelChoice, Tuned, read_tuned, write_tuned
from crtgen.lab.tune.layers import layers_of
from tests.support import ROOT

BOARD = "mps2_an386"
MODEL = ROOT / "demo" / "digits.onnx"


def _tuned(variant: str) -> Tuned:
    """The layers of the demonstration network with one variant, where there is such."""
    layers = []
    for layer in layers_of(api.load(MODEL).compile(BOARD, optimize="speed")):
        known = [c for c in layer.candidates if c.variant == variant] or layer.candidates
        layers.append(KernelChoice(layer.name, layer.digest, *known[0].key, figure=7))
    return Tuned("digits", BOARD, "speed", "instructions", 2, 1, tuple(layers))


def _files(*entries: Tuned, optimize: str = "speed") -> dict[str, str]:
    (module,) = api.load(MODEL).compile(BOARD, optimize=optimize, tuned=entries).modules
    return dict(module.files)


def test_the_same_entries_are_the_same_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "a.toml", tmp_path / "b.toml"
    odd = replace(
        _tuned("size"), model="odd", layers=(KernelChoice('a "b\\c\x7f\n', "d", "e", "f", 1_000_000),)
    )
    write_tuned(one, [odd, _tuned("long")])
    write_tuned(other, read_tuned(one))
    assert read_tuned(one) == (_tuned("long"), odd)
    assert one.read_bytes() == other.read_bytes()
    assert "figure = 1_000_000" in one.read_text()


def test_what_it_says_is_done() -> None:
    """The usual kernels give the usual code; others give theirs, each time the same."""
    assert _files(_tuned("speed")) == _files()
    longer = _files(_tuned("long"))
    assert longer == _files(_tuned("long")) != _files()


def test_it_is_for_a_model_on_a_board_at_a_level() -> None:
    tuned = _tuned("long")
    assert _files(tuned, optimize="size") == _files(optimize="size")
    for other in (replace(tuned, model="another"), replace(tuned, board="mps2_an500")):
        assert _files(other) == _files()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "conv9"}, "the model has no such layer"),
        ({"digest": "0" * 12}, "it has other shapes or attributes"),
        ({"design": "vfp 9x9"}, "there is no kernel vfp 9x9, long"),
        ({"variant": "longest"}, "longest, for it"),
        ({"memory": "sdram"}, "the board has no memory sdram"),
    ],
)
def test_a_stale_file_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = tmp_path / "tune.toml"
    tuned = _tuned("long")
    changed = replace(tuned.layers[0], **change)
    write_tuned(path, [replace(tuned, layers=(changed, *tuned.layers[1:]))])
    with pytest.raises(UsageError, match=said) as caught:
        _files(*read_tuned(path))
    assert caught.value.where == f"{path}: digits: {changed.name}"
    assert caught.value.hint == "crtgen tune measures the model anew"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("model = 3", "tune.toml: model"),
        ('[[model]]\nmodel = "a"', "model 1.board"),
        ("[[model]]\nlayer = 1", "model 1."),
        ("x = 1", "tune.toml: x"),
        ("[[", "tune.toml"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, where: str) -> None:
    path = tmp_path / "tune.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_tuned(path)
    assert where in caught.value.where


def test_a_key_is_there_once(tmp_path: Path) -> None:
    path = tmp_path / "tune.toml"
    write_tuned(path, [_tuned("long"), _tuned("size")])
    with pytest.raises(UsageError, match="digits, mps2_an386, speed is there twice"):
        read_tuned(path)


def test_the_settings_of_a_folder_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands read it from there; a stale one is said to be so."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / "crtgen.toml").write_text('optimize = "speed"\ntune = "t.toml"\n')
    tuned = _tuned("size")

    def archive(code: int) -> Any:
        command = ["compile", str(MODEL), "--board", BOARD, "-o", "m.tar", "--json"]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    write_tuned(tmp_path / "t.toml", [])
    plain = archive(0)["sha256"]
    write_tuned(tmp_path / "t.toml", [tuned])
    other = archive(0)["sha256"]
    assert other == archive(0)["sha256"] != plain
    write_tuned(tmp_path / "t.toml", [replace(tuned, layers=(replace(tuned.layers[0], design="x"),))])
    assert archive(UsageError.exit_code)["where"] == f"t.toml: digits: {tuned.layers[0].name}"
