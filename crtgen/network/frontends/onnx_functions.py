"""Expands operators that ONNX defines by simpler ones, and the functions of an `.onnx` model."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import onnx
from onnx import inliner, shape_inference

from crtgen.base import budget
from crtgen.base.errors import UnsupportedError

__all__ = ["DOMAINS", "check_calls", "inlined", "is_function"]

DOMAINS = ("", "ai.onnx")
"""Domains of ONNX's own operators."""

# Functions that are computed when the model is read, or not at all.
_COMPUTED = {"Range", "BlackmanWindow", "HammingWindow", "HannWindow", "Bernoulli"}

_DOMAIN = "crtgen.functions"
_MOST_DEPTH = 16

_FEW_NODES = 1024
# A node of a function may become that many nodes of the model, on average, beside a few in any case.
_MOST_REPEATED = 16

# Functions within functions.
_MOST_CALLS = 64

_Types = Mapping[str, bytes]


def is_function(code: str) -> bool:
    return onnx.defs.has(code) and _has_function(onnx.defs.get_schema(code))


def inlined(model: Any, kept: Collection[str]) -> Any:
    """Return the model with inferred types, in which all functions except the operators ``kept`` are
    expanded.

    An operator is also kept if the package cannot give its definition for its types.
    """
    if model.functions:
        model = inliner.inline_local_functions(model)
    versions = {"" if o.domain in DOMAINS else o.domain: o.version for o in model.opset_import}
    for _ in range(_MOST_DEPTH):
        model = shape_inference.infer_shapes(model, check_type=True)
        found = list(_defined(model.graph, {*kept, *_COMPUTED}, {}, versions))
        if not found:
            break
        for number, (node, function) in enumerate(found):
            function.name, function.domain = f"{node.op_type}_{number}", _DOMAIN
            node.op_type, node.domain = function.name, function.domain
            model.functions.append(function)
        if all(o.domain != _DOMAIN for o in model.opset_import):
            model.opset_import.add(domain=_DOMAIN, version=1)
        model = inliner.inline_local_functions(model)
    return model


def check_calls(model: Any) -> None:
    """Raise ``UnsupportedError`` if nested function calls expand to far too many nodes.

    Without this check the package would follow all calls when it infers shapes.
    """
    bodies = {(f.domain, f.name): f.node for f in model.functions}
    written = len(model.graph.node) + sum(map(len, bodies.values()))
    most = _FEW_NODES + _MOST_REPEATED * written
    made: dict[tuple[str, str], int] = {}

    def size(nodes: Any, depth: int) -> int:
        if depth > _MOST_CALLS:
            raise ValueError(f"the functions of the model call one another more than {_MOST_CALLS} deep")
        return sum(size_of(node, depth) for node in nodes)

    def size_of(node: Any, depth: int) -> int:
        key = (node.domain, node.op_type)
        if key not in bodies:
            inner = (g for a in node.attribute for g in (a.g, *a.graphs))
            return 1 + sum(size(graph.node, depth + 1) for graph in inner)
        if key not in made:
            made[key] = size(bodies[key], depth + 1)
        return made[key]

    if (nodes := size(model.graph.node, 0)) > most:
        reason = f"its functions become {nodes:,} nodes; supported: {most:,} for {written:,} of the file"
        raise UnsupportedError(reason, where=budget.current().where)


def _defined(
    graph: Any, kept: Collection[str], types: _Types, versions: Mapping[str, int]
) -> Iterator[tuple[Any, Any]]:
    # The nodes of a graph and its subgraphs that are functions, each with its definition.
    types = {**types, **_types(graph)}
    for node in graph.node:
        domain = "" if node.domain in DOMAINS else node.domain
        if domain in versions and (domain or node.op_type not in kept):
            function = _definition(node, types, domain, versions[domain])
            if function is not None:
                yield node, function
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _defined(inner, kept, types, versions)


def _types(graph: Any) -> _Types:
    found = {v.name: v.type.SerializeToString() for v in (*graph.value_info, *graph.output, *graph.input)}
    for tensor in graph.initializer:
        kind = onnx.helper.make_tensor_type_proto(tensor.data_type, tuple(tensor.dims))
        found[tensor.name] = kind.SerializeToString()
    return found


def _has_function(schema: Any) -> bool:
    return bool(schema.has_function or schema.has_context_dependent_function)


def _definition(node: Any, types: _Types, domain: str, version: int) -> Any:
    # None if the node is no function, or the package does not define it.
    if not onnx.defs.has(node.op_type, version, domain):
        return None
    schema: Any = onnx.defs.get_schema(node.op_type, version, domain)
    for written in sorted(_written_for(schema), key=lambda v: (v > version, abs(version - v))):
        function = _body(schema, written, node, types)
        if function is not None and (domain or _holds(function.node, version)):
            for used in function.opset_import:
                # A body says which operators it was written with; the inliner leaves it alone if the
                # model has others, although they do the same.
                used.version = version if used.domain in DOMAINS and not domain else used.version
            return function
    return None


def _written_for(schema: Any) -> set[int]:
    # The versions of ONNX's operators with which the package has a definition.
    return {*schema.function_opset_versions, *schema.context_dependent_function_opset_versions}


def _body(schema: Any, written: int, node: Any, types: _Types) -> Any:
    # The definition with operators of a version; None if the package does not say.
    function = onnx.FunctionProto()
    try:
        if written in schema.function_opset_versions:
            function.ParseFromString(schema.get_function_with_opset_version(written))
        else:
            given = [types.get(name, b"") for name in node.input]
            text = schema.get_context_dependent_function_with_opset_version(
                written, node.SerializeToString(), given
            )
            function.ParseFromString(text)
    except (RuntimeError, ValueError):
        return None
    return function if function.node else None


def _holds(nodes: Any, version: int) -> bool:
    # True if operators of this version have the attributes and inputs that the nodes use.
    for node in nodes:
        if node.domain not in DOMAINS or not onnx.defs.has(node.op_type, version, ""):
            return False
        schema: Any = onnx.defs.get_schema(node.op_type, version, "")
        if len(node.input) > schema.max_input or any(a.name not in schema.attributes for a in node.attribute):
            return False
        if not all(_holds(graph.node, version) for a in node.attribute for graph in (a.g, *a.graphs)):
            return False
    return True
