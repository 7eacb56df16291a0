"""What is wrong is said before anything is built, with what to do next."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from crtgen.boards import installed_qemu
from crtgen.cli.app import app
from tests.support import ROOT

DEMO = ROOT / "demo"
runner = CliRunner()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the demonstration's models, in which nothing is built."""

    def start(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"a process: {args}")

    (tmp_path / ".git").mkdir()
    for name in ("digits.tflite", "digits.onnx"):
        shutil.copy(DEMO / name, tmp_path)
    shutil.copy(DEMO / "digits.tflite", tmp_path / "tflite.onnx")
    shutil.copy(DEMO / "digits.onnx", tmp_path / "onnx.tflite")
    np.savez(tmp_path / "nan.npz", image=np.full((1, 8, 8, 1), np.nan, np.float32))
    np.savez(tmp_path / "other.npz", picture=np.zeros((1, 8, 8, 1), np.int8), more=np.zeros(3))
    np.savez(tmp_path / "cases.npz", case0_input0=np.zeros((1, 9, 9, 1), np.int8))
    (tmp_path / "broken.png").write_bytes((ROOT / "docs" / "pictures" / "report.png").read_bytes()[:3000])
    (tmp_path / "labels.txt").write_text("a\nb\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("serial.tools.list_ports.comports", list)
    installed_qemu()  # the boards that it simulates depend on its version, which is asked for once
    monkeypatch.setattr("subprocess.Popen.__init__", start)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("command", "message", "hint"),
    [
        ("run digits.tflite --input nan.npz --quantize-input", "64 of 64 values are NaN", ""),
        ("run digits.tflite --input missing.npz", "missing.npz", ""),
        ("run digits.tflite --input other.npz", "no array for input 0 (image)", "name it image or input0"),
        ("run digits.tflite --input broken.png", "the picture cannot be read", "export it again"),
        ("run digits.tflite --labels labels.txt", "2 names, for outputs of 10 elements", ""),
        ("run digits.tflite --model kws", "kws", ""),
        ("run digits.tflite --port /dev/ttyNONE", "/dev/ttyNONE: there is no such port", "check the cable"),
        ("run digits.tflite --board rpi_pico", "no such board is connected", "--simulate (rp2040js)"),
        ("run digits.tflite --board nucleo_l4r5zi", "no such board is connected", "check the cable"),
        ("verify digits.tflite --expect cases.npz", "cases.npz", ""),
        ("verify digits.tflite --expect missing.npz", "missing.npz", ""),
        ("inspect tflite.onnx", "the content of the file is a TFLite model", "call it .tflite"),
        ("inspect onnx.tflite", "it is not a TFLite model", "an ONNX model is called .onnx"),
        ("check digits.tflite", "crtgen.lock.json: there is no lock yet", "crtgen check --update writes it"),
        ("sweep", "sweep.toml: the sweep cannot be read", ""),
        ("run digits.tflite --board stm32g431", "unknown board stm32g431", "--core"),
        ("generate digits.tflite p --core cortex-m4", "--core is for a library", "--type library"),
        ("inspect digits.tflite --tune missing.toml", "missing.toml", ""),
    ],
)
def test_before_anything_is_built(command: str, message: str, hint: str) -> None:
    result = runner.invoke(app, command.split(), catch_exceptions=False)
    said = " ".join(result.stderr.split())
    assert result.exit_code in (2, 3, 7)
    assert message in said
    assert hint in said.partition("hint:")[2]
    assert "terminating on signal" not in said


def test_a_sweep_of_what_crtgen_toml_has(folder: Path) -> None:
    from crtgen.lab.sweep.matrix import read_sweep

    (folder / "crtgen.toml").write_text(
        'boards = ["host", "mps2_an386"]\n[[model]]\nfile = "digits.tflite"\n'
    )
    jobs = read_sweep(Path("sweep.toml")).jobs
    assert [(job.model, job.board) for job in jobs] == [
        ("digits.tflite", "host"),
        ("digits.tflite", "mps2_an386"),
    ]
