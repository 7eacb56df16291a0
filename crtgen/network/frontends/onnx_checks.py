"""Checks of ONNX models for errors that the onnx package reports unclearly or crashes on."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import onnx
from onnx import shape_inference

from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.network.frontends.onnx_functions import DOMAINS

__all__ = [
    "HINT",
    "MAX_ELEMENTS",
    "MAX_RANK",
    "check_attributes",
    "check_operators",
    "check_order",
    "check_typed",
    "free_lengths",
    "label",
]

HINT = "export or download the model again"
MAX_RANK = 8
MAX_ELEMENTS = 1 << 26
"""Limit of a tensor's elements: more than any board holds, and few enough to compute with on a host."""


# The package infers nothing of it, without looking whether there is anything to infer from.
_ENDS_THE_PROCESS = "RegexFullMatch"

_NEED_TYPES = ("EyeLike",)
_MOST_NEEDING_TYPES = 16


def label(node: Any, index: int) -> str:
    return f"node {node.name!r} ({node.op_type})" if node.name else f"node {index} ({node.op_type})"


def check_order(graph: Any, where: str) -> None:
    """Raise ``CorruptModelError`` unless each node only reads values that exist before it, and only writes
    new ones.

    Duplicate names of constants are an error, too.
    """
    constants = Counter(t.name for t in graph.initializer) + Counter(
        t.values.name for t in graph.sparse_initializer
    )
    for name, count in constants.items():
        if count > 1:
            raise CorruptModelError(f"{count} constants are called {name!r}", where=where, hint=HINT)
    there = {"", *(v.name for v in graph.input), *constants}
    made = {name for node in graph.node for name in node.output}
    for index, node in enumerate(graph.node):
        if any(isinstance(name, bytes) for name in (node.name, *node.input, *node.output)):
            raise CorruptModelError(f"the name of node {index} is not text", where=where, hint=HINT)
        for name in (n for n in node.input if n not in there):
            late = "nodes of functions must be in order" if name in made else "nothing computes it"
            reason = f"{label(node, index)} reads {name!r}: {late}"
            raise CorruptModelError(reason, where=where, hint=HINT)
        twice = [n for n in node.output if n and n in there]
        if twice:
            reason = f"{label(node, index)} computes {twice[0]!r}, which is there already"
            raise CorruptModelError(reason, where=where, hint=HINT)
        there.update(node.output)
    for value in graph.output:
        if value.name not in there:
            raise CorruptModelError(f"nothing computes the output {value.name!r}", where=where, hint=HINT)


def check_operators(model: Any, where: str, opset: int) -> None:
    """Raise ``CorruptModelError`` for an operator that its domain does not define, or a domain without a
    version.
    """
    imported = {"" if i.domain in DOMAINS else i.domain for i in model.opset_import}
    functions = {(f.domain, f.name) for f in model.functions}
    for index, node in enumerate(model.graph.node):
        domain = "" if node.domain in DOMAINS else node.domain
        if domain not in imported:
            reason = (
                f"{label(node, index)} is of the domain {domain!r}, whose version the model does not name"
            )
            raise CorruptModelError(reason, where=where, hint=HINT)
        if domain or (node.domain, node.op_type) in functions:
            continue
        if not onnx.defs.has(node.op_type, opset, ""):
            reason = f"{label(node, index)}: ONNX has no such operator in opset {opset}"
            raise CorruptModelError(reason, where=where, hint=HINT)


def check_attributes(graph: Any, where: str) -> None:
    """Raise ``CorruptModelError`` for attributes that would crash the onnx package, or make it run for
    ever.
    """
    for index, node in enumerate(graph.node):
        for attribute in node.attribute:
            if not _is_sound(node, attribute):
                value = onnx.helper.get_attribute_value(attribute)
                reason = f"{label(node, index)} has {attribute.name} {value!r}"
                raise CorruptModelError(reason[:200], where=where, hint=HINT)
            for inner in (attribute.g, *attribute.graphs):
                check_attributes(inner, where)


def check_typed(model: Any, where: str) -> None:
    """Raise ``CorruptModelError`` if an operator's input has no type, which would crash the onnx package."""
    inner = [g for f in model.functions for n in f.node for g in (n, *_inside(n))]
    inner += [n for node in model.graph.node for n in _inside(node)]
    if any(node.op_type == _ENDS_THE_PROCESS for node in (*inner, *model.graph.node)):
        raise UnsupportedError(f"{_ENDS_THE_PROCESS}: the operator is not supported", where=where)
    if any(node.op_type in _NEED_TYPES for node in inner):
        raise UnsupportedError(f"{' or '.join(_NEED_TYPES)} within a subgraph or a function", where=where)
    places = [i for i, node in enumerate(model.graph.node) if node.op_type in _NEED_TYPES]
    if len(places) > _MOST_NEEDING_TYPES:
        reason = f"{len(places)} of {' and '.join(_NEED_TYPES)}; supported: {_MOST_NEEDING_TYPES}"
        raise UnsupportedError(reason, where=where)
    for place in places:
        node, before = model.graph.node[place], onnx.ModelProto()
        before.CopyFrom(model)
        del before.graph.node[place:], before.graph.output[:]
        try:
            graph = shape_inference.infer_shapes(before, check_type=True, strict_mode=True).graph
        except shape_inference.InferenceError as error:
            raise CorruptModelError(" ".join(str(error).split())[:300], where=where, hint=HINT) from error
        typed = {v.name for v in (*graph.value_info, *graph.input) if v.type.WhichOneof("value")}
        typed |= {t.name for t in graph.initializer}
        if not typed.issuperset(name for name in node.input if name):
            reason = f"{label(node, place)} reads {node.input[0]!r}, of which nothing says the type"
            raise CorruptModelError(reason, where=where, hint=HINT)


def _inside(node: Any) -> Iterator[Any]:
    # The nodes of the subgraphs of a node, at any depth.
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield inner
                yield from _inside(inner)


def free_lengths(graph: Any, where: str) -> None:
    """Replace lengths of -1 by unknown ones. Other negative lengths would crash the onnx package."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        for length in value.type.tensor_type.shape.dim:
            if length.dim_value < -1:
                reason = f"{value.name!r} has a length of {length.dim_value}"
                raise CorruptModelError(reason, where=where, hint=HINT)
            if length.dim_value > MAX_ELEMENTS:
                reason = f"{value.name!r} has a length of {length.dim_value:,}; supported: {MAX_ELEMENTS:,}"
                raise UnsupportedError(reason, where=where)
            if length.dim_value == -1:
                length.Clear()
    for attribute in (a for node in graph.node for a in node.attribute):
        for inner in (attribute.g, *attribute.graphs):
            free_lengths(inner, where)


def _is_sound(node: Any, attribute: Any) -> bool:
    # True if axes are within the tensor, and an equation consists of letters.
    if node.op_type == "Einsum" and attribute.name == "equation":
        return re.fullmatch(rb"[A-Za-z,.> -]*", attribute.s) is not None
    if attribute.name == "num_outputs":
        return bool(0 < attribute.i <= len(node.output) + 1)
    if re.fullmatch("([a-z]+_)?ax[ei]s", attribute.name):
        return all(-MAX_RANK <= n <= MAX_RANK for n in (attribute.i, *attribute.ints))
    return True
