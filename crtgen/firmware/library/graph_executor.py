"""The graph executor, static: graph JSON and parameters become const tables and a ``struct crt_model``.

A call of an operator costs a function pointer and one index per argument. Each index refers to a tensor of
these tables: a place (a storage of the pool, or a linked parameter) and a type (shape and element type).
Equal tensors, types and shapes are stored once.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.compiler.codegen.arena import ArenaPartView, ArenaView
from crtgen.compiler.codegen.generate import RUNTIME_VERSION
from crtgen.compiler.codegen.module import (
    Argument,
    CModule,
    Interface,
    LayerInfo,
    ModelInfo,
    Param,
    RegistryFunction,
    Written,
)
from crtgen.compiler.codegen.names import (
    arena_macro,
    arena_symbol,
    c_string,
    comment,
    param_symbol,
    symbol_stem,
    unique_identifiers,
)
from crtgen.compiler.codegen.render import render
from crtgen.firmware.library.c_names import c_bytes, check_c_name
from crtgen.firmware.library.datatype import DLDataType
from crtgen.firmware.library.graph_json import GraphEntry, GraphJson, GraphNode, Reference
from crtgen.firmware.library.params import NDArray
from crtgen.network.ir import DType, shape_text

__all__ = [
    "ExecutorTables",
    "GraphPort",
    "LinkedParam",
    "OperatorCall",
    "StoragePlace",
    "TensorEntry",
    "TensorType",
    "graph_module",
    "graph_tables",
    "render_graph",
]

_ALIGNMENT = 16
_NOP = "__nop"
_KNOWN = frozenset(dtype.value for dtype in DType)


@dataclass(frozen=True, slots=True)
class StoragePlace:
    """Position of a tensor: ``offset`` bytes into the pool, or within the const array ``symbol``."""

    offset: int
    symbol: str = ""

    def c(self, arena: str) -> str:
        if self.symbol:
            return f"(void *)(uintptr_t){self.symbol}"
        return f"{arena} + {self.offset}" if self.offset else arena


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and element type; ``shape_at`` is the index of the shape in the table of dimensions."""

    shape: tuple[int, ...]
    dtype: DLDataType
    shape_at: int

    @property
    def shape_c(self) -> str:
        return f"dims + {self.shape_at}" if self.shape else "NULL"

    @property
    def text(self) -> str:
        return f"{shape_text(self.shape)} {self.dtype}"


@dataclass(frozen=True, slots=True)
class TensorEntry:
    place: int
    type: int


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An operator: its function and its arguments, inputs then outputs, as indices of tensors."""

    name: str
    function: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GraphPort:
    name: str
    c_name: str
    tensor: TensorEntry
    nbytes: int


@dataclass(frozen=True, slots=True)
class LinkedParam:
    """A parameter as a const array; ``lines`` are its bytes in C."""

    name: str
    symbol: str
    sid: int
    nbytes: int
    type_text: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExecutorTables:
    """Tables for the template; ``pool`` is the total size of all storages in bytes.

    ``code`` are C functions that go into the same file, after the pool.
    """

    name: str
    calls: tuple[OperatorCall, ...]
    functions: tuple[str, ...]
    places: tuple[StoragePlace, ...]
    types: tuple[TensorType, ...]
    tensors: tuple[TensorEntry, ...]
    dims: tuple[int, ...]
    inputs: tuple[GraphPort, ...]
    outputs: tuple[GraphPort, ...]
    params: tuple[LinkedParam, ...]
    pool: int
    consumes_inputs: bool
    code: str = ""
    parts: tuple[ArenaPartView, ...] = ()

    @property
    def symbol(self) -> str:
        return f"{self.name}_model"

    @property
    def arena(self) -> ArenaView:
        return ArenaView(arena_symbol(self.name), arena_macro(self.name), self.pool, parts=self.parts)

    @property
    def index_type(self) -> str:
        most = max(len(self.tensors), len(self.places), len(self.types), self.max_args + 1)
        return "uint8_t" if most <= 1 << 8 else "uint16_t"

    @property
    def max_args(self) -> int:
        return max((len(call.args) for call in self.calls), default=1)


def graph_tables(
    name: str,
    graph: GraphJson,
    params: Mapping[str, NDArray],
    functions: Collection[str],
    output_names: Sequence[str] = (),
) -> ExecutorTables:
    """Return the tables of a graph: arguments named in ``params`` are linked, and only ``functions`` may be
    called.

    Without ``output_names`` the outputs are named ``output``, or ``output0``, ``output1``...
    """
    _check_graph(name, graph)
    _check_params(name, graph, params)
    builder = _TableBuilder(name, graph, params, tuple(output_names))
    calls = tuple(builder.call(node, i) for i, node in enumerate(graph.nodes) if _is_real(node))
    for call in calls:
        if call.function not in functions:
            raise CorruptModelError(
                f"{call.name} calls {call.function}, which no module of the library defines", where=name
            )
    return builder.finish(calls)


def render_graph(tables: ExecutorTables) -> str:
    return render("graph_executor.c.j2", t=tables, version=RUNTIME_VERSION, comment=comment, string=c_string)


def graph_module(
    name: str,
    graph: GraphJson,
    params: Mapping[str, NDArray],
    functions: Collection[str],
    output_names: Sequence[str] = (),
) -> CModule:
    name = symbol_stem(name)
    tables = graph_tables(name, graph, params, functions, output_names)
    nodes = {node.name: node for node in graph.nodes}
    info = ModelInfo(
        name=name,
        inputs=tuple(_interface(tables, port) for port in tables.inputs),
        outputs=tuple(_interface(tables, port) for port in tables.outputs),
        arena=tables.pool,
        lower_bound=tables.pool,
        optimal=False,
        kept_inputs=not tables.consumes_inputs,
        weights=sum(param.nbytes for param in tables.params),
        macs=0,
        layers=tuple(_layer(tables, call, nodes[call.name]) for call in tables.calls),
    )
    return CModule(
        info=info,
        files={f"{tables.name}_graph.c": render_graph(tables)},
        functions=tuple(RegistryFunction(f, f, arguments=_arguments(tables, f)) for f in tables.functions),
        params=tuple(Param(param.sid, param.symbol, param.nbytes) for param in tables.params),
    )


def _arguments(tables: ExecutorTables, function: str) -> tuple[Argument, ...] | None:
    # None unless all calls of the function pass the same arguments. If one of them is a constant, the
    # function does not write to it.
    calls = [
        tuple(tables.tensors[tensor] for tensor in call.args)
        for call in tables.calls
        if call.function == function
    ]
    found = {tuple(_argument(tables.types[tensor.type]) for tensor in call) for call in calls}
    if len(found) != 1:
        return None
    read = {i for call in calls for i, tensor in enumerate(call) if tables.places[tensor.place].symbol}
    return tuple(replace(argument, written=i not in read) for i, argument in enumerate(found.pop()))


def _argument(kind: TensorType) -> Argument:
    dtype = kind.dtype
    return Argument(prod(kind.shape) * dtype.itemsize, dtype.code, dtype.bits, dtype.lanes)


def _layer(tables: ExecutorTables, call: OperatorCall, node: GraphNode) -> LayerInfo:
    # A node is often called like its function, which is not worth saying twice.
    operator = "call" if node.name == node.function else node.function
    written = [tables.tensors[tensor] for tensor in call.args[-node.num_outputs :]]
    kinds = [(tables.places[tensor.place], tables.types[tensor.type]) for tensor in written]
    writes = tuple(
        Written(node.name, place.offset, kind.shape, DType(str(kind.dtype)))
        for place, kind in kinds
        if not place.symbol and str(kind.dtype) in _KNOWN
    )
    return LayerInfo(node.name, operator, "imported", writes=writes)


def _interface(tables: ExecutorTables, port: GraphPort) -> Interface:
    kind = tables.types[port.tensor.type]
    return Interface(port.name, port.c_name, kind.shape, kind.dtype.ir, None, port.nbytes)


def _is_real(node: GraphNode) -> bool:
    return node.is_call and node.function != _NOP


def _check_graph(name: str, graph: GraphJson) -> None:
    if len({entry.device for entry in graph.entries}) > 1:
        raise UnsupportedError("the graph runs on several devices", where=name)
    if not graph.heads or not any(map(_is_real, graph.nodes)):
        raise UnsupportedError("the graph computes nothing", where=name)
    if any(0 in entry.shape for entry in graph.entries):
        raise UnsupportedError("the graph has a tensor without elements", where=name)


def _check_params(name: str, graph: GraphJson, params: Mapping[str, NDArray]) -> None:
    arguments = {graph.nodes[i].name: graph.entry(Reference(i, 0)) for i in graph.arg_nodes}
    for param, value in params.items():
        if param not in arguments:
            raise CorruptModelError(f"the parameter {param} is not an argument of the graph", where=name)
        entry = arguments[param]
        if (entry.shape, entry.dtype) != (value.array.shape, value.dtype):
            raise CorruptModelError(
                f"the parameter {param} is {value.dtype} {list(value.array.shape)} but the graph has "
                f"{entry.dtype} {list(entry.shape)}",
                where=name,
            )


@dataclass(slots=True)
class _TableBuilder:
    name: str
    graph: GraphJson
    params: Mapping[str, NDArray]
    output_names: tuple[str, ...]
    places: dict[StoragePlace, int] = field(default_factory=dict)
    types: dict[TensorType, int] = field(default_factory=dict)
    tensors: dict[TensorEntry, int] = field(default_factory=dict)
    shapes: dict[tuple[int, ...], int] = field(default_factory=dict)
    storage: dict[int, StoragePlace] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    pool: int = 0

    def __post_init__(self) -> None:
        self.names = unique_identifiers(node.name for _, node in self.arguments())
        linked = {
            self.entry_of(i).storage_id: node for i, node in self.arguments() if node.name in self.params
        }
        for node_index, node in enumerate(self.graph.nodes):
            for k in range(node.num_outputs):
                sid = self.graph.entry(Reference(node_index, k)).storage_id
                if sid in linked and linked[sid] is not node:
                    raise CorruptModelError(
                        f"{node.name} is in the storage of the parameter {linked[sid].name}",
                        where=self.name,
                    )
        for sid, size in self.graph.storage_sizes().items():
            if sid in linked:
                self.storage[sid] = StoragePlace(0, param_symbol(self.name, self.names[linked[sid].name]))
            else:
                self.storage[sid] = StoragePlace(self.pool)
                self.pool += -(-size // _ALIGNMENT) * _ALIGNMENT

    def arguments(self) -> list[tuple[int, GraphNode]]:
        return [(i, self.graph.nodes[i]) for i in self.graph.arg_nodes]

    def entry_of(self, node: int) -> GraphEntry:
        return self.graph.entry(Reference(node, 0))

    def tensor(self, ref: Reference, flatten: bool = False) -> TensorEntry:
        entry = self.graph.entry(ref)
        shape = (prod(entry.shape),) if flatten else entry.shape
        if shape not in self.shapes:
            self.shapes[shape] = sum(map(len, self.shapes))
        place = self.places.setdefault(self.storage[entry.storage_id], len(self.places))
        kind = TensorType(shape, entry.dtype, self.shapes[shape])
        return TensorEntry(place, self.types.setdefault(kind, len(self.types)))

    def call(self, node: GraphNode, index: int) -> OperatorCall:
        check_c_name(node.function, f"{self.name}: {node.name}")
        refs = (*node.inputs, *(Reference(index, k) for k in range(node.num_outputs)))
        rows = [self.tensor(ref, node.flatten_data) for ref in refs]
        return OperatorCall(
            node.name, node.function, tuple(self.tensors.setdefault(r, len(self.tensors)) for r in rows)
        )

    def finish(self, calls: tuple[OperatorCall, ...]) -> ExecutorTables:
        self.check_nops()
        inputs = tuple(
            self.port(Reference(i, 0), node.name, self.names[node.name])
            for i, node in self.arguments()
            if node.name not in self.params
        )
        names = self.names_of_outputs()
        outputs = tuple(
            map(self.port, self.graph.heads, names, map(unique_identifiers(names).__getitem__, names))
        )
        params = tuple(self.param(i, node) for i, node in self.arguments() if node.name in self.params)
        return ExecutorTables(
            name=self.name,
            calls=calls,
            functions=tuple(dict.fromkeys(call.function for call in calls)),
            places=tuple(self.places),
            types=tuple(self.types),
            tensors=tuple(self.tensors),
            dims=tuple(dim for shape in self.shapes for dim in shape),
            inputs=inputs,
            outputs=outputs,
            params=params,
            pool=self.pool,
            consumes_inputs=self.consumes_inputs(),
        )

    def names_of_outputs(self) -> tuple[str, ...]:
        count = len(self.graph.heads)
        if self.output_names and len(self.output_names) != count:
            raise CorruptModelError(
                f"the graph has {count} outputs and {len(self.output_names)} are named", where=self.name
            )
        return self.output_names or (("output",) if count == 1 else tuple(f"output{i}" for i in range(count)))

    def port(self, ref: Reference, name: str, c_name: str) -> GraphPort:
        return GraphPort(name, c_name, self.tensor(ref), self.graph.entry(ref).nbytes)

    def param(self, index: int, node: GraphNode) -> LinkedParam:
        value, sid = self.params[node.name], self.entry_of(index).storage_id
        data = value.array.tobytes()
        type_text = f"{list(value.array.shape)} {value.dtype}"
        symbol = self.storage[sid].symbol
        return LinkedParam(node.name, symbol, sid, len(data), type_text, c_bytes(data))

    def check_nops(self) -> None:
        # A ``__nop`` only renames a tensor: its output has to be where its input does.
        for i, node in enumerate(self.graph.nodes):
            if node.function == _NOP and {self.graph.entry(ref).storage_id for ref in node.inputs} != {
                self.entry_of(i).storage_id
            }:
                raise CorruptModelError(
                    f"{node.name}: a __nop must share storage with its input", where=self.name
                )

    def consumes_inputs(self) -> bool:
        inputs = {self.entry_of(i).storage_id for i, _ in self.arguments()}
        written = {
            self.graph.entry(Reference(i, k)).storage_id
            for i, node in enumerate(self.graph.nodes)
            if _is_real(node)
            for k in range(node.num_outputs)
        }
        return bool(inputs & written)
