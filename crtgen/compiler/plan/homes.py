"""Values in memory outside of the arena: states, and values that a subgraph shares with its caller.

A state, or a value that a loop carries, gets a new value in each run. If nothing reads the old value after
the new one is computed, the new one is computed in its memory; otherwise it is copied there at the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crtgen.base.errors import UnsupportedError
from crtgen.compiler.kernels.engine.kernel import Kernel
from crtgen.compiler.plan.plan import Item, Outside
from crtgen.network.ir import Graph

__all__ = ["Homes", "find_homes"]


@dataclass(frozen=True, slots=True)
class Homes:
    """``names`` maps values to their homes, ``first`` maps an item to the items that must run before it."""

    names: Mapping[str, str] = field(default_factory=dict)
    first: Mapping[str, frozenset[str]] = field(default_factory=dict)


def find_homes(graph: Graph, items: Sequence[Item], kernels: Mapping[str, Kernel], outside: Outside) -> Homes:
    """Find the home of each value outside of the arena, and the order that this requires.

    Raises ``UnsupportedError`` if an item has no kernel.
    """
    for item in items:
        if item.name not in kernels:
            raise UnsupportedError(f"no kernel computes {item.name}", where=graph.name)
    search = _HomeSearch(items, kernels, {name: name for name in outside.values})
    search.fixed = set() if outside.is_inner else {*graph.inputs, *graph.outputs}
    for home, after in outside.pairs:
        search.settle(home, after)
    return Homes(search.names, {name: frozenset(before) for name, before in search.first.items() if before})


class _HomeSearch:
    def __init__(self, items: Sequence[Item], kernels: Mapping[str, Kernel], names: dict[str, str]) -> None:
        self.items, self.kernels, self.names = items, kernels, names
        self.fixed: set[str] = set()
        self.maker = {output: item for item in items for output in item.outputs}
        self.first: dict[str, set[str]] = {item.name: set() for item in items}
        self._views()

    def settle(self, home: str, after: str) -> None:
        # Let ``after`` be computed in ``home``, if that is possible.
        root = after
        while (item := self.maker.get(root)) is not None and self.kernels[item.name].is_alias:
            if self.kernels[item.name].joins:
                return
            root = item.inputs[0]
        if item is None or root in self.names or self._shares(root):
            return
        if any(permit.exact for permit in self.kernels[item.name].inplace):
            return
        old = {name for name, place in self.names.items() if place == home}
        if not self._may_overwrite(item, root, old):
            return
        readers = {i.name for i in self.items if i is not item and old.intersection(i.inputs)}
        if readers & self._after(item):
            return
        self.first[item.name] |= readers
        self.names[root] = home
        self._views()

    def _views(self) -> None:
        # A reshaped value has the home of its source.
        for item in self.items:
            kernel = self.kernels[item.name]
            if kernel.is_alias and not kernel.joins and item.inputs[0] in self.names:
                self.names[item.outputs[0]] = self.names[item.inputs[0]]

    def _shares(self, root: str) -> bool:
        # True if the value, in any shape, is an input or output of the model.
        shapes = {root}
        for item in self.items:
            if self.kernels[item.name].is_alias and item.inputs[0] in shapes:
                shapes.update(item.outputs)
        return bool(shapes & self.fixed)

    def _may_overwrite(self, item: Item, root: str, old: set[str]) -> bool:
        # True if the item's kernel may write ``root`` over the values ``old`` that it reads.
        output = item.outputs.index(root)
        permits = {p.input for p in self.kernels[item.name].inplace if p.output == output and p.lead <= 0}
        return all(i in permits for i, name in enumerate(item.inputs) if name in old)

    def _after(self, item: Item) -> set[str]:
        # The items that have to run after this one.
        later: dict[str, list[str]] = {}
        for other in self.items:
            makers = (self.maker[name].name for name in other.inputs if name in self.maker)
            for before in (*makers, *self.first[other.name]):
                later.setdefault(before, []).append(other.name)
        found, waiting = set[str](), [item.name]
        while waiting:
            new = set(later.get(waiting.pop(), ())) - found
            found |= new
            waiting.extend(new)
        return found
