"""ExampleJSON: the text format for subgraphs in the example of an external code generator.

::

The name of a subgraph is followed by its nodes, indented by two spaces: operator, index, inputs and shape.
Reading and writing give the same bytes.

A subgraph's name, then its nodes, indented by two spaces: operator, number, inputs and shape. Reading and
writing give the same bytes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from crtgen.base.errors import CorruptModelError

__all__ = ["OPERATORS", "ExampleGraph", "ExampleNode", "read_example_json", "write_example_json"]

OPERATORS = ("add", "sub", "mul")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NUMBER = r"(?:0|[1-9]\d{0,8})"
_INPUT = re.compile(rf"  input ({_NUMBER})((?: {_NUMBER})*)", re.ASCII)
_CALL = re.compile(rf"  (\w+) ({_NUMBER}) inputs:((?: {_NUMBER})+) shape:((?: {_NUMBER})*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class ExampleNode:
    """An input (``op`` is ``input``), or an element-wise operator on two earlier nodes of the same shape."""

    op: str
    inputs: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExampleGraph:
    """A subgraph: node ``i`` has the index ``i``, the last one is the output."""

    name: str
    nodes: tuple[ExampleNode, ...]


def read_example_json(text: str, where: str = "ExampleJSON") -> tuple[ExampleGraph, ...]:
    """Parse the subgraphs of a text. Errors name the offending line."""
    graphs: list[ExampleGraph] = []
    nodes: list[ExampleNode] = []
    name = ""
    if text and not text.endswith("\n"):
        raise CorruptModelError("the last line is incomplete", where=where)
    for number, line in enumerate(text.split("\n")[:-1], 1):
        place = f"{where}: line {number}"
        if line.startswith(" "):
            nodes.append(_node(line, nodes, place))
            continue
        if _NAME.fullmatch(line) is None or line in (name, *(g.name for g in graphs)):
            raise CorruptModelError(f"{line!r} is not the name of a subgraph, or occurs twice", where=place)
        graphs += _finished(name, nodes, place)
        name, nodes = line, []
    return (*graphs, *_finished(name, nodes, where))


def _finished(name: str, nodes: Sequence[ExampleNode], where: str) -> tuple[ExampleGraph, ...]:
    if not name and not nodes:
        return ()
    if not name or not nodes or nodes[-1].op == "input":
        raise CorruptModelError(f"the subgraph {name or 'without a name'} computes nothing", where=where)
    return (ExampleGraph(name, tuple(nodes)),)


def _node(line: str, before: Sequence[ExampleNode], where: str) -> ExampleNode:
    if match := _INPUT.fullmatch(line):
        number, node = int(match[1]), ExampleNode("input", (), _numbers(match[2]))
    elif match := _CALL.fullmatch(line):
        number, node = int(match[2]), ExampleNode(match[1], _numbers(match[3]), _numbers(match[4]))
        if node.op not in OPERATORS:
            raise CorruptModelError(f"{node.op} is not one of {', '.join(OPERATORS)}", where=where)
        if len(node.inputs) != 2 or any(
            i >= len(before) or before[i].shape != node.shape for i in node.inputs
        ):
            raise CorruptModelError("the operator needs two earlier inputs of its own shape", where=where)
    else:
        raise CorruptModelError(f"{line!r} is not a node", where=where)
    if number != len(before) or 0 in node.shape:
        raise CorruptModelError(f"node {len(before)} is expected here, with positive dimensions", where=where)
    return node


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


def write_example_json(graphs: Sequence[ExampleGraph]) -> str:
    return "".join(
        f"{graph.name}\n" + "".join(_line(i, node) for i, node in enumerate(graph.nodes)) for graph in graphs
    )


def _line(number: int, node: ExampleNode) -> str:
    shape = "".join(f" {dim}" for dim in node.shape)
    if node.op == "input":
        return f"  input {number}{shape}\n"
    return f"  {node.op} {number} inputs: {' '.join(map(str, node.inputs))} shape:{shape}\n"
