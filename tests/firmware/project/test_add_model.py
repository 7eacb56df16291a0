"""``crtgen_add_model`` and the libraries that it includes, as CMake runs them, without Zephyr."""

import re
import subprocess
from pathlib import Path

import pytest
import typer

from crtgen.boards import find_board, find_core
from crtgen.cli.app import app
from crtgen.compiler.request import Request
from crtgen.firmware.project import FirmwareRequest, ProjectOptions, generate_project
from tests.firmware.project.toy import METADATA, toy
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


def script(directory: Path, *lines: str) -> "subprocess.CompletedProcess[str]":
    """CMake over a script of these lines: no project, which takes long."""
    require_tool("cmake")
    file = directory / "script.cmake"
    file.write_text("\n".join(("cmake_policy(VERSION 3.20)", *lines)))
    return subprocess.run(["cmake", "-P", str(file)], capture_output=True, text=True, timeout=120)


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
        "crtgen_add_model(app a.tflite OPTIMIZE balanced TARGET llvm OWN_ARENAS KEEP_INPUTS REGISTRY",
        "SLIDING axis=1 step=2 FEED rows RECORD 8 WATCH usual.npz SLOTS)",
    )
    assert done.returncode == 0, done.stderr
    given = (tmp_path / "build" / "crtgen.arguments").read_text().split()
    assert given == [
        *("generate", str(tmp_path / "a.tflite"), str(tmp_path / "build" / "crtgen")),
        *("--type", "library", "--platform", "zephyr", "--board", "nucleo_h743zi"),
        *("--core", "cortex-m7", "--optimize", "balanced", "--target", "llvm"),
        *("--own-arenas", "--keep-inputs", "--feed", "rows", "--sliding", "axis=1", "step=2"),
        *("--record", "8", "--watch", str(tmp_path / "usual.npz"), "--slots", "--registry"),
    ]


@pytest.mark.parametrize(
    ("configured", "core"),
    [
        (("CPU_CORTEX_M0",), "cortex-m0plus"),
        (("CPU_CORTEX_M1",), "cortex-m0plus"),
        (("CPU_CORTEX_M23",), "cortex-m23"),
        (("CPU_CORTEX_M33",), "cortex-m33+nodsp+nofp"),
        (("CPU_CORTEX_M33", "ARMV8_M_DSP"), "cortex-m33"),
        (("CPU_CORTEX_M35P",), "cortex-m33+nodsp+nofp"),
        (("CPU_CORTEX_M35P", "ARMV8_M_DSP"), "cortex-m35p"),
        (("CPU_CORTEX_M52", "ARMV8_M_DSP"), "cortex-m52"),
        (("CPU_CORTEX_M85", "ARMV8_M_DSP"), "cortex-m85"),
        (("CPU_CORTEX_R5",), ""),
    ],
)
def test_cores_by_their_configuration(tmp_path: Path, configured: tuple[str, ...], core: str) -> None:
    """Names of Zephyr 3.7 and 4; each is a core that crtgen knows."""
    lines = [f"set(CONFIG_{name} y)" for name in configured]
    ask = ("crtgen_core(core)", 'message(NOTICE "<${core}>")')
    done = script(tmp_path, *lines, f"include({ROOT}/zephyr/crtgen.cmake)", *ask)
    assert f"<{core}>" in done.stderr, done.stderr
    assert not core or find_core(core)


def test_west_names_the_platform_where_commands_take_it() -> None:
    """Each command of `west crtgen` that gets --platform has the option; eval and replay are among them."""
    text = (ROOT / "zephyr" / "west_crtgen.py").read_text()
    found = re.search(r"_WITH_PLATFORM = \(([^)]*)\)", text)
    assert found is not None
    named = set(re.findall(r'"(\w+)"', found[1]))
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    having = {name for name, command in commands.items() if any(p.name == "platform" for p in command.params)}
    assert {"eval", "replay"} <= named <= having


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
    firmware = FirmwareRequest(
        [toy()], METADATA, Request(find_board(board)), ProjectOptions("library", "zephyr")
    )
    generate_project(firmware).extract(tmp_path)
    done = configure(tmp_path, *(f"set({name} y)" for name in configured), "include(crtgen.cmake)")
    said = [line.strip() for line in done.stderr.splitlines()]
    if wanted is None:
        assert "Add to prj.conf" not in done.stderr
    else:
        assert done.returncode != 0
        assert tuple(line for line in said if line.startswith("CONFIG_")) == wanted, done.stderr


FLASH, SRAM, FAST = "/soc/flash", "/soc/sram", "/soc/fast"
DEVICETREE = f"""
set(BOARD a_board)
macro(dt_chosen result)
  set(${{result}} {SRAM})
  if("${{ARGN}}" STREQUAL "PROPERTY;zephyr,flash")
    set(${{result}} {FLASH})
  endif()
endmacro()
macro(dt_comp_path result)
  set(${{result}} {FLASH} {SRAM} {FAST} /soc/two_words /soc/off)
endmacro()
macro(dt_prop result)
  string(TOUPPER ${{ARGV2}} ${{result}})
  string(REPLACE "/SOC/" "" ${{result}} ${{${{result}}}})
endmacro()
macro(dt_node_has_status result)
  set(${{result}} TRUE)
  if("${{ARGV2}}" STREQUAL "/soc/off")
    set(${{result}} FALSE)
  endif()
endmacro()
function(zephyr_code_relocate)
  message(STATUS "relocate ${{ARGN}}")
endfunction()
macro(get_target_property result)
  set(${{result}} a.c a_kernels.c a_asm_kernels.S b_kernels.c a_weights.c crt_arena.c)
endmacro()
include({ROOT}/zephyr/crtgen.cmake)
"""
"""Five memory regions: Zephyr's flash and SRAM, FAST, one with an underscore, one that is switched off."""
RELOCATION = "set(CONFIG_CODE_DATA_RELOCATION y)"


@pytest.mark.parametrize(
    ("place", "files", "location"),
    [
        ("kernels=FAST", ["a_kernels.c", "a_asm_kernels.S", "b_kernels.c"], "FAST_TEXT"),
        ("weights=SRAM", ["a_weights.c"], "SRAM_RODATA"),
        ("kernels=SRAM", ["a_kernels.c", "a_asm_kernels.S", "b_kernels.c"], "SRAM_TEXT"),
    ],
)
@pytest.mark.parametrize("version", ["3.0.99", "4.1.0"])
def test_a_part_is_relocated(
    tmp_path: Path, place: str, files: list[str], location: str, version: str
) -> None:
    done = script(
        tmp_path, RELOCATION, f"set(KERNEL_VERSION_STRING {version})", DEVICETREE, f"crtgen_place({place})"
    )
    assert done.returncode == 0, done.stderr
    calls = [line.removeprefix("-- relocate ") for line in done.stdout.splitlines()]
    form = "{};{}" if version == "3.0.99" else "FILES;{};LOCATION;{}"
    if version == "4.1.0":
        location = location.replace("SRAM", "RAM")  # as its linker scripts say
    assert calls == [form.format(f, location) for f in files]


@pytest.mark.parametrize(
    ("place", "configured", "message"),
    [
        ("kernels", RELOCATION, "PLACE kernels: give <part>=<MEMORY>; the parts are kernels, weights"),
        ("stack=SRAM", RELOCATION, "PLACE stack=SRAM: give <part>=<MEMORY>"),
        ("arena=DTCM", RELOCATION, "a_board has no such memory; Zephyr can place into SRAM, FAST"),
        ("kernels=FLASH", RELOCATION, "a_board has no such memory; Zephyr can place into SRAM, FAST"),
        ("arena=FAST", "", "Add to prj.conf: CONFIG_CODE_DATA_RELOCATION=y"),
        (
            "kernels=SRAM",
            f"{RELOCATION}\nset(CONFIG_ARM_MPU y)",
            "the MPU lets no code run in SRAM. Add to prj.conf: CONFIG_CODE_DATA_RELOCATION_SRAM=y",
        ),
    ],
)
def test_what_cannot_be_placed_is_refused(tmp_path: Path, place: str, configured: str, message: str) -> None:
    done = script(tmp_path, configured, DEVICETREE, f"crtgen_place({place})")
    assert done.returncode != 0
    assert message in " ".join(done.stderr.split())


def test_objects_of_llvm_are_not_placed(tmp_path: Path) -> None:
    call = "crtgen_add_model(app a.tflite TARGET llvm PLACE weights=SRAM)"
    done = script(tmp_path, f"include({ROOT}/zephyr/crtgen.cmake)", call)
    assert done.returncode != 0
    assert "leave out PLACE or TARGET llvm" in " ".join(done.stderr.split())
