"""A hostile device: it answers as one of ours does, for a while. The input is what it does and when."""

from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np

from crtgen.base.errors import LinkError
from crtgen.device.rpc import frame, messages
from crtgen.device.rpc.client import Client, Timeouts
from crtgen.device.rpc.server import ServedModel, Server, ServerStream
from crtgen.device.rpc.session import MessageType
from crtgen.device.rpc.values import DataType, Handle, Tensor, TypeCode, Value
from tests.fuzz.mutate import mutate_bytes

__all__ = ["device_inputs", "meet_device"]

_QUICK = Timeouts(0.01, 0.02, 0.02)
_EDGES = (0, 1, 7, 255, 2047, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, -1, -(1 << 63))
_MODEL = ServedModel(
    "sum", {"x": ((2, 3), "int8")}, [((2, 3), "int8"), ((), "int32")], lambda x: (x, np.int32(x.sum()))
)
X = np.arange(6, dtype=np.int8).reshape(2, 3)


def device_inputs() -> tuple[bytes, ...]:
    """Any bytes are a device; the first one is how many answers are as they should be."""
    return (bytes(range(255, 191, -1)), bytes(range(64)))


class _Hostile(ServerStream):
    """A line to a device that starts to misbehave after some bytes; at the end it is gone."""

    def __init__(self, data: bytes) -> None:
        self._random = random = Random(data)
        functions = {"runtime.RPCTimeEvaluator": lambda *args: lambda: bytes(16)}
        super().__init__(Server(functions, [_MODEL], nonce=lambda: 1 + random.randrange(255)))
        self._good = data[0] if data else 0
        self._flood = b""

    def read(self, timeout: float) -> bytes:
        if self._flood:
            return self._flood
        data = super().read(timeout)
        self._good -= 1
        return data if self._good > 0 else self._changed(data)

    def _changed(self, data: bytes) -> bytes:
        random = self._random
        choice = random.randrange(6)
        if choice == 0:
            return mutate_bytes(random, data, data)
        if choice == 1:
            return random.randbytes(random.randrange(1, 300))
        if choice == 2:
            self._flood = self._packet(data) * random.randrange(1, 50)
            return self._flood
        return self._packet(data)

    def _packet(self, data: bytes) -> bytes:
        """A packet that is well framed; the session is the right one, if the data shows it."""
        random = self._random
        session = data[6:8] if len(data) > 8 else random.randbytes(2)
        kind = random.choice([*MessageType, MessageType.NORMAL, MessageType.NORMAL, random.randrange(256)])
        return frame.encode(session + bytes((kind,)) + self._body())

    def _body(self) -> bytes:
        random = self._random
        args = tuple(self._value() for _ in range(random.randrange(4)))
        packets: list[messages.Packet] = [
            messages.Return(args),
            messages.Return((random.choice([*TypeCode]), *args)),
            messages.CopyAck(random.randbytes(random.randrange(40))),
            messages.RemoteException("no\x1b[2J"),
            messages.SystemCall(random.choice([*messages.Code][8:]), args),
        ]
        body = messages.encode(random.choice(packets))
        return body if random.randrange(3) else mutate_bytes(random, body, body)

    def _value(self) -> Value:
        random = self._random
        edge = random.choice(_EDGES)
        shape = tuple(random.choice([0, 1, 2, 6, 1 << 20, 1 << 60]) for _ in range(random.randrange(5)))
        kind = DataType(random.randrange(4), random.choice([0, 1, 8, 32, 255]), random.choice([0, 1, 4]))
        tensor = Tensor(edge & 0xFFFFFFFF, shape, kind)
        handle = Handle(edge & (1 << 64) - 1, random.choice([TypeCode.HANDLE, TypeCode.MODULE]))
        values: list[Value] = [None, edge, 0.5, "x" * 9, random.randbytes(9), kind, tensor, handle]
        return random.choice(values)


def meet_device(data: bytes, folder: Path) -> bool:
    """Everything that a session does. True if the device has told the truth all the time."""
    client = Client(_Hostile(data), timeouts=_QUICK)
    try:
        client.connect()
        client.info()
        client.memory()
        with client.aot_executor("sum") as executor:
            executor.set_input("x", X)
            executor.run()
            right = bool((executor.get_output(0) == X).all())
            client.ticks_per_second()
            client.measure(executor, 3)
            client.profile(executor)
            client.time_evaluator(executor.module, repeat=2)
            return right
    finally:
        with suppress(LinkError):
            client.close()
