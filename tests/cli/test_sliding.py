"""Windows that overlap, from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from crtgen.cli.app import app
from tests.support import ROOT
from tests.tflite_builder import Model, Operator, Tensor

DIGITS = str(ROOT / "demo" / "digits.tflite")


def _invoke(*args: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(args))
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.cc
def test_verify_slides_over_a_signal() -> None:
    shown = _invoke("verify", DIGITS, "-b", "host", "--sliding", "axis=1", "step=2", "--cases", "2", "--json")
    report = json.loads(shown)
    assert (report["cases"], report["failed"]) == (2 * (4 + 4), 0)


@pytest.mark.cc
def test_runs_on_what_is_new_have_the_outputs_of_windows(tmp_path: Path) -> None:
    rows = np.random.default_rng(3).integers(-128, 128, (10, 1, 1, 8, 1), np.int8)
    np.save(tmp_path / "new.npy", rows)
    np.save(tmp_path / "window.npy", np.concatenate(rows[2:], axis=1))
    made = []
    for name, options in (("new", ["--sliding", "step=1", "axis=1"]), ("window", [])):
        given, out = tmp_path / f"{name}.npy", tmp_path / f"{name}.npz"
        _invoke("run", DIGITS, "-b", "host", *options, "--input", str(given), "--output", str(out))
        (array,) = np.load(out).values()
        made.append(array)
    assert np.array_equal(made[0][-1], made[1])


def test_losses_are_those_of_whole_windows() -> None:
    options = ["-b", "host", "--sliding", "axis=1", "step=2", "--against", DIGITS]
    assert "--against does not support sliding windows" in _invoke("verify", DIGITS, *options, code=2)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("axis=1", "stp=1"), "is not of the form axis=N step=N"),
        (("axis=1", "step=-1"), "is not of the form axis=N step=N"),
        (("axis=1", "axis=2"), "is not of the form axis=N step=N"),
        (("axis=7", "step=1"), "has no axis 7"),
        (("axis=1", "step=8"), "windows overlap at steps of 1 to 7"),
    ],
)
def test_what_is_no_window_is_refused(words: tuple[str, str], text: str) -> None:
    assert text in _invoke("inspect", DIGITS, "-b", "host", "--sliding", *words, code=2)


def test_of_several_models_those_slide_that_can(tmp_path: Path) -> None:
    """A table of sines has no window: it runs as it is, and is said to."""
    tensors = [Tensor("x", (1, 1), "float32"), Tensor("y", (1, 1), "float32")]
    table = tmp_path / "sines.tflite"
    table.write_bytes(Model(tensors, [Operator("SIN", ["x"], ["y"])], ["x"], ["y"]).to_bytes())
    options = ["-b", "host", "--sliding", "axis=1", "step=2"]
    folder = tmp_path / "library"
    generate = ["generate", str(table), DIGITS, str(folder), "--type", "library", "--explain", *options]
    assert "sines: it runs on whole windows" in _invoke(*generate).replace("\n", " ")
    digits, sines = ((folder / "model" / f"{name}.h").read_text() for name in ("digits", "sines"))
    assert "DIGITS_INPUT_IMAGE_ELEMENTS 16" in digits
    assert "SINES_INPUT_X_ELEMENTS 1" in sines
    alone = [generate[0], str(table), *generate[3:]]
    assert "sines: a step of 2 along an axis of 1 positions" in _invoke(*alone, code=2)
