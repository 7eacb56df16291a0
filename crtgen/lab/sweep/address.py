"""Addresses of results: digests of everything that a result depends on. These are the content of files,
crtgen's own code, and the tools of this computer.

A tool is identified by a text: ``gcc``, ``zig`` and ``cc`` are compilers, ``qemu``, ``rp2040js`` and
``zephyr`` are themselves, ``codegen:NAME...`` is an external code generator.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from crtgen.base.child import run_to_end
from crtgen.base.errors import CrtgenError
from crtgen.boards import Board
from crtgen.compiler.byoc import read_generator
from crtgen.device.run import find_qemu, find_rp2040js
from crtgen.firmware.builder import find_toolchain, find_workspace
from crtgen.firmware.project import toolchains_of

__all__ = ["content_digest", "tool_version", "toolchain_text", "tools_of"]

_CODEGEN = "codegen:"


def content_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tools_of(board: Board, toolchain: str, codegen: Sequence[str], simulate: bool = False) -> tuple[str, ...]:
    compiler = toolchain or toolchains_of(board, board.platform(None))[0]
    simulators = {"qemu": board.qemu is not None, "rp2040js": board.rp2040js and simulate}
    used = (name for name, is_used in simulators.items() if is_used)
    return (compiler, *used, *(f"{_CODEGEN}{name}" for name in codegen))


def toolchain_text(versions: Mapping[str, str]) -> str:
    return "; ".join(f"{tool}: {version}" for tool, version in versions.items())


def tool_version(tool: str) -> str:
    """Return a text that changes with the tool's version, or the reason why the tool cannot be used."""
    try:
        if tool.startswith(_CODEGEN):
            return read_generator(tool.removeprefix(_CODEGEN)).version()
        if tool == "qemu":
            return run_to_end([find_qemu(), "--version"], time_limit=30)[1].partition("\n")[0]
        if tool == "rp2040js":
            return _npm_version(find_rp2040js()[1])
        if tool == "zephyr":
            return find_workspace().release
        return find_toolchain(tool).version
    except CrtgenError as error:
        return f"not usable: {error.message}"


def _npm_version(folder: Path) -> str:
    return str(json.loads((folder / "package.json").read_text(encoding="utf-8"))["version"])
