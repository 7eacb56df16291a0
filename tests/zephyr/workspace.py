"""What the tests of Zephyr share: the workspace, west as a user calls it, what an image prints."""

import re
import subprocess
import time
from pathlib import Path

import pytest

from crtgen.base.errors import ToolMissingError
from crtgen.boards import find_board
from crtgen.device.run import start_qemu
from crtgen.firmware.builder import ZephyrWorkspace, find_workspace
from tests.support import require_tool

__all__ = ["printed", "require_workspace", "west_build"]


def require_workspace(module: bool = False) -> ZephyrWorkspace:
    """The workspace, with what builds in it and runs it, or skip: the test, or its whole module."""
    try:
        workspace = find_workspace()
    except ToolMissingError as error:
        what = f"Zephyr was not tested: {error.message} at {error.where}"
        pytest.skip(what, allow_module_level=module)
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    require_tool("qemu-system-arm", "apt install qemu-system-arm")
    return workspace


def west_build(workspace: ZephyrWorkspace, board: str, source: Path, build: Path, *cmake: str) -> Path:
    """The ELF of a plain ``west build`` from the workspace."""
    name = find_board(board).zephyr_name(workspace.version)
    command = ["west", "build", "-o=-j2", "-b", name, "-d", str(build), str(source), "--", *cmake]
    environment = workspace.environment()
    result = subprocess.run(
        command, cwd=workspace.top, env=environment, capture_output=True, text=True, timeout=280
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return build / "zephyr" / "zephyr.elf"


def printed(image: Path, board: str, until: str) -> str:
    """What an image prints on its serial port, up to the end of the line in which a text stands."""
    last = re.compile(re.escape(until.encode()) + rb"[^\n]*\n")
    deadline = time.monotonic() + 60.0
    text = b""
    with start_qemu(image, find_board(board)) as device:
        while not last.search(text):
            text += device.stream.read(max(0.0, deadline - time.monotonic()))
    return text.decode().replace("\r\n", "\n")
