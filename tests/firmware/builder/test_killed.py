"""A build that is killed: the next one makes what it would have made."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crtgen import api
from crtgen.firmware.builder import build_project
from tests.support import ROOT, require_tool

_BUILD = """
import sys
from crtgen.firmware.builder import build_project
print("up", flush=True)
build_project(sys.argv[1])
"""


def project(directory: Path) -> Path:
    return api.load(ROOT / "demo" / "digits.tflite").compile("host").generate().extract(directory).directory


def build_and_kill(directory: Path, seconds: float) -> None:
    """Start a build, and kill it with all that it started."""
    process = subprocess.Popen(
        [sys.executable, "-c", _BUILD, str(directory)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


@pytest.mark.cc
@pytest.mark.parametrize(
    "seconds",
    [0.4, *(pytest.param(n / 10, marks=pytest.mark.nightly) for n in (0, 1, 2, 3, 6, 8, 10, 12, 15, 20, 30))],
)
def test_a_killed_build_is_repaired(tmp_path: Path, seconds: float) -> None:
    require_tool("gcc")
    whole = build_project(project(tmp_path / "whole")).path.read_bytes()
    directory = project(tmp_path / "killed")
    for _ in range(2):
        build_and_kill(directory, seconds)
    assert build_project(directory).path.read_bytes() == whole
