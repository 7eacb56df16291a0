"""What is waited for in a text that arrives in pieces."""

import os

import pytest

from crtgen.base.errors import LinkTimeoutError
from crtgen.device.run import Dut, SerialDevice
from crtgen.device.run.streams import PipeStream


def talking(*pieces: bytes) -> tuple[Dut, int]:
    """A device that has said so much, and where it hears."""
    (theirs, ours), (hears, speaks) = os.pipe(), os.pipe()
    for piece in pieces:
        os.write(ours, piece)
    return Dut(SerialDevice("a board", PipeStream(theirs, speaks, name="a board"))), hears


def test_matches_follow_each_other_and_lines_end_as_one_likes() -> None:
    dut, _ = talking(b"boot\r\nver", b"sion 3.7\r\nready\r\n> ")
    assert dut.expect(r"^version (\d+)\.(\d+)$").groups() == ("3", "7")
    assert dut.expect(r"^ready\n> ")[0] == "ready\n> "
    assert dut.output == "boot\nversion 3.7\nready\n> "
    with pytest.raises(LinkTimeoutError, match=r"version.* did not come within 0 s; the last line was: >"):
        dut.expect("version", timeout=0)


def test_what_is_written_arrives() -> None:
    dut, hears = talking()
    dut.write("say 3\n")
    dut.write(b"\xff")
    assert os.read(hears, 100) == b"say 3\n\xff"
    with pytest.raises(LinkTimeoutError, match="the last line was: nothing") as caught:
        dut.expect("3", timeout=0.01)
    assert caught.value.where == "a board"
