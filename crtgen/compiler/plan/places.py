"""Memory needs of a schedule: its places, and the effect of each item on them.

The search for an order and the layout of the arena ask the same few questions a million times: the size of a
place, from which task to which it is needed, and what may overwrite it. Here the graph is reduced to the
answers.

- A **place** (``Buffer``) is a value together with its aliases, which have no memory of their own, and with
  an output of the same size that a kernel writes over it, if nothing else reads the input. Values that are
  joined without a copy are parts of one place: the first of them to be computed is its writer, and the
  others are computed later, with the place as something that they read.
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

__all__ = ["Buffer", "BufferUse", "Liveness", "find_leads", "find_liveness", "find_parts"]

_NO_HOMES = Homes()


@dataclass(frozen=True, slots=True)
class Buffer:
    """One piece of memory: a value together with all its aliases, and its parts if it is joined of some.

    ``starts`` has the byte at which each of the values begins. ``size`` is in bytes, ``writer`` is the task
    that fills it (None: an input of the graph), ``readers`` has a bit per task that reads it, and ``kept`` is
    true if it must hold its data until the run ends.
    """

    values: tuple[str, ...]
    size: int
    writer: int | None
    readers: int
    kept: bool
    starts: tuple[int, ...]


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
    inside = find_parts(graph, items, kernels)
    roots = _roots(graph, items, kernels, keep_inputs, homes, inside)
    _check_outputs(graph, roots, homes)
    names = [v for v in roots if roots[v] == v and v not in homes.names]
    index = {name: i for i, name in enumerate(names)}
    where = {value: index[root] for value, root in roots.items() if root in index}
    tasks = _tasks(items, kernels, where, homes, inside)
    return Liveness(_places(graph, where, names, tasks, keep_inputs, inside), tasks)


def find_parts(
    graph: Graph, items: Sequence[Item], kernels: Mapping[str, Kernel]
) -> Mapping[str, tuple[str, int]]:
    """Return the parts of concatenations that copy nothing: by a part's name, the result and the part's first
    byte in it.

    Aliases of a part, and what it is an alias of, are parts, too.
    """
    found: dict[str, tuple[str, int]] = {}
    maker = {output: item for item in items for output in item.outputs}
    for item in reversed(items):
        if not kernels[item.name].joins:
            continue
        whole, start = found.get(item.outputs[0], (item.outputs[0], 0))
        for name in item.inputs:
            part: str | None = name
            while part is not None:
                found[part] = whole, start
                made = maker.get(part)
                is_view = made and kernels[made.name].is_alias and not kernels[made.name].joins
                part = made.inputs[0] if made and is_view else None
            start += graph.values[name].nbytes
    for item in items:
        kernel = kernels[item.name]
        if kernel.is_alias and not kernel.joins and item.inputs[0] in found:
            found[item.outputs[0]] = found[item.inputs[0]]
    return found


def _roots(
    graph: Graph,
    items: Sequence[Item],
    kernels: Mapping[str, Kernel],
    keep_inputs: bool,
    homes: Homes,
    inside: Mapping[str, tuple[str, int]],
) -> dict[str, str]:
    # For every input and every computed value, the value whose place it shares.
    roots = {name: inside.get(name, (name,))[0] for name in graph.inputs}
    members: dict[str, list[str]] = {}
    for name, root in roots.items():
        members.setdefault(root, []).append(name)
    readers: dict[str, int] = Counter(name for item in items for name in set(item.inputs))
    needed = {*graph.lasting, *(graph.inputs if keep_inputs else ())}
    for item in items:
        kernel = kernels[item.name]
        first = roots.get(item.inputs[0])
        together = members.get(first, []) if first is not None else []
        same = kernel.is_alias and not kernel.joins
        if (
            not kernel.is_alias
            and first is not None
            and first not in homes.names
            and _may_take_over(graph, item, kernel)
        ):
            same = all(name not in needed and readers[name] == 1 for name in together)
        for output in item.outputs:
            alone = (first or item.inputs[0]) if same else output
            roots[output] = inside[output][0] if output in inside else alone
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
    given = sum(value.nbytes for value in sig.inputs) if kernel.joins else sig.x.nbytes
    if len(item.outputs) != 1 or given != sig.y.nbytes or kernel.scratch:
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
    inside: Mapping[str, tuple[str, int]],
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
        Buffer(
            tuple(members[i]),
            graph.values[name].nbytes,
            writers.get(i),
            readers[i],
            i in kept,
            tuple(inside[value][1] if value in inside else 0 for value in members[i]),
        )
        for i, name in enumerate(names)
    )


def _tasks(
    items: Sequence[Item],
    kernels: Mapping[str, Kernel],
    where: Mapping[str, int],
    homes: Homes,
    inside: Mapping[str, tuple[str, int]],
) -> tuple[BufferUse, ...]:
    producer = {name: i for i, item in enumerate(items) for name in item.outputs}
    position = {item.name: i for i, item in enumerate(items)}
    fed = [i for i, item in enumerate(items) if kernels[item.name].fed]
    first = _first_writers(items, kernels, where, inside)
    tasks = []
    for number, item in enumerate(items):
        before = [producer[name] for name in item.inputs if name in producer]
        before += [position[name] for name in homes.first.get(item.name, ()) if name in position]
        before += [i for i in fed if items[i] is not item]
        begun = [where[name] for name in item.outputs if first.get(where.get(name, -1), number) != number]
        before += [first[place] for place in begun if first[place] >= 0]
        after = sum(1 << i for i in set(before))
        tasks.append(_task(item, kernels[item.name], where, after, frozenset(begun), inside))
    return tuple(tasks)


def _first_writers(
    items: Sequence[Item],
    kernels: Mapping[str, Kernel],
    where: Mapping[str, int],
    inside: Mapping[str, tuple[str, int]],
) -> Mapping[int, int]:
    # For each place that has parts, the first item that computes one, or -1 if one was there before.
    parts = [name for name in inside if name in where]
    made = {name for item in items for name in item.outputs}
    first = {where[name]: -1 for name in parts if name not in made}
    for number, item in enumerate(items):
        if not kernels[item.name].is_alias:
            for name in item.outputs:
                if name in inside and name in where:
                    first.setdefault(where[name], number)
    return first


def _task(
    item: Item,
    kernel: Kernel,
    where: Mapping[str, int],
    after: int,
    begun: frozenset[int],
    inside: Mapping[str, tuple[str, int]],
) -> BufferUse:
    # Places in ``begun`` have other parts, which an earlier item wrote.
    reads = begun.union(where[name] for name in item.inputs if name in where)
    if kernel.is_alias:
        return BufferUse(reads, (), 0, after, {})
    written = [where[name] for name in item.outputs if name in where]
    writes = tuple(place for place in written if place not in reads)
    starts = tuple(inside[name][1] if name in inside else 0 for name in item.outputs)
    leads = find_leads(item, kernel.inplace, where, starts)
    return BufferUse(
        reads, writes, kernel.scratch, after, {pair: n for pair, n in leads.items() if pair[0] not in begun}
    )


def find_leads(
    item: Item, inplace: Iterable[InPlace], where: Mapping[str, int], starts: Sequence[int] = ()
) -> Mapping[tuple[int, int], int]:
    """Return leads by places. A place that is read through several inputs must be overwritable through each
    of them. ``starts`` are the first bytes of the outputs within their places.
    """
    permits = {(permit.output, permit.input): permit.lead for permit in inplace if not permit.exact}
    leads: dict[tuple[int, int], int] = {}
    for o, output in enumerate(item.outputs):
        if output not in where:
            continue
        for place in {where[name] for name in item.inputs if name in where}:
            asked = [(o, i) for i, name in enumerate(item.inputs) if where.get(name) == place]
            if all(pair in permits for pair in asked):
                leads[where[output], place] = max(permits[pair] for pair in asked) + (
                    starts[o] if starts else 0
                )
    return leads
