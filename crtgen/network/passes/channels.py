"""Selects the channels that a network needs: those that vary and are read, and those on which they depend."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crtgen.network.ir import Graph, Index, Node
from crtgen.network.ops import INT8, Weighted, channels
from crtgen.network.passes.ranges import Interval, Mask
from crtgen.network.passes.wiring import Mixing, channel_groups, mixing

__all__ = ["Selection", "select_channels"]


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Channels to keep: ``kept`` for every value; ``mixings`` describe their layers."""

    kept: Mapping[str, Mask]
    mixings: Mapping[str, Mixing]

    def shrinks(self, name: str) -> bool:
        return not self.kept[name].all()


@dataclass(frozen=True, slots=True, eq=False)
class _Wires:
    """The channel structure of a node: ``channel_groups`` if it keeps channels apart, ``mixing`` if it sums
    over them.

    At least ``least`` channels of its outputs are kept: a fully connected layer with one scale is computed
    differently than one with several, so two are kept.
    """

    node: Node
    channel_groups: Mapping[str, Index] | None
    mixing: Mixing | None
    least: int

    @property
    def pinned(self) -> Iterator[str]:
        # Values that keep all channels: all of an unknown operator, weights, broadcast operands.
        for position, name in enumerate((*self.node.inputs, *self.node.outputs)):
            output = position >= len(self.node.inputs)
            if self.mixing is not None:
                if position > 0 and not output:
                    yield name
            elif self.channel_groups is None or name not in self.channel_groups:
                yield name


def select_channels(graph: Graph, known: Mapping[str, Interval], multiple: int = 1) -> Selection:
    """Select the fewest channels that leave all outputs of the network unchanged.

    The number per value is rounded up to a multiple of ``multiple`` if there are enough channels; some
    constant channels then stay.
    """
    wires = [_wires(graph, node, known) for node in graph.nodes]
    kept = {name: np.zeros(channels(value), np.bool_) for name, value in graph.values.items()}
    fixed = {name for w in wires for name in w.pinned} | {*graph.inputs, *graph.lasting}
    fixed |= {name for name, _ in graph.states}
    fixed |= {name for name, value in graph.values.items() if value.dtype is not INT8.activations}
    for name in fixed:
        kept[name][:] = True
    _settle(wires, kept)
    for name, mask in kept.items():
        least = max((w.least for w in wires if name in w.node.outputs), default=1)
        if _keep_more(mask, max(least, -(-int(mask.sum()) // multiple) * multiple)):
            _settle(wires, kept)
    return Selection(kept, {w.node.name: w.mixing for w in wires if w.mixing is not None})


def _wires(graph: Graph, node: Node, known: Mapping[str, Interval]) -> _Wires:
    apart, least = channel_groups(graph, node), 1
    if isinstance(node.op, Weighted):
        least = node.op.fewest_channels(graph.signature(node))
    return _Wires(node, apart, mixing(graph, node, known), least)


def _settle(wires: Sequence[_Wires], kept: dict[str, Mask]) -> None:
    # Keep what the kept channels need, from the end to the beginning, until nothing is missing.
    before, now = -1, _count(kept)
    while before < now:
        for wire in reversed(wires):
            if wire.mixing is not None:
                kept[wire.node.inputs[0]] |= wire.mixing.needed[kept[wire.node.outputs[0]]].any(axis=0)
            elif wire.channel_groups is not None:
                _tie(wire.channel_groups, kept)
        before, now = now, _count(kept)


def _count(kept: Mapping[str, Mask]) -> int:
    return sum(int(mask.sum()) for mask in kept.values())


def _tie(apart: Mapping[str, Index], kept: dict[str, Mask]) -> None:
    # Keep a group whole if one of its channels is kept.
    stays = np.zeros(1 + max(int(ids.max()) for ids in apart.values()), np.bool_)
    for name, ids in apart.items():
        stays[ids[kept[name]]] = True
    for name, ids in apart.items():
        kept[name] |= stays[ids]


def _keep_more(mask: Mask, count: int) -> bool:
    # Keep the first of the others until ``count`` are kept, or all; whether that changed anything.
    more = np.flatnonzero(~mask)[: max(count - int(mask.sum()), 0)]
    mask[more] = True
    return len(more) > 0
