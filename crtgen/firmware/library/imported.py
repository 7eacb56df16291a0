"""Models of TVM's archives as modules of an image, in one form for both the graph executor and the AOT
executor.

Either way the image gets a ``struct crt_model`` whose run walks const tables: the operators of a graph, or
the single call of an AOT model.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.compiler.byoc import Generator
from crtgen.compiler.codegen.module import CModule, RegistryFunction, Role
from crtgen.compiler.codegen.names import c_identifier
from crtgen.compiler.codegen.render import render
from crtgen.firmware.library.bridges import bridged
from crtgen.firmware.library.datatype import DLDataType
from crtgen.firmware.library.graph_executor import graph_module
from crtgen.firmware.library.graph_json import GraphEntry, GraphJson, GraphNode, Reference, read_graph_json
from crtgen.firmware.library.includes import resolve_includes
from crtgen.firmware.library.interfaces import AotInterface, AotTensor, c_interface, packed_interface
from crtgen.firmware.library.metadata import OperatorBuffer
from crtgen.firmware.library.mlf import MlfModel, OperatorLibrary
from crtgen.firmware.library.module import CSource, Module, ObjectFile
from crtgen.firmware.library.params import NDArray
from crtgen.firmware.library.sources import check_undefined, code_modules, context_source
from crtgen.firmware.library.tree import check_crt_exportable

__all__ = [
    "Linkable",
    "backend_file",
    "heap_of",
    "import_model",
    "import_operators",
    "registered",
    "source_text",
    "storages_of",
]

_MALLOC = re.compile(r"\bmalloc\((\d{1,12}) \* (\d{1,12})\)")
_SUBGRAPH = re.compile(r"tvmgen_\w+_main_\d+", re.ASCII)
# Bytes that the alignment of a workspace's blocks may cost: 16 for each of 32.
_SLACK = 512


# TVM's C for the unpacked interface passes its workspace as another pointer; GCC 14 makes that an error.
_AS_TVM_WROTE_IT = """\
#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Wincompatible-pointer-types"
#endif
"""


@dataclass(frozen=True, slots=True, eq=False)
class Linkable:
    """A model to link: ``module`` has the sources, ``objects`` are compiled code.

    ``workspace`` is the number of bytes that its code may allocate; None if it needs nothing from the
    platform. ``graph_json`` describes one of our own models to other tools, if the graph executor runs it.
    ``imports`` are the modules of an imported model. ``storages`` are the sizes in bytes of the storages of a
    graph that a host may run itself.
    """

    module: CModule
    objects: Mapping[str, bytes] = field(default_factory=dict)
    workspace: int | None = None
    graph_json: str = ""
    imports: tuple[Module, ...] = ()
    storages: tuple[int, ...] = ()


def storages_of(graph: GraphJson, module: CModule) -> tuple[int, ...]:
    linked = {param.sid for param in module.params}
    return tuple(size for sid, size in graph.storage_sizes().items() if sid not in linked)


def import_model(model: MlfModel, where: str, generators: Sequence[Generator] = ()) -> Linkable:
    """Return the model's code with its executor; parts that cannot be linked are refused by name.

    ``generators`` have the sources of libraries that the code calls.
    """
    modules, bridges = bridged(code_modules(model.code, model.name, where))
    check_crt_exportable(modules)
    libraries = resolve_includes(modules, model.headers, where, model.metadata.target, generators)
    check_undefined(modules, where)
    functions = [f for m in modules for f in m.get_func_names()]
    files = dict(model.headers)
    if model.metadata.executor == "graph":
        graph = read_graph_json(model.graph_json, f"{where}: graph of {model.name}")
        executor = graph_module(model.name, graph, model.params, functions, model.output_names)
        storages = storages_of(graph, executor)
    else:
        executor, adapter = _aot(model, functions)
        storages = ()
        files |= adapter
    context = context_source(modules, where)
    files |= {f"{model.name}_context.c": context} if context else {}
    files |= {f"{model.name}_bridges.c": bridges} if bridges else {}
    files |= {m.name: source_text(m) for m in modules if isinstance(m, CSource)}
    objects = {m.name: m.data for m in modules if isinstance(m, ObjectFile)}
    module = replace(
        executor,
        files={**executor.files, **files},
        functions=tuple(registered(model.name, executor, modules)),
        libraries=libraries,
    )
    return Linkable(module, objects, _workspace(model, modules), imports=modules, storages=storages)


def registered(model: str, executor: CModule, modules: Sequence[Module]) -> Iterator[RegistryFunction]:
    """Yield the function that runs the model, and every packed function of its C code, as in TVM's registry.

    Functions that bridges call keep the names that TVM gave them.
    """
    sources = [m for m in modules if isinstance(m, CSource)]
    original = {new: name for m in sources for name, new in m.defines}
    original[f"tvmgen_{model}_run_packed"] = f"tvmgen_{model}_run"
    known = {f.symbol: f.arguments for f in executor.functions}
    symbols = [*(f.symbol for f in executor.functions), *(f for m in sources for f in m.functions)]
    for symbol in dict.fromkeys(symbols):
        name = original.get(symbol, symbol)
        if name != f"tvmgen_{model}_get_c_metadata":  # the image has its own
            yield RegistryFunction(name, symbol, _role(name, model), known.get(symbol))


def _role(name: str, model: str) -> Role:
    # Decided by the names that TVM gives to functions.
    if name == f"tvmgen_{model}_run":
        return "run"
    return "external" if _SUBGRAPH.fullmatch(name) else "own"


def import_operators(
    library: OperatorLibrary, where: str, generators: Sequence[Generator] = ()
) -> tuple[Linkable, ...]:
    """Return the functions of an archive in style ``operator``, each as a model of one call.

    The registry has the function under its own name. Its last argument is the output, unless the metadata
    says which arguments are inputs.
    """
    name = c_identifier(library.metadata.model_name)
    modules = tuple(replace(m, name=f"{name}_{m.name}") for m in code_modules(library.code, name, where))
    check_crt_exportable(modules)
    libraries = resolve_includes(modules, (), where, library.metadata.target, generators)
    check_undefined(modules, where)
    functions = [f for m in modules for f in m.get_func_names()]
    files = {m.name: source_text(m) for m in modules if isinstance(m, CSource)}
    context = context_source(modules, where)
    files |= {f"{name}_context.c": context} if context else {}
    objects = {m.name: m.data for m in modules if isinstance(m, ObjectFile)}
    parts = []
    for function, buffers in library.metadata.functions:
        if function not in functions:
            raise CorruptModelError(f"the archive has no code of the function {function}", where=where)
        executor = _call(function, function, _operator_interface(buffers, where))
        executor = replace(executor, files={**executor.files, **files}, libraries=libraries)
        workspace = _SLACK + sum(b.size_bytes for b in buffers)
        parts.append(Linkable(executor, objects, workspace, imports=modules))
        files, objects, modules = {}, {}, ()
    return tuple(parts)


def _operator_interface(buffers: Sequence[OperatorBuffer], where: str) -> AotInterface:
    bound = [bool(b.input_binding) for b in buffers]
    count = sum(bound) if any(bound) else len(buffers) - 1
    if not 0 <= count < len(buffers) or (any(bound) and not all(bound[:count])):
        raise UnsupportedError(
            "an operator's arguments are expected to be its inputs, then its outputs", where=where
        )
    tensors = tuple(
        AotTensor(b.input_binding or f"arg{i}", b.shape, DLDataType.parse(b.dtype, where))
        for i, b in enumerate(buffers)
    )
    return AotInterface(tensors[:count], tensors[count:])


def backend_file(workspace: int) -> str:
    """Return the C code that imported code needs from the platform, with ``workspace`` bytes; an image has it
    once.
    """
    return render("tvm_backend.c.j2", workspace=workspace)


def source_text(module: CSource) -> str:
    """Return the source, preceded by macros that rename the symbols that every model defines."""
    defines = "".join(f"#define {name} {value}\n" for name, value in module.defines)
    return (_AS_TVM_WROTE_IT if module.suffix != "S" else "") + defines + module.code


def _workspace(model: MlfModel, modules: tuple[Module, ...]) -> int:
    heap = sum(map(heap_of, modules))
    if not any(b"TVMBackendAllocWorkspace" in _content(m) for m in modules):
        return heap
    metadata = model.metadata
    calls = [sum(u.workspace_size_bytes for u in f.workspace) for f in metadata.operators]
    whole = [main.workspace_size_bytes for main in metadata.main] if metadata.executor == "aot" else []
    return -(-max((*calls, *whole), default=0) // 16) * 16 + _SLACK + heap


def heap_of(module: Module) -> int:
    """Return the sum of all ``malloc`` calls in C code, whose sizes must be constants."""
    if not isinstance(module, CSource):
        return 0
    calls = _MALLOC.findall(module.code)
    if len(calls) != module.code.count("malloc("):
        raise UnsupportedError(
            "the module calls malloc with sizes that are not plain numbers", where=module.name
        )
    return sum(-(-int(size) * int(count) // 16) * 16 for size, count in calls)


def _content(module: Module) -> bytes:
    if isinstance(module, CSource):
        return module.code.encode()
    return module.data if isinstance(module, ObjectFile) else b""


def _aot(model: MlfModel, functions: list[str]) -> tuple[CModule, dict[str, str]]:
    # The executor of one call, and the adapter in C that a model with a C interface needs.
    run, header = f"tvmgen_{model.name}_run", f"tvmgen_{model.name}.h"
    if run in functions:
        interface = packed_interface(model)
        return _call(model.name, run, interface, model.output_names), {}
    if header not in model.headers:
        raise UnsupportedError(f"the model has neither {run} nor {header}", where=model.name)
    interface = c_interface(model, model.headers[header])
    symbol = f"{run}_packed"
    text = render(
        "aot_adapter.c.j2",
        model=model.name,
        header=header,
        symbol=symbol,
        inputs=[(t.member, i) for i, t in enumerate(interface.inputs)],
        outputs=[(t.member, i) for i, t in enumerate(interface.outputs, len(interface.inputs))],
    )
    return _call(model.name, symbol, interface, model.output_names), {f"{model.name}_adapter.c": text}


def _call(name: str, function: str, interface: AotInterface, output_names: Sequence[str] = ()) -> CModule:
    # A graph of one call, which the graph executor runs.
    tensors = (*interface.inputs, *interface.outputs)
    count, outputs = len(interface.inputs), len(interface.outputs)
    inputs = tuple(Reference(i, 0) for i in range(count))
    nodes = (
        *(GraphNode(t.name, "", (), 1, False) for t in interface.inputs),
        GraphNode(name, function, inputs, outputs, False),
    )
    graph = GraphJson(
        nodes=nodes,
        arg_nodes=tuple(range(count)),
        heads=tuple(Reference(count, k) for k in range(outputs)),
        row_ptr=(*range(count + 1), len(tensors)),
        entries=tuple(GraphEntry(t.shape, t.dtype, i, 0) for i, t in enumerate(tensors)),
    )
    params: dict[str, NDArray] = {}
    names = output_names or tuple(t.name for t in interface.outputs)
    return graph_module(name, graph, params, (function,), names)
