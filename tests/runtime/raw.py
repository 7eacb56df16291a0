"""Raw packets to a server, for what the client would not send."""

import numpy as np

from crtgen.device.rpc import frame
from crtgen.device.rpc.messages import Code, Packet, RemoteException, Return, SystemCall, decode, encode
from crtgen.device.rpc.values import DataType, Device, Handle, Tensor
from crtgen.device.run.streams import PipeStream

__all__ = ["Raw", "byte_tensor"]

_BYTES = DataType.of(np.uint8)


class Raw:
    """A session in which any bytes can be sent."""

    def __init__(self, stream: PipeStream) -> None:
        self._stream = stream
        self._decoder = frame.Decoder()
        self._packets: list[bytes] = []
        self.start()

    def start(self) -> None:
        """Begin a session."""
        self.send(frame.encode(b"\x05\x00\x00\x01"))
        while True:
            packet = self.receive()
            if packet[2] == 1:
                self.id = packet[:2]
                return

    def send(self, wire: bytes) -> None:
        self._stream.write(wire)

    def receive(self, timeout: float = 10) -> bytes:
        """The next packet."""
        while not self._packets:
            events = self._decoder.feed(self._stream.read(timeout))
            assert all(isinstance(event, frame.Packet) for event in events), events
            self._packets += [event.payload for event in events if isinstance(event, frame.Packet)]
        return self._packets.pop(0)

    def wire(self, payload: bytes) -> bytes:
        """A payload as a message of this session."""
        return frame.encode(self.id + b"\x10" + payload)

    def ask(self, payload: bytes) -> Packet:
        """Send a payload; the reply."""
        self.send(self.wire(payload))
        reply = self.receive()
        assert reply[:3] == self.id + b"\x10"
        packet = decode(reply[3:])
        assert packet is not None
        return packet

    def refused(self, payload: bytes) -> str:
        """Send a payload; the text of the exception that has to come."""
        packet = self.ask(payload)
        assert isinstance(packet, RemoteException), packet
        return packet.text

    def handle(self, name: str) -> int:
        reply = self.ask(encode(SystemCall(Code.GET_GLOBAL_FUNC, (name,))))
        assert isinstance(reply, Return)
        (handle,) = reply.args
        assert isinstance(handle, Handle)
        return handle.value

    def allocate(self, size: int) -> int:
        reply = self.ask(encode(SystemCall(Code.ALLOC_DATA, (Device(), size, 64, _BYTES))))
        assert isinstance(reply, Return)
        (handle,) = reply.args
        assert isinstance(handle, Handle)
        return handle.value


def byte_tensor(data: int, *shape: int, offset: int = 0) -> Tensor:
    """A tensor of bytes at an address of the device."""
    return Tensor(data, shape, _BYTES, Device(), offset)
