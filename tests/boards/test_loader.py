"""Board files: every rule has a file that breaks it, and the error names the file and the key."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from crtgen.base.errors import UsageError
from crtgen.base.resources import boards_dir
from crtgen.boards import (
    Flash,
    Qemu,
    Serial,
    Watchdog,
    ZephyrName,
    all_boards,
    board_of_core,
    boards_that_fit,
    find_board,
    find_core,
    known,
    load_board,
    loader,
    parse_size,
    size_text,
)
from crtgen.boards.checks import CHECKS
from crtgen.cli.app import app
from crtgen.device.run import Site
from tests.support import ROOT

HERE = Path(__file__).parent
GOOD = HERE / "good.toml"
INVALID = sorted((HERE / "invalid").glob("*.toml"))


def test_a_board_file_is_read() -> None:
    board = load_board(GOOD)
    assert (board.name, board.summary, board.core.name) == ("good", "a test board", "cortex-m4")
    assert (board.flash, board.ram) == (512 * 1024, 128 * 1024)
    assert (board.vectors, board.code, board.data) == ("flash", "flash", "ram")
    assert board.uart is not None
    assert (board.uart.base, board.uart.clock, board.uart.irq, board.uart.baud) == (
        0x40004000,
        16_000_000,
        5,
        115200,
    )
    assert board.watchdog == Watchdog("cmsdk", 0x40008000, 16_000_000, 30)
    assert board.qemu is None
    assert not board.is_host
    assert board.zephyr == (ZephyrName((3, 0), "test_board"), ZephyrName((3, 7), "test_board/soc"))
    assert board.flash_with == Flash(
        ("west", "openocd", "pyocd"), (("pyocd", ("test",)), ("openocd", ("board/test.cfg",)))
    )
    assert board.serial == Serial(115200, ("0483:374b",))


@pytest.mark.parametrize("file", INVALID, ids=lambda file: file.stem)
def test_a_broken_board_file_is_refused(file: Path) -> None:
    """The first line of each file names the key and a part of the reason or of the hint."""
    key, reason = file.read_text().splitlines()[0].removeprefix("# ").split(": ", 1)
    with pytest.raises(UsageError) as caught:
        load_board(file)
    error = caught.value
    assert error.where == f"{file}: {key}"
    assert reason in f"{error.message} {error.hint}"


def test_every_rule_is_broken_by_a_file() -> None:
    hints = set()
    for file in INVALID:
        with pytest.raises(UsageError) as caught:
            load_board(file)
        hints.add(caught.value.hint.removeprefix("the rule is: "))
    assert set(CHECKS) <= hints


def test_what_is_no_toml_is_refused(tmp_path: Path) -> None:
    for content in (b"summary = ", b"\xff\xfe"):
        file = tmp_path / "x.toml"
        file.write_bytes(content)
        with pytest.raises(UsageError, match=r"cannot be read|is not UTF-8"):
            load_board(file)


def test_the_boards_that_come_with_crtgen() -> None:
    cores = {board.name: board.core.name for board in all_boards() if not board.is_real}
    assert cores == {
        "corstone300_fvp": "cortex-m55",
        "corstone310_fvp": "cortex-m85",
        "corstone315_fvp": "cortex-m85",
        "host": "host",
        "lm3s6965evb": "cortex-m3",
        "mps2_an385": "cortex-m3",
        "mps2_an386": "cortex-m4",
        "mps2_an500": "cortex-m7",
        "mps2_an505": "cortex-m33",
        "mps2_an521": "cortex-m33+nodsp+nofp",
        "mps3_an524": "cortex-m33+nodsp+nofp",
        "mps3_an547": "cortex-m55",
        "musca_b1": "cortex-m33",
        "netduinoplus2": "cortex-m4",
    }


def test_an_unknown_board_is_refused_with_a_suggestion() -> None:
    assert find_board("mps2_an386").core.dsp
    with pytest.raises(UsageError) as caught:
        find_board("mps2_an366")
    assert caught.value.hint == "did you mean mps2_an386?"
    with pytest.raises(UsageError) as caught:
        find_board("esp32")
    assert "--core" in caught.value.hint


REAL = (
    "apollo510_evb",
    "arduino_giga_r1",
    "arduino_nano_33_ble",
    "arduino_portenta_h7",
    "arduino_uno_r4_minima",
    "b_u585i_iot02a",
    "bbc_microbit",
    "bbc_microbit_v2",
    "blackpill_f411ce",
    "bluepill_f103c8",
    "disco_l475_iot1",
    "ek_ra8m1",
    "ek_ra8p1",
    "ensemble_e8_dk_he",
    "ensemble_e8_dk_hp",
    "feather_m4",
    "feather_nrf52840",
    "feather_rp2040",
    "frdm_k64f",
    "frdm_mcxa153",
    "frdm_mcxn236",
    "frdm_mcxn947",
    "kit_pse84_eval",
    "max78000fthr",
    "metro_m4",
    "mimxrt1050_evk",
    "mimxrt1060_evk",
    "nrf52840dk",
    "nrf5340dk",
    "nrf54h20dk",
    "nrf54l15dk",
    "nucleo_c031c6",
    "nucleo_f411re",
    "nucleo_f446re",
    "nucleo_f746zg",
    "nucleo_g0b1re",
    "nucleo_g474re",
    "nucleo_h563zi",
    "nucleo_h743zi",
    "nucleo_l4r5zi",
    "nucleo_l552ze_q",
    "nucleo_n657x0_q",
    "nucleo_u031r8",
    "nucleo_u083rc",
    "nucleo_u385rg_q",
    "nucleo_u575zi_q",
    "nucleo_wb55rg",
    "nucleo_wba55cg",
    "nucleo_wl55jc",
    "numaker_m55m1",
    "olimex_stm32_h405",
    "pico_plus2",
    "rpi_pico",
    "rpi_pico2",
    "rpi_pico2_usb",
    "rpi_pico2_w",
    "rpi_pico_usb",
    "rpi_pico_w",
    "stm32f746g_disco",
    "stm32n6570_dk",
    "stm32vldiscovery",
    "teensy41",
    "xg24_dk2601b",
    "xiao_nrf52840",
    "xiao_rp2040",
    "xiao_rp2350",
)

ONLY_ZEPHYR = (
    "apollo510_evb",
    "ek_ra8p1",
    "ensemble_e8_dk_he",
    "ensemble_e8_dk_hp",
    "frdm_mcxa153",
    "frdm_mcxn236",
    "kit_pse84_eval",
    "max78000fthr",
    "mimxrt1050_evk",
    "mimxrt1060_evk",
    "nrf54h20dk",
    "nucleo_n657x0_q",
    "numaker_m55m1",
    "pico_plus2",
    "stm32n6570_dk",
    "teensy41",
    "xg24_dk2601b",
)

WITHOUT_USB = (
    "apollo510_evb",
    "arduino_giga_r1",
    "arduino_nano_33_ble",
    "arduino_portenta_h7",
    "arduino_uno_r4_minima",
    "blackpill_f411ce",
    "bluepill_f103c8",
    "ensemble_e8_dk_he",
    "ensemble_e8_dk_hp",
    "feather_m4",
    "feather_nrf52840",
    "kit_pse84_eval",
    "max78000fthr",
    "metro_m4",
    "nrf54h20dk",
    "nucleo_n657x0_q",
    "numaker_m55m1",
    "olimex_stm32_h405",
    "pico_plus2",
    "stm32n6570_dk",
    "stm32vldiscovery",
    "teensy41",
    "xiao_nrf52840",
)
"""Their serial port is on pins, or what it calls itself on USB is not known."""


def test_real_boards_can_be_flashed_and_say_where_their_figures_come_from() -> None:
    real = {b.name: b for b in all_boards() if b.is_real}
    assert tuple(real) == REAL
    for board in real.values():
        assert ("baremetal" in board.platforms) == (board.name not in ONLY_ZEPHYR)
        assert board.flash_with is not None
        assert board.serial is not None
        assert bool(board.serial.usb) == (board.name not in WITHOUT_USB)
        assert board.source


def test_the_memories_of_some_chips() -> None:
    sizes = {name: (find_board(name).flash >> 10, find_board(name).ram >> 10) for name in REAL}
    assert sizes["nucleo_l4r5zi"] == (2048, 640)
    assert sizes["nrf52840dk"] == (1024, 256)
    assert sizes["rpi_pico2"] == (4096, 520)
    assert sizes["arduino_nano_33_ble"] == (928, 256)
    assert sizes["xiao_nrf52840"] == (820, 256)
    assert sizes["nucleo_c031c6"] == (32, 12)
    assert sizes["nucleo_wb55rg"] == (876, 192)
    assert sizes["arduino_giga_r1"] == sizes["arduino_portenta_h7"] == (768, 512)
    assert sizes["feather_m4"] == sizes["metro_m4"] == (496, 192)
    assert sizes["teensy41"] == (8192, 256)
    assert sizes["stm32n6570_dk"] == (131072, 1024)
    assert sizes["ensemble_e8_dk_hp"] == (5632, 1024)
    assert sizes["nrf54h20dk"] == (328, 760)
    assert sizes["max78000fthr"] == (512, 48)
    assert sum(m.size for m in find_board("nucleo_n657x0_q").memories if m.kind == "ram") == 3327 << 10
    assert sizes["nucleo_u031r8"] == (64, 12)
    assert sizes["nucleo_u083rc"] == (256, 40)


def test_the_flash_of_an_rp2040_is_read_by_words() -> None:
    """By frames of 32 bits, as its start sets it: eight cycles of address, four of waiting, eight of data."""
    found = [board for board in all_boards() if board.boot == "rp2040"]
    assert len(found) == 5
    for board in found:
        reads = board.reads("flash")
        assert reads is not None
        assert reads.width == 4, board.name
        assert reads.wait_states >= 2 * (8 + 4 + 8), board.name


def test_names_in_zephyr_are_chosen_by_release_as_numbers() -> None:
    board = find_board("mps3_an547")
    names = {
        v: board.zephyr_name(v) for v in ((3, 0, 99), (3, 6, 0), (3, 7, 0), (3, 10, 0), (4, 0, 0), (4, 2, 1))
    }
    assert names == {
        (3, 0, 99): "mps3_an547",
        (3, 6, 0): "mps3_an547",
        (3, 7, 0): "mps3/an547",
        (3, 10, 0): "mps3/an547",
        (4, 0, 0): "mps3/corstone300/an547",
        (4, 2, 1): "mps3/corstone300/an547",
    }
    assert find_board("corstone300_fvp").zephyr_name((4, 2)) == "mps3/corstone300/fvp"
    with pytest.raises(UsageError, match=r"Zephyr 4\.0 does not know") as caught:
        find_board("rpi_pico2").zephyr_name((4, 0))
    assert caught.value.hint == "it needs Zephyr 4.1"
    with pytest.raises(UsageError, match="does not know"):
        find_board("mps2_an505").zephyr_name((4, 0))


def test_a_board_is_found_by_its_names_in_zephyr() -> None:
    assert find_board("mps2/an521/cpu0").name == "mps2_an521"
    assert find_board("nrf52840dk_nrf52840").name == "nrf52840dk"
    assert find_board("mps3_an547").name == "mps3_an547"


def test_platforms() -> None:
    assert find_board("host").platforms == ("host",)
    assert find_board("mps2_an505").platforms == ("baremetal",)
    assert find_board("mps2_an385").platforms == ("baremetal", "zephyr")
    assert find_board("mps2_an385").platform(None) == "baremetal"
    assert find_board("mps2_an385").platform("zephyr") == "zephyr"
    with pytest.raises(UsageError, match="has no platform zephyr"):
        find_board("mps2_an505").platform("zephyr")
    with pytest.raises(UsageError, match="unknown platform zepyr"):
        find_board("mps2_an505").platform("zepyr")


def test_cores_have_the_names_that_others_use() -> None:
    assert find_core("cortex-m4f") == find_core("cortex-m4")
    assert find_core("cortex-m0+").name == "cortex-m0plus"
    assert find_core("cortex-m4f").gcc_flags[-2:] == ("-mfloat-abi=hard", "-mfpu=auto")
    assert find_core("cortex-m85").gcc_flags[0] == "-mcpu=cortex-m55"
    assert find_core("cortex-m85").zig_flags[-1] == "-mcpu=cortex_m85+fp_armv8d16+dsp+mve_fp"
    assert find_core("cortex-m4+nofp").gcc_flags[-1] == "-mfloat-abi=soft"
    assert board_of_core("cortex-m4f").core.fpu == "sp"


def test_a_core_stands_for_a_board_that_nobody_described() -> None:
    board = board_of_core("cortex-m4")
    assert (board.core.name, board.platforms) == ("cortex-m4", ("zephyr",))
    with pytest.raises(UsageError, match="unknown core"):
        board_of_core("cortex-a7")


def test_boards_that_fit() -> None:
    names = [board.name for board in boards_that_fit(3 << 20, 1 << 20)]
    assert "mps2_an386" in names
    assert "mps3_an547" not in names  # its code memory has 2 MiB
    assert "host" not in names
    assert boards_that_fit(1 << 31, 0) == ()
    external = tuple(map(find_board, ("mimxrt1050_evk", "mimxrt1060_evk")))
    assert boards_that_fit(4 << 20, 8 << 20) == external


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1 B", 1),
        ("4 KiB", 4096),
        ("4MiB", 4 << 20),
        ("1 GiB", 1 << 30),
        ("0 B", 0),
        ("60K", 61440),
        ("2m", 2 << 20),
    ],
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


def test_the_documentation_lists_every_board() -> None:
    page = (ROOT / "docs" / "boards.md").read_text(encoding="utf-8")
    text = page[page.index("| board | core |") :].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"]
    described = {row[0]: row[1:5] for row in rows[2:]}
    assert described == {
        board.name: [
            board.core.name,
            size_text(board.flash),
            size_text(board.ram),
            ", ".join(board.platforms),
        ]
        for board in all_boards()
        if not board.is_host
    }


def test_one_wrong_file_leaves_the_other_boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in (boards_dir() / "mps2_an386.toml", boards_dir() / "host.toml"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "mine.toml").write_text("core = 'cortex-m5'\nsummary = 'x'\n")
    monkeypatch.setattr(known, "boards_dir", lambda: tmp_path)
    assert [board.name for board in all_boards()] == ["host", "mps2_an386"]
    assert find_board("mps2_an386").name == "mps2_an386"
    with pytest.raises(UsageError, match=r"mine\.toml: core: unknown core cortex-m5"):
        find_board("mine")
    assert list(known.wrong_boards()) == ["mine"]
    result = CliRunner().invoke(app, ["boards"])
    assert result.exit_code == 0
    assert "mps2_an386" in result.stdout
    assert "left out" in result.stderr
    assert "unknown core cortex-m5" in result.stderr


def test_a_core_that_the_board_has_not_is_refused(tmp_path: Path) -> None:
    arguments = ["generate", str(ROOT / "demo" / "digits.tflite"), str(tmp_path / "p"), "--type", "library"]
    arguments += ["--platform", "zephyr", "--board", "mps2_an386"]
    result = CliRunner().invoke(app, [*arguments, "--core", "cortex-m55"])
    assert result.exit_code == 2
    assert "the board has a cortex-m4, not a cortex-m55" in result.stderr
    assert CliRunner().invoke(app, [*arguments, "--core", "cortex-m4"]).exit_code == 0


def test_a_machine_of_a_later_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The board is simulated where the installed QEMU has its machine, and says elsewhere what would."""
    file = tmp_path / "young.toml"
    file.write_text(GOOD.read_text() + '\n[qemu]\nmachine = "young-one"\nsince = "9.0"\n')
    for installed, simulator in (((7, 2), ""), ((), ""), ((9, 0), "QEMU"), ((10, 1), "QEMU")):
        monkeypatch.setattr(loader, "installed_qemu", lambda installed=installed: installed)
        board = load_board(file)
        assert board.simulator == simulator
        if simulator:
            assert (board.qemu, board.later_qemu) == (Qemu("young-one", since=(9, 0)), None)
        else:
            assert (board.qemu, board.later_qemu) == (None, Qemu("young-one", since=(9, 0)))
            with pytest.raises(UsageError) as caught:
                Site(simulate=True).is_simulated(board)
            assert caught.value.hint == "QEMU 9.0 or later has young-one"


@pytest.mark.parametrize(
    ("said", "release"),
    [
        ("QEMU emulator version 7.2.22 (Debian)", (7, 2)),
        ("QEMU emulator version 10.1.0", (10, 1)),
        ("?", ()),
    ],
)
def test_the_release_of_qemu(
    said: str, release: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "qemu-system-arm"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    loader.installed_qemu.cache_clear()
    try:
        assert loader.installed_qemu() == release
    finally:
        loader.installed_qemu.cache_clear()
