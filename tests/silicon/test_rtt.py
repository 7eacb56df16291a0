"""RTT: an image on a simulated core, pyOCD's own reader of RTT on its memory, and what is refused."""

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from crtgen import api
from crtgen.base.errors import LinkTimeoutError, UsageError
from crtgen.base.text import DeviceText
from crtgen.boards import find_board
from crtgen.device.flash import FlashJob
from crtgen.device.rpc.client import SIMULATOR, Client
from crtgen.device.run import Site
from crtgen.device.run.rtt import rtt_command
from crtgen.device.run.streams import PipeStream
from crtgen.device.run.with_pyocd import pump
from crtgen.device.session import Session
from tests.firmware.project.building import build_toy
from tests.silicon.machine import Machine
from tests.support import ROOT, require_tool

if TYPE_CHECKING:
    from pyocd.debug.rtt import RTTControlBlock

pytestmark = pytest.mark.qemu

DEMO = ROOT / "demo" / "digits.tflite"
BOARD = "nucleo_l4r5zi"


class Target:
    """The memory of a simulated chip as pyOCD's target has it; the core runs between two accesses."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.memory = machine.uc

    def _run(self) -> None:
        self.machine.step(2_000)

    def read_memory_block8(self, address: int, size: int) -> bytes:
        return bytes(self.memory.mem_read(address, size))

    def read_memory_block32(self, address: int, words: int) -> list[int]:
        self._run()
        data = self.read_memory_block8(address, 4 * words)
        return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]

    def read32(self, address: int) -> int:
        return self.read_memory_block32(address, 1)[0]

    def write32(self, address: int, value: int) -> None:
        self.memory.mem_write(address, value.to_bytes(4, "little"))

    def write_memory_block8(self, address: int, data: bytes) -> None:
        self.memory.mem_write(address, bytes(data))


class Line:
    """Both channels of a control block as a stream."""

    flow_controlled = True

    def __init__(self, block: "RTTControlBlock") -> None:
        self.up, self.down = block.up_channels[0], block.down_channels[0]

    def read(self, timeout: float) -> bytes:
        for _ in range(20_000):
            if data := self.up.read():
                return bytes(data)
        raise LinkTimeoutError("no data arrived for")

    def write(self, data: bytes) -> None:
        while data:
            data = data[self.down.write(data) :]

    def close(self) -> None:
        """Nothing has to be ended."""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_tool("arm-none-eabi-gcc")
    return build_toy(BOARD, "server", tmp_path_factory.mktemp("rtt"), rtt=True, pool=8192)


def started(image: Path) -> "tuple[Machine, RTTControlBlock]":
    machine = Machine(find_board(BOARD), image, None)
    machine.step(20_000)
    address = int(rtt_command(FlashJob(image, find_board(BOARD)))[-1], 16)
    from pyocd.debug.rtt import RTTControlBlock  # takes seconds

    block = RTTControlBlock.from_target(Target(machine), address=address)
    block.start()
    return machine, block


def test_pyocd_finds_both_rings_and_what_the_firmware_said(image: Path) -> None:
    _, block = started(image)
    assert [(c.name, c.size) for c in (*block.up_channels, *block.down_channels)] == [("crtgen", 1024)] * 2
    assert block.up_channels[0].read()[:3] == b"\xfe\xff\xfd"  # the first packet: it started


def test_bytes_arrive_as_they_were_sent_around_the_ends_of_both_rings(image: Path) -> None:
    _, block = started(image)
    data = bytes(range(256)) * 5
    with Client(Line(block), timeouts=SIMULATOR) as client:
        sent = np.frombuffer(data, np.uint8)
        with client.allocate(sent.shape, sent.dtype) as tensor:
            tensor.write(sent)
            assert np.array_equal(tensor.read(), sent)


def test_the_program_between_carries_bytes_both_ways_until_its_input_ends(image: Path) -> None:
    _, block = started(image)
    first = block.up_channels[0].read()
    assert first
    (source, ours), (theirs, sink) = os.pipe(), os.pipe()
    thread = threading.Thread(target=pump, args=(block, source, sink))
    thread.start()
    with (
        PipeStream(theirs, ours, name="pump") as line,
        Client(line, timeouts=SIMULATOR) as client,
    ):
        assert client.ticks_per_second() == 120_000_000
    thread.join(60)
    assert not thread.is_alive()


def test_the_command_names_target_probe_and_place(image: Path) -> None:
    words = rtt_command(FlashJob(image, find_board(BOARD), DeviceText("0671")))
    assert words[:6] == [
        sys.executable,
        "-P",
        "-m",
        "crtgen.device.run.with_pyocd",
        "--target",
        "stm32l4r5zitx",
    ]
    assert words[6:9] == ["--probe", "0671", "--address"]
    assert int(words[9], 16) >> 28 == 2


@pytest.mark.parametrize(
    ("board", "options", "message"),
    [
        ("nucleo_h743zi", {}, "data cache hides"),
        ("arduino_nano_33_ble", {}, "pyOCD does not know"),
        ("mps2_an386", {}, "pyOCD does not know"),
        (BOARD, {"platform": "zephyr"}, "RTT needs a server on bare metal"),
    ],
)
def test_what_has_no_rtt(board: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        api.load(DEMO).compile(board).generate("server", rtt=True, **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="RTT needs a server on bare metal"):
        api.load(DEMO).compile(BOARD).generate("standalone", rtt=True)


def test_an_image_without_rtt_and_a_simulator_are_refused(toy_image: Callable[[str], Path]) -> None:
    with pytest.raises(UsageError, match="the image has no RTT"):
        rtt_command(FlashJob(toy_image("nrf52840dk"), find_board(BOARD)))
    with pytest.raises(UsageError, match="RTT needs a debug probe, which a simulator does not have"):
        Site(simulate=True, rtt=True).check(find_board("rpi_pico"))


def test_a_session_asks_for_rtt_where_its_image_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe's program is started, and what it says is in the error of a board that is not there."""
    built = api.load(DEMO).compile(BOARD).generate("server", rtt=True).build()
    monkeypatch.setattr("crtgen.device.run.rtt.flash", lambda job, runner: None)
    monkeypatch.setattr(
        "crtgen.device.run.rtt.rtt_command",
        lambda job: [
            sys.executable,
            "-c",
            "import sys; sys.stdin.buffer.read(1); print('no probe', file=sys.stderr)",
        ],
    )
    with pytest.raises(Exception, match="end of file") as caught, built.run() as session:
        assert isinstance(session, Session)
    assert "no probe" in caught.value.log  # type: ignore[attr-defined]
