"""The session, both roles against each other and against the golden vectors."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtgen.base.errors import SessionLostError
from crtgen.base.text import DeviceText
from crtgen.device.rpc import frame
from crtgen.device.rpc.session import (
    Damaged,
    Established,
    LogLine,
    Lost,
    Message,
    MessageType,
    Refused,
    RpcSession,
    State,
    next_nonce,
)

GOLDEN = {
    row["name"]: bytes.fromhex(row["wire"])
    for row in json.loads((Path(__file__).parent / "vectors.json").read_text())
}


def nonces(*values: int) -> Callable[[], int]:
    """A source of exactly these start nonces."""
    remaining = iter(values)
    return lambda: next(remaining)


def packet(session_id: int, kind: int, body: bytes = b"") -> bytes:
    return frame.encode(session_id.to_bytes(2, "little") + bytes((kind,)) + body)


def paired() -> tuple[RpcSession, RpcSession]:
    """A host and a device with the session 0x6682."""
    host, device = RpcSession(nonce=nonces(1, 0x3C)), RpcSession(nonce=nonces(0xAB))
    host.start()
    assert device.receive(host.take_output()) == [Established(0x6682)]
    assert host.receive(device.take_output()) == [Established(0x6682)]
    return host, device


def test_nonces_go_on_as_specified() -> None:
    assert next_nonce(0x3C) == 0x82
    assert next_nonce(0xAB) == 0x66
    assert all(1 <= next_nonce(nonce) <= 255 for nonce in range(1, 256))


def test_the_handshake_is_the_golden_one() -> None:
    host, device = RpcSession(nonce=nonces(1, 0x3C)), RpcSession(nonce=nonces(0xAB))
    host.start()
    request = host.take_output()
    assert request == b"\xfe" + GOLDEN["terminate"] + GOLDEN["init, nonce 0x82"]
    device.receive(request)
    assert device.take_output() == GOLDEN["reply 0x82/0x66"]


def test_messages_and_logs_are_the_golden_ones() -> None:
    host, device = paired()
    host.send(b"hello")
    wire = host.take_output()
    assert wire == GOLDEN["normal message in 0x82/0x66"]
    assert device.receive(wire) == [Message(b"hello")]
    device.log("log1")
    wire = device.take_output()
    assert wire == GOLDEN["log"]
    assert host.receive(wire) == [LogLine(DeviceText("log1"))]


def test_output_is_handed_out_once() -> None:
    host, _ = paired()
    host.send(b"x")
    assert host.take_output() != b""
    assert host.take_output() == b""


def test_a_device_that_boots_says_so_and_logs_come_through_in_any_state() -> None:
    host, device = RpcSession(), RpcSession()
    device.boot()
    device.log("starting")
    assert host.receive(device.take_output()) == [LogLine(DeviceText("starting"))]
    host.start()
    device.log("still")
    assert host.receive(device.take_output()) == [LogLine(DeviceText("still"))]
    assert host.state is State.STARTING


def test_a_log_may_carry_the_session_but_no_other() -> None:
    host, _ = paired()
    assert host.receive(packet(0x6682, MessageType.LOG, b"ours")) == [LogLine(DeviceText("ours"))]
    assert host.receive(packet(0x6683, MessageType.LOG, b"theirs")) == []


def test_a_message_of_another_session_is_dropped() -> None:
    host, device = paired()
    for wrong in (0x6681, 0x6582, 0x0082, 0):
        assert device.receive(packet(wrong, MessageType.NORMAL, b"x")) == []
    host.send(b"y")
    assert device.receive(host.take_output()) == [Message(b"y")]


def test_a_message_before_the_session_is_dropped() -> None:
    assert RpcSession().receive(packet(0, MessageType.NORMAL, b"x")) == []


def test_sending_needs_a_session() -> None:
    with pytest.raises(SessionLostError):
        RpcSession().send(b"x")


def test_terminate_ends_the_session() -> None:
    host, device = paired()
    device.boot()
    assert host.receive(device.take_output()) == [Lost()]
    assert host.state is State.CLOSED
    with pytest.raises(SessionLostError):
        host.send(b"x")


def test_close_tells_the_peer() -> None:
    host, device = paired()
    host.close()
    wire = host.take_output()
    assert wire == GOLDEN["terminate"]
    assert device.receive(wire) == [Lost()]


def test_terminate_without_a_session_is_nothing() -> None:
    host = RpcSession()
    host.start()
    assert host.receive(GOLDEN["terminate"]) == []
    assert host.state is State.STARTING


def test_init_begins_another_session() -> None:
    host, device = paired()
    again = RpcSession(nonce=nonces(1, 0x11))
    again.start()
    init = again.take_output().removeprefix(b"\xfe" + GOLDEN["terminate"])
    (event,) = device.receive(init)
    assert isinstance(event, Established)
    assert event.session_id & 0xFF == next_nonce(0x11)
    assert again.receive(device.take_output()) == [event]
    host.send(b"old")
    assert device.receive(host.take_output()) == []


def test_a_late_reply_to_an_earlier_init_is_not_ours() -> None:
    host, device = RpcSession(nonce=nonces(1, 0x10, 0x20)), RpcSession()
    host.start()
    host_first = host.take_output()
    host.start()
    device.receive(host_first)
    assert host.receive(device.take_output()) == []
    device.receive(host.take_output())
    (event,) = host.receive(device.take_output())
    assert event == Established(host.session_id)
    assert host.session_id & 0xFF == next_nonce(0x20)


def test_an_init_that_arrives_twice_ends_in_one_session() -> None:
    host, device = RpcSession(), RpcSession()
    host.start()
    asked = host.take_output()
    device.receive(asked + asked)
    events = host.receive(device.take_output())
    assert [type(event) for event in events] == [Established, Established]
    assert events[-1] == Established(device.session_id)
    host.send(b"x")
    assert device.receive(host.take_output()) == [Message(b"x")]
    assert host.receive(packet(0x0100 | host.session_id & 0xFF00, MessageType.REPLY, b"\x01")) == []


def test_inits_of_late_replies_are_not_repeated() -> None:
    host = RpcSession(nonce=lambda: 7)
    asked = []
    for _ in range(200):
        host.start()
        _, init = frame.Decoder().feed(host.take_output())
        assert isinstance(init, frame.Packet)
        asked.append(init.payload[0])
    assert 0 not in asked
    assert all(len(set(asked[at : at + 33])) == 33 for at in range(len(asked) - 33))


@pytest.mark.parametrize(("mine", "theirs"), [(0x10, 0x20), (0x20, 0x10)])
def test_of_two_inits_the_lower_nonce_wins(mine: int, theirs: int) -> None:
    one, two = RpcSession(nonce=nonces(1, mine)), RpcSession(nonce=nonces(1, theirs))
    one.start()
    two.start()
    to_two, to_one = one.take_output(), two.take_output()
    events = [*one.receive(to_one), *two.receive(to_two)]
    to_two, to_one = one.take_output(), two.take_output()
    events += [*one.receive(to_one), *two.receive(to_two)]
    assert one.session_id == two.session_id
    assert events == [Established(one.session_id)] * 2
    assert one.session_id & 0xFF == min(next_nonce(mine), next_nonce(theirs))


def test_equal_nonces_start_over() -> None:
    one, two = RpcSession(nonce=nonces(1, 0x10, 0x30)), RpcSession(nonce=nonces(1, 0x10, 0x40))
    one.start()
    two.start()
    for _ in range(3):
        to_two, to_one = one.take_output(), two.take_output()
        one.receive(to_one)
        two.receive(to_two)
    assert one.state is two.state is State.ESTABLISHED
    assert one.session_id == two.session_id
    assert one.session_id & 0xFF == min(next_nonce(0x30), next_nonce(0x40))


def test_another_version_is_refused_by_both() -> None:
    device = RpcSession()
    assert device.receive(packet(0x82, MessageType.INIT, b"\x02")) == [Refused(2)]
    assert device.take_output() == b""
    assert device.state is State.CLOSED
    host = RpcSession(nonce=nonces(1, 0x3C))
    host.start()
    assert host.receive(packet(0x6682, MessageType.REPLY, b"\x02")) == [Refused(2)]
    assert host.state is State.CLOSED


def test_a_reply_without_a_nonce_is_none() -> None:
    host = RpcSession(nonce=nonces(1, 0x3C))
    host.start()
    assert host.receive(packet(0x0082, MessageType.REPLY, b"\x01")) == []
    assert host.state is State.STARTING


@pytest.mark.parametrize(
    "wire",
    [packet(0, MessageType.INIT, b"\x01"), packet(0x82, MessageType.INIT), packet(0x82, 0x77, b"?")],
    ids=["nonce 0", "no version", "unknown type"],
)
def test_what_means_nothing_is_ignored(wire: bytes) -> None:
    device = RpcSession()
    assert device.receive(wire) == []
    assert device.take_output() == b""


def test_damage_is_told() -> None:
    host, device = paired()
    host.send(b"one")
    bad = bytearray(host.take_output())
    bad[9] ^= 1
    host.send(b"two")
    damaged, message = device.receive(bytes(bad) + host.take_output())
    assert isinstance(damaged, Damaged)
    assert "CRC" in damaged.why
    assert message == Message(b"two")
    assert device.receive(frame.encode(b"xy")) == [Damaged("message of 2 bytes")]


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=20),
            st.builds(
                packet,
                st.sampled_from([0, 0x82, 0x6682, 0x66]),
                st.sampled_from([0, 1, 2, 3, 0x10, 9]),
                st.binary(max_size=3),
            ),
        )
    )
)
def test_anything_gives_only_the_defined_events(pieces: list[bytes]) -> None:
    host, device = paired()
    fresh = RpcSession()
    fresh.start()
    for session in (host, device, fresh):
        for piece in pieces:
            for event in session.receive(piece):
                assert isinstance(event, Established | Lost | Refused | Message | LogLine | Damaged)
        assert (session.session_id != 0) == (session.state is State.ESTABLISHED)
