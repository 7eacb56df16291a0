"""A device in Python, sans-IO: the device's side of the RPC with Python functions and models.

Tests and simulators use it instead of a board. It answers as crtgen's firmware does: every request gets a
reply, and an address that it did not hand out gets an exception.
"""

from binascii import crc32
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen.base import endpoints
from crtgen.base.errors import CrtgenError, LinkClosedError, LinkTimeoutError
from crtgen.device.rpc import messages, session
from crtgen.device.rpc.messages import Code
from crtgen.device.rpc.values import Args, DataType, Handle, Tensor, TypeCode, Value

__all__ = ["ServedModel", "Server", "ServerStream"]

Array = np.ndarray[Any, Any]

DEFAULT_MAX_PAYLOAD = 2048
_ALIGNMENT = 16
_FIRST_ADDRESS = 0x2000_0000
_MODULES = 8
_FLAG = 0x8000
_NDARRAY = object()


class _RequestError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of the simulated image.

    ``inputs`` are names with shape and element type, ``outputs`` are shape and element type; ``run`` computes
    the output arrays from the input arrays.
    """

    name: str
    inputs: Mapping[str, tuple[tuple[int, ...], npt.DTypeLike]]
    outputs: Iterable[tuple[tuple[int, ...], npt.DTypeLike]]
    run: Callable[..., Iterable[npt.ArrayLike]]


class _MemoryPool:
    def __init__(self, size: int) -> None:
        self.size = size
        self._blocks: dict[int, bytearray] = {}

    @property
    def free_bytes(self) -> int:
        return self.size - sum(map(len, self._blocks.values()))

    def allocate(self, size: int) -> int:
        # The first gap that is large enough.
        rounded = max(_ALIGNMENT, -(-size // _ALIGNMENT) * _ALIGNMENT)
        address = _FIRST_ADDRESS
        for start, block in sorted(self._blocks.items()):
            if start - address >= rounded:
                break
            address = start + len(block)
        if address + rounded > _FIRST_ADDRESS + self.size:
            raise _RequestError(f"cannot allocate {size} bytes, {self.free_bytes} are free")
        self._blocks[address] = bytearray(rounded)
        return address

    def free(self, address: int) -> None:
        if self._blocks.pop(address, None) is None:
            raise _RequestError(f"address 0x{address:x} was not allocated")

    def view(self, address: int, size: int) -> memoryview:
        # The bytes of a range that is within one block.
        for start, block in self._blocks.items():
            if start <= address and address + size <= start + len(block):
                return memoryview(block)[address - start : address - start + size]
        raise _RequestError(f"no {size} bytes at address 0x{address:x}")

    def array(self, tensor: Tensor) -> Array:
        # A tensor as an array that shares its memory.
        raw = self.view(tensor.data + tensor.byte_offset, tensor.nbytes)
        return np.frombuffer(raw, tensor.dtype.numpy).reshape(tensor.shape)


class _Executor:
    """The functions of a model's executor; its tensors are allocated in the pool."""

    def __init__(self, model: ServedModel, pool: _MemoryPool) -> None:
        self._model = model
        self._pool = pool
        self._number: int | None = None
        self._names = list(model.inputs)
        self._inputs = [self._place(*spec) for spec in model.inputs.values()]
        self._outputs = [self._place(*spec) for spec in model.outputs]

    def functions(self) -> dict[str, Callable[..., Any]]:
        return {
            endpoints.GET_INPUT.name: lambda key: (_NDARRAY, self._inputs[self._index(key)]),
            endpoints.GET_OUTPUT.name: lambda index: (_NDARRAY, self._outputs[index]),
            endpoints.GET_NUM_INPUTS.name: lambda: len(self._inputs),
            endpoints.GET_NUM_OUTPUTS.name: lambda: len(self._outputs),
            endpoints.GET_INPUT_INDEX.name: lambda name: (
                self._names.index(name) if name in self._names else -1
            ),
            endpoints.GET_INPUT_NAME.name: lambda index: self._names[index],
            endpoints.SET_INPUT.name: self._set_input,
            endpoints.RUN.name: self._run,
        }

    def _place(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Tensor:
        tensor = Tensor(0, shape, DataType.of(dtype))
        return Tensor(self._pool.allocate(tensor.nbytes), shape, tensor.dtype)

    def _index(self, key: int | str) -> int:
        return key if isinstance(key, int) else self._names.index(key)

    def _set_input(self, key: int | str, tensor: Tensor) -> None:
        self._pool.array(self._inputs[self._index(key)])[...] = self._pool.array(tensor)

    def _run(self, number: int | None = None) -> None:
        # A run that was asked for with this number already is not repeated.
        if number is not None and number == self._number:
            return
        self._number = number
        results = self._model.run(*map(self._pool.array, self._inputs))
        for place, result in zip(self._outputs, results, strict=True):
            self._pool.array(place)[...] = result


class Server:
    """A device. Feed it with ``receive``, which returns its answers; ``boot`` is its first output.

    ``functions`` are global functions by name; they take and return ``crtgen.device.rpc.values``, and may
    return a Python function, of which the host gets a handle. ``version`` is the answer to ``crtgen.info``.
    """

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        models: Iterable[ServedModel] = (),
        *,
        memory: int = 1 << 20,
        max_payload: int = DEFAULT_MAX_PAYLOAD,
        nonce: Callable[[], int] = session.random_nonce,
        version: str = "0",
    ) -> None:
        self._version = version
        self.pool = _MemoryPool(memory)
        self._session = session.RpcSession(nonce=nonce, max_payload=max_payload)
        self._max_payload = max_payload
        self._models = {model.name: _Executor(model, self.pool) for model in models}
        self._modules: dict[int, list[tuple[str, Callable[..., Any]]]] = {0: []}
        self._modules[_MODULES] = list({**self._builtins(), **(functions or {})}.items())
        self.stopped = False

    def boot(self) -> bytes:
        self._session.boot()
        return self._session.take_output()

    def log(self, line: str) -> bytes:
        self._session.log(line)
        return self._session.take_output()

    def receive(self, data: bytes) -> bytes:
        for event in self._session.receive(data):
            if isinstance(event, session.Message) and not self.stopped:
                reply = self._answer(event.payload)
                if reply is not None:
                    self._session.send(reply)
        return self._session.take_output()

    def _answer(self, payload: bytes) -> bytes | None:
        try:
            request = messages.decode(payload)
            reply = None if request is None else self._execute(request)
            encoded = None if reply is None else messages.encode(reply)
            if encoded is not None and len(encoded) + session.HEADER_BYTES > self._max_payload:
                raise _RequestError(f"a reply of {len(encoded)} bytes is too large")
            return encoded
        except (_RequestError, CrtgenError) as error:
            return messages.encode(messages.RemoteException(str(error)))
        except Exception as error:  # whatever a function of the user raises is the host's to know
            return messages.encode(messages.RemoteException(f"{type(error).__name__}: {error}"))

    def _execute(self, request: messages.Packet) -> messages.Packet | None:
        match request:
            case messages.Shutdown():
                self.stopped = True
                return None
            case messages.InitServer():
                return messages.Return((None,))
            case messages.CallFunc(function, args):
                return messages.Return(self._returned(self._function(function)(*args)))
            case messages.CopyToRemote(tensor, data):
                self._range(tensor, len(data))[:] = data
                return messages.Return((None,))
            case messages.CopyFromRemote(tensor, nbytes):
                return messages.CopyAck(bytes(self._range(tensor, nbytes)))
            case messages.SystemCall(code, args):
                return messages.Return((self._system(code, args),))
            case _:
                raise _RequestError(f"{type(request).__name__} is not a request")

    def _range(self, tensor: Tensor, nbytes: int) -> memoryview:
        return self.pool.view(tensor.data + tensor.byte_offset, nbytes)

    def _system(self, code: Code, args: Args) -> Value:
        match code, args:
            case Code.GET_GLOBAL_FUNC, (str(name),):
                return self._find(_MODULES, name)
            case Code.FREE_HANDLE, (Handle(value), int(kind)):
                self._free_handle(value, kind)
            case Code.ALLOC_DATA, (_, int(nbytes), int(), DataType()):
                return Handle(self.pool.allocate(nbytes))
            case Code.ALLOC_DATA_WITH_SCOPE, (Tensor() as tensor, str() | None):
                return Handle(self.pool.allocate(tensor.nbytes))
            case Code.FREE_DATA, (_, Handle(address)):
                self.pool.free(address)
            case Code.COPY_AMONG_REMOTE, (Tensor() as source, Tensor() as target, _):
                self._range(target, source.nbytes)[:] = self._range(source, source.nbytes)
            case ((Code.STREAM_SYNC | Code.CREATE_STREAM | Code.FREE_STREAM | Code.SET_STREAM), _):
                pass
            case _:
                raise _RequestError(f"{code.name} is not supported with these arguments")
        return None

    def _free_handle(self, value: int, kind: int) -> None:
        if kind not in (TypeCode.MODULE, TypeCode.FUNCTION, TypeCode.NDARRAY):
            raise _RequestError(f"a handle of type {kind} cannot be freed")
        index = value & ~_FLAG
        if kind == TypeCode.MODULE and 0 < index < _MODULES:
            self._modules.pop(index, None)

    def _function(self, handle: int) -> Callable[..., Any]:
        try:
            return self._modules[(handle >> 16) & ~_FLAG][handle & 0x7FFF][1]
        except LookupError:
            raise _RequestError(f"there is no function 0x{handle:x}") from None

    def _find(self, module: int, name: str, kind: TypeCode = TypeCode.HANDLE) -> Handle | None:
        for index, (known, _) in enumerate(self._modules.get(module, ())):
            if known == name:
                return Handle((module | _FLAG) << 16 | index | _FLAG, kind)
        return None

    def _returned(self, value: Any) -> Args:
        # The arguments of a Return: the type code of the value, the value, the handle of a tensor.
        if callable(value):
            self._modules[_MODULES].append(("", value))
            index = len(self._modules[_MODULES]) - 1
            return int(TypeCode.FUNCTION), Handle((_MODULES | _FLAG) << 16 | index | _FLAG)
        match value:
            case None:
                return int(TypeCode.NULL), None
            case Handle(handle, kind):
                return int(kind), Handle(handle)
            case (marker, Tensor() as tensor) if marker is _NDARRAY:
                return int(TypeCode.NDARRAY), tensor, Handle(tensor.data)
            case int():
                return int(TypeCode.INT), value
            case float():
                return int(TypeCode.FLOAT), value
            case str():
                return int(TypeCode.STR), value
            case bytes():
                return int(TypeCode.BYTES), value
            case _:
                raise _RequestError(f"a {type(value).__name__} cannot be returned")

    def _builtins(self) -> dict[str, Callable[..., Any]]:
        overhead = session.HEADER_BYTES + messages.LENGTH_BYTES
        names = " ".join(self._models)
        return {
            endpoints.MAX_PACKET.name: lambda: self._max_payload - overhead,
            endpoints.MODULE_GET_FUNCTION.name: self._module_get_function,
            endpoints.SYSTEM_LIB.name: lambda: Handle(_FLAG, TypeCode.MODULE),
            endpoints.AOT_EXECUTOR.name: self._create_executor,
            endpoints.CRC32.name: self._crc32,
            endpoints.INFO.name: lambda: f"crtgen {self._version} {names}".strip(),
            endpoints.MEMORY.name: lambda: (
                self.pool.size.to_bytes(4, "little") + self.pool.free_bytes.to_bytes(4, "little")
            ),
        }

    def _crc32(self, address: int, size: int, start: int) -> int:
        return crc32(self.pool.view(address, size) if size else b"", start)

    def _module_get_function(self, module: Handle, name: str, query_imports: int) -> Handle | None:
        return self._find(module.value & ~_FLAG, name, TypeCode.FUNCTION)

    def _create_executor(self, library: Handle, device: Value, name: str) -> Handle:
        if name not in self._models:
            raise _RequestError(f"there is no model {name}")
        index = next(index for index in count(1) if index not in self._modules)
        if index >= _MODULES:
            raise _RequestError(f"no more than {_MODULES - 1} modules at a time")
        self._modules[index] = list(self._models[name].functions().items())
        return Handle(index | _FLAG, TypeCode.MODULE)


class ServerStream:
    """A stream directly into a server. A read without data fails at once, since nothing more can arrive."""

    def __init__(self, server: Server, *, flow_controlled: bool = True) -> None:
        self.flow_controlled = flow_controlled
        self._server = server
        self._inbox = bytearray(server.boot())

    def read(self, timeout: float) -> bytes:
        if self._inbox:
            data = bytes(self._inbox)
            self._inbox.clear()
            return data
        if self._server.stopped:
            raise LinkClosedError("the device left its loop")
        raise LinkTimeoutError(f"no data arrived for {timeout:g} s")

    def write(self, data: bytes) -> None:
        self._inbox += self._server.receive(data)

    def close(self) -> None: ...
