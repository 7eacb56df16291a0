"""Generated C compiles without a warning on every core and compiler; its header also as C++."""

import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from crtgen.boards.core import CORES, HOST, Core
from crtgen.compiler.kernels import Target
from crtgen.network.ops import all_cases
from tests.compiler.kernels.program import Run, include_flags, one_unit, plan_runs, write_program
from tests.support import WARNINGS, require_tool


def _sources(directory: Path, core: Core, most: int | None = None) -> list[Path]:
    """The sources of so many of all cases, ``m0`` of the first one, and so on."""
    runs = [Run(case.name, case.graph(), case.inputs()) for case in islice(all_cases(), most)]
    return one_unit(directory, write_program(directory, plan_runs(runs, Target(core=core))))


def _compile(command: list[str], directory: Path, sources: list[Path]) -> None:
    for number, source in enumerate(sources):
        output = ["-c", str(source), "-o", str(directory / f"{number}.o")]
        subprocess.run([*command, *WARNINGS, *include_flags(directory), *output], check=True, timeout=240)


@pytest.mark.cc
@pytest.mark.nightly
@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m23", "cortex-m3", "cortex-m33", "cortex-m7"])
def test_arm_gcc(tmp_path: Path, core: str) -> None:
    """On a push the host and an M4 compile all cases, as strictly, and other cores what is their own."""
    gcc = require_tool("arm-none-eabi-gcc")
    _compile([gcc, *CORES[core].gcc_flags, "-Os"], tmp_path, _sources(tmp_path, CORES[core]))


@pytest.mark.cc
@pytest.mark.nightly
def test_clang(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    _compile([sys.executable, "-m", "ziglang", "cc", "-O1"], tmp_path, _sources(tmp_path, HOST))


@pytest.mark.cc
def test_header_is_cxx(tmp_path: Path) -> None:
    _sources(tmp_path, HOST, 1)
    source = tmp_path / "use.cc"
    source.write_text('#include "m0.h"\nint size() { return M0_ARENA_SIZE; }\n')
    command = [require_tool("g++"), "-Wall", "-Wextra", "-Werror", *include_flags(tmp_path)]
    subprocess.run([*command, "-c", str(source), "-o", str(tmp_path / "use.o")], check=True, timeout=120)


@pytest.mark.cc
def test_version_is_checked(tmp_path: Path) -> None:
    _sources(tmp_path, HOST, 1)
    source = tmp_path / "old.c"
    lines = ["#include <crt/version.h>", "#undef CRT_VERSION", "#define CRT_VERSION 0", '#include "m0.h"']
    source.write_text("\n".join(lines) + "\n")
    command = [require_tool("gcc"), *include_flags(tmp_path), "-fsyntax-only", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "m0 was generated for crt 1" in done.stderr
