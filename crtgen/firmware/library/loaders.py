"""Bodies of the modules in a blob (formats.md, section 4): a reader per type key, a writer per kind of
module.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from crtgen.base.errors import UnsupportedError
from crtgen.firmware.library.datatype import DLDataType
from crtgen.firmware.library.module import (
    ConstLoader,
    DeviceFunction,
    DeviceSource,
    ExecutorFactory,
    JsonModule,
    Module,
)
from crtgen.firmware.library.params import NDArray, read_ndarray, write_ndarray
from crtgen.firmware.library.stream import StreamReader, StreamWriter

__all__ = ["KNOWN_LOADERS", "read_body", "write_body"]

_DEVICES = ("cuda", "hexagon", "metal", "opencl", "rocm")
_JSON_RUNTIMES = ("arm_compute_lib", "bnns", "clml", "cmsis-nn", "dnnl", "examplejson", "tensorrt")


def _read_arrays(reader: StreamReader, names: tuple[str, ...]) -> dict[str, NDArray]:
    if reader.u64("the number of arrays") != len(names):
        raise reader.fail(f"the number of arrays is not that of the {len(names)} names")
    return {name: read_ndarray(reader) for name in names}


def _const_loader(reader: StreamReader, key: str, name: str) -> Module:
    arrays = _read_arrays(reader, reader.texts("names of constants"))
    symbols = reader.texts("symbols")
    uses = reader.vector("lists of constants", 8, lambda: reader.texts("names of constants"))
    if len(uses) != len(symbols):
        raise reader.fail(f"{len(symbols)} symbols and {len(uses)} lists of constants")
    users = dict(zip(symbols, uses, strict=True))
    for symbol, consts in users.items():
        for const in consts:
            if const not in arrays:
                raise reader.fail(f"{symbol} uses {const}, which is not a constant of this module")
    return ConstLoader(name=name, arrays=arrays, users=users, const_vars=tuple(arrays), loader_key=key)


def _write_const_loader(writer: StreamWriter, module: ConstLoader) -> None:
    writer.vector(tuple(module.arrays), writer.string)
    writer.vector(tuple(module.arrays.values()), partial(write_ndarray, writer))
    writer.vector(tuple(module.users), writer.string)
    writer.vector(tuple(module.users.values()), lambda names: writer.vector(names, writer.string))


def _factory(reader: StreamReader, key: str, name: str) -> Module:
    graph_json = reader.text("the graph JSON") if key == "GraphExecutorFactory" else None
    count = reader.u64("the number of parameters")
    names = reader.texts("names of parameters")
    if count != len(names):
        raise reader.fail(f"{count} parameters with {len(names)} names")
    params = {param: read_ndarray(reader) for param in names}
    return ExecutorFactory(name=reader.text("the model's name") or name, graph_json=graph_json, params=params)


def _write_factory(writer: StreamWriter, module: ExecutorFactory) -> None:
    if module.graph_json is not None:
        writer.string(module.graph_json)
    writer.u64(len(module.params))
    writer.vector(tuple(module.params), writer.string)
    writer.each(module.params.values(), partial(write_ndarray, writer))
    writer.string(module.name)


def _json_module(reader: StreamReader, key: str, name: str) -> Module:
    symbol = reader.text("the symbol")
    graph_json = reader.text("the graph")
    consts = reader.texts("names of constants")
    return JsonModule(
        name=symbol or name,
        generator=key,
        symbol=symbol,
        functions=(symbol,),
        graph_json=graph_json,
        const_vars=consts,
    )


def _write_json_module(writer: StreamWriter, module: JsonModule) -> None:
    writer.string(module.symbol)
    writer.string(module.graph_json)
    writer.vector(module.const_vars, writer.string)


def _device_source(reader: StreamReader, key: str, name: str) -> Module:
    form = reader.text("the format")
    kernels = dict(reader.vector("functions", 8, lambda: _device_function(reader)))
    data = reader.raw("the code")
    return DeviceSource(
        name=name, device=key, format=form, functions=tuple(kernels), kernels=kernels, data=data
    )


def _device_function(reader: StreamReader) -> tuple[str, DeviceFunction]:
    entry, name = reader.text("a function"), reader.text("a function's name")
    types = reader.vector("argument types", 4, lambda: DLDataType(*reader.unpack("BBH", "an argument type")))
    return entry, DeviceFunction(name, types, reader.texts("launch parameters"))


def _write_device_source(writer: StreamWriter, module: DeviceSource) -> None:
    writer.string(module.format)
    writer.u64(len(module.kernels))
    for entry, function in module.kernels.items():
        writer.string(entry)
        writer.string(function.name)
        writer.vector(function.arg_types, lambda t: writer.pack("BBH", t.code, t.bits, t.lanes))
        writer.vector(function.launch_params, writer.string)
    writer.string(module.data)


_BODY_READERS: Mapping[str, Callable[[StreamReader, str, str], Module]] = MappingProxyType(
    {
        "GraphExecutorFactory": _factory,
        "AotExecutorFactory": _factory,
        "const_loader": _const_loader,
        "metadata": _const_loader,
        **dict.fromkeys(_DEVICES, _device_source),
        **dict.fromkeys(_JSON_RUNTIMES, _json_module),
    }
)
KNOWN_LOADERS = ", ".join(("_lib", *_BODY_READERS))
"""The type keys that a blob may hold, for messages."""


def read_body(reader: StreamReader, key: str, name: str) -> Module:
    """Return the module whose type key was just read; an unknown key is refused with a list of the known
    ones.
    """
    if key not in _BODY_READERS:
        raise UnsupportedError(
            f"the module blob has a module of the unknown type {key!r}",
            hint=f"known loaders: {KNOWN_LOADERS}",
        )
    return _BODY_READERS[key](reader, key, name)


def write_body(writer: StreamWriter, module: Module) -> None:
    match module:
        case ConstLoader():
            _write_const_loader(writer, module)
        case ExecutorFactory():
            _write_factory(writer, module)
        case JsonModule():
            _write_json_module(writer, module)
        case DeviceSource():
            _write_device_source(writer, module)
        case _:
            raise UnsupportedError(f"a {module.key} module cannot be saved in a blob", where=module.name)
