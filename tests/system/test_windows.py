"""Commands on a system without fcntl, signals, process groups, poll and users of POSIX."""

import subprocess
import sys
from pathlib import Path

import pytest

from crtgen.base.errors import UnsupportedError
from tests.support import ROOT, require_tool

DIGITS = str(ROOT / "demo" / "digits.tflite")


def crtgen(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.system.windows", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)


@pytest.mark.qemu
def test_models_become_images_and_a_simulator_is_refused_by_name(tmp_path: Path) -> None:
    require_tool("arm-none-eabi-gcc")
    require_tool("qemu-system-arm")
    project = str(tmp_path / "project")
    fit, generate = ("fit", DIGITS, "--board", "nucleo_l4r5zi"), ("generate", DIGITS, project)
    done = crtgen(
        "inspect", DIGITS, "+", *fit, "+", *generate, "--board", "mps2_an386", "+", "build", project
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "project" / "build" / "firmware.elf").is_file()
    done = crtgen("run", DIGITS, "--board", "mps2_an386", "--input", str(ROOT / "demo" / "digit.npz"))
    assert done.returncode == UnsupportedError.exit_code, done.stderr
    text = " ".join(done.stderr.split())
    assert "simulated boards and programs of this computer run on Linux and macOS only" in text
    assert "use WSL, or connect a board" in text
