"""A device that never pauses, and one that claims what cannot be: waiting and memory stay within bounds."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from crtgen.base.errors import LinkTimeoutError, ProtocolError
from crtgen.device.rpc import frame, messages
from crtgen.device.rpc.client import Client, Timeouts
from crtgen.device.rpc.server import Server, ServerStream
from crtgen.device.rpc.session import MessageType
from crtgen.device.rpc.values import DataType, Handle, Tensor, TypeCode
from tests.device.rpc.devices import device

pytestmark = pytest.mark.usefixtures("clock")

QUICK = Timeouts(0.1, 0.3, 0.3)


def message(kind: int, session_id: int, body: bytes = b"") -> bytes:
    return frame.encode(session_id.to_bytes(2, "little") + bytes((kind,)) + body)


def damaged(packet: bytes) -> bytes:
    return packet[:-1] + bytes((packet[-1] ^ 1,))


class Flooding(ServerStream):
    """A line that is fine until ``flood`` is set; from then on it brings that, again and again, at once."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.flood = b""
        self.reads = 0

    def read(self, timeout: float) -> bytes:
        self.reads += 1
        return self.flood or super().read(timeout)

    def write(self, data: bytes) -> None:
        if not self.flood:
            super().write(data)


FLOODS: dict[str, Callable[[int], bytes]] = {
    "log": lambda session: message(MessageType.LOG, 0, b"busy"),
    "bad checksums": lambda session: damaged(message(MessageType.NORMAL, session, b"x" * 40)),
    "another session": lambda session: message(MessageType.NORMAL, session ^ 0xFFFF, bytes(12)),
    "empty packets": lambda session: message(MessageType.NORMAL, session, bytes(8)),
    "no-ops": lambda session: b"\xff\xfe" * 100,
    "noise": lambda session: bytes(range(250)) * 4,
    "starts": lambda session: b"\xff\xfd" * 100,
    "bad escapes": lambda session: b"\xff\xfd\xff\x00" * 50,
    "a packet without end": lambda session: b"\xff\xfd\x00\x00\x08\x00" + b"x" * 1000,
    "short messages": lambda session: frame.encode(b"x"),
    "other replies": lambda session: message(MessageType.REPLY, 0x0102, b"\x01"),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_device_that_never_pauses_is_late(kind: str) -> None:
    """Not with a nonce that one of the other replies happens to have."""
    line = Flooding(device())
    with Client(line, timeouts=QUICK, nonce=lambda: 0x3C) as client:
        echo = client.function("echo")
        line.flood = FLOODS[kind](client._link._session.session_id) * 20
        with pytest.raises(LinkTimeoutError, match=r"did not answer within 0\.3 s"):
            echo(1)
        with pytest.raises(LinkTimeoutError, match=r"did not accept a session within 0\.3 s"):
            client.connect()
        line.flood = b""
        client.connect()
        assert client.function("echo")(5) == 5
    assert line.reads > 10


def test_a_device_that_floods_takes_no_memory() -> None:
    line = Flooding(device())
    with Client(line, timeouts=QUICK) as client:
        echo = client.function("echo")
        line.flood = damaged(message(MessageType.NORMAL, 1, b"x")) * 500  # 7 KB a read
        tracemalloc.start()
        with pytest.raises(LinkTimeoutError, match="damaged packets: CRC"):
            echo(1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 << 20


class Claiming(Server):
    """A device that answers every call of ``echo`` with a tensor of its own."""

    claim = Tensor(0x2000_0000, (1,), DataType(0, 8))

    def _returned(self, value: object) -> tuple[object, ...]:  # type: ignore[override]
        if value == "tensor":
            return int(TypeCode.NDARRAY), self.claim, Handle(1)
        return super()._returned(value)


def claim(shape: tuple[int, ...]) -> object:
    server = Claiming({"echo": lambda value: value})
    server.claim = Tensor(0x2000_0000, shape, DataType(0, 8))
    with Client(ServerStream(server), timeouts=QUICK) as client:
        return client.function("echo")("tensor").read()


@pytest.mark.parametrize("shape", [(1 << 60,), (1 << 20, 1 << 20), (1,) * 33, (65 << 20,), (0, 1 << 62, 4)])
def test_a_shape_that_no_device_has_is_refused(shape: tuple[int, ...]) -> None:
    tracemalloc.start()
    with pytest.raises(ProtocolError) as caught:
        claim(shape)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert "the device" in str(caught.value) or "dimensions" in str(caught.value)


def test_memory_is_taken_as_the_bytes_come() -> None:
    """64 MiB are claimed, and the first part of them does not come."""
    server = Claiming({"echo": lambda value: value}, memory=1 << 10)
    server.claim = Tensor(0x2000_0000, (64 << 20,), DataType(0, 8))
    with Client(ServerStream(server, flow_controlled=False), timeouts=QUICK) as client:
        tensor = client.function("echo")("tensor")
        tracemalloc.start()
        with pytest.raises(Exception, match="no 1985 bytes"):
            tensor.read()
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        tracemalloc.stop()


@pytest.mark.parametrize("published", [-1, 0, 60, 67])
def test_packets_that_are_too_small_for_a_copy(published: int) -> None:
    server = Server({"tvm.rpc.server.GetCRTMaxPacketSize": lambda: published})
    with (
        Client(ServerStream(server), timeouts=QUICK) as client,
        pytest.raises(ProtocolError, match="packets of"),
    ):
        client.allocate((4,), "int8").write(np.zeros(4, np.int8))


def test_a_copy_in_drops_ends_by_its_own_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is answered within its own time, but all together take too long for the slowest line."""
    line = ServerStream(device(max_payload=256), flow_controlled=False)
    with Client(line, timeouts=QUICK) as client:
        tensor = client.allocate((1000,), "int8")
        latest: list[float] = []
        receive = client._link.receive

        client._exchange._check = 0  # a device that cannot be asked twice

        def spy(timeout: float, until: float) -> messages.Packet:
            latest.append(until)
            return receive(timeout, until)

        assert client.max_packet == 245
        monkeypatch.setattr("crtgen.device.rpc.exchange.time.monotonic", lambda: 1e9)
        monkeypatch.setattr(client._link, "receive", spy)
        tensor.read()
        assert latest == [1e9 + 0.3 + 1000 / 250] * 6
