"""Branches and loops with subgraphs that grow as networks do."""

from collections.abc import Sequence

import numpy as np

from tests.system.grown.network import Network, Step
from tests.tflite_builder import Options, Tensor

__all__ = ["steps"]

_DEEPEST = 2


def steps(inside: Sequence[Step]) -> list[Step]:
    """The branch and the loop, whose subgraphs grow by the steps ``inside``."""

    def branch(net: Network) -> None:
        """Two subgraphs on the same tensors, of which a truth value chooses one."""
        which = [t for t in net.computed(types=["bool"]) if not t.shape]
        given = _given(net)
        if not which or not given:
            return
        numbers = [_subgraph(net, given, inside) for _ in range(2)]
        outputs = [net.like(x, x.shape) for x in given]
        options = Options("IfOptions", ThenSubgraphIndex=numbers[0], ElseSubgraphIndex=numbers[1])
        net.add("IF", [net.pick(which), *given], outputs, options)

    def loop(net: Network) -> None:
        """Some rounds that a counter counts, which goes in and comes out as well."""
        given = _given(net)
        if not given:
            return
        counter = net.constant(net.integer(0, 2))
        condition = net.inner([counter, *given], net.rough)
        less = condition.tensor("bool", ())
        condition.add("LESS", [condition.tensors[condition.inputs[0]], condition.constant(3)], less)
        condition.outputs = [less.name]
        body = _subgraph(net, [counter, *given], inside)
        end = net.tensor("int32", ())
        outputs = [end, *(net.like(x, x.shape) for x in given)]
        options = Options("WhileOptions", CondSubgraphIndex=condition.finish(), BodySubgraphIndex=body)
        net.add("WHILE", [counter, *given], outputs, options)

    return [branch, branch, branch, loop, loop]


def _given(net: Network) -> list[Tensor]:
    """A few small tensors, unless subgraphs are too deep already."""
    first = net.source()
    if first is None or net.depth == _DEEPEST:
        return []
    more = [net.source() for _ in range(net.integer(0, 2))]
    named = {t.name: t for t in (first, *more) if t is not None}
    return list(named.values())


def _subgraph(net: Network, given: Sequence[Tensor], inside: Sequence[Step]) -> int:
    """A subgraph whose outputs are like its inputs; a counter, if that is the first, goes up by one."""
    made = net.inner(given, {t.name for t in given if t.dtype == "float32"})
    for _ in range(made.integer(1, 8)):
        made.pick(inside)(made)
    for x in [made.tensors[name] for name in made.inputs]:
        if x.dtype == "int32":
            up = made.constant(np.int32(1))
            made.outputs.append(made.add("ADD", [x, up], made.like(x, ()), Options("AddOptions")).name)
            continue
        alike = [t for t in made.computed(len(x.shape), [x.dtype]) if tuple(t.shape) == tuple(x.shape)]
        made.outputs.append(made.alike(made.pick(alike[-2:]), x).name)
    return made.finish()
