"""A conversation between a TVM host and its own firmware, as it crossed the wire."""

from pathlib import Path

from crtgen.base.errors import LinkTimeoutError
from crtgen.device.rpc import frame, session
from crtgen.device.rpc.session import MessageType

__all__ = ["SESSION_ID", "ScriptedDevice", "exchanges", "lines"]

SESSION_ID = 0xA8A8


def lines() -> list[tuple[str, list[bytes]]]:
    """Who spoke, and the payloads of the packets."""
    rows = (line.split() for line in (Path(__file__).parent / "capture.txt").read_text().splitlines())
    spoken = []
    for who, wire in rows:
        events = frame.Decoder().feed(bytes.fromhex(wire))
        spoken.append((who, [event.payload for event in events if isinstance(event, frame.Packet)]))
        assert len(spoken[-1][1]) == len(events)
    return spoken


def exchanges() -> list[tuple[bytes, list[bytes]]]:
    """Each RPC request, and the payloads with which the device answered; the handshake is left out."""
    spoken = lines()[2:]
    pairs = []
    for (who, requests), (other, answers) in zip(spoken[::2], spoken[1::2], strict=True):
        assert (who, other) == ("host", "device")
        (request,) = requests
        assert request[:3] == SESSION_ID.to_bytes(2, "little") + bytes((MessageType.NORMAL,))
        pairs.append((request[3:], answers))
    return pairs


class ScriptedDevice:
    """A stream to a device that knows the requests of the capture and nothing else."""

    flow_controlled = True

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self._answers = dict(exchanges())
        self._session = session.RpcSession()
        self._output = b""

    def write(self, data: bytes) -> None:
        for event in self._session.receive(data):
            if isinstance(event, session.Message):
                self._answer(event.payload)
        self._output += self._session.take_output()

    def read(self, timeout: float) -> bytes:
        if not self._output:
            raise LinkTimeoutError("no data arrived for")
        output, self._output = self._output, b""
        return output

    def close(self) -> None:
        pass

    def _answer(self, request: bytes) -> None:
        assert request in self._answers, f"the capture has no request {request.hex()}"
        self.asked.append(request)
        for answer in self._answers[request]:
            if answer[2] == MessageType.LOG:
                self._session.log(answer[3:].decode())
            else:
                self._session.send(answer[3:])
