"""ESPHome: components of micro-wake-words on this computer and on 32-bit RISC-V, their outputs locked.

The twelve are those of github.com/esphome/micro-wake-word-models: `CRTGEN_WAKE_WORDS` names a folder with
them; one is at hand elsewhere. All twelve gave TFLite Micro's own outputs for the inputs of this test when
the locks were made. The C is what an ESP32-C3 (RISC-V) compiles; nothing here compiles for Xtensa.
"""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import unicorn
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from unicorn import riscv_const as riscv
from unicorn.unicorn_py3.unicorn import Uc

import crtgen
from crtgen.api import Model
from crtgen.network.ir import Array, Graph
from tests.support import ROOT, absent, require_tool, symbol_table

FOLDERS = (os.environ.get("CRTGEN_WAKE_WORDS", ""), str(ROOT.parent / "shared" / "networks" / "streaming"))
LOCKS = {
    "alexa": ("2fcbfbb18462667b", "cbe26a2f406656f4"),
    "hey_jarvis": ("a9bb35449786dab6", "2c29fa3d17ad9795"),
    "okay_nabu": ("f9af22ab15bf72a2", "e38dfdf34b4d546c"),
    "v2/alexa": ("9011a8155b04de85", "49a8f26e4d157ff4"),
    "v2/experiments/choo_choo_homie": ("02dcdc62eea82930", "796de7726fb747c4"),
    "v2/experiments/hey_home_assistant": ("f9a3f5d03f394eef", "c032c438b33f63a4"),
    "v2/experiments/hey_peppa_pig": ("7617647bd9057177", "5ba663add44c9131"),
    "v2/experiments/okay_computer": ("eb8db0875910d43c", "81919aa461972ce1"),
    "v2/hey_jarvis": ("21a7976add39ee24", "c86b28184089cf2c"),
    "v2/hey_mycroft": ("c2a9b6ed51182db7", "5fdebc7627f2e4b2"),
    "v2/okay_nabu": ("0689abe1912a95a3", "1e094e16894ccf20"),
    "v2/vad": ("7aa4db6d5fb7c535", "62d15a38cbb3b98d"),
}
"""By name: the first digits of the SHA-256 of the file, and of what 60 runs give."""

STEPS = 60
OFTEN = "v2/okay_nabu"
WORDS = [pytest.param(name, marks=() if name == OFTEN else pytest.mark.nightly) for name in LOCKS]

DRIVER = """
#include <string.h>
#include <{name}.h>
extern int8_t x[];
extern uint8_t y[2];
int8_t x[{size}];
uint8_t y[2];
int32_t step(void);
int32_t step(void)
{{
    const struct {name}_inputs inputs = {{x}};
    const struct {name}_outputs outputs = {{y, (int8_t *)y + 1}};
    return {name}_run(&inputs, &outputs);
}}
"""

HOST_MAIN = """
#include <stdint.h>
#include <stdio.h>
extern int8_t x[];
extern uint8_t y[2];
int32_t step(void);
int main(void)
{
    while (fread(x, 1, SIZE, stdin) == SIZE) {
        if (step() != 0) { return 1; }
        (void)fwrite(y, 1, 2, stdout);
    }
    return 0;
}
"""

STRING_H = """
#include <stddef.h>
void *memcpy(void *to, const void *from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int value, size_t n);
"""

MEMORY = """
#include <string.h>
void *memcpy(void *to, const void *from, size_t n)
{
    volatile char *t = to;
    const char *f = from;
    while (n-- > 0) { *t++ = *f++; }
    return to;
}
void *memmove(void *to, const void *from, size_t n)
{
    volatile char *t = to;
    const char *f = from;
    if (t < f) { return memcpy(to, from, n); }
    while (n-- > 0) { t[n] = f[n]; }
    return to;
}
void *memset(void *to, int value, size_t n)
{
    volatile char *t = to;
    while (n-- > 0) { *t++ = (char)value; }
    return to;
}
"""


def with_logits(path: Path) -> Graph:
    """The network, with the logits as a second output: the probability hardly moves."""
    loaded = crtgen.load(path)
    assert isinstance(loaded, Model)
    graph = loaded.graph
    node = graph.producer(graph.outputs[0])
    while node is not None and node.op.name != "logistic":
        node = graph.producer(node.inputs[0])
    assert node is not None
    return replace(graph, outputs=(*graph.outputs, node.inputs[0]))


def signal(shape: tuple[int, ...]) -> list[Array]:
    """Frames of a spectrogram: a level and a tilt that wander."""
    random = np.random.default_rng(11)
    level, tilt, frames = -60.0, np.zeros(shape[-1]), []
    for _ in range(STEPS * shape[1]):
        level = float(np.clip(level + random.normal(0, 25), -128, 40))
        tilt = np.clip(tilt + random.normal(0, 12, shape[-1]), -90, 90)
        frames.append(np.clip(level + tilt, -128, 127))
    return list(np.array(frames).astype(np.int8).reshape(STEPS, *shape))


def found(name: str) -> Path:
    """The file of a wake word."""
    places = (Path(folder) / end for folder in FOLDERS if folder for end in (name, name.replace("/", "_")))
    for path in (place.with_suffix(".tflite") for place in places):
        if path.is_file():
            assert hashlib.sha256(path.read_bytes()).hexdigest().startswith(LOCKS[name][0]), path
            return path
    absent(f"the wake word {name}", "name the folder of micro-wake-word-models: CRTGEN_WAKE_WORDS")
    raise AssertionError


def component(name: str, directory: Path) -> tuple[Graph, list[Path], list[Array], bytes]:
    """Graph, C files with the driver, inputs, and what the reference makes of them."""
    graph = with_logits(found(name))
    model = Model(graph)
    model.compile("host").generate("library", framework="esphome").extract(directory)
    inputs = signal(graph.values[graph.inputs[0]].shape)
    runs = list(graph.run([x] for x in inputs))
    reference = b"".join(b"".join(y.tobytes() for y in outputs) for outputs in runs)
    assert hashlib.sha256(reference).hexdigest().startswith(LOCKS[name][1])
    (directory / "driver.c").write_text(DRIVER.format(name=graph.name, size=inputs[0].size))
    listed = re.findall(r"^    (\S+\.c)$", (directory / "CMakeLists.txt").read_text(), re.MULTILINE)
    return graph, [directory / name for name in (*listed, "driver.c")], inputs, reference


def includes(directory: Path) -> list[str]:
    return [f"-I{directory / 'model'}", f"-I{directory / 'runtime' / 'include'}"]


@pytest.mark.cc
@pytest.mark.parametrize("name", WORDS)
def test_a_component_gives_the_outputs_that_are_locked(name: str, tmp_path: Path) -> None:
    require_tool("gcc")
    _, sources, inputs, reference = component(name, tmp_path)
    (tmp_path / "main.c").write_text(HOST_MAIN.replace("SIZE", str(inputs[0].size)))
    words = ["gcc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", *includes(tmp_path)]
    words += [*map(str, sources), str(tmp_path / "main.c"), "-o", str(tmp_path / "run"), "-lm"]
    subprocess.run(words, check=True)
    data = b"".join(x.tobytes() for x in inputs)
    result = subprocess.run([str(tmp_path / "run")], input=data, stdout=subprocess.PIPE, check=True)
    assert result.stdout == reference


@pytest.mark.cc
@pytest.mark.parametrize("name", WORDS)
def test_the_same_on_a_risc_v_of_32_bits(name: str, tmp_path: Path) -> None:
    """RV32IMC, as the ESP32-C3 has it, under Unicorn: no unaligned access, and the same bytes."""
    _, sources, inputs, reference = component(name, tmp_path)
    (tmp_path / "memory.c").write_text(MEMORY)
    (tmp_path / "string.h").write_text(STRING_H)
    image = tmp_path / "image.elf"
    words = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        "riscv32-freestanding-none",
        "-mcpu=generic_rv32+m+c",
    ]
    words += [
        "-mcpu=generic_rv32+m+c",
        "-std=c11",
        "-O2",
        "-ffreestanding",
        "-fno-builtin",
        "-fno-sanitize=all",
        "-ffunction-sections",  # conversions of floats, which need a library, are not called
        f"-I{tmp_path}",
    ]
    words += [*includes(tmp_path), "-nostdlib", "-static", "-Wl,-e,step,--gc-sections", "-o", str(image)]
    subprocess.run([*words, *map(str, sources), str(tmp_path / "memory.c")], check=True)
    assert run_risc_v(image, inputs) == reference


def address(table: SymbolTableSection, name: str) -> int:
    found = table.get_symbol_by_name(name)
    assert found, name
    return int(found[0]["st_value"])


def run_risc_v(image: Path, inputs: Sequence[Array]) -> bytes:
    """What ``step`` leaves in ``y``, once for each input in ``x``."""
    stack, end = 0x7000_0000, 0x6000_0000
    uc = Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV32)
    for place in (stack - 0x1_0000, end):
        uc.mem_map(place, 0x1_0000)
    with image.open("rb") as file:
        elf = ELFFile(file)
        table = symbol_table(elf)
        step, x, y = (address(table, name) for name in ("step", "x", "y"))
        pages = set()
        for segment in elf.iter_segments("PT_LOAD"):
            first, size = int(segment["p_vaddr"]), int(segment["p_memsz"])
            pages |= set(range(first >> 12, (first + size + 0xFFF) >> 12))
        for page in pages:
            uc.mem_map(page << 12, 0x1000)
        for segment in elf.iter_segments("PT_LOAD"):
            uc.mem_write(int(segment["p_vaddr"]), segment.data())
    found = b""
    for data in inputs:
        uc.mem_write(x, data.tobytes())
        uc.reg_write(riscv.UC_RISCV_REG_SP, stack - 64)
        uc.reg_write(riscv.UC_RISCV_REG_RA, end)
        uc.emu_start(step, end)
        assert uc.reg_read(riscv.UC_RISCV_REG_A0) == 0
        found += bytes(uc.mem_read(y, 2))
    return found
