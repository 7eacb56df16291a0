"""The page says what the commands say."""

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crtgen.cli import viewed
from crtgen.cli.app import app
from tests.lab.view.serving import Commands, Page, serving
from tests.support import ROOT, require_tool

pytest.importorskip("vl_convert")

DEMO = ROOT / "demo"
NETWORKS = ("digits.tflite", "digits.onnx")


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with serving(tmp_path / "view", Commands()) as found:
        yield found


def _said(*arguments: str) -> tuple[int, Any]:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    return done.exit_code, json.loads(done.stdout)


def _asked(page: Page, name: str, asked: dict[str, str], **more: str) -> tuple[int, Any]:
    answer = page.ask(name, **asked, **more)
    return answer["exit_code"], answer["result"]


@pytest.mark.parametrize("network", NETWORKS)
def test_answers_are_those_of_commands(page: Page, network: str, tmp_path: Path) -> None:
    model, cases = DEMO / network, DEMO / "digits.npz"
    asked = page.drop(model, cases)
    size = ("--board", "nucleo_l4r5zi", "--optimize", "size")
    chosen = {"board": "nucleo_l4r5zi", "optimize": "size"}
    assert _asked(page, "inspect", asked, **chosen) == _said("inspect", str(model), *size)
    assert _asked(page, "fit", asked, **chosen) == _said("fit", str(model), *size)
    kind = {"type": "library"}
    code, made = _asked(page, "generate", asked, **chosen, **kind)
    expected = _said("generate", str(model), str(tmp_path / "project"), *size, "--type", "library")
    assert (code, {**made, "directory": ""}) == (expected[0], {**expected[1], "directory": ""})
    zipped = page.send("GET", f"/api/project?drop={asked['drop']}")[2]
    files = {
        str(file.relative_to(tmp_path)): file.read_bytes()
        for file in (tmp_path / "project").rglob("*")
        if file.is_file()
    }
    with zipfile.ZipFile(io.BytesIO(zipped)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files


@pytest.mark.nightly
@pytest.mark.qemu
@pytest.mark.parametrize("network", NETWORKS)
def test_answers_that_need_an_image(page: Page, network: str) -> None:
    require_tool("qemu-system-arm")
    model, cases, data = DEMO / network, DEMO / "digits.npz", DEMO / "digits_images.npz"
    asked = page.drop(model, cases, data)
    chosen = ("--board", "mps2_an386", "--optimize", "balanced")
    said = _said("verify", str(model), *chosen, "--simulate", "--expect", str(cases))
    assert _asked(page, "verify", asked, board="mps2_an386", expect=cases.name) == said
    assert said[1]["failed"] == 0
    assert _asked(page, "prove", asked, board="mps2_an386") == _said("prove", str(model), *chosen)
    expected = _said("eval", str(model), str(data), "--board", "host")
    assert _asked(page, "eval", asked, board="host", data=data.name) == expected
    assert _asked(page, "fit", asked) == _said("fit", str(model))


def test_errors_are_those_of_commands(page: Page, tmp_path: Path) -> None:
    bad = tmp_path / "bad.tflite"
    bad.write_bytes(b"\0\0\0\0TFL3" * 9)
    asked = page.drop(bad)
    answer = page.ask("inspect", **asked, board="mps2_an386")
    code, said = _said("inspect", str(bad))
    assert (answer["exit_code"], answer["result"]["message"]) == (code, said["message"])
    assert answer["result"]["where"] == "bad.tflite", "no path of this computer"
    assert str(tmp_path) not in json.dumps(answer)
    assert "page" not in answer


def test_the_drawings_of_the_report(page: Page) -> None:
    answer = page.ask("inspect", **page.drop(DEMO / "digits.tflite"), board="nucleo_l4r5zi")
    assert answer["command"][-2:] == ["--page", "page.html"]
    drawn = answer["page"]
    for title in ("Where the estimated cycles go", "Layers", "Memory over time", "Layers in order"):
        assert f"<h3>{title}</h3>" in drawn
    assert ">µJ</th>" in drawn
    assert not any(text in drawn for text in ("<style", "style=", "<script", "http://127"))


def _lines(request: dict[str, Any], *inputs: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    said = io.StringIO()
    asked = [request, *({"input": str(file)} for file in inputs)]
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(json.dumps(line) + "\n" for line in asked)))
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", said)
        patch.setattr(viewed, "end_like_an_exit", lambda: None)
        viewed.wait()
    return [json.loads(line) for line in said.getvalue().splitlines()]


def test_a_model_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs of several kinds get the outputs of ``crtgen run``; a wrong one gets its error."""
    require_tool("cc")
    model, cases = DEMO / "digits.tflite", DEMO / "digit.npz"
    bad = tmp_path / "bad.npy"
    np.save(bad, np.zeros((3, 3), np.int8))
    request = {"live": {"file": str(model), "optimize": "balanced"}, "memory": 1 << 28}
    about, first, wrong, again = _lines(request, cases, bad, cases, monkeypatch=monkeypatch)
    assert about == {
        "model": "digits",
        "inputs": [{"name": "image", "shape": [1, 8, 8, 1], "dtype": "int8"}],
        "labels": [],
        "rate": None,
    }
    _, said = _said("run", str(model), "--board", "host", "--input", str(cases))
    assert first["outputs"] == said["outputs"] == again["outputs"]
    assert max(first["values"]["probabilities"]) <= 1
    assert wrong["error"] == "UsageError"


def test_a_model_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = tmp_path / "bad.tflite"
    bad.write_bytes(b"no")
    request = {"live": {"file": str(bad), "optimize": "balanced"}, "memory": 1 << 28}
    (answer,) = _lines(request, monkeypatch=monkeypatch)
    assert answer["error"] == "CorruptModelError"
