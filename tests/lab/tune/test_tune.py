"""``crtgen tune`` from a model to its file, and what other commands make of that."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crtgen import api
from crtgen.base.errors import UsageError
from crtgen.cli.app import app
from crtgen.compiler.tuned import KernelChoice, Tuned, read_tuned, write_tuned
from crtgen.lab.measure.lock import RESOLUTION
from tests.support import ROOT, require_tool

pytest.importorskip("ortools")


def crtgen(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    require_tool("qemu-system-arm")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.qemu
def test_from_a_model_to_its_file(folder: Path) -> None:
    """What the file has of other models stays."""
    model = ROOT / "demo" / "digits.onnx"
    other = Tuned("other", "mps3_an547", "speed", "cycles", 2, 1, (KernelChoice("a", "b", "c", "d", 1),))
    write_tuned(folder / "tune.toml", [other])
    found = crtgen("tune", model, "--board", "mps3_an547")
    assert found["tuned"] <= found["untuned"]
    assert found["image_flash_bytes"][1] <= found["image_flash_bytes"][0]
    assert (found["candidates"], found["measurements"], found["images"]) == (6, 6, 2)
    entries = read_tuned(folder / "tune.toml")
    assert entries[1] == other
    assert [c.key for c in entries[0].layers] == [(x["design"], x["variant"]) for x in found["layers"]]
    assert sum(choice.figure for choice in entries[0].layers) < found["tuned"]
    (plan,) = api.load(model).compile("mps3_an547", optimize="speed", tuned=entries).plans
    kernels = {step.name: step.kernel.design for step in plan.steps}
    assert all(kernels[choice.name] == choice.design for choice in entries[0].layers)


@pytest.mark.qemu
@pytest.mark.nightly
def test_it_is_not_worse_and_bench_says_the_same(folder: Path) -> None:
    model = ROOT / "demo" / "digits.tflite"
    found = crtgen("tune", model, "--board", "mps2_an386")
    assert found["tuned"] <= found["untuned"]
    assert found["image_flash_bytes"][1] <= found["image_flash_bytes"][0]
    assert found["image_ram_bytes"][1] <= found["image_ram_bytes"][0]
    assert found["measurements"] == found["candidates"] > found["images"] > 2
    assert not found["failed"]

    bench = crtgen("bench", model, "-b", "mps2_an386", "--optimize", "speed", "--tune", "tune.toml")
    (report,) = bench["results"]
    assert abs(report["instructions"] - found["tuned"]) <= RESOLUTION
    assert report["image_flash_bytes"] == found["image_flash_bytes"][1]
    layers = {layer["name"]: layer["kernel"] for layer in report["layers"]}
    assert all(layers[layer["name"]] == layer["design"] for layer in found["layers"])

    less = crtgen("tune", model, "--board", "mps2_an386", "--flash", found["image_flash_bytes"][0] - 400)
    assert less["measurements"] == less["images"] == 0
    assert less["image_flash_bytes"][1] <= found["image_flash_bytes"][0] - 400
    assert less["tuned"] > found["tuned"]


def test_this_computer_counts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = crtgen("tune", ROOT / "demo" / "digits.onnx", "--board", "host", code=UsageError.exit_code)
    assert "counts neither instructions nor cycles" in found["message"]
