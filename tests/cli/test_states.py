"""Models with states, and shapes that are asked for, from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from crtgen.cli.app import app
from tests.network.frontends.flow import MODELS, add, floats
from tests.tflite_builder import Model, Tensor


def _invoke(*args: str) -> str:
    done = CliRunner().invoke(app, list(args))
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    file = tmp_path / "counter.tflite"
    file.write_bytes(MODELS["counter"]().data)
    return file


def test_states_are_shown_and_told(counter: Path) -> None:
    assert "state 16 bytes" in _invoke("inspect", str(counter), "--board", "host")
    shown = _invoke("inspect", str(counter), "--board", "host", "--arena")
    assert "states, kept from run to run, 16 bytes" in shown
    report = json.loads(_invoke("inspect", str(counter), "--board", "host", "--json"))
    assert report["state_bytes"] == 16
    assert [state["bytes"] for state in report["states"].values()] == [16]


@pytest.mark.cc
def test_inputs_with_one_more_dimension_are_a_sequence(counter: Path, tmp_path: Path) -> None:
    given, made = tmp_path / "x.npy", tmp_path / "y.npz"
    np.save(given, np.ones((3, 1, 4), np.float32))
    shown = _invoke("run", str(counter), "-b", "host", "--input", str(given), "--output", str(made))
    assert "3 runs one after the other" in shown
    first = next(array for array in np.load(made).values() if array[0, 0, 0] == 2)
    assert first[:, 0].tolist() == [[2, -1, 4, -3], [3, 0, 5, -2], [4, 1, 6, -1]]


@pytest.mark.cc
def test_verify_follows_sequences(counter: Path) -> None:
    assert "random0 step 3: equal" in _invoke("verify", str(counter), "-b", "host", "--cases", "1")


def test_shapes_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "net.tflite"
    tensors = [Tensor("x", [1, 4], "float32", signature=[-1, 4]), *floats("y")]
    file.write_bytes(Model(tensors, [add("x", "x", "y")], ["x"], ["y"]).to_bytes())
    assert "input  x 3x4 float32" in _invoke("inspect", str(file), "-b", "host", "--shape", "x=3,4")
    for shape, text in (("x=3,-4", "is not the shape of an input"), ("z=3,4", "there is no input z")):
        done = CliRunner().invoke(app, ["inspect", str(file), "-b", "host", "--shape", shape])
        assert done.exit_code == 2
        assert text in done.output
