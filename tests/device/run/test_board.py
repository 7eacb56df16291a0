"""A real board, played by QEMU: written by a runner, locked, talked to over its serial port."""

import os
import pty
import shutil
import socket
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from serial.tools.list_ports_common import ListPortInfo

from crtgen.base.errors import FlashError, LinkError, LinkTimeoutError, UsageError
from crtgen.boards import find_board
from crtgen.device.flash.drives import drives_of
from crtgen.device.local_boards import board_lock
from crtgen.device.rpc.client import Client
from crtgen.device.rpc.link import SIMULATOR
from crtgen.device.run import SerialDevice, Site, start_device
from crtgen.device.run import board as board_module
from crtgen.device.run.board import connect_board
from tests.device.flash.test_gdb import free_port, wait_for
from tests.firmware.project.building import build_toy
from tests.support import require_tool

BOARD = find_board("nrf52840dk")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The serial port of a board that runs the toy model."""
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    qemu = require_tool("qemu-system-arm", "apt install qemu-system-arm")
    image = build_toy("mps2_an386", "server", tmp_path_factory.mktemp("toy"))
    number = free_port()
    command = [qemu, "-machine", "mps2-an386", "-nographic", "-monitor", "none", "-kernel", str(image)]
    serial = f"tcp:127.0.0.1:{number},server=on,wait=off"
    process = subprocess.Popen([*command, "-serial", serial], stdin=subprocess.DEVNULL)
    wait_for(number)
    yield f"socket://127.0.0.1:{number}"
    process.kill()
    process.wait()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    for suffix in ("elf", "hex"):
        (tmp_path / f"zephyr.{suffix}").write_bytes(b"")
    return tmp_path / "zephyr.elf"


def bench(tmp_path: Path, port: str, monkeypatch: pytest.MonkeyPatch, script: str) -> Site:
    """A hardware map with one board, and a program that plays nrfjprog."""
    (tmp_path / "nrfjprog").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "nrfjprog").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("CRTGEN_TRUST", "1")  # the map names lines that are no serial ports
    file = tmp_path / "map.yml"
    file.write_text(
        f"- connected: true\n  id: {tmp_path.name}-683\n  platform: nrf52840dk/nrf52840\n"
        f"  runner: nrfjprog\n  serial: {port}\n"
    )
    return Site(hardware_map=file)


@pytest.mark.qemu
def test_it_is_written_then_talked_to(
    port: str, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = bench(tmp_path, port, monkeypatch, f'echo "$@" > {tmp_path}/written')
    with start_device(image, BOARD, site=site) as device:
        assert isinstance(device, SerialDevice)
        with Client(device.stream, timeouts=SIMULATOR) as client:
            executor = client.aot_executor("toy")
            executor.set_input(0, np.array([[1, -2, -128, 5]], np.int8))
            executor.run()
            assert executor.get_output(0).tolist() == [[-1, 2, 127, -5]]
    words = (tmp_path / "written").read_text().split()
    assert words[:4] == ["--family", "NRF52", "--program", str(image.with_suffix(".hex"))]
    assert words[-2:] == ["--snr", f"{tmp_path.name}-683"]


@pytest.mark.qemu
def test_it_belongs_to_one_at_a_time(
    port: str, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = bench(tmp_path, port, monkeypatch, "true")
    monkeypatch.setattr(board_module, "board_lock", lambda key: board_lock(key, timeout=0.3))
    with start_device(image, BOARD, site=site):
        start = time.monotonic()
        with pytest.raises(LinkTimeoutError, match="has used the board"):
            start_device(image, BOARD, site=site)
        assert time.monotonic() - start < 60
        with pytest.raises(LinkTimeoutError, match="has used the board"):  # though it is named by its port
            start_device(image, BOARD, site=Site(port=port, hardware_map=site.hardware_map))
    start_device(image, BOARD, site=site).close()


def test_a_runner_that_fails_leaves_the_board_free(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = bench(tmp_path, "/nowhere", monkeypatch, "echo There is no debugger connected; exit 41")
    for _ in range(2):
        with pytest.raises(FlashError, match="no probe answers"):
            start_device(image, BOARD, site=site)


def test_a_port_that_is_not_there(image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LinkError, match="cannot be opened"):
        start_device(image, BOARD, site=bench(tmp_path, "/nowhere", monkeypatch, "true"))
    with pytest.raises(UsageError, match="serial port of the board is not known"):
        start_device(image, BOARD, site=bench(tmp_path, '""', monkeypatch, "true"))


def test_a_board_that_is_not_connected(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serial.tools.list_ports.comports", list)
    with pytest.raises(LinkError, match="no such board is connected"):
        start_device(image, BOARD)


@pytest.mark.qemu
def test_a_port_is_enough_where_the_image_runs_already(port: str, image: Path) -> None:
    with (
        start_device(image, BOARD, site=Site(port=port)) as device,
        Client(device.stream, timeouts=SIMULATOR) as client,
    ):
        assert client.aot_executor("toy")


def test_a_port_may_be_a_unix_socket(tmp_path: Path) -> None:
    """As a simulator that somebody started by hand has made it."""
    path = str(tmp_path / "serial.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        with connect_board(find_board("mps2_an386"), path) as device:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"up")
                assert device.stream.read(60) == b"up"


class Pico:
    """Firmware with a port of its own: at 1,200 baud it becomes a drive, with a new file a port again."""

    def __init__(self, media: Path) -> None:
        self.drive = media / "RPI-RP2"
        self.master, self.slave = pty.openpty()
        self.is_port = False

    @property
    def path(self) -> str:
        return os.ttyname(self.slave)

    def become_drive(self) -> None:
        self.is_port = False
        settings = termios.tcgetattr(self.slave)
        settings[4] = settings[5] = termios.B9600
        termios.tcsetattr(self.slave, termios.TCSANOW, settings)
        self.drive.mkdir()
        (self.drive / "INFO_UF2.TXT").write_text("UF2 Bootloader v3.0\nBoard-ID: RPI-RP2\n")

    def ports(self) -> list[ListPortInfo]:
        """What the system lists; who asks sees what has happened since."""
        rate = termios.tcgetattr(self.slave)[4]
        if self.is_port and rate == termios.B1200:
            self.become_drive()
        if any(self.drive.glob("*.uf2")):
            shutil.move(self.drive, self.drive.with_name("gone"))
            self.is_port = True
        info = ListPortInfo(self.path)
        info.vid, info.pid = 0x2E8A, 0x000A
        return [info] if self.is_port else []


@pytest.fixture
def pico(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pico]:
    media = tmp_path / "media"
    media.mkdir()
    fake = Pico(media)
    monkeypatch.setenv("CRTGEN_MEDIA", str(media))
    monkeypatch.setattr("serial.tools.list_ports.comports", fake.ports)
    monkeypatch.setattr(
        "crtgen.device.flash.boot_loader.drives_of", lambda name: [fake.ports(), drives_of(name)][1]
    )
    yield fake
    os.close(fake.master)
    os.close(fake.slave)


@pytest.mark.parametrize("is_running", [False, True])
def test_a_board_with_its_own_usb_port(tmp_path: Path, pico: Pico, is_running: bool) -> None:
    """It is a drive already, or runs firmware that is asked to become one."""
    image = tmp_path / "firmware.elf"
    image.write_bytes(b"")
    image.with_suffix(".uf2").write_bytes(b"UF2\n" * 128)
    if is_running:
        pico.is_port = True
    else:
        pico.become_drive()
    with start_device(image, find_board("rpi_pico_usb")) as device:
        assert device.name == f"rpi_pico_usb at {pico.path}"
        os.write(pico.master, b"up")
        assert device.stream.read(60) == b"up"
    assert (tmp_path / "media" / "gone" / "firmware.uf2").read_bytes() == b"UF2\n" * 128


def test_a_board_that_is_no_drive_is_told_how_to_become_one(tmp_path: Path, pico: Pico) -> None:
    image = tmp_path / "firmware.elf"
    image.write_bytes(b"")
    image.with_suffix(".uf2").write_bytes(b"")
    with pytest.raises(FlashError) as caught:
        start_device(image, find_board("rpi_pico_usb"))
    assert "hold BOOTSEL while you plug the board in" in caught.value.hint
