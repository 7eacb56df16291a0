"""Sizes of images whose arrays are known."""

import subprocess
from pathlib import Path

import pytest

from crtgen.base.errors import BuildError
from crtgen.firmware.builder import Group, read_sizes
from tests.firmware.builder.projects import compile_image
from tests.support import require_tool

pytestmark = pytest.mark.qemu

MAIN = """
#include <stdint.h>
extern const int8_t weights[1000];
extern uint8_t net_arena[2048];
uint8_t other[112];
uint32_t initial[3] = {1, 2, 3};
void crt_reset(void)
{
    for (;;)
        for (int i = 0; i < 100; i++)
            net_arena[i] = (uint8_t)(other[i] + weights[i] + (int)initial[i % 3]);
}
"""
WEIGHTS = "const signed char weights[1000] = {1, 2, 3};"
MODEL = "unsigned char net_arena[2048] __attribute__((aligned(16)));"


def test_sections_symbols_and_groups(tmp_path: Path) -> None:
    elf = compile_image(tmp_path, main_c=MAIN, weights_c=WEIGHTS, model_c=MODEL)
    sizes = read_sizes(elf, map_file=tmp_path / "firmware.map")
    assert (sizes.rodata, sizes.data, sizes.bss, sizes.arena, sizes.stack) == (1000, 12, 2160, 2048, 1024)
    assert sizes.ram == 2172
    assert sizes.flash == sizes.text + 1012
    largest = [(s.name, s.section, s.size, s.group) for s in sizes.symbols[:4]]
    assert largest == [
        ("net_arena", "bss", 2048, "model"),
        ("weights", "rodata", 1000, "weights"),
        ("other", "bss", 112, "platform"),
        ("crt_reset", "text", sizes.symbols[3].size, "platform"),
    ]
    assert sizes.groups["weights"] == Group(1000, 0)
    assert sizes.groups["model"] == Group(0, 2048)
    assert sum(g.flash for g in sizes.groups.values()) == sizes.flash
    assert sum(g.ram for g in sizes.groups.values()) == sizes.ram


def test_the_total_is_what_size_says(tmp_path: Path) -> None:
    size = require_tool("arm-none-eabi-size")
    elf = compile_image(tmp_path, main_c=MAIN, weights_c=WEIGHTS, model_c=MODEL)
    line = subprocess.run([size, elf], capture_output=True, text=True, check=True, timeout=120).stdout
    text, data, bss = map(int, line.splitlines()[1].split()[:3])
    sizes = read_sizes(elf)
    assert (sizes.text + sizes.rodata, sizes.data, sizes.bss + sizes.stack) == (text, data, bss)
    assert sizes.groups == {}


def test_library_functions_are_libc(tmp_path: Path) -> None:
    source = """
    #include <string.h>
    char a[64], b[64];
    volatile size_t n;
    void crt_reset(void) { for (;;) memcpy(a, b, n); }
    """
    elf = compile_image(tmp_path, main_c=source)
    sizes = read_sizes(elf, map_file=tmp_path / "firmware.map")
    memcpy = next(s for s in sizes.symbols if s.name == "memcpy")
    assert memcpy.group == "libc"
    assert sizes.groups["libc"].flash >= memcpy.size > 0


def test_an_archive_is_the_sum_of_its_members(tmp_path: Path) -> None:
    compile_image(tmp_path, main_c=MAIN, weights_c=WEIGHTS, model_c=MODEL)
    ar = require_tool("arm-none-eabi-ar")
    library = tmp_path / "libnet.a"
    subprocess.run([ar, "qc", library, "weights.o", "model.o"], cwd=tmp_path, check=True, timeout=120)
    sizes = read_sizes(library)
    assert (sizes.flash, sizes.rodata, sizes.ram, sizes.arena) == (1000, 1000, 2048, 2048)
    assert [(s.name, s.group, s.file) for s in sizes.symbols] == [
        ("net_arena", "model", "model.o"),
        ("weights", "weights", "weights.o"),
    ]


def test_json(tmp_path: Path) -> None:
    elf = compile_image(tmp_path, main_c=MAIN, weights_c=WEIGHTS, model_c=MODEL)
    data = read_sizes(elf, map_file=tmp_path / "firmware.map").to_dict()
    assert (data["rodata"], data["ram"], data["stack_reserved"]) == (1000, 2172, 1024)
    assert data["groups"]["weights"] == {"flash": 1000, "ram": 0}
    assert data["symbols"][1]["name"] == "weights"


def test_no_elf(tmp_path: Path) -> None:
    path = tmp_path / "firmware.elf"
    path.write_text("hello")
    with pytest.raises(BuildError, match="not an ELF"):
        read_sizes(path)
