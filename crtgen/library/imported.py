"""Models of TVM's archives as modules of an image: the graph executor's or the AOT executor's, one form.

Whatever the executor, the image gets a ``struct crt_model`` whose run walks const tables: the operators of a
graph, or the one call of an AOT model.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from crtgen.codegen.module import CModule
from crtgen.codegen.render import render
from crtgen.errors import UnsupportedError
from crtgen.library.bridges import bridged
from crtgen.library.graph_executor import graph_module
from crtgen.library.graph_json import GraphEntry, GraphJson, GraphNode, Reference, read_graph_json
from crtgen.library.interfaces import AotInterface, c_interface, packed_interface
from crtgen.library.mlf import MlfModel
from crtgen.library.module import CSource, Module, ObjectFile
from crtgen.library.params import NDArray
from crtgen.library.sources import check_includes, check_undefined, code_modules, context_source
from crtgen.library.tree import check_crt_exportable

__all__ = ["Linkable", "backend_file", "import_model"]

_MALLOC = re.compile(r"\bmalloc\((\d+) \* (\d+)\)")
_SLACK = 512
"""Bytes that the alignment of a workspace's blocks may cost: 16 for each of 32."""


@dataclass(frozen=True, slots=True, eq=False)
class Linkable:
    """A model to link: ``module`` has the sources, ``objects`` are code already.

    ``workspace`` is how many bytes its code may allocate; None if it needs nothing of the platform.
    """

    module: CModule
    objects: Mapping[str, bytes] = field(default_factory=dict)
    workspace: int | None = None


def import_model(model: MlfModel, where: str) -> Linkable:
    """The model's code with its executor; what cannot be linked is refused by name."""
    modules, bridges = bridged(code_modules(model.code, model.name, where))
    check_crt_exportable(modules)
    check_includes(modules, model.headers, where)
    check_undefined(modules, where)
    functions = [f for m in modules for f in m.get_func_names()]
    files = dict(model.headers)
    if model.metadata.executor == "graph":
        graph = read_graph_json(model.graph_json, f"{where}: graph of {model.name}")
        executor = graph_module(model.name, graph, model.params, functions, model.output_names)
    else:
        executor, adapter = _aot(model, functions)
        files |= adapter
    context = context_source(modules, where)
    files |= {f"{model.name}_context.c": context} if context else {}
    files |= {f"{model.name}_bridges.c": bridges} if bridges else {}
    files |= {m.name: _text(m) for m in modules if isinstance(m, CSource)}
    objects = {m.name: m.data for m in modules if isinstance(m, ObjectFile)}
    module = replace(executor, files={**executor.files, **files})
    return Linkable(module, objects, _workspace(model, modules))


def backend_file(workspace: int) -> str:
    """C with what imported code needs of the platform, once per image: so many bytes of workspace."""
    return render("tvm_backend.c.j2", workspace=workspace)


def _text(module: CSource) -> str:
    """The source, after the macros that rename what every model defines."""
    return "".join(f"#define {name} {value}\n" for name, value in module.defines) + module.code


def _workspace(model: MlfModel, modules: tuple[Module, ...]) -> int:
    heap = sum(_heap(m) for m in modules if isinstance(m, CSource))
    if not any(b"TVMBackendAllocWorkspace" in _content(m) for m in modules):
        return heap
    metadata = model.metadata
    calls = [sum(u.workspace_size_bytes for u in f.workspace) for f in metadata.operators]
    whole = [main.workspace_size_bytes for main in metadata.main] if metadata.executor == "aot" else []
    return -(-max((*calls, *whole), default=0) // 16) * 16 + _SLACK + heap


def _heap(module: CSource) -> int:
    """The bytes of all calls of ``malloc`` together, which has to say in numbers what it wants."""
    calls = _MALLOC.findall(module.code)
    if len(calls) != module.code.count("malloc("):
        raise UnsupportedError("it allocates memory, but how much is not in its text", where=module.name)
    return sum(-(-int(size) * int(count) // 16) * 16 for size, count in calls)


def _content(module: Module) -> bytes:
    if isinstance(module, CSource):
        return module.code.encode()
    return module.data if isinstance(module, ObjectFile) else b""


def _aot(model: MlfModel, functions: list[str]) -> tuple[CModule, dict[str, str]]:
    """The executor of one call, and the adapter in C that a model with a C interface needs."""
    run, header = f"tvmgen_{model.name}_run", f"tvmgen_{model.name}.h"
    if run in functions:
        interface = packed_interface(model)
        return _executor(model, interface, run), {}
    if header not in model.headers:
        raise UnsupportedError(f"it has neither {run} nor {header}", where=model.name)
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
    return _executor(model, interface, symbol), {f"{model.name}_adapter.c": text}


def _executor(model: MlfModel, interface: AotInterface, function: str) -> CModule:
    """A graph of one call, which the graph executor runs."""
    tensors = (*interface.inputs, *interface.outputs)
    count, outputs = len(interface.inputs), len(interface.outputs)
    inputs = tuple(Reference(i, 0) for i in range(count))
    nodes = (
        *(GraphNode(t.name, "", (), 1, False) for t in interface.inputs),
        GraphNode(model.name, function, inputs, outputs, False),
    )
    graph = GraphJson(
        nodes=nodes,
        arg_nodes=tuple(range(count)),
        heads=tuple(Reference(count, k) for k in range(outputs)),
        row_ptr=(*range(count + 1), len(tensors)),
        entries=tuple(GraphEntry(t.shape, t.dtype, i, 0) for i, t in enumerate(tensors)),
    )
    params: dict[str, NDArray] = {}
    names = model.output_names or tuple(t.name for t in interface.outputs)
    return graph_module(model.name, graph, params, (function,), names)
