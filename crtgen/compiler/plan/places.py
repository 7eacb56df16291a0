"""Memory needs of a schedule: its places, and the effect of each item on them.

The search for an order and the layout of the arena ask the same few questions a million times: the size of a
place, from which task to which it is needed, and what may overwrite it. Here the graph is reduced to the
answers.

- A **place** (``Buffer``) is a value together with its aliases, which have no memory of their own, and with
  an output of the same size that a kernel writes over it, if nothing else reads the input.
- A **task** is an item of the schedule, known by its position. Sets of tasks are integers with a bit per
  task: a place is dead once all bits of ``readers`` are among the tasks that ran.
- Any other output may begin the kernel's **lead** before an input that has no later reader, and overwrite it
  from there. Without a lead the two are apart.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from crtgen.base.errors import UnsupportedError
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel
from crtgen.compiler.plan.homes import Homes
from crtgen.compiler.plan.plan import Item, signature_of
from crtgen.network.ir import Graph

__all__ = ["Buffer", "BufferUse", "Liveness", "find_leads", "find_liveness"]

_NO_HOMES = Homes()


@dataclass(frozen=True, slots=True)
class Buffer:
    """One piece of memory: a value together with all its aliases.

    ``size`` is in bytes, ``writer`` is the task that fills it (None: an input of the graph), ``readers`` has
    a bit per task that reads it, and ``kept`` is true if it must hold its data until the run ends.
    """

    values: tuple[str, ...]
    size: int
    writer: int | None
    readers: int
    kept: bool


@dataclass(frozen=True, slots=True)
class BufferUse:
    """Places that an item of the schedule reads and writes.

    ``after`` has a bit for each task that must run before the item. ``leads`` maps (written place, read
    place) to the kernel's lead if the first may overwrite the second.
    """

    reads: frozenset[int]
    writes: tuple[int, ...]
    scratch: int
    after: int
    leads: Mapping[tuple[int, int], int]


@dataclass(frozen=True, slots=True, eq=False)
class Liveness:
    """Places and tasks of a schedule; a task's index is its item's position."""

    places: tuple[Buffer, ...]
    tasks: tuple[BufferUse, ...]


def find_liveness(
    graph: Graph,
    items: Sequence[Item],
    kernels: Mapping[str, Kernel],
    keep_inputs: bool,
    homes: Homes = _NO_HOMES,
) -> Liveness:
    """Return the places of ``graph``, with aliases and overwritten inputs merged, and the effects of its
    items on them.

    A value with a home has no place. Raises ``UnsupportedError`` if an output is a constant.
    """
    roots = _roots(graph, items, kernels, keep_inputs, homes)
    _check_outputs(graph, roots, homes)
    names = [v for v in roots if roots[v] == v and v not in homes.names]
    index = {name: i for i, name in enumerate(names)}
    where = {value: index[root] for value, root in roots.items() if root in index}
    tasks = _tasks(items, kernels, where, homes)
    return Liveness(_places(graph, where, names, tasks, keep_inputs), tasks)


def _roots(
    graph: Graph, items: Sequence[Item], kernels: Mapping[str, Kernel], keep_inputs: bool, homes: Homes
) -> dict[str, str]:
    # For every input and every computed value, the value whose place it shares.
    roots = {name: name for name in graph.inputs}
    members = {name: [name] for name in graph.inputs}
    readers: dict[str, int] = Counter(name for item in items for name in set(item.inputs))
    needed = {*graph.lasting, *(graph.inputs if keep_inputs else ())}
    for item in items:
        kernel = kernels[item.name]
        first = roots.get(item.inputs[0])
        together = members.get(first, []) if first is not None else []
        same = kernel.is_alias
        if (
            not same
            and first is not None
            and first not in homes.names
            and _may_take_over(graph, item, kernel)
        ):
            same = all(name not in needed and readers[name] == 1 for name in together)
        for output in item.outputs:
            roots[output] = (first or item.inputs[0]) if same else output
            members.setdefault(roots[output], []).append(output)
        if kernel.is_alias:
            _check_alias(graph, item, kernel)
    return roots


def _may_take_over(graph: Graph, item: Item, kernel: Kernel) -> bool:
    # True if the kernel may overwrite its first input in place, as long as nothing else needs that.
    sig = signature_of(item, graph)
    return any(permit.exact for permit in kernel.inplace) and sig.x.nbytes == sig.y.nbytes


def _check_alias(graph: Graph, item: Item, kernel: Kernel) -> None:
    sig = signature_of(item, graph)
    if len(item.outputs) != 1 or sig.x.nbytes != sig.y.nbytes or kernel.scratch:
        raise ValueError(f"{item.name}: an alias has one output of its input's size and no scratch")


def _check_outputs(graph: Graph, roots: Mapping[str, str], homes: Homes) -> None:
    for name in {**dict.fromkeys(graph.lasting), **roots}:
        root = roots.get(name, name)
        if root in roots or root in homes.names:
            continue
        raise UnsupportedError(
            f"{name} is the constant {root}: no run computes it" if name != root else f"{name} is a constant",
            where=graph.name,
            hint="remove the output from the model, or fold constants first",
        )


def _places(
    graph: Graph,
    where: Mapping[str, int],
    names: Sequence[str],
    tasks: Sequence[BufferUse],
    keep_inputs: bool,
) -> tuple[Buffer, ...]:
    members: list[list[str]] = [[] for _ in names]
    for value, place in where.items():
        members[place].append(value)
    writers = {place: i for i, task in enumerate(tasks) for place in task.writes}
    readers = [0] * len(names)
    for i, task in enumerate(tasks):
        for place in task.reads:
            readers[place] |= 1 << i
    kept = {where[name] for name in graph.lasting if name in where}
    if keep_inputs:
        kept |= {where[name] for name in graph.inputs if name in where}
    return tuple(
        Buffer(tuple(members[i]), graph.values[name].nbytes, writers.get(i), readers[i], i in kept)
        for i, name in enumerate(names)
    )


def _tasks(
    items: Sequence[Item], kernels: Mapping[str, Kernel], where: Mapping[str, int], homes: Homes
) -> tuple[BufferUse, ...]:
    producer = {name: i for i, item in enumerate(items) for name in item.outputs}
    position = {item.name: i for i, item in enumerate(items)}
    fed = [i for i, item in enumerate(items) if kernels[item.name].fed]
    tasks = []
    for item in items:
        before = [producer[name] for name in item.inputs if name in producer]
        before += [position[name] for name in homes.first.get(item.name, ()) if name in position]
        before += [i for i in fed if items[i] is not item]
        tasks.append(_task(item, kernels[item.name], where, sum(1 << i for i in set(before))))
    return tuple(tasks)


def _task(item: Item, kernel: Kernel, where: Mapping[str, int], after: int) -> BufferUse:
    reads = frozenset(where[name] for name in item.inputs if name in where)
    if kernel.is_alias:
        return BufferUse(reads, (), 0, after, {})
    written = [where[name] for name in item.outputs if name in where]
    writes = tuple(place for place in written if place not in reads)
    return BufferUse(reads, writes, kernel.scratch, after, find_leads(item, kernel.inplace, where))


def find_leads(
    item: Item, inplace: Iterable[InPlace], where: Mapping[str, int]
) -> Mapping[tuple[int, int], int]:
    """Return leads by places. A place that is read through several inputs must be overwritable through each
    of them.
    """
    permits = {(permit.output, permit.input): permit.lead for permit in inplace if not permit.exact}
    leads: dict[tuple[int, int], int] = {}
    for o, output in enumerate(item.outputs):
        if output not in where:
            continue
        for place in {where[name] for name in item.inputs if name in where}:
            asked = [(o, i) for i, name in enumerate(item.inputs) if where.get(name) == place]
            if all(pair in permits for pair in asked):
                leads[where[output], place] = max(permits[pair] for pair in asked)
    return leads
