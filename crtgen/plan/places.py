"""What a graph asks of memory: places, and what each node does to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crtgen.errors import UnsupportedError
from crtgen.ir import Graph, Node
from crtgen.kernels.kernel import Kernel

__all__ = ["Demand", "Place", "Task", "find_demand"]


@dataclass(frozen=True, slots=True)
class Place:
    """One piece of memory: a value together with all its aliases.

    ``size`` is bytes, ``writer`` the node that fills it (None: an input of the graph), ``readers`` a bit
    per node that reads it, ``kept`` whether it has to hold its data until the run is over.
    """

    values: tuple[str, ...]
    size: int
    writer: int | None
    readers: int
    kept: bool


@dataclass(frozen=True, slots=True)
class Task:
    """What a node does to the places.

    ``after`` has a bit per node that must run before. ``leads`` maps (written place, read place) to the
    kernel's lead where it may lay the first over the second.
    """

    reads: frozenset[int]
    writes: tuple[int, ...]
    scratch: int
    after: int
    leads: Mapping[tuple[int, int], int]


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Places and tasks of a graph; a task's number is its node's position in the graph."""

    places: tuple[Place, ...]
    tasks: tuple[Task, ...]


def find_demand(graph: Graph, kernels: Mapping[str, Kernel], keep_inputs: bool) -> Demand:
    """The places of ``graph``, aliases and what kernels take over united, and what its nodes do to them.

    Raises ``UnsupportedError`` where an output is a constant or a node has no kernel.
    """
    for node in graph.nodes:
        if node.name not in kernels:
            raise UnsupportedError(f"no kernel computes {node.op.name}", where=f"{graph.name}: {node.name}")
    roots = _roots(graph, kernels, keep_inputs)
    _check_outputs(graph, roots)
    names = [v for v in roots if roots[v] == v]
    index = {name: i for i, name in enumerate(names)}
    where = {value: index[root] for value, root in roots.items() if root in index}
    tasks = _tasks(graph, kernels, where)
    return Demand(_places(graph, where, names, tasks, keep_inputs), tasks)


def _roots(graph: Graph, kernels: Mapping[str, Kernel], keep_inputs: bool) -> dict[str, str]:
    """For every value that is not a constant, the value in whose place it lies."""
    roots = {name: name for name in graph.inputs}
    for node in graph.nodes:
        kernel = kernels[node.name]
        same = kernel.is_alias or _takes_over(graph, node, kernel, roots, keep_inputs)
        for output in node.outputs:
            roots[output] = roots.get(node.inputs[0], node.inputs[0]) if same else output
        if kernel.is_alias:
            _check_alias(graph, node, kernel)
    return roots


def _takes_over(
    graph: Graph, node: Node, kernel: Kernel, roots: Mapping[str, str], keep_inputs: bool
) -> bool:
    """Whether the kernel may write over its first input in place, and nothing else needs what lies there."""
    if not any(permit.exact for permit in kernel.inplace) or node.inputs[0] not in roots:
        return False
    sig = graph.signature(node)
    if sig.x.nbytes != sig.y.nbytes:
        return False
    members = [name for name, root in roots.items() if root == roots[node.inputs[0]]]
    needed = {*graph.outputs, *(graph.inputs if keep_inputs else ())}
    return all(name not in needed and len(graph.consumers(name)) == 1 for name in members)


def _check_alias(graph: Graph, node: Node, kernel: Kernel) -> None:
    sig = graph.signature(node)
    if len(node.outputs) != 1 or sig.x.nbytes != sig.y.nbytes or kernel.scratch:
        raise ValueError(f"{node.name}: an alias has one output of its input's size and no scratch")


def _check_outputs(graph: Graph, roots: Mapping[str, str]) -> None:
    for name in {**dict.fromkeys(graph.outputs), **roots}:
        root = roots.get(name, name)
        if root in roots:
            continue
        raise UnsupportedError(
            f"{name} is the constant {root}: no run computes it" if name != root else f"{name} is a constant",
            where=graph.name,
            hint="remove the output from the model, or fold constants first",
        )


def _places(
    graph: Graph, where: Mapping[str, int], names: Sequence[str], tasks: Sequence[Task], keep_inputs: bool
) -> tuple[Place, ...]:
    members: list[list[str]] = [[] for _ in names]
    for value, place in where.items():
        members[place].append(value)
    writers = {place: i for i, task in enumerate(tasks) for place in task.writes}
    readers = [sum(1 << i for i, task in enumerate(tasks) if p in task.reads) for p in range(len(names))]
    kept = {where[name] for name in graph.outputs}
    if keep_inputs:
        kept |= {where[name] for name in graph.inputs}
    return tuple(
        Place(tuple(members[i]), graph.values[name].nbytes, writers.get(i), readers[i], i in kept)
        for i, name in enumerate(names)
    )


def _tasks(graph: Graph, kernels: Mapping[str, Kernel], where: Mapping[str, int]) -> tuple[Task, ...]:
    producer = {name: i for i, node in enumerate(graph.nodes) for name in node.outputs}
    return tuple(_task(node, kernels[node.name], where, producer) for node in graph.nodes)


def _task(node: Node, kernel: Kernel, where: Mapping[str, int], producer: Mapping[str, int]) -> Task:
    reads = frozenset(where[name] for name in node.inputs if name in where)
    after = 0
    for name in node.inputs:
        after |= 1 << producer[name] if name in producer else 0
    if kernel.is_alias:
        return Task(reads, (), 0, after, {})
    writes = tuple(where[name] for name in node.outputs if where[name] not in reads)
    return Task(reads, writes, kernel.scratch, after, _leads(node, kernel, where))


def _leads(node: Node, kernel: Kernel, where: Mapping[str, int]) -> dict[tuple[int, int], int]:
    """Leave by places: a place that is read through several inputs needs leave for each of them."""
    leave = {(permit.output, permit.input): permit.lead for permit in kernel.inplace if not permit.exact}
    leads: dict[tuple[int, int], int] = {}
    for o, output in enumerate(node.outputs):
        for place in {where[name] for name in node.inputs if name in where}:
            asked = [(o, i) for i, name in enumerate(node.inputs) if where.get(name) == place]
            if all(pair in leave for pair in asked):
                leads[where[output], place] = max(leave[pair] for pair in asked)
    return leads
