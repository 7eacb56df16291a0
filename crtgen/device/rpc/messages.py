"""RPC packets: the typed content of a session's messages, in both directions.

A packet is the length of the rest (u64; 0 means nothing), a code (i32) and a body.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from crtgen.device.rpc.values import Args, Reader, Tensor, pack_args, pack_sized, pack_tensor

__all__ = [
    "LENGTH_BYTES",
    "CallFunc",
    "Code",
    "CopyAck",
    "CopyFromRemote",
    "CopyToRemote",
    "InitServer",
    "Packet",
    "RemoteException",
    "Return",
    "Shutdown",
    "SystemCall",
    "copy_overhead",
    "decode",
    "encode",
]

LENGTH_BYTES = 8
_HEADER = struct.Struct("<Qi")
_U64 = struct.Struct("<Q")


class Code(IntEnum):
    SHUTDOWN = 1
    INIT_SERVER = 2
    CALL_FUNC = 3
    RETURN = 4
    EXCEPTION = 5
    COPY_FROM_REMOTE = 6
    COPY_TO_REMOTE = 7
    COPY_ACK = 8
    GET_GLOBAL_FUNC = 9
    FREE_HANDLE = 10
    SET_DEVICE = 11
    GET_ATTR = 12
    ALLOC_DATA = 13
    FREE_DATA = 14
    STREAM_SYNC = 15
    COPY_AMONG_REMOTE = 16
    ALLOC_DATA_WITH_SCOPE = 17
    CREATE_STREAM = 18
    FREE_STREAM = 19
    SET_STREAM = 20


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Makes the device leave the server's loop; it sends no answer."""


@dataclass(frozen=True, slots=True)
class InitServer:
    version: str
    args: Args = ()


@dataclass(frozen=True, slots=True)
class CallFunc:
    function: int
    args: Args = ()


@dataclass(frozen=True, slots=True)
class Return:
    """The answer to everything but a CopyFromRemote; ``client`` tells how to interpret the arguments."""

    args: Args = ()


@dataclass(frozen=True, slots=True)
class RemoteException:
    text: str


@dataclass(frozen=True, slots=True)
class CopyFromRemote:
    tensor: Tensor
    nbytes: int


@dataclass(frozen=True, slots=True)
class CopyToRemote:
    tensor: Tensor
    data: bytes


@dataclass(frozen=True, slots=True)
class CopyAck:
    data: bytes


@dataclass(frozen=True, slots=True)
class SystemCall:
    code: Code
    args: Args = ()


Packet = (
    Shutdown
    | InitServer
    | CallFunc
    | Return
    | RemoteException
    | CopyFromRemote
    | CopyToRemote
    | CopyAck
    | SystemCall
)


def _read_copy_to(reader: Reader) -> CopyToRemote:
    tensor = reader.tensor()
    return CopyToRemote(tensor, reader.sized("the data of a copy"))


def _read_exception(reader: Reader) -> RemoteException:
    args = reader.args()
    if len(args) != 1 or not isinstance(args[0], str):
        raise reader.fail("an exception has one argument, a string")
    return RemoteException(args[0])


def copy_overhead(ndim: int) -> int:
    """Return the size of a copy packet without its data, in bytes from its code on."""
    return 44 + 8 * ndim


class _Layout(NamedTuple):
    """Codec of a packet with a body of its own; all other packets carry arguments only."""

    packet: type
    write: Callable[[Any], bytes]
    read: Callable[[Reader], Packet]


_LAYOUTS: dict[Code, _Layout] = {
    Code.SHUTDOWN: _Layout(Shutdown, lambda p: b"", lambda r: Shutdown()),
    Code.INIT_SERVER: _Layout(
        InitServer,
        lambda p: pack_sized(p.version.encode()) + pack_args(p.args),
        lambda r: InitServer(r.text("a version"), r.args()),
    ),
    Code.CALL_FUNC: _Layout(
        CallFunc,
        lambda p: _U64.pack(p.function) + pack_args(p.args),
        lambda r: CallFunc(r.u64("a function"), r.args()),
    ),
    Code.RETURN: _Layout(Return, lambda p: pack_args(p.args), lambda r: Return(r.args())),
    Code.EXCEPTION: _Layout(RemoteException, lambda p: pack_args((p.text,)), _read_exception),
    Code.COPY_FROM_REMOTE: _Layout(
        CopyFromRemote,
        lambda p: pack_tensor(p.tensor) + _U64.pack(p.nbytes),
        lambda r: CopyFromRemote(r.tensor(), r.u64("the size of a copy")),
    ),
    Code.COPY_TO_REMOTE: _Layout(
        CopyToRemote,
        lambda p: b"".join((pack_tensor(p.tensor), _U64.pack(len(p.data)), p.data)),
        _read_copy_to,
    ),
    Code.COPY_ACK: _Layout(CopyAck, lambda p: p.data, lambda r: CopyAck(r.rest())),
}

_CODES = {layout.packet: code for code, layout in _LAYOUTS.items()}


def encode(packet: Packet) -> bytes:
    """Return the payload of a message. Raises ``UsageError`` for an argument that cannot be sent."""
    if isinstance(packet, SystemCall):
        code, body = packet.code, pack_args(packet.args)
    else:
        code = _CODES[type(packet)]
        body = _LAYOUTS[code].write(packet)
    return _HEADER.pack(len(body) + 4, code) + body


def decode(payload: bytes) -> Packet | None:
    """Return the packet of a message, or None for an empty one. Raises ``ProtocolError``."""
    reader = Reader(payload)
    nbytes = reader.u64("the length of a packet")
    if nbytes == 0:
        return None
    if nbytes != len(payload) - LENGTH_BYTES:
        raise reader.fail(f"a packet says it has {nbytes} bytes, it has {len(payload) - LENGTH_BYTES}")
    number = reader.i32("the code of a packet")
    try:
        code = Code(number)
    except ValueError:
        raise reader.fail(f"there is no packet code {number}") from None
    packet = _LAYOUTS[code].read(reader) if code in _LAYOUTS else SystemCall(code, reader.args())
    if reader.offset != len(payload):
        raise reader.fail(f"{len(payload) - reader.offset} bytes too many")
    return packet
