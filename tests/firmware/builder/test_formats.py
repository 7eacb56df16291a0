"""The image as binary, Intel hex and UF2: objcopy is the measure of the first two, the format of UF2."""

import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from crtgen.base.errors import BuildError
from crtgen.boards import Flash, find_board
from crtgen.firmware.builder import build_project
from crtgen.firmware.builder.formats import Content, binary, intel_hex, read_content, uf2, write_formats
from tests.firmware.builder.projects import write_project
from tests.support import require_tool

MAIN = """
int initial[3] = {1, 2, 3};
const char text[70000] = {5};
__attribute__((section(".vectors"), used)) const int table[5] = {7};
void crt_reset(void) { for (;;) *(volatile int *)initial = text[initial[1]]; }
"""
LINKER = """
MEMORY { FLASH (rx) : ORIGIN = 0x8000100, LENGTH = 1M  RAM (rw) : ORIGIN = 0x20000000, LENGTH = 8K }
ENTRY(crt_reset)
SECTIONS
{
  .vectors : { *(.vectors) } > FLASH
  .text : ALIGN(64) { *(.text* .rodata*) } > FLASH
  .data : ALIGN(8) { *(.data*) } > RAM AT > FLASH
  .bss (NOLOAD) : { *(.bss*) . += 64; } > RAM
}
"""
FAMILY = 0xE48BFF56


@pytest.fixture(scope="module")
def elf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("image")
    (directory / "main.c").write_text(MAIN)
    (directory / "x.ld").write_text(LINKER)
    compiler = require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    command = [compiler, "-mcpu=cortex-m4", "-mthumb", "-nostdlib", "-Tx.ld", "main.c", "-o", "firmware.elf"]
    subprocess.run(command, cwd=directory, check=True, timeout=120)
    return directory / "firmware.elf"


def objcopy(elf: Path, *options: str) -> bytes:
    program, made = require_tool("arm-none-eabi-objcopy"), elf.with_suffix(".objcopy")
    subprocess.run([program, *options, elf, made], check=True, timeout=120)
    return made.read_bytes()


@pytest.mark.qemu
def test_binary_and_hex_are_those_of_objcopy(elf: Path) -> None:
    content = read_content(elf)
    assert content.origin == 0x8000100
    assert binary(content) == objcopy(elf, "-O", "binary", "--gap-fill", "0xff")
    assert len(binary(content)) == content.end - content.origin > 70000
    lines = objcopy(elf, "-O", "ihex").decode().split()
    assert sorted(joined(intel_hex(content).decode().split())) == sorted(joined(lines))
    assert intel_hex(content).decode().split()[-2:] == lines[-2:]


def joined(lines: list[str]) -> list[tuple[int, int]]:
    """Address and value of each byte of Intel hex."""
    upper, found = 0, []
    for line in lines:
        raw = bytes.fromhex(line.removeprefix(":"))
        assert sum(raw) % 256 == 0
        assert len(raw) == raw[0] + 5
        if raw[3] == 4:
            upper = int.from_bytes(raw[4:6], "big") << 16
        elif raw[3] == 0:
            found += [(upper + int.from_bytes(raw[1:3], "big") + i, byte) for i, byte in enumerate(raw[4:-1])]
    return found


def test_a_record_of_intel_hex() -> None:
    content = Content(((0x0FFFE, b"\x01\x02\x03"),), entry=0x08000199)
    assert intel_hex(content).decode().splitlines() == [
        ":02FFFE000102FE",
        ":020000040001F9",
        ":0100000003FC",
        ":040000050800019955",
        ":00000001FF",
    ]


def test_uf2_is_pages_of_256_bytes() -> None:
    first, second = bytes(range(200)), b"\x11" * 300
    made = uf2(Content(((0x10000000, first), (0x100000F0, second))), FAMILY)
    assert len(made) == 3 * 512
    blocks = [struct.unpack("<8I476sI", made[at : at + 512]) for at in range(0, len(made), 512)]
    for number, block in enumerate(blocks):
        assert block[:3] == (0x0A324655, 0x9E5D5157, 0x2000)
        assert block[3:8] == (0x10000000 + 256 * number, 256, number, 3, FAMILY)
        assert block[8][256:] == bytes(220)
        assert block[9] == 0x0AB16F30
    data = b"".join(block[8][:256] for block in blocks)
    assert data == first + b"\xff" * 40 + second + b"\xff" * (768 - 540)


@pytest.mark.qemu
def test_a_board_says_which_files_there_are(tmp_path: Path) -> None:
    image = build_project(
        write_project(tmp_path / "p", "char b[8]; void crt_reset(void) { for (;;) b[0]++; }\n")
    )
    assert [file.name for file in image.files] == ["firmware.elf", "firmware.bin", "firmware.hex"]
    content = read_content(image.path)
    assert image.path.with_suffix(".bin").read_bytes() == binary(content)
    assert image.path.with_suffix(".hex").read_bytes() == intel_hex(content)
    drive = Flash(("uf2",), uf2_family=FAMILY)
    board = replace(find_board("mps2_an386"), flash_with=drive, memories=())
    write_formats(image.path, board)
    assert [file.suffix for file in image.files] == [".elf", ".hex", ".uf2"]
    assert image.path.with_suffix(".uf2").read_bytes() == uf2(content, FAMILY)


@pytest.mark.qemu
def test_what_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "x.elf").write_bytes(b"nothing")
    with pytest.raises(BuildError, match="not an ELF file"):
        read_content(tmp_path / "x.elf")
    (tmp_path / "e.c").write_text("")
    gcc = require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    subprocess.run([gcc, "-c", "e.c", "-o", "e.elf"], cwd=tmp_path, check=True, timeout=120)
    with pytest.raises(BuildError, match="the image is empty"):
        read_content(tmp_path / "e.elf")
