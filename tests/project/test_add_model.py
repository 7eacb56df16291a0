"""``crtgen_add_model`` and the libraries that it includes, as CMake runs them, without Zephyr."""

import subprocess
from pathlib import Path

import pytest

from crtgen.boards import find_board
from crtgen.project import Firmware, Options, generate_project
from tests.project.toy import METADATA, toy
from tests.support import ROOT, require_tool

FPU = "CONFIG_FPU=y"
SHARING = "CONFIG_FPU_SHARING=y"


def configure(directory: Path, *lines: str) -> "subprocess.CompletedProcess[str]":
    """CMake over a list file of these lines."""
    require_tool("cmake")
    text = "\n".join(("cmake_minimum_required(VERSION 3.20)", "project(p LANGUAGES NONE)", *lines))
    (directory / "CMakeLists.txt").write_text(f"{text}\n")
    command = ["cmake", "-S", str(directory), "-B", str(directory / "build")]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_options_reach_crtgen(tmp_path: Path) -> None:
    program = tmp_path / "crtgen"
    program.write_text(
        '#!/bin/sh\necho "$@" > "$3.arguments"\nmkdir -p "$3"\n'
        'echo "add_library(crt_model INTERFACE)" > "$3/crtgen.cmake"\n'
    )
    program.chmod(0o755)
    (tmp_path / "a.tflite").touch()
    done = configure(
        tmp_path,
        f"set(CRTGEN {program})",
        "set(BOARD nucleo_h743zi)",
        "set(CONFIG_CPU_CORTEX_M7 y)",
        f"include({ROOT}/zephyr/crtgen.cmake)",
        "add_library(app INTERFACE)",
        "add_library(zephyr_interface INTERFACE)",
        "macro(target_link_libraries)\nendmacro()",
        "crtgen_add_model(app a.tflite OPTIMIZE balanced TARGET llvm OWN_ARENAS KEEP_INPUTS)",
    )
    assert done.returncode == 0, done.stderr
    given = (tmp_path / "build" / "crtgen.arguments").read_text().split()
    assert given == [
        *("generate", str(tmp_path / "a.tflite"), str(tmp_path / "build" / "crtgen")),
        *("--type", "library", "--platform", "zephyr", "--board", "nucleo_h743zi"),
        *("--core", "cortex-m7", "--optimize", "balanced", "--target", "llvm"),
        *("--own-arenas", "--keep-inputs"),
    ]


@pytest.mark.parametrize(
    ("board", "configured", "wanted"),
    [
        ("mps3_an547", (), (FPU, SHARING)),
        ("mps3_an547", ("CONFIG_FPU", "CONFIG_MULTITHREADING"), (SHARING,)),
        ("nrf52840dk", ("CONFIG_FPU", "CONFIG_MULTITHREADING"), (SHARING,)),
        ("mps3_an547", ("CONFIG_FPU", "CONFIG_MULTITHREADING", "CONFIG_FPU_SHARING"), None),
        ("mps3_an547", ("CONFIG_FPU",), None),
        ("nrf52840dk", ("CONFIG_MULTITHREADING",), None),
    ],
)
def test_what_an_application_has_to_configure(
    tmp_path: Path, board: str, configured: tuple[str, ...], wanted: tuple[str, ...] | None
) -> None:
    """The lines to add, or the end of what is checked: the first thing that only Zephyr has."""
    firmware = Firmware([toy()], METADATA, find_board(board), "library", Options(), platform="zephyr")
    generate_project(firmware).extract(tmp_path)
    done = configure(tmp_path, *(f"set({name} y)" for name in configured), "include(crtgen.cmake)")
    said = [line.strip() for line in done.stderr.splitlines()]
    if wanted is None:
        assert "Add to prj.conf" not in done.stderr
    else:
        assert done.returncode != 0
        assert tuple(line for line in said if line.startswith("CONFIG_")) == wanted, done.stderr
