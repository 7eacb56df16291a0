"""Our own models for the graph executor: the tables come from the plan, and each layer is a packed
function.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from crtgen.base.contents import Contents
from crtgen.base.errors import UnsupportedError
from crtgen.compiler.codegen.arena import Arena
from crtgen.compiler.codegen.module import CModule, LayerInfo, RegistryFunction
from crtgen.compiler.codegen.names import REGISTRY, unique_identifiers
from crtgen.compiler.codegen.render import render
from crtgen.compiler.codegen.views import PackedView
from crtgen.compiler.plan import Branch, Plan, Step, WhileLoop
from crtgen.firmware.library.datatype import DLDataType
from crtgen.firmware.library.graph_executor import (
    ExecutorTables,
    GraphPort,
    OperatorCall,
    StoragePlace,
    TensorEntry,
    TensorType,
    render_graph,
)
from crtgen.firmware.library.graph_json import read_graph_json
from crtgen.firmware.library.imported import Linkable
from crtgen.network.ir import Value

__all__ = ["with_graph_executor"]


def with_graph_executor(plan: Plan, module: CModule) -> Linkable:
    """Return ``generate_c``'s module of the plan, with the graph executor instead of direct calls.

    Constants belong to the functions, not to the graph: their storage ids follow those of the graph.
    """
    control = any(isinstance(step.item, Branch | WhileLoop) for step in plan.steps)
    if plan.states or control:
        what, hint = "states" if plan.states else "control flow", "leave --executor graph out"
        raise UnsupportedError(f"the graph executor has no {what}", where=plan.graph.name, hint=hint)
    builder = _OwnGraphBuilder(plan, module)
    pairs = zip(plan.steps, module.info.layers, strict=True)
    layers = [(step, layer) for step, layer in pairs if layer.function]
    calls = tuple(builder.call(step, layer) for step, layer in layers)
    tables = builder.tables(calls)
    name, external = module.info.name, [f for f in module.functions if f.role == "external"]
    entries = {f.symbol for f in external}
    files = Contents.of(module.without({f"{name}.c", f"{name}.h", f"{name}{REGISTRY}.c"}).files)
    graph_json = _graph_json(plan, {c.name: c.function for c in calls})
    storages = tuple(read_graph_json(graph_json).storage_sizes().values())
    made = replace(
        module,
        info=replace(module.info, layers=tuple(layer for _, layer in layers)),
        files=Contents({**files.entries, f"{name}_graph.c": render_graph(tables)}),
        functions=(
            *external,
            *(
                RegistryFunction(f.symbol, f.symbol, arguments=f.signature)
                for f in builder.functions.values()
                if f.symbol not in entries
            ),
        ),
        params=tuple(replace(param, sid=len(storages) + param.sid) for param in module.params),
    )
    return Linkable(made, workspace=0, graph_json=graph_json, storages=storages)


class _OwnGraphBuilder:
    # Collects the tables; equal rows share an index, equal layers a function.

    def __init__(self, plan: Plan, module: CModule) -> None:
        self.plan = plan
        self.module = module
        self.identifiers = unique_identifiers(step.name for step in plan.steps)
        self.places: dict[StoragePlace, int] = {}
        self.types: dict[TensorType, int] = {}
        self.shapes: dict[tuple[int, ...], int] = {}
        self.rows: dict[TensorEntry, int] = {}
        self.arena = Arena.of(self.name, plan)
        self.functions: dict[tuple[object, ...], PackedView] = {}

    @property
    def name(self) -> str:
        return self.module.info.name

    def tensor(self, value: Value) -> TensorEntry:
        if value.shape not in self.shapes:
            self.shapes[value.shape] = sum(map(len, self.shapes))
        kind = TensorType(value.shape, DLDataType.of(value.dtype.numpy), self.shapes[value.shape])
        place = StoragePlace(self.plan.slots[value.name].offset)
        return TensorEntry(
            self.places.setdefault(place, len(self.places)), self.types.setdefault(kind, len(self.types))
        )

    def call(self, step: Step, layer: LayerInfo) -> OperatorCall:
        values = _arguments(self.plan, step)
        rows = [self.tensor(value) for value in values]
        function = self.function(step, layer, values)
        return OperatorCall(
            step.name, function.symbol, tuple(self.rows.setdefault(r, len(self.rows)) for r in rows)
        )

    def function(self, step: Step, layer: LayerInfo, values: Sequence[Value]) -> PackedView:
        symbol = layer.entry or f"tvmgen_{self.name}_{self.identifiers[step.name]}"
        view = PackedView.of(self.arena, symbol, layer, step, values)
        scratch = step.scratch.offset if step.scratch is not None else None
        key = (view.kernel, layer.entry, layer.consts, scratch, view.nbytes)
        return self.functions.setdefault(key, view)

    def tables(self, calls: tuple[OperatorCall, ...]) -> ExecutorTables:
        info, values = self.module.info, self.plan.graph.values
        inputs, outputs = (
            tuple(GraphPort(i.name, i.c_name, self.tensor(values[i.name]), i.nbytes) for i in side)
            for side in (info.inputs, info.outputs)
        )
        functions = tuple(self.functions.values())
        return ExecutorTables(
            name=self.name,
            calls=calls,
            functions=tuple(f.symbol for f in functions),
            places=tuple(self.places),
            types=tuple(self.types),
            tensors=tuple(self.rows),
            dims=tuple(dim for shape in self.shapes for dim in shape),
            inputs=inputs,
            outputs=outputs,
            params=(),
            pool=self.plan.arena,
            consumes_inputs=not self.plan.kept_inputs,
            code=render("graph_layers.c.j2", name=self.name, functions=functions),
            parts=self.arena.view().parts,
        )


def _arguments(plan: Plan, step: Step) -> list[Value]:
    # In the order of the kernel's parameters.
    signature = plan.signature(step)
    return [v for v in (*signature.inputs, *signature.outputs) if not v.is_constant]


def _storages(plan: Plan, functions: Collection[str]) -> dict[str, int]:
    # The storage of each value: one whose values are read no more, or a new one. Inputs keep theirs. A layer
    # that is not in ``functions`` is one whose output is where its input does.
    graph, end = plan.graph, len(plan.steps)
    last = {v.name: i for i, step in enumerate(plan.steps) for v in plan.signature(step).inputs}
    last |= dict.fromkeys((*graph.inputs, *graph.outputs), end)
    storage = {name: i for i, name in enumerate(graph.inputs)}
    until = [end] * len(storage)
    for i, step in enumerate(plan.steps):
        for name in step.outputs:
            if step.name in functions:
                place = next((s for s, read in enumerate(until) if read < i), len(until))
            else:
                sources = plan.signature(step).inputs
                place = storage[next(v.name for v in sources if not v.is_constant)]
            storage[name] = place
            until[place : place + 1] = [max(last.get(name, i), *until[place : place + 1], i)]
    return storage


def _graph_json(plan: Plan, functions: dict[str, str]) -> str:
    # The network as TVM's graph executor describes it.
    graph = plan.graph
    entries: dict[str, tuple[int, int]] = {name: (i, 0) for i, name in enumerate(graph.inputs)}
    storage = _storages(plan, functions)
    nodes: list[dict[str, Any]] = [{"op": "null", "name": name, "inputs": []} for name in graph.inputs]
    order = list(graph.inputs)
    for step in plan.steps:
        signature = plan.signature(step)
        sources = [v.name for v in signature.inputs if not v.is_constant]
        attributes = {
            "func_name": functions.get(step.name, "__nop"),
            "num_inputs": str(len(sources)),
            "num_outputs": str(len(step.outputs)),
            "flatten_data": "0",
        }
        inputs = [[*entries[name], 0] for name in sources]
        for k, name in enumerate(step.outputs):
            entries[name] = (len(nodes), k)
            order.append(name)
        nodes.append({"op": "tvm_op", "name": step.name, "attrs": attributes, "inputs": inputs})
    rows = [0]
    for entry in nodes:
        rows.append(rows[-1] + int(entry.get("attrs", {}).get("num_outputs", 1)))
    values = [graph.values[name] for name in order]
    document = {
        "nodes": nodes,
        "arg_nodes": list(range(len(graph.inputs))),
        "heads": [[*entries[name], 0] for name in graph.outputs],
        "attrs": {
            "dltype": ["list_str", [str(DLDataType.of(v.dtype.numpy)) for v in values]],
            "storage_id": ["list_int", [storage[name] for name in order]],
            "shape": ["list_shape", [list(v.shape) for v in values]],
        },
        "node_row_ptr": rows,
    }
    return json.dumps(document, indent=1) + "\n"
