"""An image with an NPU from the command line, in QEMU."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from crtgen.cli.app import app
from tests.support import ROOT

pytest.importorskip("ethosu")

_DIGITS = ROOT / "demo" / "digits.tflite"
_CASES = ROOT / "demo" / "digits.npz"
_NPU = ("--board", "mps3_an547", "--npu", "ethos-u55-128")


def crtgen(*args: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, args)), catch_exceptions=False)


@pytest.mark.qemu
def test_every_output_is_as_recorded() -> None:
    result = crtgen("verify", _DIGITS, *_NPU, "--expect", _CASES, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["failed"] == 0


def test_inspect_shows_both() -> None:
    result = crtgen("inspect", _DIGITS, *_NPU)
    assert result.exit_code == 0, result.output
    assert "ethos-u" in result.output


def test_a_board_without_an_npu(tmp_path: Path) -> None:
    result = crtgen("generate", _DIGITS, tmp_path / "p", "--board", "mps2_an386", "--npu", "ethos-u55-128")
    assert result.exit_code == 2
    assert "the board has no NPU" in result.output
    library = crtgen(
        "generate",
        _DIGITS,
        tmp_path / "l",
        "--type",
        "library",
        "--core",
        "cortex-m55",
        "--npu",
        "ethos-u65-256",
    )
    assert library.exit_code == 0, library.output
    assert (tmp_path / "l" / "model" / "external" / "ethos-u" / "src" / "crt_npu.c").is_file()


def test_an_npu_that_nobody_knows(tmp_path: Path) -> None:
    result = crtgen("generate", _DIGITS, tmp_path / "p", "--board", "mps3_an547", "--npu", "ethos-u85-256")
    assert result.exit_code == 2
    assert "ethos-u85-256 has other commands" in " ".join(result.output.split())
