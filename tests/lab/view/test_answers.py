"""The page says what the commands say."""

import io
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crtgen.cli import run, viewed
from crtgen.cli.app import app
from crtgen.lab.view import Jobs
from crtgen.network.ir import Array
from tests.lab.view.serving import Commands, Page, serving
from tests.network.pipeline.files import describe, sound_dir
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
def test_answers_that_need_an_image(page: Page, network: str, tmp_path: Path) -> None:
    require_tool("qemu-system-arm")
    model, chosen = DEMO / network, ("--board", "mps2_an386", "--optimize", "balanced")
    asked = page.drop(model)
    assert _asked(page, "fit", asked) == _said("fit", str(model))
    said = _said("verify", str(model), *chosen, "--simulate")
    assert _asked(page, "verify", asked, board="mps2_an386") == said
    assert (said[0], said[1]["cases"], said[1]["failed"]) == (0, 4, 0)
    if network.endswith(".onnx"):
        return  # of floats: prove says that it does not follow them
    found, expected = _asked(page, "prove", asked, board="mps2_an386"), _said("prove", str(model), *chosen)
    assert found[1].pop("cpu_seconds") > 0
    assert expected[1].pop("cpu_seconds") > 0
    assert found == expected
    assert found[1]["proven"]


def test_accuracy(page: Page, tmp_path: Path) -> None:
    """Arrays with labels, and a folder of pictures with a folder per label."""
    require_tool("cc")
    model, data = DEMO / "digits.tflite", tmp_path / "data.npz"
    with np.load(DEMO / "digits.npz") as cases:
        x = np.concatenate([cases[f"case{n}_input0"] for n in range(8)])
        y = np.array([cases[f"case{n}_output0"].argmax() for n in range(8)])
    np.savez(data, x=x, y=y)
    asked = page.drop(model, data)
    said = _said("eval", str(model), str(data), "--board", "host")
    assert _asked(page, "eval", asked, data="data.npz") == said
    assert said[1]["accuracy"] == 1
    picture = _encoded(x[0, :, :, 0].astype(np.int16) + 128)
    for label in range(10):
        page.send("POST", f"/api/drop?drop={asked['drop']}&path=clips/{label}/a.png", picture)
    page.send("POST", f"/api/drop?drop={asked['drop']}&path=labels.txt", "\n".join("0123456789").encode())
    code, found = _asked(page, "eval", asked, data="clips", labels="labels.txt")
    assert code == 0, found
    assert (code, found["clips"], found["confusion"][y[0]][y[0]]) == (0, 10, 1)


def _encoded(pixels: Array) -> bytes:
    """A grey picture as PNG."""
    image = pytest.importorskip("PIL.Image").fromarray(pixels.astype(np.uint8))
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def test_a_pipeline_with_its_network(page: Page, tmp_path: Path) -> None:
    network = sound_dir() / "networks" / "micro_speech_quantized.tflite"
    file = describe(tmp_path, "tflm-micro-speech", network.name)
    (tmp_path / network.name).write_bytes(network.read_bytes())
    asked = page.drop(file, tmp_path / network.name)
    found = _asked(page, "inspect", asked, board="mps2_an386")
    assert found == _said("inspect", str(file), "--board", "mps2_an386")
    assert found[1]["features"]


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
        patch.setattr("crtgen.cli.app.end_like_an_exit", lambda: None)
        patch.setattr("sys.argv", [])
        patch.setattr(run, "command", run.command)
        with pytest.raises(SystemExit):
            viewed.wait()
    return [json.loads(line) for line in said.getvalue().splitlines()]


def test_a_model_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs of several kinds get the outputs of ``crtgen run``; a wrong one gets its error."""
    require_tool("cc")
    model, cases = DEMO / "digits.tflite", DEMO / "digit.npz"
    bad = tmp_path / "bad.npy"
    np.save(bad, np.zeros((3, 3), np.int8))
    request = {"arguments": ["run", str(model), "--board", "host"], "live": True}
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
    request = {"arguments": ["run", str(bad), "--board", "host"], "live": True}
    (answer,) = _lines(request, monkeypatch=monkeypatch)
    assert answer["error"] == "CorruptModelError"


def test_a_command_in_a_child(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"arguments": ["boards", "--json"], "live": False}
    monkeypatch.setattr("sys.argv", [])
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(asked) + "\n"))
    monkeypatch.setattr("crtgen.cli.app.end_like_an_exit", lambda: None)
    with pytest.raises(SystemExit) as end:
        viewed.wait()
    assert end.value.code in (None, 0)
    assert json.loads(capsys.readouterr().out) == _said("boards")[1]
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    viewed.wait()  # the page ended before it asked for anything


@pytest.mark.nightly
def test_hostile_files_in_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children of their own: each file ends with an error of a command, within its limits; none stays."""
    monkeypatch.setattr("crtgen.base.budget._seconds", 5)
    onnx = pytest.importorskip("onnx")
    value, shape = onnx.numpy_helper.from_array(np.ones(1, np.float32)), np.array([4096, 4096])
    nodes = [
        onnx.helper.make_node("ConstantOfShape", ["s"], ["k"], value=value),
        onnx.helper.make_node("MatMul", ["k", "k"], ["m"]),
    ]
    output = onnx.helper.make_tensor_value_info("m", onnx.TensorProto.FLOAT, [4096, 4096])
    graph = onnx.helper.make_graph(nodes, "g", [], [output], [onnx.numpy_helper.from_array(shape, "s")])
    hostile = {
        "product.onnx": onnx.helper.make_model(graph).SerializeToString(),
        "noise.tflite": b"\x18\0\0\0TFL3" + bytes(range(256)) * 40,
        "bomb.tar": bytes(512) * 100,
        "crtgen.toml": b'[pipeline]\nname = "../../x"\n',
    }
    jobs = Jobs((sys.executable, "-P", "-m", "crtgen.cli.viewed"))
    with serving(tmp_path / "view", jobs) as page:
        for name, data in hostile.items():
            (tmp_path / name).write_bytes(data)
            answer = page.ask("inspect", **page.drop(tmp_path / name), board="mps2_an386")
            assert answer["exit_code"] in (2, 3), answer
            assert answer["result"]["message"]
    assert not jobs.children
