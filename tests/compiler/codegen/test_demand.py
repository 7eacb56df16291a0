"""Code for one core that is compiled for another: an error that says so, or it fits."""

import subprocess
from pathlib import Path

import pytest

from crtgen import api
from crtgen.boards import CORES, HOST, board_of_core
from crtgen.compiler.codegen.demand import core_check
from tests.support import ROOT, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"


def compiled(directory: Path, *flags: str) -> dict[str, str]:
    """The first error of each file that does not compile."""
    gcc = require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    includes = [f"-I{directory / 'model'}", f"-I{directory / 'runtime' / 'include'}"]
    found = {}
    for file in sorted((directory / "model").glob("*.[cS]")):
        command = [gcc, *flags, "-mthumb", "-std=gnu11", *includes, "-fsyntax-only", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            found[file.name] = next(line for line in done.stderr.splitlines() if "error:" in line)
    return found


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("core", "good", "bad"),
    [
        ("cortex-m0plus", ["cortex-m0plus", "cortex-m4"], []),
        ("cortex-m3", ["cortex-m3", "cortex-m33+nodsp+nofp"], ["cortex-m0plus"]),
        ("cortex-m4", ["cortex-m4", "cortex-m7", "cortex-m33"], ["cortex-m3"]),
    ],
)
def test_a_lesser_core_is_an_error_that_says_so(
    core: str, good: list[str], bad: list[str], tmp_path: Path
) -> None:
    api.load(DIGITS).compile(board_of_core(core)).generate("library").extract(tmp_path / "lib")
    for name in good:
        assert compiled(tmp_path / "lib", f"-mcpu={name}") == {}, name
    for name in bad:
        errors = compiled(tmp_path / "lib", f"-mcpu={name}")
        assert f"digits is for {core}: compile with -mcpu={core}, or" in errors["digits.c"]
        assert f"digits is for {core}:" in errors["digits_asm_kernels.S"]


def test_helium_needs_its_abi_and_portable_code_needs_nothing() -> None:
    check = core_check(CORES["cortex-m55"], "net")
    assert "compile with -mcpu=cortex-m55 -mfloat-abi=hard, or" in check
    assert check.startswith("#if !defined(__ARM_FEATURE_MVE)\n")
    assert core_check(HOST, "net") == ""
