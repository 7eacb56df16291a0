"""Builds a generated project as its user would: with CMake alone."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Unpack

from crtgen.boards import find_board
from crtgen.compiler.request import Request
from crtgen.firmware.project import FirmwareRequest, OptionFields, Project, ProjectOptions, generate_project
from crtgen.network.ir import Array
from tests.firmware.project.toy import METADATA, toy

__all__ = ["build", "build_toy", "toy_project"]

BOARDS = ("mps2_an385", "mps2_an386", "mps2_an500", "mps2_an505", "mps2_an521", "mps3_an547")


def toy_project(
    board: str,
    kind: str,
    *,
    body: str = "",
    samples: "dict[str, list[Array]] | None" = None,
    **options: Unpack[OptionFields],
) -> Project:
    """A project of the toy model; ``body`` is C that its run executes first."""
    return generate_project(
        FirmwareRequest(
            [toy(body)], METADATA, Request(find_board(board)), ProjectOptions(kind, **options), samples or {}
        )
    )


def build(project: Project, directory: Path, *arguments: str) -> Path:
    """Extract and build; warnings are errors. Returns the directory of the results."""
    project.extract(directory)
    strict = ("-DCMAKE_C_FLAGS=-Werror -Wconversion", "-DCMAKE_C_ABI_COMPILED=ON")
    _run("cmake", "-S", str(directory), "-B", str(directory / "build"), "-G", "Ninja", *strict, *arguments)
    _run("cmake", "--build", str(directory / "build"), "-j", "2")
    return directory / "build"


def build_toy(board: str, kind: str, directory: Path, **wishes: object) -> Path:
    """The built image of a toy project."""
    result = build(toy_project(board, kind, **wishes), directory)  # type: ignore[arg-type]
    return result / ("firmware" if board == "host" else "firmware.elf")


def _run(*command: str) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=240, env={**os.environ, "PATH": path}, check=False
    )
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}\n{result.stderr}"
