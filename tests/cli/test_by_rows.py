"""Images that come by rows, from the command line and in Python."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import crtgen
from crtgen.api import Model, compile
from crtgen.base.errors import UsageError
from crtgen.base.resources import runtime_dir
from crtgen.cli.app import app
from crtgen.compiler.codegen.drift import DriftReference
from tests.support import ROOT, nightly, require_tool
from tests.tflite_builder import Model as File
from tests.tflite_builder import Operator, Tensor

DIGITS = str(ROOT / "demo" / "digits.tflite")


_PIPELINE = """[pipeline]
name = "watched"
sensor = {{ kind = "image", width = 8, height = 8, format = "grey" }}
[features]
preset = "image"
width = 8
height = 8
[network]
file = "{}"
"""


def _invoke(*args: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(args))
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


@pytest.mark.cc
def test_a_host_sends_the_image_whole() -> None:
    report = json.loads(_invoke("verify", DIGITS, "-b", "host", "--feed", "rows", "--json"))
    assert (report["cases"], report["failed"]) == (4, 0)


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547", nightly("mps2_an505"), nightly("mps2_an385")])
def test_on_cores(board: str) -> None:
    report = json.loads(_invoke("verify", DIGITS, "-b", board, "--feed", "rows", "--cases", "2", "--json"))
    assert (report["cases"], report["failed"]) == (2, 0)


@pytest.mark.qemu
def test_it_is_proven_from_the_machine_code() -> None:
    """For every image, from the first row on."""
    report = json.loads(_invoke("prove", DIGITS, "-b", "mps2_an386", "--feed", "rows", "--json"))
    assert report["proven"]


def test_the_header_says_what_to_call(tmp_path: Path) -> None:
    said = _invoke(
        "generate", DIGITS, str(tmp_path), "-b", "host", "--type", "library", "--feed", "rows", "--explain"
    )
    assert "feed rows: conv2d+max_pool2d: image of 64 bytes comes by rows and is never whole" in said
    header = (tmp_path / "model" / "digits.h").read_text()
    assert "#define DIGITS_ROWS 8\n#define DIGITS_ROW_ELEMENTS 8\n" in header
    assert "int32_t digits_push(const int8_t *rows, int32_t count);" in header
    assert "void digits_restart(void);" in header
    source = (tmp_path / "model" / "digits.c").read_text()
    assert "for (uint32_t i = 0; i < DIGITS_ROW_ELEMENTS; i++)" in source, "a row of floats is quantised"
    assert "input_places" not in header
    assert not list((tmp_path / "model").glob("*registry*"))
    assert "digits_image" not in source, "no image lies in memory"


def test_a_folder_says_it(tmp_path: Path) -> None:
    (tmp_path / "digits.tflite").write_bytes(Path(DIGITS).read_bytes())
    lines = 'boards = ["host"]\nfeed = "rows"\n[[model]]\nfile = "digits.tflite"\n'
    (tmp_path / "crtgen.toml").write_text(lines)
    made = tmp_path / "library"
    files = [str(tmp_path / "digits.tflite"), str(made)]
    _invoke("--folder", str(tmp_path), "generate", *files, "--type", "library")
    assert "digits_push(" in (made / "model" / "digits.h").read_text()


@pytest.mark.cc
def test_the_example_of_a_library_is_a_cameras_loop(tmp_path: Path) -> None:
    """It takes each line once; the result is that of an image of zeros."""
    _invoke("generate", DIGITS, str(tmp_path), "-b", "host", "--type", "library", "--feed", "rows")
    example = (tmp_path / "example" / "main.c").read_text()
    shows = 'for (int i = 0; i < 10; i++) { printf("%d ", digits_result[i]); }\n    return 0;\n}'
    shown = example.rpartition("return 0;")[0] + shows
    (tmp_path / "shown.c").write_text(f"#include <stdio.h>\n{shown}")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{runtime_dir() / 'include'}"]
    sources = map(str, [*(tmp_path / "model").glob("*.c"), tmp_path / "shown.c"])
    program = str(tmp_path / "program")
    command = [require_tool("gcc"), *flags, f"-I{tmp_path / 'model'}", *sources, "-lm", "-o", program]
    subprocess.run(command, check=True, timeout=120)
    done = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60)
    model = crtgen.load(DIGITS)
    assert isinstance(model, Model)
    y = model.graph.evaluate({"image": np.zeros((1, 8, 8, 1), np.int8)})[model.graph.outputs[0]]
    assert list(map(int, done.stdout.split())) == y.ravel().tolist()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--feed", "columns"), "inputs cannot be fed by columns hint: known: rows"),
        (("--executor", "graph"), "rows cannot be fed together with the graph executor"),
        (("--cores", "2"), "rows cannot be fed together with two cores"),
        (("--sliding", "axis=1", "step=2"), "rows cannot be fed together with sliding"),
        (("--record", "2"), "--record keeps whole inputs, and this one comes by rows"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, options: tuple[str, ...], text: str) -> None:
    feed = () if "--feed" in options else ("--feed", "rows")
    assert text in _invoke("generate", DIGITS, str(tmp_path), "-b", "host", *feed, *options, code=2)


def test_of_several_models_none_is_fed(tmp_path: Path) -> None:
    other = tmp_path / "other.tflite"
    other.write_bytes(Path(DIGITS).read_bytes())
    said = _invoke(
        "generate", DIGITS, str(other), str(tmp_path / "p"), "-b", "host", "--feed", "rows", code=2
    )
    assert "of several models none can be fed by rows" in said


def test_what_is_no_image_is_refused(tmp_path: Path) -> None:
    tensors = [Tensor("x", (1, 1), "float32"), Tensor("y", (1, 1), "float32")]
    table = tmp_path / "sines.tflite"
    table.write_bytes(File(tensors, [Operator("SIN", ["x"], ["y"])], ["x"], ["y"]).to_bytes())
    said = _invoke("inspect", str(table), "-b", "host", "--feed", "rows", code=3)
    assert "what is element by element take rows hint: leave --feed out" in said


def test_pipelines_and_archives_are_refused(tmp_path: Path) -> None:
    archive = str(tmp_path / "digits.tar")
    _invoke("compile", DIGITS, "-o", archive, "-b", "host")
    said = _invoke("inspect", archive, "-b", "host", "--feed", "rows", code=2)
    assert "compiled code cannot be fed by rows" in said
    pipeline = tmp_path / "watched.toml"
    pipeline.write_text(_PIPELINE.format(DIGITS))
    said = _invoke("inspect", str(pipeline), "-b", "host", "--feed", "rows", code=2)
    assert "a pipeline gets samples, not rows of an image" in said


def test_what_is_watched_is_whole() -> None:
    model = crtgen.load(DIGITS)
    assert isinstance(model, Model)
    compiled = compile([model], "host", feed="rows")
    assert compiled.plans[0].fed == ("image",)
    with pytest.raises(UsageError, match="--watch counts whole inputs"):
        compiled.generate("server", watched={"digits": DriftReference.__new__(DriftReference)})


def test_a_slot_gets_whole_inputs() -> None:
    model = crtgen.load(DIGITS)
    assert isinstance(model, Model)
    compiled = compile([model], "mps2_an386", feed="rows")
    with pytest.raises(UsageError, match="hands whole inputs to a slot"):
        compiled.generate("slot", slot="a")
