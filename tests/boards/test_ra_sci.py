"""The driver of Renesas' SCI, which no simulator has: against a model of it, ``ra_sci.c``."""

import re
import subprocess
from pathlib import Path

import pytest

from crtgen.boards import find_board
from crtgen.compiler.request import Request
from crtgen.firmware.project import FirmwareRequest, ProjectOptions
from crtgen.firmware.project.baremetal import platform_files
from tests.firmware.project.toy import METADATA, toy
from tests.support import require_tool

pytestmark = pytest.mark.cc

MODEL = Path(__file__).parent / "ra_sci.c"

CALLS = (
    (r"UART->(\w+) = (.+);", r"write_\1(\2);"),
    (r"UART->(\w+)", r"read_\1()"),
    (r"ICU_LINKS\[(\d)\] &= ~LINK_EVENT;", r"link_clear(\1);"),
    (r"\(void\)ICU_LINKS\[\d\];", r""),
    (r"NVIC_ISER\[(\w+) / 32u\] = .+;", r"nvic((int)\1, 1);"),
    (r"NVIC_ICER\[(\w+) / 32u\] = .+;", r"nvic((int)\1, 0);"),
    (r'__asm volatile\("dsb" ::.+;', r";"),
    (r'__asm volatile\("cpsid i".+;', r"mask(1);"),
    (r'__asm volatile\("cpsie i.+;', r"mask(0);"),
    (r'__asm volatile\("dsb\\n\\twfi".+;', r"doze();"),
)
"""What the driver does to registers, as calls of the model."""


def build(directory: Path, without: str = "") -> Path:
    """The model around the driver, without some line of it."""
    board = find_board("ek_ra8m1")
    files = platform_files(FirmwareRequest([toy()], METADATA, Request(board), ProjectOptions("server")))
    text = files["serial_ra_sci_b.c"]
    for pattern, call in CALLS:
        text, count = re.subn(pattern, call, text)
        assert count, pattern
    assert without in text
    (directory / "platform.h").write_text(files["platform.h"])
    (directory / "serial.c").write_text(text.replace(without, ""))
    compiler = require_tool("cc", "apt install gcc")
    command = [compiler, "-O1", "-w", f"-I{directory}", "-o", "model", str(MODEL)]
    subprocess.run(command, cwd=directory, check=True, timeout=60)
    return directory / "model"


def play(model: Path, *arguments: int) -> list[str]:
    """The lines that a run says: see ``ra_sci.c`` for the arguments."""
    command = [str(model), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("sci"))


@pytest.mark.parametrize("level", [0, 1], ids=["edge", "level"])
def test_no_byte_is_lost_but_to_a_full_ring(model: Path, level: int) -> None:
    start, end = play(model, 60, 0, 0, level, 1)
    # CCR0, CCR3, CCR2 and CCR1 as in Renesas' own driver: 8 bits, 115,200 baud of 120 MHz.
    assert start == "0x10011 0x9200 0x4010 0x30"
    arrived, delivered, lost, interrupts = map(int, end.split())
    assert (arrived, lost) == (delivered, 0)
    assert interrupts >= arrived >= 20020
    arrived, delivered, lost, interrupts = map(int, play(model, 60, 0, 10, level, 1)[-1].split())
    assert delivered + lost == arrived
    assert 0 < lost < arrived // 2


@pytest.mark.parametrize("level", [0, 1], ids=["edge", "level"])
@pytest.mark.parametrize("distance", [1, 10, 60])
@pytest.mark.parametrize("broken", [0, 50, 900])
def test_errors_never_stop_the_reception(model: Path, distance: int, broken: int, level: int) -> None:
    for seed in range(1, 6):
        _, end = play(model, distance, broken, 10, level, seed)
        arrived, delivered, lost, _ = map(int, end.split())
        assert delivered + lost == arrived >= 20020
        assert delivered > 100
        assert lost > arrived * broken / 1100


@pytest.mark.parametrize(
    "line",
    ["nvic((int)UART_ERROR_IRQ, 1);", "write_clear(FLAGS_ERRORS);", "link_clear(0);", "link_clear(1);"],
)
def test_what_the_driver_cannot_do_without(tmp_path: Path, line: str) -> None:
    *_, end = play(build(tmp_path, line), 60, 50, 0, 0, 1)
    assert end.startswith(("a sleep that nothing ends", "an interrupt that never ends"))
