"""Small projects of the layout that crtgen generates, and images made of a few lines of C."""

import subprocess
from pathlib import Path

from crtgen.firmware.project.manifest import FORMAT, LOCKED, Manifest, manifest_text
from crtgen.firmware.project.options import ProjectOptions
from tests.support import require_tool

__all__ = ["LINKER", "compile_image", "write_project"]

LINKER = """
MEMORY { FLASH (rx) : ORIGIN = 0x0, LENGTH = 16K  RAM (rw) : ORIGIN = 0x20000000, LENGTH = 8K }
ENTRY(crt_reset)
SECTIONS
{
  .vectors : { KEEP(*(.vectors)) } > FLASH
  .text : ALIGN(8) { *(.text .text.*) *(.rodata .rodata.*) . = ALIGN(4); } > FLASH
  .stack (NOLOAD) : ALIGN(8) { . += 1024; crt_stack_top = .; } > RAM
  .data : ALIGN(8) { *(.data .data.*) } > RAM AT > FLASH
  .bss (NOLOAD) : ALIGN(8) { *(.bss .bss.* COMMON) } > RAM
  /DISCARD/ : { *(.ARM.exidx .ARM.exidx.*) }
}
"""

FLAGS = ("-mthumb", "-Os", "-std=c11", "-ffunction-sections", "-fdata-sections", "-fstack-usage")
LINK = ("-nostartfiles", "-Wl,--gc-sections", "-Wl,--build-id=none", "--specs=nano.specs")


def compile_image(directory: Path, cpu: str = "cortex-m4", **sources: str) -> Path:
    """``directory/firmware.elf`` with its map and ``.su`` files, of sources by name: ``main_c``, ``f_S``."""
    compiler = require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    (directory / "linker.ld").write_text(LINKER)
    objects = []
    for key, text in sources.items():
        name, _, suffix = key.rpartition("_")
        path = directory / f"{name}.{suffix}"
        path.write_text(text)
        objects.append(directory / f"{name}.o")
        run([compiler, f"-mcpu={cpu}", *FLAGS, "-c", str(path), "-o", str(objects[-1])], directory)
    elf = directory / "firmware.elf"
    linking = [*LINK, "-T", "linker.ld", "-Wl,-Map=firmware.map", "-o", str(elf)]
    run([compiler, f"-mcpu={cpu}", *FLAGS, *(o.name for o in objects), *linking], directory)
    return elf


def run(command: list[str], directory: Path) -> None:
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


CMAKE = """
cmake_minimum_required(VERSION 3.20)
project(tiny LANGUAGES C ASM)
add_compile_options(-Os -ffunction-sections -fdata-sections -fstack-usage ${CRT_CORE_FLAGS})
"""

FIRMWARE = """
add_executable(firmware main.c)
set_target_properties(firmware PROPERTIES SUFFIX .elf)
target_link_options(firmware PRIVATE ${CRT_CORE_FLAGS} -nostartfiles -T${CMAKE_SOURCE_DIR}/linker.ld
  -Wl,--gc-sections -Wl,-Map=firmware.map)
"""

GCC = """
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_ASM_COMPILER arm-none-eabi-gcc)
set(CMAKE_C_COMPILER_WORKS TRUE)
set(CRT_CORE_FLAGS -mcpu=cortex-m4 -mthumb)
"""


def write_project(directory: Path, source: str, *, board: str = "mps2_an386", host: bool = False) -> Path:
    """A project that builds ``main.c`` for Cortex-M4, or for this computer."""
    artefact = "firmware" if host else "firmware.elf"
    toolchain = "cc" if host else "gcc"
    (directory / "cmake").mkdir(parents=True)
    (directory / "main.c").write_text(source)
    (directory / "linker.ld").write_text(LINKER)
    (directory / "cmake" / f"{toolchain}.cmake").write_text("" if host else GCC)
    (directory / "CMakeLists.txt").write_text(
        CMAKE + ("add_executable(firmware main.c)" if host else FIRMWARE)
    )
    manifest = Manifest(
        format=FORMAT,
        version="0",
        name="tiny",
        board="host" if host else board,
        optimize="balanced",
        place={},
        toolchain=toolchain,
        artefact=artefact,
        options=ProjectOptions("standalone", platform="host" if host else "baremetal"),
        models=(),
        functions=(),
        files={},
    )
    (directory / LOCKED).mkdir(exist_ok=True)
    (directory / "project.json").write_bytes(manifest_text(manifest))
    return directory
