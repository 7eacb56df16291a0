"""The exact command line of each runner for three boards, and what each failure is made of."""

import sys
import time
from pathlib import Path

import pytest

from crtgen.base.errors import FlashError, ToolMissingError, UsageError
from crtgen.base.text import DeviceText
from crtgen.boards import RUNNERS, find_board
from crtgen.device.flash import FlashJob, commands, flash
from crtgen.device.flash.failure import explain
from crtgen.device.flash.table import INSTALL, TABLE
from crtgen.firmware.builder.formats import Content

NUCLEO, NORDIC, PICO = "nucleo_l4r5zi", "nrf52840dk", "rpi_pico"


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Zephyr build directory, and a workspace."""
    build = tmp_path / "build" / "zephyr"
    build.mkdir(parents=True)
    for suffix in ("elf", "hex"):
        (build / f"zephyr.{suffix}").write_bytes(b"")
    zephyr = tmp_path / "zephyr"
    zephyr.mkdir()
    (zephyr / "VERSION").write_text("VERSION_MAJOR = 3\nVERSION_MINOR = 7\nPATCHLEVEL = 0\n")
    monkeypatch.setenv("ZEPHYR_BASE", str(zephyr))
    return build / "zephyr.elf"


def job(image: Path, board: str, serial: str = "", usb: str = "") -> FlashJob:
    return FlashJob(image, find_board(board), DeviceText(serial), usb=usb)


def command(runner: str, job: FlashJob) -> list[str]:
    """The only command of a runner."""
    (words,) = commands(runner, job)
    return words


@pytest.mark.parametrize("board", [NUCLEO, NORDIC])
def test_west(image: Path, board: str) -> None:
    words = command("west", job(image, board))
    zephyr, build = image.parents[2] / "zephyr", image.parents[1]
    assert words == ["west", "-z", str(zephyr), "flash", "--skip-rebuild", "-d", str(build)]


@pytest.mark.parametrize(
    ("runner", "probe"),
    [
        ("jlink", ["--dev-id", "42"]),
        ("nrfjprog", ["--dev-id", "42"]),
        ("pyocd", ["--dev-id", "42"]),
        ("openocd", ["--cmd-pre-init", "adapter serial 42"]),
        ("stm32cubeprogrammer", ["--tool-opt=sn=42"]),
        ("linkserver", ["--probe=42"]),
        ("bossac", []),
    ],
)
def test_west_is_told_the_probe_as_its_runner_wants_it(image: Path, runner: str, probe: list[str]) -> None:
    """Only some of west's runners know --dev-id; the others end with an error when they see it."""
    plain = command("west", job(image, NUCLEO))
    (image.parent / "runners.yaml").write_text(f"runners:\n- a\nflash-runner: {runner}\ndebug-runner: b\n")
    assert command("west", job(image, NUCLEO, "42")) == [*plain, *probe]


def test_west_is_told_nothing_where_the_runner_is_not_known(image: Path) -> None:
    assert command("west", job(image, NUCLEO, "42")) == command("west", job(image, NUCLEO))


@pytest.mark.parametrize("mounted", [["pi/RPI-RP2"], [], ["pi/RPI-RP2", "RPI-RP2"]])
def test_uf2_is_copied_to_the_drive_of_the_boot_loader(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounted: list[str]
) -> None:
    image.with_suffix(".uf2").write_bytes(b"the image")
    monkeypatch.setenv("CRTGEN_MEDIA", str(tmp_path / "media"))
    for name, board in [*((name, "RPI-RP2") for name in mounted), ("other", "RP2350")]:
        drive = tmp_path / "media" / name
        drive.mkdir(parents=True)
        (drive / "INFO_UF2.TXT").write_text(f"UF2 Bootloader v3.0\r\nBoard-ID: {board}\r\n")
    if len(mounted) != 1:
        with pytest.raises(FlashError, match="no drive, or several") as caught:
            flash(job(image, PICO), "uf2")
        assert "BOOTSEL" in caught.value.hint
        return
    flash(job(image, PICO), "uf2")
    copied = {path for path in (tmp_path / "media").rglob("*.uf2")}
    assert copied == {tmp_path / "media" / mounted[0] / "zephyr.uf2"}
    assert copied.pop().read_bytes() == b"the image"


@pytest.mark.parametrize("board_id", ["nRF52840-SeeedXiaoSense-v1", "Seeed_XIAO_nRF52840"])
def test_a_boot_loader_may_have_one_of_several_names(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, board_id: str
) -> None:
    image.with_suffix(".uf2").write_bytes(b"the image")
    drive = tmp_path / "media" / "XIAO-SENSE"
    drive.mkdir(parents=True)
    (drive / "INFO_UF2.TXT").write_text(f"UF2 Bootloader 0.6.1\r\nBoard-ID: {board_id}\r\n")
    monkeypatch.setenv("CRTGEN_MEDIA", str(tmp_path / "media"))
    assert job(image, "xiao_nrf52840").runners[0] == "uf2"
    flash(job(image, "xiao_nrf52840"), "uf2")
    assert (drive / "zephyr.uf2").read_bytes() == b"the image"


def test_a_drive_that_waits_for_a_file_is_preferred(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever held BOOTSEL has no probe, or does not want it now."""
    monkeypatch.setenv("CRTGEN_MEDIA", str(tmp_path / "media"))
    assert job(image, PICO).runners[0] == "openocd"
    drive = tmp_path / "media" / "RPI-RP2"
    drive.mkdir(parents=True)
    (drive / "INFO_UF2.TXT").write_text("Board-ID: RPI-RP2\r\n")
    assert job(image, PICO).runners[:2] == ("uf2", "openocd")
    assert job(image, NUCLEO).runners[0] == "west"


def test_picotool(image: Path) -> None:
    image.with_suffix(".uf2").write_bytes(b"")
    uf2 = str(image.with_suffix(".uf2"))
    assert command("picotool", job(image, PICO)) == ["picotool", "load", "-x", uf2]
    assert command("picotool", job(image, PICO, "E66")) == ["picotool", "load", "-x", "--ser", "E66", uf2]


def test_pyocd_without_the_pack_of_the_chip() -> None:
    error = explain("pyocd", find_board(NUCLEO), "Target type stm32l4r5zitx not recognized.", 1)
    assert error.hint.endswith("`pyocd pack install stm32l4r5zitx`")


def test_openocd_without_the_pico_2() -> None:
    error = explain("openocd", find_board("rpi_pico2"), "Can't find target/rp2350.cfg", 1)
    assert "Raspberry Pi" in error.hint


@pytest.mark.parametrize("said", ["** Programming Failed **", "Error: verify failed", "MIS-MATCHED!"])
def test_a_runner_that_says_it_failed_has_failed_whatever_its_code(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    program(tmp_path, "openocd", f"echo '{said}'; exit 0", monkeypatch)
    with pytest.raises(FlashError) as caught:
        flash(job(image, NUCLEO), "openocd")
    assert said in caught.value.log


@pytest.mark.parametrize(
    ("board", "files"),
    [
        (NUCLEO, ["board/st_nucleo_l4.cfg"]),
        ("b_u585i_iot02a", ["interface/stlink-dap.cfg", "target/stm32u5x.cfg"]),
        (PICO, ["interface/cmsis-dap.cfg", "target/rp2040.cfg"]),
    ],
)
def test_openocd(image: Path, board: str, files: list[str]) -> None:
    configuration = [word for file in files for word in ("-f", file)]
    program = ["-c", f"program {{{image}}} verify reset exit"]
    assert command("openocd", job(image, board)) == ["openocd", *configuration, *program]
    chosen = command("openocd", job(image, board, "0671"))
    assert chosen == ["openocd", *configuration, "-c", "adapter serial 0671", *program]


@pytest.mark.parametrize(
    ("board", "target"), [(NUCLEO, "stm32l4r5zitx"), (NORDIC, "nrf52840"), (PICO, "rp2040")]
)
def test_pyocd(image: Path, board: str, target: str) -> None:
    words = command("pyocd", job(image, board))
    assert words == [
        sys.executable,
        "-P",
        "-m",
        "crtgen.device.flash.with_pyocd",
        "--target",
        target,
        str(image),
    ]
    assert command("pyocd", job(image, board, "E66"))[-3:] == ["--probe", "E66", str(image)]


@pytest.mark.parametrize(
    ("board", "device"), [(NUCLEO, "STM32L4R5ZI"), (NORDIC, "nRF52840_xxAA"), (PICO, "RP2040_M0_0")]
)
def test_jlink(image: Path, board: str, device: str) -> None:
    script = image.with_suffix(".script")
    options = ["-nogui", "1", "-if", "swd", "-speed", "4000", "-device", device, "-autoconnect", "1"]
    end = ["-ExitOnError", "1", "-CommandFile", str(script)]
    assert command("jlink", job(image, board)) == ["JLinkExe", *options, *end]
    assert command("jlink", job(image, board, "683")) == [
        "JLinkExe",
        *options,
        "-SelectEmuBySN",
        "683",
        *end,
    ]
    assert script.read_text() == f"r\nh\nloadfile {image.with_suffix('.hex')}\nr\ng\nq\n"


@pytest.mark.parametrize(("board", "family"), [(NORDIC, "NRF52"), ("nrf5340dk", "NRF53")])
def test_nrfjprog(image: Path, board: str, family: str) -> None:
    hex_file = str(image.with_suffix(".hex"))
    words = ["nrfjprog", "--family", family, "--program", hex_file, "--sectorerase", "--verify", "--reset"]
    assert command("nrfjprog", job(image, board)) == words
    assert command("nrfjprog", job(image, board, "1050")) == [*words, "--snr", "1050"]


ELF = Content(((0x08000000, b"\1" * 64),))


@pytest.mark.parametrize("serial", ["", "0671FF"])
@pytest.mark.parametrize(
    ("runner", "board", "suffix", "words", "probe"),
    [
        (
            "nrfutil",
            NORDIC,
            "hex",
            [
                *("nrfutil", "device", "program", "--firmware", "IMAGE", "--options"),
                "chip_erase_mode=ERASE_RANGES_TOUCHED_BY_FIRMWARE,verify=VERIFY_READ,reset=RESET_SYSTEM",
                "PROBE",
            ],
            ["--serial-number", "0671FF"],
        ),
        (
            "stm32cubeprogrammer",
            NUCLEO,
            "hex",
            [
                *("STM32_Programmer_CLI", "--connect", "port=swd", "reset=HWrst", "PROBE"),
                *("--download", "IMAGE", "--verify", "--start"),
            ],
            ["sn=0671FF"],
        ),
        (
            "linkserver",
            "frdm_mcxn947",
            "elf",
            ["LinkServer", "flash", "PROBE", "MCXN947:FRDM-MCXN947", "load", "IMAGE"],
            ["--probe", "0671FF"],
        ),
        (
            "bossac",
            "arduino_nano_33_ble",
            "bin",
            ["bossac", "PROBE", "-o", "0", "-e", "-w", "-v", "-b", "IMAGE", "-R"],
            ["--port=0671FF"],
        ),
        (
            "dfu-util",
            NUCLEO,
            "bin",
            [
                *("dfu-util", "-d", "0483:df11", "PROBE", "-a", "0"),
                *("-s", "0x08000000:leave", "-D", "IMAGE"),
            ],
            ["-S", "0671FF"],
        ),
    ],
)
def test_command_lines(
    image: Path,
    monkeypatch: pytest.MonkeyPatch,
    runner: str,
    board: str,
    suffix: str,
    words: list[str],
    probe: list[str],
    serial: str,
) -> None:
    """What the program really gets: one of that name writes down its arguments."""
    monkeypatch.setattr("crtgen.device.flash.runners.read_content", lambda _: ELF)
    image.with_suffix(".bin").write_bytes(b"")
    program(image.parent, words[0], f'printf "%s\\n" "$@" > {image.parent}/argv', monkeypatch)
    flash(job(image, board, serial), runner)
    file = str(image.with_suffix(f".{suffix}"))
    wanted = [w for word in words[1:] for w in ((probe if serial else []) if word == "PROBE" else [word])]
    argv = (image.parent / "argv").read_text().splitlines()
    assert argv == [file if word == "IMAGE" else word for word in wanted]


@pytest.mark.parametrize(
    ("serial", "usb", "probe"),
    [("", "", []), ("42", "2e8a:000c", ["--probe", "2e8a:000c:42"]), ("1:2:3", "", ["--probe", "1:2:3"])],
)
def test_probe_rs_writes_then_resets(image: Path, serial: str, usb: str, probe: list[str]) -> None:
    download, reset = commands("probe-rs", job(image, PICO, serial, usb))
    assert download == ["probe-rs", "download", "--chip", "RP2040", *probe, "--verify", str(image)]
    assert reset == ["probe-rs", "reset", "--chip", "RP2040", *probe]


def test_of_several_commands_none_is_run_after_one_that_failed(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "probe-rs", 'echo "$1"; [ "$1" = reset ]', monkeypatch)
    with pytest.raises(FlashError, match="ended with code 1") as caught:
        flash(job(image, PICO), "probe-rs")
    assert caught.value.log == "download\n"
    program(tmp_path, "probe-rs", 'echo "$1"', monkeypatch)
    assert flash(job(image, PICO), "probe-rs").output == "download\nreset\n"


def test_dfu_util_has_written_the_image_when_it_says_so(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crtgen.device.flash.runners.read_content", lambda _: ELF)
    image.with_suffix(".bin").write_bytes(b"")
    told = "echo File downloaded successfully; echo Error during download get_status; exit 74"
    program(tmp_path, "dfu-util", told, monkeypatch)
    assert flash(job(image, NUCLEO), "dfu-util").runner == "dfu-util"
    program(tmp_path, "dfu-util", "echo No DFU capable USB device available; exit 74", monkeypatch)
    with pytest.raises(FlashError, match="no board waits in its boot loader"):
        flash(job(image, NUCLEO), "dfu-util")


def test_an_image_in_several_memories_has_no_binary(image: Path) -> None:
    with pytest.raises(FlashError, match=r"no \.bin file of the image") as caught:
        commands("bossac", job(image, "arduino_nano_33_ble"))
    assert "one memory" in caught.value.hint


def test_every_runner_says_what_installs_it() -> None:
    assert set(RUNNERS) == {"west", "gdb", *TABLE}
    programs = {line[0] for runner in TABLE.values() for line in runner.commands} - {"{python}"}
    assert programs <= set(INSTALL)


def test_a_runner_that_does_not_know_the_board(image: Path) -> None:
    with pytest.raises(UsageError, match="nrfjprog does not know this board") as caught:
        command("nrfjprog", job(image, NUCLEO))
    known = "use west or openocd or pyocd or jlink or stm32cubeprogrammer or probe-rs or dfu-util or gdb"
    assert caught.value.hint == known
    with pytest.raises(UsageError, match="unknown runner dfu"):
        command("dfu", job(image, NUCLEO))
    with pytest.raises(UsageError, match="does not know"):
        command("west", job(image, "mps2_an385"))


def test_without_a_hex_file(image: Path) -> None:
    image.with_suffix(".hex").unlink()
    with pytest.raises(FlashError, match=r"no \.hex file"):
        command("nrfjprog", job(image, NORDIC))


# What each program prints, as far as it is known, and the cause.
OUTPUTS = [
    ("openocd", "Error: open failed", "no probe answers"),
    ("openocd", "Error: unable to find a matching CMSIS-DAP device", "no probe answers"),
    ("openocd", "Error: libusb_open() failed with LIBUSB_ERROR_ACCESS", "permission denied"),
    ("openocd", "Warn : UNEXPECTED idcode: 0x2ba01477\nError: expected 1 of 1: 0x1ba01477", "not the one"),
    ("pyocd", "No connected debug probes\nno probe", "no probe answers"),
    ("pyocd", "several probes: 1, 2", "several probes"),
    ("pyocd", "TargetSupportError: Target type nrf99 not recognized", "does not know the chip"),
    ("pyocd", "usb.core.USBError: [Errno 13] Access denied (insufficient permissions)", "permission denied"),
    ("jlink", "Connecting to J-Link via USB...FAILED: Cannot connect to J-Link.", "no probe answers"),
    ("jlink", 'Unknown device "XY". Device is unknown to this software version.', "not the one"),
    ("nrfjprog", "ERROR: There is no debugger connected to the PC.", "no probe answers"),
    ("nrfjprog", "ERROR: The --family option given does not match the device connected.", "not the one"),
    ("stm32cubeprogrammer", "Error: No debug probe detected.", "no probe answers"),
    ("probe-rs", "Error: No connected probes were found.", "no probe answers"),
    ("probe-rs", "Error: 2 probes were found: ...", "several probes"),
    ("bossac", "No device found on ttyACM0", "no board waits"),
    ("dfu-util", "No DFU capable USB device available", "no board waits"),
    ("west", "multiple boards found; choose one", "several probes"),
    ("gdb", "localhost:3333: Connection refused.", "no probe answers"),
]


@pytest.mark.parametrize(("runner", "output", "cause"), OUTPUTS)
def test_the_cause_is_read_from_the_output(runner: str, output: str, cause: str) -> None:
    error = explain(runner, find_board(NUCLEO), output, 1)
    assert cause in error.message
    assert error.message.startswith(f"{runner}: ")
    assert error.where == NUCLEO
    assert error.log == output
    assert error.hint


def test_permission_is_answered_with_the_udev_rules() -> None:
    assert "udev" in explain("openocd", find_board(NUCLEO), "LIBUSB_ERROR_ACCESS", 1).hint


def test_an_unknown_failure_shows_the_last_lines() -> None:
    error = explain("openocd", find_board(NUCLEO), "a\n\nb\nc\nd\n", 3)
    assert error.message == "openocd ended with code 3\nb\nc\nd"


def program(directory: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name, first in the PATH."""
    tools = directory / "tools"
    tools.mkdir(exist_ok=True)
    (tools / name).write_text(f"#!/bin/sh\n{text}\n")
    (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")


def test_the_output_of_the_runner_is_kept(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "openocd", 'echo "** Verified OK **"; echo more >&2', monkeypatch)
    done = flash(job(image, NUCLEO), "openocd")
    assert (done.runner, done.output) == ("openocd", "** Verified OK **\nmore\n")


def test_the_first_runner_of_the_board_is_taken(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "west", 'echo "$ZEPHYR_BASE" "$@"', monkeypatch)
    done = flash(job(image, NORDIC))
    assert done.runner == "west"
    assert done.output.startswith(str(tmp_path / "zephyr"))


def test_a_runner_that_fails(image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "openocd", "echo Error: open failed; exit 1", monkeypatch)
    with pytest.raises(FlashError, match="no probe answers") as caught:
        flash(job(image, NUCLEO), "openocd")
    assert caught.value.log == "Error: open failed\n"
    assert caught.value.exit_code == 6


def test_a_runner_that_hangs_is_ended(image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "openocd", "echo waiting; sleep 600 & wait", monkeypatch)
    start = time.monotonic()
    for seconds in (0.5, 5, 50):  # that a busy machine may take to start it
        with pytest.raises(FlashError, match=f"did not finish within {seconds} s") as caught:
            flash(job(image, NUCLEO), "openocd", timeout=seconds)
        if caught.value.log:
            break
    assert time.monotonic() - start < 60
    assert caught.value.log == "waiting\n"


def test_a_runner_that_is_not_installed(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolMissingError, match="nrfjprog is not installed") as caught:
        flash(job(image, NORDIC), "nrfjprog")
    assert "Nordic" in caught.value.hint


def test_pyocd_is_asked_as_a_library(image: Path) -> None:
    """Without a probe: pyOCD itself says so."""
    pytest.importorskip("pyocd")
    with pytest.raises(FlashError, match="no probe answers"):
        flash(job(image, NORDIC, "no-such-probe"), "pyocd", timeout=60)


def test_an_image_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FlashError, match="no such image"):
        flash(FlashJob(tmp_path / "x.elf", find_board(NORDIC)), "nrfjprog")


@pytest.mark.parametrize("server", ["| ./program", "localhost:1\nshell touch x", "localhost", "-x:1 y"])
def test_a_server_of_gdb_is_a_host_with_a_port(image: Path, server: str) -> None:
    """What gdb is told goes into a script of its commands."""
    with pytest.raises(UsageError, match="the gdb server must be a host with a port"):
        commands("gdb", FlashJob(image, find_board(NUCLEO), gdb_server=server))
