"""A second run of the same model builds nothing; of anything else, it does."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from crtgen import api
from crtgen.cli.app import app
from crtgen.cli.kept import by_age
from tests.support import ROOT

pytestmark = pytest.mark.cc

DIGITS = ROOT / "demo" / "digits.tflite"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copy(DIGITS, tmp_path / "digits.tflite"))


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The boards that something was built for."""
    boards: list[str] = []
    build: Callable[..., api.Image] = api.GeneratedProject.build

    def counted(self: api.GeneratedProject, **options: Any) -> api.Image:
        boards.append(self.project.board)
        return build(self, **options)

    monkeypatch.setattr(api.GeneratedProject, "build", counted)
    return boards


def kept() -> list[Path]:
    from crtgen.cli.kept import _images  # as the fixture of this test has it

    return sorted(_images().iterdir())


def run(*args: object) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["run", *map(str, args), "--board", "host", "--json"])
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    del data["seconds"]
    return data


def test_the_same_is_built_once_and_reported_alike(model: Path, built: list[str]) -> None:
    first = run(model)
    assert run(model) == first
    assert built == ["host"]
    assert first["arena"] is not None, "what only a plan tells is kept, too"


def test_what_is_to_be_known_of_a_model_is_said_again(tmp_path: Path) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [1, 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "model", ends[:1], ends[1:])
    path = tmp_path / "half.onnx"
    opsets = [helper.make_opsetid("", 17)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    said = [CliRunner().invoke(app, ["run", str(path), "--board", "host"]).stderr for _ in range(2)]
    assert "float32" in said[0]
    assert said[0] == said[1]


def test_another_option_or_file_is_built(model: Path, built: list[str], tmp_path: Path) -> None:
    run(model)
    run(model, "--optimize", "size")
    assert len(built) == 2
    assert len(kept()) == 2
    data = bytearray(model.read_bytes())
    data[data.index(b"probabilities")] = ord("q")
    model.write_bytes(data)
    assert list(run(model)["outputs"]) == ["qrobabilities"]
    assert len(built) == 3
    assert len(kept()) == 2, "it has the place of the one before"
    run(model, "--dir", tmp_path / "project")
    assert len(built) == 3, "a project of one's own is built there"
    assert (tmp_path / "project" / "build").is_dir()


def test_a_kept_image_that_is_damaged_is_built_anew(model: Path, built: list[str]) -> None:
    run(model)
    (folder,) = kept()
    (image,) = (path for path in (folder / "build").iterdir() if path.suffix != ".json")
    image.write_bytes(image.read_bytes()[:-1] + b"!")
    run(model)
    assert len(built) == 2
    for before, after in (('"made"', ""), ('"notes":[]', '"notes":["other"]')):
        text = (folder / "kept.json").read_text()
        assert before in text
        (folder / "kept.json").write_text(text.replace(before, after))
        run(model)
    assert len(built) == 4


def test_an_image_that_somebody_else_kept_is_built_anew(
    model: Path, built: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``kept.json`` has all digests, so it is believed only with the person's mark."""
    run(model)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "a colleague"))
    run(model)
    assert len(built) == 2
    (folder,) = kept()
    (folder / "kept.json").write_text((folder / "kept.json").read_text().partition("\n")[2])
    run(model)
    assert len(built) == 3


def test_code_is_never_kept(model: Path, tmp_path: Path, built: list[str]) -> None:
    archive = tmp_path / "digits.tar"
    archive.write_bytes(api.load(model).compile("host").archive())
    for _ in range(2):
        run(archive, "--trust")
    assert len(built) == 2
    result = CliRunner().invoke(app, ["run", str(archive), "--board", "host"])
    assert result.exit_code == 2, "trust is asked for each time"


def test_the_oldest_goes(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crtgen.cli.kept._MOST", 1)
    run(model)
    (first,) = kept()
    os.utime(first / "kept.json", (0, 0))
    run(model, "--optimize", "size")
    assert len(kept()) == 1
    assert kept() != [first]


def test_a_place_that_cannot_be_written_is_no_error(
    model: Path, built: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crtgen.cli.kept._images", lambda: tmp_path / "file" / "images")
    (tmp_path / "file").write_text("no folder")
    run(model)
    run(model)
    assert len(built) == 2


def test_what_is_kept_runs_without_the_compiler(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    heavy = ["compiler.kernels.engine.kernel", "compiler.plan.plan", "network.ops", "network.frontends"]
    script = (
        "import sys\n"
        "from crtgen.cli.app import app\n"
        "try:\n"
        f"    app(['run', {str(model)!r}, '--board', 'host'])\n"
        "except SystemExit as end:\n"
        f"    print(end.code, [m for m in {heavy} if f'crtgen.{{m}}' in sys.modules])"
    )
    last = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
        )
        last.append(done.stdout.splitlines()[-1])
    assert last == [f"0 {heavy}", "0 []"]


def test_files_are_sorted_by_age_without_those_that_are_gone(tmp_path: Path) -> None:
    old, new, gone = (tmp_path / name for name in ("old", "new", "gone"))
    for path, when in ((new, 2_000_000_000), (old, 1_000_000_000)):
        path.touch()
        os.utime(path, (when, when))
    assert by_age([new, gone, old]) == [old, new]
