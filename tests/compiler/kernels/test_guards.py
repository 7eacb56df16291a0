"""Nothing is read or written beyond the arena or the weights: they lie where memory ends in a fault.

The arena lies at the end of a memory in one run and at the start of one in another, and each array of weights
is once the last thing before a memory's end.
"""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target
from crtgen.compiler.plan import loop_over_rows
from tests.compiler.kernels.program import (
    HERE,
    check_outputs,
    include_flags,
    one_unit,
    parse_outputs,
    plan_runs,
    qemu_command,
    write_program,
)
from tests.compiler.kernels.recorded import recorded_runs
from tests.support import nightly, qemu_version, require_tool

pytestmark = pytest.mark.qemu


@dataclass(frozen=True)
class Memories:
    """A machine of QEMU's: memories for code, data and arena, and an address where memory for weights ends.

    Where data and arena have one memory, the data get what the arena leaves.
    Beyond them is nothing; the MPS2 boards of QEMU read zeros there.
    """

    machine: str
    code: tuple[int, int]
    data: tuple[int, int]
    arena: tuple[int, int]
    weights_end: int


CORES = ("cortex-m4", "cortex-m55")


def memories_of(core: str) -> Memories:
    if core == "cortex-m55":
        ram, arena = (0x20000000, 0x20080000), (0x21000000, 0x21400000)
        return Memories("mps3-an547", (0, 0x80000), ram, arena, 0x01200000)
    flash, ram, arena = (0x08000000, 0x08100000), (0x20000000, 0x20030000), (0x20000000, 0x20030000)
    if qemu_version() >= (8, 0):  # 64 of the 192 KiB are the CCM, as on the chip
        ram, arena = (0x10000000, 0x10010000), (0x20000000, 0x20020000)
    return Memories("netduinoplus2", flash, ram, arena, 0x08100000)


_SCRIPT = """
ENTRY(reset_handler)
MEMORY
{{
    code (rx) : ORIGIN = {code:#x}, LENGTH = {code_bytes}
    data (rwx) : ORIGIN = {data:#x}, LENGTH = {data_bytes}
    arena (rw) : ORIGIN = {arena:#x}, LENGTH = {arena_bytes}
    last (r) : ORIGIN = {last:#x}, LENGTH = {last_bytes}
}}
SECTIONS
{{
    .last : {{ *(.rodata.{name}) }} > last
    .arena (NOLOAD) : {{ *(.bss.m0_arena) }} > arena
    .text : {{ KEEP(*(.vectors)) *(.text .text.*) *(.rodata .rodata.*) }} > code
    .ARM.exidx : {{ *(.ARM.exidx*) }} > code
    .data : {{ data_start = .; *(.data .data.*) data_end = .; }} > data AT > code
    data_load = LOADADDR(.data);
    .bss (NOLOAD) : {{ . = ALIGN(16); bss_start = .; *(.bss .bss.* COMMON) bss_end = .; }} > data
    stack_top = ORIGIN(data) + LENGTH(data) / 2;
}}
"""


def _script(memories: Memories, arena: int, at_end: bool, name: str, size: int) -> str:
    arena = -(-arena // 16) * 16  # as it is aligned
    start = memories.arena[1] - arena if at_end else memories.arena[0]
    data, data_end = memories.data
    if memories.data == memories.arena:
        data, data_end = (data, start) if at_end else (start + arena, data_end)
    last = (memories.weights_end - size) // 16 * 16 if size % 4 else memories.weights_end - size
    code_end = last if memories.code[1] == memories.weights_end else memories.code[1]
    return _SCRIPT.format(
        code=memories.code[0],
        code_bytes=code_end - memories.code[0],
        data=data,
        data_bytes=data_end - data,
        arena=start,
        arena_bytes=arena,
        last=last,
        last_bytes=memories.weights_end - last,
        name=name,
    )


def _compile(directory: Path, sources: Sequence[Path], flags: Sequence[str]) -> list[Path]:
    objects = []
    for source in sources:
        objects.append(directory / f"{source.name}.o")
        command = [require_tool("arm-none-eabi-gcc"), *flags, *include_flags(directory), "-std=c11", "-O2"]
        command += ["-ffunction-sections", "-fdata-sections", "-c", str(source), "-o", str(objects[-1])]
        subprocess.run(command, check=True, timeout=240)
    return objects


def _link_and_run(directory: Path, objects: Sequence[Path], core: str, script: str) -> tuple[int, str]:
    (directory / "link.ld").write_text(script)
    image = directory / "image.elf"
    command = [require_tool("arm-none-eabi-gcc"), *find_core(core).gcc_flags, "-nostartfiles"]
    command += ["-specs=nano.specs", "-Wl,--gc-sections", f"-T{directory / 'link.ld'}"]
    subprocess.run([*command, *map(str, objects), "-o", str(image)], check=True, timeout=120)
    command = qemu_command(memories_of(core).machine, image)
    done = subprocess.run(command, timeout=120, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


_IN_CI = {
    ("kws_int8", "cortex-m4", "speed"),
    ("ad01_int8", "cortex-m55", "size"),
}


@pytest.mark.models
@pytest.mark.parametrize(
    ("model", "core", "optimize"),
    [
        (names if names in _IN_CI else nightly(*names))
        for names in product(("kws_int8", "ad01_int8", "ic01_int8", "vww_int8"), CORES, ("speed", "size"))
    ],
)
def test_models_stay_within_arena_and_weights(tmp_path: Path, core: str, model: str, optimize: str) -> None:
    ((run, expected),), memories = recorded_runs(model, 1), memories_of(core)
    target = Target(find_core(core), optimize)
    ((_, whole),) = plan_runs([run], target)
    plan, _ = loop_over_rows(whole, target)
    runs = [(run, plan)]
    sources = one_unit(tmp_path, write_program(tmp_path, runs))
    start = HERE / "baremetal" / "start.c"
    objects = _compile(tmp_path, [*sources, start], find_core(core).gcc_flags)
    sizes = _arrays(tmp_path / "all.c.o")
    assert len(sizes) >= 10
    for number, (name, size) in enumerate(sizes.items()):
        script = _script(memories, plan.arena, number % 2 == 0, name, size)
        code, text = _link_and_run(tmp_path, objects, core, script)
        assert code == 0, f"{name} at the end: {text[-200:]}"
        assert not check_outputs(run, parse_outputs(text, 1)[0], expected), name


def _arrays(path: Path) -> dict[str, int]:
    """The arrays of constants that kernels get, and their bytes."""
    command = ["arm-none-eabi-nm", "-S", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    found = re.findall(r"^\w+ (\w+) R (__tvm_param__\w+)$", text, re.MULTILINE)
    return {name: int(size, 16) for size, name in found}


@pytest.mark.parametrize("core", CORES)
def test_a_byte_beyond_is_a_fault(tmp_path: Path, core: str) -> None:
    memories = memories_of(core)
    ends = [memories.arena[0] - 1, memories.arena[1], memories.weights_end]
    for address, inside in [(a, False) for a in ends] + [(memories.arena[1] - 1, True)]:
        source = tmp_path / "main.c"
        source.write_text(
            "#include <stdint.h>\nint main(void);\nvoid systick_handler(void);\n"
            "void systick_handler(void) {}\n"
            f"int main(void) {{ return *(volatile uint8_t *){address:#x}u & 0; }}\n"
        )
        objects = _compile(tmp_path, [source, HERE / "baremetal" / "start.c"], find_core(core).gcc_flags)
        code, _ = _link_and_run(tmp_path, objects, core, _script(memories, 16, True, "none", 16))
        assert (code == 0) is inside, f"{address:#x}"
