"""Listening: what a device logs, and what a program without the RPC prints."""

from crtgen.device.rpc.listener import Listener
from crtgen.device.rpc.session import RpcSession


def device(*log: str) -> bytes:
    """What a device sends that starts and logs."""
    session = RpcSession()
    session.boot()
    for line in log:
        session.log(line)
    return session.take_output()


def test_the_log_of_a_server() -> None:
    assert Listener().feed(device("one", "two")) == ["(the device has started)", "one", "two"]


def test_byte_by_byte() -> None:
    listener = Listener()
    lines = [line for byte in b"boot\r\n" + device("a\nb") for line in listener.feed(bytes((byte,)))]
    assert lines == ["boot", "(the device has started)", "a\nb"]


def test_plain_text() -> None:
    listener = Listener()
    assert listener.feed(b"one\r\ntw") == ["one"]
    assert listener.feed(b"o\n\n") == ["two", ""]


def test_other_messages_are_no_lines() -> None:
    host, board = RpcSession(), RpcSession()
    host.start()
    board.receive(host.take_output())
    board.send(b"an answer\n")
    assert Listener().feed(board.take_output()) == []
