"""Code generators and LLVM on the command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from crtgen.cli.app import app
from tests.support import ROOT

DIGITS = ROOT / "demo" / "digits.tflite"
CASES = ROOT / "demo" / "digits.npz"


def crtgen(*args: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, args)), catch_exceptions=False)


def test_what_is_not_done_is_refused(tmp_path: Path) -> None:
    result = crtgen("generate", DIGITS, tmp_path / "p", "--codegen", "ccompiler")
    assert result.exit_code == 3
    text = " ".join(result.output.split())
    assert "(conv2d): ccompiler: it has no pattern with conv2d" in text
    assert "--fallback" in text
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("command", ["inspect", "bench", "compile", "run", "verify"])
def test_every_command_that_compiles_has_the_options(tmp_path: Path, command: str) -> None:
    """Refused, as ccompiler alone cannot do it."""
    output = ["-o", str(tmp_path / "x.tar")] if command == "compile" else []
    result = crtgen(command, DIGITS, *output, "--codegen", "ccompiler")
    assert result.exit_code == 3, result.output
    assert "ccompiler: it has no pattern with conv2d" in " ".join(result.output.split())
    assert not (tmp_path / "x.tar").exists()
    if command in ("inspect", "compile"):
        assert crtgen(command, DIGITS, *output, "--codegen", "ccompiler", "--fallback").exit_code == 0
    if command == "bench":
        assert crtgen(command, DIGITS, "--rpc", "--codegen", "ccompiler").exit_code == 2


def test_fallback(tmp_path: Path) -> None:
    assert crtgen("generate", DIGITS, tmp_path / "p", "--codegen", "ccompiler", "--fallback").exit_code == 0
    assert (tmp_path / "p" / "project.json").is_file()


def test_unknown_names(tmp_path: Path) -> None:
    for arguments in (["--codegen", "absent"], ["--target", "absent"], ["--cmsis-nn", str(tmp_path)]):
        result = crtgen("generate", DIGITS, tmp_path / "p", *arguments)
        assert result.exit_code == 2, result.output


@pytest.mark.cc
def test_llvm(tmp_path: Path) -> None:
    pytest.importorskip("llvmlite")
    result = crtgen("verify", DIGITS, "--board", "host", "--target", "llvm", "--expect", CASES, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["failed"] == 0
    assert crtgen("generate", DIGITS, tmp_path / "p", "--target", "llvm").exit_code == 0
    made = sorted(p.name for p in (tmp_path / "p" / "model").iterdir())
    assert made == ["digits.h", "digits_asm_kernels.o", "digits_kernels.o"]
