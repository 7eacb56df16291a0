"""Operators that ONNX defines by simpler ones become those, and so do the functions of an `.onnx` model."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import onnx
from onnx import inliner, shape_inference

__all__ = ["DOMAINS", "inlined", "is_function"]

DOMAINS = ("", "ai.onnx")
"""What the operators of ONNX itself are in."""

_COMPUTED = {"Range", "BlackmanWindow", "HammingWindow", "HannWindow", "Bernoulli"}
"""Functions that are computed when the model is read, or not at all."""

_DOMAIN = "crtgen.functions"
_MOST_DEPTH = 16

_Types = Mapping[str, bytes]


def is_function(code: str) -> bool:
    """Whether ONNX defines the operator by simpler ones."""
    return onnx.defs.has(code) and _has_function(onnx.defs.get_schema(code))


def inlined(model: Any, kept: Collection[str]) -> Any:
    """The model, with types inferred, in which only operators ``kept`` may be functions.

    An operator whose definition the package cannot give for its types stays.
    """
    if model.functions:
        model = inliner.inline_local_functions(model)
    versions = {"" if o.domain in DOMAINS else o.domain: o.version for o in model.opset_import}
    for _ in range(_MOST_DEPTH):
        model = shape_inference.infer_shapes(model, check_type=True, data_prop=True)
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


def _defined(
    graph: Any, kept: Collection[str], types: _Types, versions: Mapping[str, int]
) -> Iterator[tuple[Any, Any]]:
    """The nodes of a graph and its subgraphs that are functions, each with its definition."""
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
    """What the node stands for; None if it is no function, or if the package does not say."""
    if not onnx.defs.has(node.op_type, version, domain):
        return None
    schema: Any = onnx.defs.get_schema(node.op_type, version, domain)
    if not _has_function(schema):
        return None
    function = onnx.FunctionProto()
    try:
        if schema.has_function:
            function.CopyFrom(schema.function_body)
        else:
            given = [types.get(name, b"") for name in node.input]
            function.ParseFromString(schema.get_context_dependent_function(node.SerializeToString(), given))
    except (RuntimeError, ValueError):
        return None
    return function if function.node else None
