"""Board files: every rule has a file that breaks it, and the error names the file and the key."""

from pathlib import Path

import pytest

from crtgen.boards import all_boards, boards_that_fit, find_board, load_board, parse_size, size_text
from crtgen.boards.checks import CHECKS
from crtgen.errors import UsageError

GOOD = """\
summary = "a test board"
core = "cortex-m4"

[memory.flash]
kind = "flash"
origin = 0x08000000
size = "512 KiB"

[memory.ram]
kind = "ram"
origin = 0x20000000
size = "128 KiB"

[uart]
kind = "cmsdk"
base = 0x40004000
clock = "16 MHz"
irq = 5

[timer]
kind = "systick"
clock = "16 MHz"
"""

MEMORIES = GOOD[GOOD.index("[memory.flash]") : GOOD.index("[uart]")]
TIMER = GOOD[GOOD.index("[timer]") :]

# (what is replaced, by what, the key that the error names, a part of the reason or the hint)
BROKEN = [
    ("summary =", "sumary =", "summary", "missing"),
    ("irq = 5", "irq = 5\nbuad = 9600", "uart.buad", "did you mean baud?"),
    ("irq = 5", "irq = 5\nxyzzy = 1", "uart.xyzzy", "known: base, baud"),
    ("cortex-m4", "cortex-m44", "core", "did you mean cortex-m4?"),
    ("512 KiB", "512 KB", "memory.flash.size", "B, KiB, MiB or GiB"),
    ("512 KiB", "0 KiB", "memory.flash.size", "empty"),
    ('"512 KiB"', "512", "memory.flash.size", "a text is wanted"),
    ("16 MHz", "16 Mhz", "uart.clock", "MHz"),
    ("0x40004000", "-1", "uart.base", "0xffffffff"),
    ("0x40004000", "true", "uart.base", "a whole number"),
    ('kind = "cmsdk"', 'kind = "cmsdx"', "uart.kind", "did you mean cmsdk?"),
    ('kind = "systick"', 'kind = "tim2"', "timer.kind", "known: systick"),
    ('kind = "flash"', 'kind = "eprom"', "memory.flash.kind", "flash, ram"),
    ('kind = "flash"', 'kind = "ram"', "memory", "no memory of kind flash"),
    ("0x20000000", "0x08040000", "memory.ram", "overlaps memory.flash"),
    ("0x20000000", "0xffff0000", "memory.ram.size", "address space"),
    ("0x08000000", "0x08000040", "memory.flash.origin", "multiple of 128"),
    ("irq = 5", "irq = 200000", "layout.vectors", "the vector table needs"),
    ("0x40004000", "0x20000100", "uart.base", "inside memory.ram"),
    ("16 MHz", "1 MHz", "uart.baud", "16 times"),
    ("[uart]", '[layout]\ndata = "flash"\n[uart]', "layout.data", "ram is wanted"),
    ("[uart]", '[layout]\ncode = "flush"\n[uart]', "layout.code", "did you mean flash?"),
    ("[uart]", '[layout]\ncod = "flash"\n[uart]', "layout.cod", "did you mean code?"),
    (MEMORIES, "", "memory", "no memory of kind flash"),
    (TIMER, "", "timer", "the firmware needs it"),
    ("cortex-m4", "host", "memory", "the host has no memories"),
    (MEMORIES, "memory = 3\n", "memory", "a table is wanted"),
    (TIMER, TIMER + '[qemu]\nmachine = "m"\nargs = "x"\n', "qemu.args", "a list of texts"),
]


def write(directory: Path, text: str) -> Path:
    file = directory / "test_board.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_board_file_is_read(tmp_path: Path) -> None:
    board = load_board(write(tmp_path, GOOD))
    assert (board.name, board.summary, board.core.name) == ("test_board", "a test board", "cortex-m4")
    assert (board.flash, board.ram) == (512 * 1024, 128 * 1024)
    assert (board.vectors, board.code, board.data) == ("flash", "flash", "ram")
    assert board.uart is not None
    assert (board.uart.base, board.uart.clock, board.uart.irq, board.uart.baud) == (
        0x40004000,
        16_000_000,
        5,
        115200,
    )
    assert board.qemu is None
    assert not board.is_host


@pytest.mark.parametrize(("old", "new", "key", "reason"), BROKEN)
def test_a_broken_board_file_is_refused(tmp_path: Path, old: str, new: str, key: str, reason: str) -> None:
    assert old in GOOD
    file = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        load_board(file)
    error = caught.value
    assert error.where == f"{file}: {key}"
    assert reason in f"{error.message} {error.hint}"


def test_every_rule_is_broken_by_a_file(tmp_path: Path) -> None:
    hints = set()
    for old, new, _, _ in BROKEN:
        with pytest.raises(UsageError) as caught:
            load_board(write(tmp_path, GOOD.replace(old, new, 1)))
        hints.add(caught.value.hint.removeprefix("the rule is: "))
    assert set(CHECKS) <= hints


def test_what_is_no_toml_is_refused(tmp_path: Path) -> None:
    for content in (b"summary = ", b"\xff\xfe"):
        file = tmp_path / "x.toml"
        file.write_bytes(content)
        with pytest.raises(UsageError, match="cannot be read"):
            load_board(file)


def test_the_boards_that_come_with_crtgen() -> None:
    cores = {board.name: board.core.name for board in all_boards() if board.qemu or board.is_host}
    assert cores == {
        "host": "host",
        "mps2_an385": "cortex-m3",
        "mps2_an386": "cortex-m4",
        "mps2_an500": "cortex-m7",
        "mps2_an505": "cortex-m33",
        "mps2_an521": "cortex-m33+nodsp+nofp",
        "mps3_an547": "cortex-m55",
    }


def test_an_unknown_board_is_refused_with_a_suggestion() -> None:
    assert find_board("mps2_an386").core.dsp
    with pytest.raises(UsageError) as caught:
        find_board("mps2_an366")
    assert caught.value.hint == "did you mean mps2_an386?"
    with pytest.raises(UsageError) as caught:
        find_board("arduino")
    assert "mps3_an547" in caught.value.hint


def test_boards_that_fit() -> None:
    names = [board.name for board in boards_that_fit(3 << 20, 1 << 20)]
    assert "mps2_an386" in names
    assert "mps3_an547" not in names  # its code memory has 2 MiB
    assert "host" not in names
    assert boards_that_fit(1 << 31, 0) == ()


@pytest.mark.parametrize(
    ("text", "size"), [("1 B", 1), ("4 KiB", 4096), ("4MiB", 4 << 20), ("1 GiB", 1 << 30), ("0 B", 0)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size
    assert parse_size(size_text(size)) == size


@pytest.mark.parametrize("text", ["4", "4 MB", "1.5 MiB", "-1 B", "MiB", ""])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(("size", "text"), [(4 << 20, "4 MiB"), (1000, "1000 B"), (1536, "1536 B")])
def test_sizes_are_written_with_the_largest_unit(size: int, text: str) -> None:
    assert size_text(size) == text
