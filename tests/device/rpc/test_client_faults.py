"""The client over lines that misbehave, and with devices that do not keep to the protocol."""

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtgen.base import endpoints
from crtgen.base.errors import (
    LinkClosedError,
    LinkError,
    LinkTimeoutError,
    ProtocolError,
    RemoteError,
    SessionLostError,
)
from crtgen.device.rpc import frame, messages
from crtgen.device.rpc.client import Client, Timeouts
from crtgen.device.rpc.server import Server, ServerStream
from crtgen.device.rpc.session import MessageType
from crtgen.device.rpc.values import Tensor
from tests.device.rpc.devices import device

pytestmark = pytest.mark.usefixtures("clock")

QUICK = Timeouts(0.02, 0.1, 0.1)


class Faulty(ServerStream):
    """A line that changes what passes: ``up`` on the way to the device, ``down`` on the way back."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.up: Callable[[bytes], bytes] = bytes
        self.down: Callable[[bytes], bytes] = bytes

    def write(self, data: bytes) -> None:
        super().write(self.up(data))

    def read(self, timeout: float) -> bytes:
        return self.down(super().read(timeout))


def once(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """The change for the next piece that carries a message of the session, the identity afterwards."""
    done = False

    def apply(data: bytes) -> bytes:
        nonlocal done
        if done:
            return data
        done = True
        return change(data)

    return apply


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes((data[at] ^ 0x40,)) + data[at + 1 :]


def packets(data: bytes) -> list[frame.Packet]:
    return [event for event in frame.Decoder().feed(data) if isinstance(event, frame.Packet)]


def test_nobody_answers() -> None:
    class Deaf(ServerStream):
        def write(self, data: bytes) -> None:
            pass

    with pytest.raises(LinkTimeoutError, match="did not accept a session within") as caught:
        Client(Deaf(device()), timeouts=QUICK).connect()
    assert "firmware" in caught.value.hint


def test_connecting_tries_again_with_another_nonce() -> None:
    written: list[bytes] = []

    class Awakening(ServerStream):
        def write(self, data: bytes) -> None:
            written.append(data)
            if len(written) > 2:
                super().write(data)

    with Client(Awakening(device()), timeouts=QUICK, nonce=iter([1, 2, 3, 4]).__next__) as client:
        assert client.function("echo")(1) == 1
    inits = [event.payload for data in written[:3] for event in packets(data) if event.payload[2] == 0]
    assert [init[0] for init in inits] == [0x41, 0x61, 0x81]


def test_a_duplicated_handshake_harms_nothing() -> None:
    line = Faulty(device())
    line.up = once(lambda data: data + data)
    with Client(line, timeouts=QUICK) as client:
        assert client.function("echo")(5) == 5


@pytest.mark.parametrize("side", ["up", "down"])
@pytest.mark.parametrize(
    "damage",
    [
        flip(20),
        flip(5),
        flip(2),
        lambda data: data[:15],
        lambda data: data[:1],
        lambda data: b"\xff\xfd\x00\x00\x00\x7f" + data[6:],
        lambda data: data[:20] + b"\xff\x00" + data[20:],
        lambda data: b"",
    ],
    ids=["body", "length", "header", "truncated", "cut in the start", "oversize", "escape", "lost"],
)
def test_a_damaged_packet_harms_one_request_only(side: str, damage: Callable[[bytes], bytes]) -> None:
    line = Faulty(device())
    with Client(line, timeouts=QUICK) as client:
        echo = client.function("echo")
        setattr(line, side, once(damage))
        with pytest.raises(LinkTimeoutError, match=r"did not answer within 0\.1 s"):
            echo(1)
        with pytest.raises(SessionLostError, match="given up"):
            echo(2)
        client.connect()
        assert client.function("echo")(3) == 3


@pytest.mark.parametrize("side", ["up", "down"])
def test_a_duplicated_packet_harms_nothing(side: str) -> None:
    line = Faulty(device())
    with Client(line, timeouts=QUICK) as client:
        echo = client.function("echo")
        setattr(line, side, lambda data: data + data)
        assert [echo(index) for index in range(5)] == list(range(5))


def test_noise_between_packets_harms_nothing() -> None:
    line = Faulty(device())
    with Client(line, timeouts=QUICK) as client:
        line.up = line.down = lambda data: b"\x00\xfe\xff\x00noise" + data + b"\r\n"
        echo = client.function("echo")
        assert [echo(index) for index in range(5)] == list(range(5))


def test_a_timeout_tells_of_the_damage() -> None:
    line = Faulty(device())
    with Client(line, timeouts=QUICK) as client:
        echo = client.function("echo")
        line.down = flip(20)
        with pytest.raises(LinkTimeoutError, match="dropped 1 damaged packets: CRC"):
            echo(1)


def test_answers_of_another_session_are_not_ours() -> None:
    line = Faulty(device())
    with Client(line, timeouts=QUICK) as client:
        echo = client.function("echo")
        stray = frame.encode(b"\x01\x01\x10" + messages.encode(messages.Return((0, 666))))
        line.down = lambda data: stray + data
        assert echo(7) == 7


def test_a_device_that_restarts_loses_the_session() -> None:
    line = Faulty(device())
    with Client(line, timeouts=QUICK) as client:
        echo = client.function("echo")
        line.down = once(lambda data: frame.LEAD_IN + frame.encode(bytes((0, 0, MessageType.TERMINATE))))
        with pytest.raises(SessionLostError, match="ended the session"):
            echo(1)
        client.connect()
        assert client.function("echo")(2) == 2


def test_a_line_that_dies_in_mid_call() -> None:
    line = Faulty(device())

    def die(data: bytes) -> bytes:
        raise LinkClosedError("unplugged")

    with Client(line, timeouts=QUICK) as client, client.allocate((4,), "int8") as tensor:
        line.down = die
        with pytest.raises(LinkClosedError, match="unplugged"):
            tensor.read()
        line.down = bytes
    with pytest.raises(SessionLostError):
        client.get_function("echo")


def test_an_error_within_a_copy_leaves_the_answers_in_step() -> None:
    server = device()
    with Client(ServerStream(server), timeouts=QUICK) as client:
        tensor = client.allocate((50_000,), "uint8")
        beyond = Tensor(tensor.tensor.data + 20_000, (50_000,), tensor.tensor.dtype)
        with pytest.raises(RemoteError, match="no 1985 bytes"):
            client.copy_to(beyond, np.zeros(50_000, np.uint8))
        with pytest.raises(RemoteError, match="no 1985 bytes"):
            client.copy_from(beyond)
        assert client.function("echo")(9) == 9


@pytest.mark.parametrize(
    "reply",
    [
        messages.encode(messages.CopyAck(b"abc")),
        messages.encode(messages.Return(())),
        messages.encode(messages.Return((0, 1, 2, 3))),
        b"\x03\x00\x00\x00\x00\x00\x00\x00abc",
    ],
    ids=["wrong kind", "no value", "too many values", "no packet"],
)
def test_what_the_protocol_does_not_allow(reply: bytes) -> None:
    line = Faulty(device())

    def answer(data: bytes) -> bytes:
        return frame.encode(packets(data)[0].payload[:3] + reply)

    with Client(line, timeouts=QUICK) as client:
        echo = client.function("echo")
        line.down = once(answer)
        with pytest.raises(ProtocolError):
            echo(1)
        with pytest.raises(SessionLostError):
            echo(1)
        client.connect()
        assert client.function("echo")(3) == 3


def test_an_interrupted_call_does_not_leave_its_answer_to_the_next() -> None:
    line = Faulty(device())

    def interrupt(data: bytes) -> bytes:
        raise KeyboardInterrupt

    with Client(line, timeouts=QUICK) as client:
        echo = client.function("echo")
        line.down = once(interrupt)
        with pytest.raises(KeyboardInterrupt):
            echo(1)
        with pytest.raises(SessionLostError, match="interrupted"):
            echo(2)


def test_an_older_device_gets_each_request_once() -> None:
    server = device()
    (functions,) = [each for each in server._modules.values() if each]
    functions[:] = [(name, run) for name, run in functions if name != endpoints.CRC32.name]
    line = Faulty(server)
    line.flow_controlled = False
    with Client(line, timeouts=QUICK) as client, client.allocate((4,), "int8") as tensor:
        tensor.write(np.arange(4, dtype=np.int8))
        assert tensor.read().tolist() == [0, 1, 2, 3]
        assert client.run_number() is None
        line.up = once(lambda data: b"")
        with pytest.raises(LinkTimeoutError, match=r"did not answer within 0\.1 s"):
            tensor.read()


def test_a_request_is_repeated_where_the_line_loses_it() -> None:
    line = Faulty(device())
    line.flow_controlled = False
    with Client(line, timeouts=Timeouts(0.1, 60.0, 60.0)) as client:
        for side in ("up", "down"):
            for change in (lambda data: b"", lambda data: data[:-3], flip(20), lambda data: data + data):
                setattr(line, side, once(change))
                assert client.memory() is not None
        assert client.function("echo")(7) == 7


def test_what_a_device_says_moves_no_cursor() -> None:
    def fail(value: str) -> str:
        raise ValueError(value)

    server = Server({"fail": fail})
    lines: list[str] = []
    line = Faulty(server)
    with Client(line, timeouts=QUICK, on_log=lines.append) as client:
        fails = client.function("fail")
        line.down = once(lambda data: server.log("\x1b[2J\0") + data)
        with pytest.raises(RemoteError) as caught:
            fails("\x1b[31m\0\u202e")
    assert lines == [r"\x1b[2J\x00"]
    assert caught.value.message == r"ValueError: \x1b[31m\x00\u202e"


def test_empty_packets_are_skipped() -> None:
    line = Faulty(device())
    with Client(line, timeouts=QUICK) as client:
        echo = client.function("echo")
        line.down = lambda data: frame.encode(packets(data)[0].payload[:3] + bytes(8)) + data
        assert echo(4) == 4


def test_another_protocol_version() -> None:
    line = Faulty(device())
    line.down = lambda data: b"".join(
        frame.encode(p.payload[:3] + b"\x02") if p.payload[2] == MessageType.REPLY else b""
        for p in packets(data)
    )
    with pytest.raises(ProtocolError, match="version 2"):
        Client(line, timeouts=QUICK).connect()


def test_a_shutdown_ends_the_device() -> None:
    stream = ServerStream(device())
    with Client(stream, timeouts=QUICK) as client:
        echo = client.function("echo")
        client.shutdown()
        with pytest.raises(LinkClosedError):
            echo(1)


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=40))
def test_noise_for_an_answer_is_a_value_or_one_of_our_errors(noise: bytes) -> None:
    line = Faulty(device())
    with Client(line, timeouts=Timeouts(0.01, 0.02, 0.01)) as client:
        echo = client.function("echo")

        def scramble(data: bytes) -> bytes:
            body = len(noise).to_bytes(8, "little") + noise
            return frame.encode(packets(data)[0].payload[:3] + body)

        line.down = once(scramble)
        with suppress(LinkError):
            echo(1)
        client.connect()
        assert client.function("echo")(2) == 2
