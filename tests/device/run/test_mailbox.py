"""The memory that QEMU shares: blocks arrive whole and in order, and nothing in it is trusted."""

import mmap
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pytest

from crtgen.base.errors import LinkClosedError, LinkTimeoutError
from crtgen.boards import MAILBOX_SIZE, find_board
from crtgen.device.rpc.client import Client
from crtgen.device.rpc.link import SIMULATOR, Timeouts
from crtgen.device.run import mailbox, qemu, start_qemu
from crtgen.device.run.mailbox import MailboxStream, has_mailbox
from crtgen.device.run.streams import SocketStream
from tests.firmware.project.building import build_toy
from tests.support import require_tool

RING = 1 << 18
TO_DEVICE, TO_HOST = 8, 16 + RING
X = np.array([[1, -2, -128, 5]], np.int8)


@dataclass
class Device:
    """The device's half, in Python: the words and the bytes where ``mailbox.c`` has them."""

    memory: mmap.mmap
    line: socket.socket

    def word(self, at: int) -> int:
        return int.from_bytes(self.memory[at : at + 4], "little")

    def store(self, at: int, value: int) -> None:
        self.memory[at : at + 4] = (value % (1 << 32)).to_bytes(4, "little")

    def read(self) -> bytes:
        """All that the host has written."""
        head, tail = self.word(TO_DEVICE), self.word(TO_DEVICE + 4)
        data = bytes(self.memory[TO_DEVICE + 8 + i % RING] for i in range(tail, head))
        self.store(TO_DEVICE + 4, head)
        return data

    def write(self, data: bytes) -> None:
        head = self.word(TO_HOST)
        for i, byte in enumerate(data):
            self.memory[TO_HOST + 8 + (head + i) % RING] = byte
        self.store(TO_HOST, head + len(data))
        self.line.send(b"\0")


@pytest.fixture
def ends() -> Iterator[tuple[MailboxStream, Device]]:
    ours, theirs = socket.socketpair()
    stream = MailboxStream(SocketStream(ours, name="toy"), 16 << 20)
    with theirs, file_of(stream).open("r+b") as file, mmap.mmap(file.fileno(), MAILBOX_SIZE) as memory:
        yield stream, Device(memory, theirs)
        stream.close()


def file_of(stream: MailboxStream) -> Path:
    found = re.search(r"mem-path=(.*),share=on", stream.arguments()[1])
    assert found
    return Path(found[1])


def test_blocks_arrive_whole_and_in_order(ends: tuple[MailboxStream, Device]) -> None:
    stream, device = ends
    rng = Random(1)
    sent = [rng.randbytes(rng.choice((1, 64, 5000, 60_000, RING))) for _ in range(24)]
    assert sum(map(len, sent)) > 3 * RING
    for block in sent:
        stream.write(block)
        assert device.read() == block
        device.write(block)
        got = b""
        while len(got) < len(block):
            got += stream.read(1)
        assert got == block


def test_the_bell_rings_once_for_a_block(ends: tuple[MailboxStream, Device]) -> None:
    stream, device = ends
    stream.write(bytes(5000))
    assert device.line.recv(100) == b"\0"


def test_bells_without_bytes_are_waited_through(ends: tuple[MailboxStream, Device]) -> None:
    stream, device = ends
    device.line.send(b"\0" * 5)
    with pytest.raises(LinkTimeoutError, match=r"no data arrived for"):
        stream.read(0.05)
    device.write(b"x")
    assert stream.read(1) == b"x"


def test_a_device_that_is_gone_is_a_closed_line(ends: tuple[MailboxStream, Device]) -> None:
    stream, device = ends
    device.write(b"last words")
    device.line.close()
    assert stream.read(1) == b"last words"
    with pytest.raises(LinkClosedError):
        stream.read(1)
    with pytest.raises(LinkClosedError):
        stream.write(bytes(2 * RING))


def test_a_device_that_takes_nothing_is_a_timeout(
    ends: tuple[MailboxStream, Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "WRITE_TIMEOUT", 0.05)
    with pytest.raises(LinkTimeoutError, match="the device accepted no data for"):
        ends[0].write(bytes(RING + 1))


def test_counts_that_cannot_be_are_refused(ends: tuple[MailboxStream, Device]) -> None:
    stream, device = ends
    device.memory[:] = bytes([0xA5]) * MAILBOX_SIZE  # firmware that writes where it should not
    with pytest.raises(LinkClosedError, match="overwrote what it shares"):
        stream.read(1)
    with pytest.raises(LinkClosedError, match="overwrote what it shares"):
        stream.write(b"x")


def test_the_memory_is_on_no_disk_and_gone_with_the_stream(ends: tuple[MailboxStream, Device]) -> None:
    """Firmware can fill it: 2 GiB on some machines."""
    file = file_of(ends[0])
    assert file.stat().st_size == 16 << 20
    assert os.readlink(file).startswith("/memfd:")
    ends[0].close()
    ends[0].close()
    assert not file.exists()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_tool("qemu-system-arm", "apt install qemu-system-arm")
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    return build_toy("mps2_an386", "server", tmp_path_factory.mktemp("toy"), pool=8192)


def computed(image: Path, counting: bool) -> tuple[list[list[int]], bytes]:
    """What the device computes, and a block of its memory that came back."""
    block = Random(2).randbytes(2000)
    board = find_board("mps2_an386")
    with start_qemu(image, board, counting=counting) as device, Client(device.stream) as client:
        executor = client.aot_executor("toy")
        executor.set_input(0, X)
        executor.run()
        tensor = client.allocate((len(block),), "uint8")
        tensor.write(np.frombuffer(block, np.uint8))
        return executor.get_output(0).tolist(), tensor.read().tobytes()


@pytest.mark.qemu
@pytest.mark.parametrize("counting", [True, False])
def test_one_image_says_the_same_through_memory_and_over_its_uart(
    image: Path, monkeypatch: pytest.MonkeyPatch, counting: bool
) -> None:
    assert has_mailbox(image)
    by_memory = computed(image, counting)
    monkeypatch.setattr(qemu, "has_mailbox", lambda image: False)
    assert by_memory == computed(image, counting) == ([[-1, 2, 127, -5]], Random(2).randbytes(2000))


@pytest.mark.qemu
def test_without_room_for_the_memory_the_uart_does_it(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(stream: MailboxStream, line: SocketStream, size: int, *, npu: bool) -> None:
        raise OSError("File too large")

    monkeypatch.setattr(MailboxStream, "__init__", full)
    assert computed(image, False)[0] == [[-1, 2, 127, -5]]


@pytest.mark.qemu
@pytest.mark.parametrize("kept", [slice(0, -1), slice(0, 9), slice(1, None)])
def test_a_packet_that_is_cut_is_a_timeout_and_the_next_session_works(
    image: Path, monkeypatch: pytest.MonkeyPatch, kept: slice
) -> None:
    with start_qemu(image, find_board("mps2_an386"), counting=False) as device:
        hasty = Client(device.stream, timeouts=Timeouts(2.0, 60.0, 0.5))
        hasty.connect()
        write = device.stream.write
        with monkeypatch.context() as patched:
            patched.setattr(device.stream, "write", lambda data: write(data[kept]))
            with pytest.raises(LinkTimeoutError, match="did not answer within"):
                hasty.info()
        with Client(device.stream, timeouts=SIMULATOR) as client:
            assert client.info() is not None


@pytest.mark.qemu
def test_a_standalone_image_has_no_mailbox(tmp_path: Path) -> None:
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    assert not has_mailbox(build_toy("mps2_an386", "standalone", tmp_path))


def test_no_count_is_ever_seen_by_halves(ends: tuple[MailboxStream, Device]) -> None:
    """A device that looks while 255 becomes 256 sees one of them, and takes nothing that was not sent."""
    stream, _ = ends
    stream._set(TO_DEVICE, 255)
    child = os.fork()
    if child == 0:
        words = memoryview(mmap.mmap(stream.descriptor, MAILBOX_SIZE)).cast("I")
        seen = set()
        while (count := words[TO_DEVICE // 4]) != 7:
            seen.add(count)
        os._exit(seen - {255, 256} != set())
    for _ in range(200_000):
        stream._set(TO_DEVICE, 255)
        stream._set(TO_DEVICE, 256)
    stream._set(TO_DEVICE, 7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
