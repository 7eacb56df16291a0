"""Functions, modules and memory of a device, as Python objects."""

import secrets
from binascii import crc32
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from crtgen.base import endpoints
from crtgen.base.endpoints import Endpoint
from crtgen.base.errors import LinkError, ProtocolError, RemoteError, SessionLostError, UsageError
from crtgen.device.fault import Symbols
from crtgen.device.rpc import frame, messages, session
from crtgen.device.rpc.exchange import Exchange
from crtgen.device.rpc.link import HOST, Link, Timeouts
from crtgen.device.rpc.messages import Code, CopyAck, CopyFromRemote, CopyToRemote, Return, SystemCall
from crtgen.device.rpc.stream import Stream
from crtgen.device.rpc.values import DataType, Handle, Tensor, TypeCode, Value

__all__ = ["Connection", "RemoteFunction", "RemoteModule", "RemoteTensor"]

Array = np.ndarray[Any, Any]
Answer = TypeVar("Answer")
Remote = TypeVar("Remote")

_NUMBER_BITS = 31

DEFAULT_MAX_PACKET = 2037
"""Assumed bytes of a packet behind its length, if the device does not say."""

_LARGEST_PACKET = frame.DEFAULT_MAX_PAYLOAD - session.HEADER_BYTES - messages.LENGTH_BYTES
MOST_BYTES = 64 << 20
"""Upper limit of a tensor's bytes on a device, beyond any microcontroller."""

# Bytes of a tensor that a packet has to have room for.
_LEAST_PART = 16

# Bytes whose CRC-32 the device is asked for at a time.
_CHECKED = 1 << 16

# Times that a copy is made until its CRC-32 is right; a packet's own CRC misses one damage in 65,536.
_COPIES = 3


class RemoteFunction:
    """A function of the device. Arguments may be None, numbers, str, bytes, arrays, and remote objects."""

    def __init__(self, client: "Connection", handle: int, name: str = "") -> None:
        self.handle = Handle(handle, TypeCode.FUNCTION)
        self.name = name
        self._client = client

    def __call__(self, *args: Any, timeout: float | None = None) -> Any:
        """Call the function and wait for at most ``timeout`` seconds.

        An array is copied to the device for the duration of the call. An exception there is raised as
        ``RemoteError``.
        """
        return self._client.call(self, args, timeout)

    def close(self) -> None:
        self._client.free_handle(self.handle)


class RemoteModule:
    def __init__(self, client: "Connection", handle: int) -> None:
        self.handle = Handle(handle, TypeCode.MODULE)
        self._client = client
        self._functions: dict[str, RemoteFunction | None] = {}

    def get_function(self, name: str) -> RemoteFunction | None:
        if name not in self._functions:
            self._functions[name] = self._client.module_get_function(self, name)
        return self._functions[name]

    def function(self, name: str) -> RemoteFunction:
        """Return the function of that name. Raises ``UsageError`` if the module does not have it."""
        found = self.get_function(name)
        if found is None:
            raise UsageError(
                f"the module on the device has no function {name}",
                hint="crtgen generate with the model, then flash the board",
            )
        return found

    def call(
        self,
        endpoint: Endpoint[Answer],
        *args: Any,
        timeout: float | None = None,
        again: float | None = None,
    ) -> Answer:
        """Call a function of the module, as ``RemoteFunction`` does; for ``again`` see ``Exchange.ask``."""
        again = 0.0 if endpoint.repeatable else again
        answer = self._client.call(self.function(endpoint.name), args, timeout, again)
        return self._client._expect(endpoint.answer, answer)

    def close(self) -> None:
        for found in self._functions.values():
            if found is not None:
                found.close()
        self._functions.clear()
        self._client.free_handle(self.handle)


class RemoteTensor:
    """A tensor in the memory of the device; a context manager that frees it."""

    def __init__(self, client: "Connection", tensor: Tensor, handle: Handle | None = None) -> None:
        self.tensor = tensor
        self._client = client
        self._handle = handle
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def write(self, array: npt.ArrayLike) -> None:
        self._client.copy_to(self.tensor, array)

    def read(self) -> Array:
        return self._client.copy_from(self.tensor)

    def close(self) -> None:
        """Free the memory, or the handle if the device owns the memory."""
        if self._closed:
            return
        self._closed = True
        if self._handle is None:
            self._client.free(self.tensor)
        else:
            self._client.free_handle(self._handle)


class Connection:
    """A connection to a device.

    Entering it connects; leaving it ends the session but leaves the stream open. Every request has a timeout,
    by default ``timeouts.established``. After a ``RemoteError`` the session continues; after a
    ``LinkTimeoutError`` or ``ProtocolError`` every request raises ``SessionLostError`` until ``connect``.

    The protocol has no sequence numbers: on a line that loses bytes, ``Exchange`` decides which requests to
    repeat, and copies are compared by CRC-32.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        timeouts: Timeouts = HOST,
        on_log: Callable[[str], None] = lambda line: None,
        nonce: Callable[[], int] = session.random_nonce,
        symbols: Symbols | None = None,
    ) -> None:
        self._link = Link(stream, timeouts, on_log, nonce, symbols)
        self._exchange = Exchange(self._link)
        self._number = secrets.randbits(_NUMBER_BITS)
        self._functions: dict[str, RemoteFunction | None] = {}
        self._max_packet: int | None = None

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def connect(self) -> None:
        """Begin a session. Handles and tensors of an earlier one become invalid."""
        self._functions.clear()
        self._max_packet = None
        self._exchange.connect()

    def close(self) -> None:
        """Release the functions and end the session, if the device still answers."""
        with suppress(LinkError):
            for found in self._functions.values():
                if found is not None:
                    found.close()
        self._functions.clear()
        with suppress(LinkError):
            self._link.close()

    def shutdown(self) -> None:
        """Make the device leave its loop; a host process ends."""
        self._link.send(messages.encode(messages.Shutdown()))

    # --- functions and modules

    def get_function(self, name: str) -> RemoteFunction | None:
        """Return the global function of that name, or None; it is cached until the session ends."""
        if name not in self._functions:
            handle = self._system(Code.GET_GLOBAL_FUNC, name, again=0.0)
            self._functions[name] = RemoteFunction(self, handle.value, name) if handle else None
        return self._functions[name]

    def function(self, name: str) -> RemoteFunction:
        """Return the global function of that name. Raises ``UsageError`` if the device does not have it."""
        found = self.get_function(name)
        if found is None:
            raise UsageError(f"the device has no function {name}", hint="its firmware may be older")
        return found

    def call(
        self,
        function: RemoteFunction,
        args: Iterable[Any],
        timeout: float | None = None,
        again: float | None = None,
    ) -> Any:
        with ExitStack() as temporary:
            values = tuple(self._argument(arg, temporary) for arg in args)
            packet = messages.CallFunc(function.handle.value, values)
            return self._result(self._returned(packet, timeout, again).args)

    def run_number(self) -> int | None:
        """Return a number with which a run can be requested again without running twice; None if the line
        loses nothing.
        """
        if not self._exchange.repeats:
            return None
        self._number = (self._number + 1) % (1 << _NUMBER_BITS) or 1
        return self._number

    def system_lib(self) -> RemoteModule:
        library = self.call(self.function(endpoints.SYSTEM_LIB.name), (), again=0.0)
        return self._expect(RemoteModule, library)

    def module_get_function(self, module: RemoteModule, name: str) -> RemoteFunction | None:
        getter = self.function(endpoints.MODULE_GET_FUNCTION.name)
        found = self.call(getter, (module, name, 1), again=0.0)
        if found is None:
            return None
        function = self._expect(RemoteFunction, found)
        function.name = name
        return function

    def free_handle(self, handle: Handle) -> None:
        """Release the handle of a function, module or tensor, unless its session is over."""
        with suppress(SessionLostError):
            self._system(Code.FREE_HANDLE, Handle(handle.value), int(handle.type), again=0.0)

    # --- memory

    def allocate(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> RemoteTensor:
        """Allocate memory on the device, uninitialised. Raises ``RemoteError`` if the device has too
        little.
        """
        wanted = Tensor(0, shape, DataType.of(dtype))
        handle = self._system(Code.ALLOC_DATA_WITH_SCOPE, wanted, None)
        if handle is None:
            raise RemoteError(f"the device has no {wanted.nbytes} bytes to allocate")
        return RemoteTensor(self, Tensor(handle.value, shape, wanted.dtype))

    def free(self, tensor: Tensor) -> None:
        """Free memory from ``allocate``, unless the session is over."""
        with suppress(SessionLostError):
            self._system(Code.FREE_DATA, tensor.device, Handle(tensor.data))

    def copy_to(self, tensor: Tensor, array: npt.ArrayLike) -> None:
        """Copy an array to a tensor of the device. Raises ``UsageError`` unless shape and type are equal."""
        source = np.asarray(array)
        dtype = tensor.dtype.numpy
        if source.shape != tensor.shape or DataType.of(source.dtype) != tensor.dtype:
            raise UsageError(
                f"an array of {source.dtype} {source.shape} for a tensor of {dtype} {tensor.shape}",
                where="device",
                hint="copy from an array of the tensor's shape and type",
            )
        data = source.astype(dtype, copy=False).tobytes()
        for _ in self._copies(tensor):
            packets = (CopyToRemote(part, data[at : at + n]) for part, at, n in self._parts(tensor))
            self._exchange.ask(
                packets, lambda reply: self._expect(Return, reply), nbytes=tensor.nbytes, again=0.0
            )
            if self._has(tensor, data):
                break

    def copy_from(self, tensor: Tensor) -> Array:
        """Copy a tensor from the device. Memory is allocated as the bytes arrive."""
        dtype = tensor.dtype.numpy
        for _ in self._copies(tensor):
            data = self._read(tensor)
            if self._has(tensor, data):
                break
        return np.frombuffer(data, dtype).reshape(tensor.shape).copy()

    def _read(self, tensor: Tensor) -> bytes:
        data = bytearray()
        sizes: deque[int] = deque()

        def packets() -> Iterator[messages.Packet]:
            for part, _, size in self._parts(tensor):
                sizes.append(size)
                yield CopyFromRemote(part, size)

        def take(reply: messages.Packet) -> None:
            data.extend(self._copied(reply, sizes.popleft()))

        self._exchange.ask(packets(), take, nbytes=tensor.nbytes, again=0.0)
        return bytes(data)

    def _copies(self, tensor: Tensor) -> Iterator[int]:
        # The attempts to copy a tensor. Raises ``LinkError`` after the last.
        yield from range(_COPIES)
        raise LinkError(
            f"reading {tensor.nbytes} bytes gave different values {_COPIES} times",
            where="device",
            hint="check the cable and the baud rate",
        )

    def _has(self, tensor: Tensor, data: bytes) -> bool:
        # True if the device has these bytes already; it has if the line loses nothing.
        if not self._exchange.repeats:
            return True
        address, start = tensor.data + tensor.byte_offset, secrets.randbits(32)
        for at in range(0, len(data), _CHECKED):
            part = data[at : at + _CHECKED]
            wanted = crc32(part, start)
            check = self.function(endpoints.CRC32.name)
            if self.call(check, (address + at, len(part), start), again=0.0) != wanted:
                return False
            start = wanted
        return True

    @property
    def max_packet(self) -> int:
        """The largest packet that the device accepts, in bytes after its length field; asked once."""
        if self._max_packet is None:
            ask = self.get_function(endpoints.MAX_PACKET.name)
            published = self._expect(int, self.call(ask, (), again=0.0)) if ask else DEFAULT_MAX_PACKET
            if published < 0:
                raise self._violated(f"the device takes packets of {published} bytes")
            self._max_packet = min(published, _LARGEST_PACKET)
        return self._max_packet

    def _parts(self, tensor: Tensor) -> Iterator[tuple[Tensor, int, int]]:
        # The tensor, offset and size of each part that fits into a packet.
        room = self.max_packet - messages.copy_overhead(len(tensor.shape))
        if room < _LEAST_PART:
            raise ProtocolError(f"the device's packets of {self.max_packet} bytes are too small for a copy")
        for at in range(0, tensor.nbytes, room):
            part = Tensor(tensor.data, tensor.shape, tensor.dtype, tensor.device, tensor.byte_offset + at)
            yield part, at, min(room, tensor.nbytes - at)

    def _copied(self, reply: object, size: int) -> bytes:
        data = self._expect(CopyAck, reply).data
        if len(data) != size:
            raise self._violated(f"the device sent {len(data)} bytes of the {size} that were asked for")
        return data

    # --- values

    def _argument(self, value: Any, temporary: ExitStack) -> Value:
        # Wire form of a Python value; arrays become tensors on the device.
        match value:
            case RemoteFunction() | RemoteModule():
                return value.handle
            case RemoteTensor():
                return value.tensor
            case np.ndarray():
                tensor = temporary.enter_context(self.allocate(value.shape, value.dtype))
                tensor.write(value)
                return tensor.tensor
            case np.generic():
                return self._argument(value.item(), temporary)
            case bytearray() | memoryview():
                return bytes(value)
            case _:
                return value  # type: ignore[no-any-return]

    def _result(self, args: tuple[Value, ...]) -> Any:
        # The Python value of a Return: its type code, its value, and the handle of a tensor. Some devices
        # give the handle 0 for what they do not have, instead of null.
        match args:
            case (_, None) | (_, Handle(0)):
                return None
            case (TypeCode.MODULE, Handle(handle)):
                return RemoteModule(self, handle)
            case (TypeCode.FUNCTION, Handle(handle)):
                return RemoteFunction(self, handle)
            case (int(), Tensor() as tensor, Handle(handle)):
                if max(tensor.nbytes, *tensor.shape, 0) > MOST_BYTES:
                    raise self._violated(f"the device says that it has a tensor of shape {tensor.shape}")
                return RemoteTensor(self, tensor, Handle(handle, TypeCode.NDARRAY))
            case (int(), value):
                return value
            case _:
                raise self._violated(f"a call returned {len(args)} values")

    def _system(self, code: Code, *args: Value, again: float | None = None) -> Handle | None:
        # A system call: it returns nothing or one handle.
        returned = self._returned(SystemCall(code, args), again=again)
        match returned.args:
            case () | (None,) | (Handle(0),):
                return None
            case (Handle() as handle,):
                return handle
            case _:
                raise self._violated(f"{code.name} returned {returned.args}")

    # --- requests

    def _returned(
        self, packet: messages.Packet, timeout: float | None = None, again: float | None = None
    ) -> Return:
        replies: list[messages.Packet] = []
        self._exchange.ask((packet,), replies.append, timeout, again=again)
        return self._expect(Return, replies[0])

    def _expect(self, kind: type[Remote], value: object) -> Remote:
        if not isinstance(value, kind):
            raise self._violated(f"the device answered with {type(value).__name__}, not {kind.__name__}")
        return value

    def _violated(self, what: str) -> ProtocolError:
        # An answer that the protocol does not allow: what follows could not be trusted.
        self._link.abandon(f"the session was given up: {what}")
        return ProtocolError(what)
