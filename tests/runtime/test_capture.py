"""A conversation between TVM v0.14 and its own firmware: our firmware answers the host's side alike."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from crtgen.device.rpc import frame
from crtgen.device.run.streams import PipeStream
from tests.support import ROOT

pytestmark = pytest.mark.cc

CAPTURE = ROOT / "tests" / "device" / "rpc" / "capture.txt"
ADDRESS = re.compile(rb"..\x17\x86\x80\x55\x00\x00", re.DOTALL)
"""How the captured firmware's addresses look: eight bytes, of which these are always the same."""


def _packets(wire: bytes) -> list[bytes]:
    events = frame.Decoder().feed(wire)
    return [event.payload for event in events if isinstance(event, frame.Packet)]


def _turns(path: Path) -> list[tuple[list[bytes], list[bytes]]]:
    """(packets of the host, packets of the device) in order, without the device's log lines."""
    turns: list[tuple[list[bytes], list[bytes]]] = []
    for line in path.read_text().splitlines():
        side, wire = line.split()
        packets = _packets(bytes.fromhex(wire))
        if side == "host":
            turns.append((packets, []))
        else:
            turns[-1][1].extend(p for p in packets if p[2] not in (2, 3))
    return turns


def _answers(stream: PipeStream, decoder: frame.Decoder, count: int) -> list[bytes]:
    answers: list[bytes] = []
    while len(answers) < count:
        events = decoder.feed(stream.read(10))
        answers += [e.payload for e in events if isinstance(e, frame.Packet) and e.payload[2] not in (2, 3)]
    return answers


def test_replay(serve: Callable[..., PipeStream]) -> None:
    stream, decoder = serve("captured"), frame.Decoder()
    ours: dict[bytes, bytes] = {}
    turns = _turns(CAPTURE)
    assert len(turns) == 56
    for sent, expected in turns:
        assert len(expected) == (1 if sent else 0)
        stream.write(b"".join(frame.encode(ADDRESS.sub(lambda m: ours[m[0]], packet)) for packet in sent))
        (answer,) = _answers(stream, decoder, 1)
        assert len(answer) == len(expected[0])
        for found in ADDRESS.finditer(expected[0]):
            ours.setdefault(found[0], answer[found.start() : found.end()])
        assert answer == ADDRESS.sub(lambda m: ours[m[0]], expected[0])
    assert len(ours) == 5
