"""Runs firmware in rp2040js, a simulator of RP2040 for Node: https://github.com/wokwi/rp2040js"""

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from crtgen.base.child import Child
from crtgen.base.errors import ToolMissingError, UsageError
from crtgen.base.installing import how_to_install
from crtgen.base.resources import rp2040_script
from crtgen.boards import Board
from crtgen.device.run.device import MOST_PRINTED, RunningDevice, image_name, open_console
from crtgen.device.run.streams import PipeStream
from crtgen.firmware.builder import binary, read_content

__all__ = ["find_rp2040js", "start_rp2040"]

_MODULE = "rp2040js"
_VERSION = "1.4.1"


def find_rp2040js() -> tuple[Path, Path]:
    """Return the path of Node and the folder of the simulator. Raises ``ToolMissingError`` if one is missing.

    Only places that belong to the user are searched: ``NODE_PATH``, the global folders, and this Python
    environment. ``node_modules`` in the current folder is not, because whoever made that folder must not be
    able to run code.
    """
    node = shutil.which("node")
    if node is None:
        raise ToolMissingError("node is not installed", where=_MODULE, hint=how_to_install("node"))
    for folder in _modules(Path(node)):
        if (folder / _MODULE / "package.json").is_file():
            return Path(node), folder / _MODULE
    hint = f"npm install -g {_MODULE}@{_VERSION}, or name the folder of its node_modules in NODE_PATH"
    raise ToolMissingError(f"the simulator {_MODULE} is not installed", hint=hint)


def _modules(node: Path) -> Iterator[Path]:
    named = os.environ.get("NODE_PATH", "")
    yield from (Path(each) for each in named.split(os.pathsep) if each)
    prefixes = (Path(sys.prefix), node.resolve().parent.parent, Path("/usr/local"), Path("/usr"))
    yield from (prefix / "lib" / "node_modules" for prefix in prefixes)


def start_rp2040(image: Path, board: Board) -> RunningDevice:
    """Start an image and connect to its serial port. Its clock is the chip's, and runs slower than real
    time.
    """
    if not image.is_file():
        raise UsageError("there is no such image", where=str(image), hint="build the project first")
    node, module = find_rp2040js()
    content = binary(read_content(image))
    name = image_name(image, board.name)
    console = open_console()
    line = "usb" if board.is_usb else "uart"
    process = Child(
        [str(node), str(rp2040_script()), str(module.resolve()), line],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=console,
        most_written=MOST_PRINTED,
    )
    stream = PipeStream.of_process(process, name=name)
    stream.write(struct.pack("<I", len(content)) + content)
    return RunningDevice(name, stream, process, console)
