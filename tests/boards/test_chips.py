"""Chips on bare metal: rates of UARTs, registers of the start, what boot ROMs look for, an image for each."""

import re
import struct
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from crtgen import api
from crtgen.boards import Board, all_boards, find_board, load_board
from crtgen.boards.uart import UARTS
from crtgen.compiler.request import Request
from crtgen.device.flash.vectors import read_vectors
from crtgen.firmware.builder import binary, read_content
from crtgen.firmware.project import FirmwareRequest, ProjectOptions
from crtgen.firmware.project.baremetal import platform_files
from tests.boards.test_loader import ONLY_ZEPHYR
from tests.firmware.project.toy import METADATA, toy
from tests.silicon.log import SVD
from tests.silicon.started import check_registers
from tests.support import ROOT, few, nightly, require_tool
from tools.boards import PAGE, page

BARE = [board for board in all_boards() if "baremetal" in board.platforms]
DEMO = ROOT / "demo" / "digits.tflite"


def platform(board: Board, type: str) -> dict[str, str]:
    """The C of a board around a toy."""
    return platform_files(FirmwareRequest([toy()], METADATA, Request(board), ProjectOptions(type)))


@pytest.mark.parametrize(
    ("kind", "clock", "baud", "fields"),
    [
        # The example of ARM DDI 0183, 3.3.6: 230,400 baud of 4 MHz is 1 and 5 / 64.
        ("pl011", 4_000_000, 230_400, {"whole": 1, "fraction": 5}),
        ("pl011", 125_000_000, 115_200, {"whole": 67, "fraction": 52}),
        # ST RM0351, table of baud rates at 72 MHz with 16 samples: 115,200 is 0x271.
        ("stm32_v2", 72_000_000, 115_200, {"divider": 0x271}),
        ("stm32_v1", 8_000_000, 9_600, {"divider": 0x341}),
        ("stm32_lpuart", 32_768, 9_600, {"divider": 0x36A}),
        # Nordic's tables of BAUDRATE.
        ("nrf_uart", 16_000_000, 38_400, {"rate": 0x009D_5000}),
        ("nrf_uart", 16_000_000, 115_200, {"rate": 0x01D7_E000}),
        ("nrf_uarte", 16_000_000, 115_200, {"rate": 0x01D6_0000}),
        ("kinetis", 120_000_000, 115_200, {"whole": 65, "fraction": 3}),
        ("nxp_lpuart", 12_000_000, 115_200, {"samples": 25, "divider": 4}),
        # BAUD counts eighths of 16 samples: 48 MHz / (16 * 26) is 115,385.
        ("sam_sercom", 48_000_000, 115_200, {"whole": 26, "fraction": 0}),
        ("sam_sercom", 48_000_000, 9_600, {"whole": 312, "fraction": 4}),
        # What Renesas' own driver has for 120 MHz; with 20 MHz a bit of 6 clocks is nearest.
        ("ra_sci", 48_000_000, 115_200, {"mode": 0x00, "shift": 0, "divider": 12}),
        ("ra_sci", 24_000_000, 250_000, {"mode": 0x00, "shift": 0, "divider": 2}),
        ("ra_sci_b", 120_000_000, 115_200, {"mode": 0x10, "shift": 0, "divider": 64}),
        ("ra_sci_b", 20_000_000, 115_200, {"mode": 0x40, "shift": 0, "divider": 28}),
        ("ra_sci_b", 120_000_000, 1_200, {"mode": 0x00, "shift": 2, "divider": 194}),
        ("cmsdk", 25_000_000, 115_200, {"divider": 217}),
    ],
)
def test_what_uarts_divide_their_clock_by(kind: str, clock: int, baud: int, fields: dict[str, int]) -> None:
    rate = UARTS[kind](clock, baud)
    assert rate.fields == fields
    assert rate.baud == pytest.approx(baud, rel=0.02)


def test_a_rate_that_registers_do_not_reach_is_not_claimed() -> None:
    for kind, rate in UARTS.items():
        if kind in ("rp2040_usb", "rp2350_usb"):  # as fast as the bus, whatever is said
            continue
        assert rate(120_000_000, 1).baud > 10, kind
        assert rate(1_000_000, 12_000_000).baud <= 1_000_000, kind


STARTS = """\
summary = "a board"
core = "cortex-m4"
source = "a manual"
start = [
  { register = "WDOG.UNLOCK", address = 0x4005200e, bits = 16, write = 0xc520, note = "the watchdog" },
  { register = "RCC.CR", address = 0x40021000, set = 0x100 },
  { register = "RCC.CR", address = 0x40021000, wait = 0x400 },
  { register = "RCC.CFGR", address = 0x40021008, set = 0x2, clear = 0x1 },
  { register = "RCC.CFGR", address = 0x40021008, clear = 0xf0 },
  { register = "RCC.CFGR", address = 0x40021008, wait = 0xc, for = 0x8 },
  { register = "P0.PIN_CNF[20]", address = 0x50000750, write = 0x3 },
  { register = "SYSTEM.MOMCR", address = 0x4001ea50, bits = 8, set = 0x6, clear = 0x48 },
  { register = "SYSTEM.MOMCR", address = 0x4001ea50, bits = 8, clear = 0x48 },
]
"""


def test_steps_of_the_start_as_c(tmp_path: Path) -> None:
    text = (ROOT / "boards" / "netduinoplus2.toml").read_text()
    file = tmp_path / "own.toml"
    file.write_text(STARTS + text[text.index("\n[memory.flash]") :])
    start = platform(load_board(file), "server")["startup.c"]
    assert "#define WDOG_UNLOCK (*(volatile uint16_t *)0x4005200eu)" in start
    assert "#define P0_PIN_CNF_20 (*(volatile uint32_t *)0x50000750u)" in start
    body = start[start.index("static void start_chip(void)\n{\n") :]
    assert body[: body.index("    __asm")].splitlines()[2:] == [
        "    /* the watchdog */",
        "    WDOG_UNLOCK = 0xc520u;",
        "    RCC_CR |= 0x100u;",
        "    while ((RCC_CR & 0x400u) != 0x400u) {",
        "        ;",
        "    }",
        "    RCC_CFGR = (RCC_CFGR & ~0x3u) | 0x2u;",
        "    RCC_CFGR &= ~0xf0u;",
        "    while ((RCC_CFGR & 0xcu) != 0x8u) {",
        "        ;",
        "    }",
        "    P0_PIN_CNF_20 = 0x3u;",
        "    SYSTEM_MOMCR = (uint8_t)((SYSTEM_MOMCR & ~0x4eu) | 0x6u);",
        "    SYSTEM_MOMCR &= (uint8_t)~0x48u;",
    ]


CONDITIONS = """\
start = [
  { register = "FICR.TRIMCNF[0].ADDR", address = 0xff0300, pairs = 32 },
  { register = "FICR.PART", address = 0xff0130, if = 0xffffffff, for = 0x7, note = "the part", then = [
    { register = "FICR.REVISION", address = 0xff0134, unless = 0xff, for = 0x2, then = [
      { register = "OSC.TRIM", address = 0x50002118, write = 0x7f },
    ] },
  ] },
]
"""


def test_conditions_and_pairs_as_c(tmp_path: Path) -> None:
    text = (ROOT / "boards" / "netduinoplus2.toml").read_text()
    file = tmp_path / "own.toml"
    file.write_text(STARTS[: STARTS.index("start")] + CONDITIONS + text[text.index("\n[memory.flash]") :])
    start = platform(load_board(file), "server")["startup.c"]
    assert "#define OSC_TRIM (*(volatile uint32_t *)0x50002118u)" in start
    body = start[start.index("static void start_chip(void)\n{\n") :]
    assert body[: body.index("    __asm")].splitlines()[2:] == [
        "    copy_pairs(&FICR_TRIMCNF_0_ADDR, 32);",
        "    /* the part */",
        "    if (FICR_PART == 0x7u) {",
        "        if ((FICR_REVISION & 0xffu) != 0x2u) {",
        "            OSC_TRIM = 0x7fu;",
        "        }",
        "    }",
    ]


def crc_mpeg2(data: bytes) -> int:
    """CRC-32/MPEG-2; that of "123456789" is 0x0376e6e7."""
    crc = 0xFFFF_FFFF
    for byte in data:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C1_1DB7 if crc >> 31 else 0)) & 0xFFFF_FFFF
    return crc


def documented() -> dict[str, list[str]]:
    """The rows of the table of boards, by name."""
    text = (ROOT / "docs" / "boards.md").read_text(encoding="utf-8")
    text = text[text.index("| board | core |") :].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"]
    return {row[0]: row for row in rows[2:]}


def check_header(board: Board, data: bytes) -> None:
    """What the chip's boot ROM looks for, in the flash from its start."""
    if board.boot == "rp2040":
        assert crc_mpeg2(b"123456789") == 0x0376_E6E7
        assert struct.unpack_from("<I", data, 252)[0] == crc_mpeg2(data[:252])
    if board.boot == "rp2350":
        words = struct.unpack_from("<5I", data, 0x200)
        assert words == (0xFFFF_DED3, 0x1021_0142, 0x1FF, 0, 0xAB12_3579)
    if board.boot == "kinetis":
        assert data[0x400:0x410] == b"\xff" * 12 + b"\xfe\xff\xff\xff"


_EACH = few(BARE, lambda b: (f"{b.uart and b.uart.kind} line", b.timer and b.timer.kind, f"by {b.boot}"), 1)
"""A board with each kind of serial port, one with each kind of clock, and one for each boot ROM."""


@pytest.mark.qemu
@pytest.mark.parametrize(
    "board",
    [pytest.param(b, id=b.name, marks=() if b in _EACH else pytest.mark.nightly) for b in BARE],
)
def test_the_demo_is_built_for_every_board(board: Board) -> None:
    """Bare metal: vectors and headers are where the chip looks, and the sizes are those of the table.

    Then it runs on a simulated core with the chip's registers.
    """
    require_tool("arm-none-eabi-gcc")
    image = api.load(DEMO).compile(board).generate("server").build()
    ram = board.memory(board.data)
    table = read_vectors(image.path)
    assert table.address == board.first_vector
    assert ram.origin < table.stack <= ram.end
    assert table.reset & 1
    content = read_content(image.path)
    assert content.origin == board.memory(board.vectors).origin
    check_header(board, binary(content))
    sizes = image.size.sizes
    row = documented()[board.name]
    flash, ram_bytes = (int(cell.replace(",", "")) for cell in row[7:9])
    assert sizes.flash == pytest.approx(flash, rel=0.03)
    assert sizes.ram + sizes.stack == pytest.approx(ram_bytes, rel=0.03)
    is_young = board.qemu is not None and board.qemu.since  # the table is of a QEMU that does not have it
    assert row[6] == ("simulated" if board.simulator and not is_young else "built")
    if board.name in SVD:
        check_registers(board.name, image)


@pytest.mark.qemu
@pytest.mark.parametrize("toolchain", ["gcc", nightly("zig")])
def test_an_image_loads_nothing_but_its_sections(monkeypatch: pytest.MonkeyPatch, toolchain: str) -> None:
    """With large pages, linkers load the headers of the file below the first section: over a boot loader."""
    require_tool("arm-none-eabi-gcc")
    monkeypatch.setenv("LDFLAGS", "-Wl,-z,max-page-size=0x10000")  # as in the binutils of Debian 13
    board = find_board("arduino_uno_r4_minima")
    image = api.load(DEMO).compile(board).generate("standalone").build(toolchain=toolchain)
    with image.path.open("rb") as file:
        loaded = [s["p_paddr"] for s in ELFFile(file).iter_segments("PT_LOAD") if s["p_filesz"]]
    assert min(loaded) == board.memory(board.vectors).origin


@pytest.mark.parametrize(("name", "is_there"), [("nrf52840dk", True), ("rpi_pico", False)])
def test_handlers_end_with_a_barrier_on_cores_with_erratum_838869(name: str, is_there: bool) -> None:
    """Cortex-M3 and M4: a store that ends a handler may lead to the wrong one next."""
    files = platform(find_board(name), "server")
    (serial,) = (text for file, text in files.items() if file.startswith("serial_"))
    for text, handler in (
        (files["clock_systick.c"], "crt_clock_interrupt"),
        (serial, "crt_serial_interrupt"),
    ):
        body = text[text.rindex(f"void {handler}(void)\n{{") :].partition("\n}\n")[0]
        assert ('__asm volatile("dsb"' in body.splitlines()[-1]) == is_there, handler


def test_every_chip_has_its_errata() -> None:
    boards = [board for board in BARE if board.is_real and board.name != "host"]
    assert boards
    assert [board.name for board in boards if board.errata is None] == []
    assert [board.name for board in boards if board.name not in SVD] == []


def test_the_page_has_what_was_checked_and_the_errata() -> None:
    """`python -m tools.boards` writes both."""
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text
    assert "| ES0392 2.2.9 |" in text


def test_boards_for_zephyr_only_are_said_to_be() -> None:
    rows = documented()
    others = {b.name for b in all_boards() if not b.is_host} - {b.name for b in BARE}
    assert others == set(ONLY_ZEPHYR)
    assert all(rows[name][6:9] == ["", "", ""] for name in others)


@pytest.mark.cc
def test_the_clock_of_nordic_starts_at_0_and_never_goes_back(tmp_path: Path) -> None:
    """The registers are variables: what is read, and what is pending, is set before each question."""
    files = platform(find_board("bbc_microbit"), "standalone")
    text = files["clock_nrf_timer.c"]
    text = re.sub(r"TIMER_REGISTER\(0x(\w+)u\)", r"registers[0x\1 / 4]", text)
    text = text[: text.index("void crt_clock_spin")]
    (tmp_path / "platform.h").write_text(files["platform.h"])
    (tmp_path / "clock.c").write_text(
        "#include <inttypes.h>\n#include <stdio.h>\n#include <stdint.h>\n"
        "static volatile uint32_t registers[0x600 / 4];\n" + text + NORDIC_MAIN
    )
    program = tmp_path / "clock"
    compiler = require_tool("cc", "apt install gcc")
    subprocess.run([compiler, "-w", "-o", program, "clock.c"], cwd=tmp_path, check=True, timeout=60)
    shown = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60).stdout
    turn = 1 << 32
    assert [int(word) for word in shown.split()] == [0, 5, turn - 1, turn, turn + 7, turn + 7, 2 * turn]


NORDIC_MAIN = """
int main(void)
{
    static const struct { uint32_t count, pending, interrupts; } steps[] = {
        {0, 0, 0}, {5, 0, 0}, {0xFFFFFFFF, 0, 0}, {0, 1, 0}, {7, 1, 0}, {7, 0, 1}, {0, 1, 0},
    };
    for (unsigned i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        for (uint32_t k = 0; k < steps[i].interrupts; k++)
            crt_clock_interrupt();
        registers[0x544 / 4] = steps[i].count;
        registers[0x140 / 4] = steps[i].pending;
        printf("%" PRIu64 " ", crt_clock_ticks());
    }
    return 0;
}
"""
