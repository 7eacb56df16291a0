"""Devices that mean harm: what a probe and a drive say of themselves runs nothing and writes nowhere else."""

import os
from pathlib import Path

import pytest
from serial.tools.list_ports_common import ListPortInfo

from crtgen.base.errors import FlashError, LinkError, UsageError
from crtgen.base.text import DeviceText
from crtgen.boards import find_board
from crtgen.device.flash import FlashJob, commands, flash
from crtgen.device.flash.drives import drives_of
from crtgen.device.flash.runners import _WEST_PROBES
from crtgen.device.flash.table import TABLE
from crtgen.device.run import Site, start_device

NUCLEO, PICO = find_board("nucleo_l4r5zi"), find_board("rpi_pico")
EVIL = "0 ; exec touch PWNED"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image, and the folder ``media`` for drives."""
    for suffix in ("elf", "hex", "bin"):
        (tmp_path / f"firmware.{suffix}").write_bytes(b"")
    (tmp_path / "firmware.uf2").write_bytes(b"the image")
    (tmp_path / "media").mkdir()
    return tmp_path / "firmware.elf"


def test_the_number_of_a_probe_is_no_command(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenOCD's words are Tcl: ``adapter serial 0 ; exec ...`` would run a program."""
    probe = ListPortInfo("/dev/ttyACM0")
    probe.vid, probe.pid, probe.serial_number = 0x0483, 0x374B, EVIL
    monkeypatch.setattr("serial.tools.list_ports.comports", lambda: [probe])
    (tmp_path / "openocd").write_text(f"#!/bin/sh\ntouch {tmp_path}/STARTED\n")
    (tmp_path / "openocd").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UsageError, match=f"the number of the probe cannot be passed .*{EVIL}"):
        start_device(image, NUCLEO, site=Site(runner="openocd"))
    assert not (tmp_path / "STARTED").exists()


@pytest.mark.parametrize("runner", [name for name, runner in TABLE.items() if runner.probe])
@pytest.mark.parametrize("number", [EVIL, "-f", "a b"])
def test_no_runner_is_told_such_a_number(
    image: Path, monkeypatch: pytest.MonkeyPatch, runner: str, number: str
) -> None:
    board = next(b for b in map(find_board, BOARDS) if b.flash_with and runner in b.flash_with.runners)
    monkeypatch.setattr(
        "crtgen.device.flash.runners.read_content", lambda _: pytest.fail("it is not looked at")
    )
    with pytest.raises(UsageError, match="the number of the probe"):
        commands(runner, FlashJob(image, board, DeviceText(number)))


BOARDS = ("nucleo_l4r5zi", "nrf52840dk", "frdm_mcxn947", "arduino_nano_33_ble", "rpi_pico")


@pytest.mark.parametrize("runner", _WEST_PROBES)
def test_west_is_told_no_such_number(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: str
) -> None:
    zephyr = tmp_path / "build" / "zephyr"
    zephyr.mkdir(parents=True)
    (zephyr / "runners.yaml").write_text(f"flash-runner: {runner}\n")
    (zephyr / "VERSION").write_text("VERSION_MAJOR = 3\nVERSION_MINOR = 7\nPATCHLEVEL = 0\n")
    monkeypatch.setenv("ZEPHYR_BASE", str(zephyr))
    with pytest.raises(UsageError, match="the number of the probe"):
        commands("west", FlashJob(zephyr / "zephyr.elf", NUCLEO, DeviceText(EVIL)))


def test_a_path_is_no_command_of_openocd(tmp_path: Path) -> None:
    folder = tmp_path / "} ; exec touch PWNED ; {"
    folder.mkdir()
    (folder / "a.elf").write_bytes(b"")
    with pytest.raises(FlashError, match="would take a part of the path for a command"):
        commands("openocd", FlashJob(folder / "a.elf", NUCLEO))


def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mounted drive without its INFO_UF2.TXT."""
    monkeypatch.setenv("CRTGEN_MEDIA", str(tmp_path / "media"))
    folder = tmp_path / "media" / "RPI-RP2"
    folder.mkdir()
    return folder


def test_a_drive_is_read_a_little_and_links_and_pipes_not_at_all(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = drive(tmp_path, monkeypatch)
    info, elsewhere = folder / "INFO_UF2.TXT", tmp_path / "elsewhere"
    elsewhere.write_text("Board-ID: RPI-RP2\n")
    info.write_text("Board-ID: RPI-RP2\n")
    assert drives_of("RPI-RP2") == [folder]
    info.unlink()
    info.symlink_to(elsewhere)
    assert drives_of("RPI-RP2") == []
    info.unlink()
    os.mkfifo(info)
    assert drives_of("RPI-RP2") == []
    info.unlink()
    with info.open("wb") as file:
        file.write(b"Board-ID: RPI-RP2\n")
        file.truncate(1 << 40)
    assert drives_of("RPI-RP2") == [folder]
    (folder / "deeper").symlink_to(tmp_path)
    (tmp_path / "INFO_UF2.TXT").write_text("Board-ID: RPI-RP2\n")
    assert drives_of("RPI-RP2") == [folder]


@pytest.mark.parametrize("kind", ["link", "pipe", "file"])
def test_the_copy_follows_nothing_that_is_on_the_drive(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folder = drive(tmp_path, monkeypatch)
    (folder / "INFO_UF2.TXT").write_text("Board-ID: RPI-RP2\n")
    victim, place = tmp_path / "victim", folder / "firmware.uf2"
    victim.write_bytes(b"mine")
    if kind == "link":
        place.symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.hardlink_to(victim)
    flash(FlashJob(image, PICO), "uf2", timeout=60)
    assert victim.read_bytes() == b"mine"
    assert place.read_bytes() == b"the image"
    assert place.is_file() and not place.is_symlink()  # noqa: PT018


def test_a_drive_that_takes_no_file_is_one_error(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = drive(tmp_path, monkeypatch)
    (folder / "INFO_UF2.TXT").write_text("Board-ID: RPI-RP2\n")
    (folder / "firmware.uf2").mkdir()
    with pytest.raises(FlashError, match="the file cannot be written") as caught:
        flash(FlashJob(image, PICO), "uf2", timeout=60)
    assert "Traceback" not in caught.value.log


def test_a_name_of_a_lock_is_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = ListPortInfo("/dev/no-such-port")
    probe.vid, probe.pid, probe.serial_number = 0x0483, 0x374B, "../" + "é" * 500
    monkeypatch.setattr("serial.tools.list_ports.comports", lambda: [probe])
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(LinkError, match="cannot be opened"):
        start_device(tmp_path, NUCLEO, site=Site(port="/dev/no-such-port"))
    (lock,) = (tmp_path / f"crtgen-{os.getuid()}").iterdir()
    assert lock.name.isascii()
