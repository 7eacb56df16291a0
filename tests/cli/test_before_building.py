"""Wrong inputs, labels, keys and options are named before anything is built."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crtgen.base.errors import UsageError
from crtgen.cli.app import app
from tests.support import ROOT


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, and data that are wrong in some way; a build fails the test."""
    shutil.copy(ROOT / "demo" / "digits.tflite", tmp_path)
    monkeypatch.chdir(tmp_path)

    def builds(*args: Any, **options: Any) -> None:
        raise AssertionError("it was built")

    monkeypatch.setattr("crtgen.firmware.builder.driver.BuildRun.make", builds)
    np.savez("short.npz", x=np.zeros((4, 8, 7, 1), np.uint8), y=np.array([0, 1, 2, 3]))
    np.save("short.npy", np.zeros((1, 8, 7, 1), np.uint8))
    np.savez("labels.npz", x=np.zeros((4, 8, 8, 1), np.uint8), y=np.array([0, 1, 2, 77]))
    np.savez("good.npz", x=np.zeros((4, 8, 8, 1), np.int8), y=np.array([0, 1, 2, 3]))
    np.savez(
        "case.npz", case0_input0=np.zeros((1, 8, 8, 2), np.int8), case0_output0=np.zeros((1, 10), np.int8)
    )
    (tmp_path / "names.txt").write_text("one\ntwo\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eval", "digits.tflite", "none.npz"], "none.npz"),
        (["eval", "digits.tflite", "digits.tflite"], "neither a folder nor a .npz"),
        (["eval", "digits.tflite", "short.npz"], "shape"),
        (["eval", "digits.tflite", "labels.npz"], "label"),
        (["eval", "digits.tflite", "good.npz", "--labels", "names.txt"], "2 labels for 10 outputs"),
        (["eval", "digits.tflite", "good.npz", "--goal", "mlperf-ad"], "auc is not measured for such data"),
        (["eval", "digits.tflite", "good.npz", "--goal", "none"], "unknown goal"),
        (["replay", "none.npz", "digits.tflite"], "none.npz"),
        (["replay", "good.npz", "digits.tflite"], "the file has no cases"),
        (["replay", "case.npz", "digits.tflite"], "shape"),
        (["prove", "digits.tflite", "--header", "none/worst.h"], "none"),
        (["prove", "digits.tflite", "--counterexample", "none/case.npz"], "none"),
        (["prove", "digits.tflite", "--cores", "2"], "one core"),
        (["fit", "digits.tflite", "--every", "0"], "--every 0 is not above 0"),
        (["bench", "digits.tflite", "--cell", "-1"], "--cell -1 is not above 0"),
        (["report", "digits.tflite", "--every", "0"], "--every 0 is not above 0"),
        (["run", "digits.tflite", "--input", "none.npz"], "none.npz"),
        (["run", "digits.tflite", "--input", "short.npy"], "shape"),
        (["verify", "digits.tflite", "--expect", "case.npz"], "shape"),
        (["generate", "digits.tflite", "p", "--pins", "PA9,PA10"], "--pins needs --chip"),
    ],
    ids=lambda value: " ".join(value[:1] + value[2:]) if isinstance(value, list) else None,
)
def test_what_is_wrong_is_said_before_the_build(arguments: Sequence[str], message: str) -> None:
    done = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == UsageError.exit_code, done.output
    said = json.loads(done.stdout)
    assert message in f"{said.get('where')}: {said['message']}"


def test_hints_reach_python() -> None:
    with pytest.raises(UsageError) as caught:
        raise UsageError("it is wrong", hint="do otherwise")
    assert caught.value.__notes__ == ["hint: do otherwise"]


def test_a_missing_compiler_has_the_exit_code_of_a_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(app, ["test", "digits.tflite", "--board", "mps2_an386"])
    assert done.exit_code == 5, done.output
