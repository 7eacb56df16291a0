"""Trees as a table of nodes in flash, which one loop walks.

An inner node is two words: a key, and the feature with the distance to the node that follows if the
comparison fails. If it holds, the next node in the table follows, so a tree is laid out depth first and
half of the steps are an increment.

**Floats are compared as integers.** For floats that are not NaN, ``key(x)``, the bits of the magnitude with
the float's sign as an integer's, has the order of the floats, and both zeros have the key 0. So ``x <= t`` is
``key(x) <= key(t)``: one integer comparison, where Cortex-M0+ and M3 would call a function. The keys of the
features are made once per row, the keys of the thresholds when code is generated.

**Every comparison becomes "not above".** ``x < t`` is ``key(x) <= key(t) - 1``, since keys are integers;
``x > t`` is ``x <= t`` with the two sides exchanged. ``x == t`` is ``x <= t`` and not ``x < t``: the second
node needs the way to the other side once more, which is a node whose comparison always fails. For example,
with the side Y if ``x == 2`` and N otherwise::

    0  x <= 2    else 3 + size of Y    (N)
    1  x < 2     else 3                (Y)
    2  never     else 3 + size of Y    (N)
    3  Y ...
       N ...

**A NaN has two keys.** No comparison but ``!=`` holds for a NaN, unless the node says so. In the form "not
above" a NaN goes to the first side at some nodes and to the second side at others. It has the greatest
integer as its key, with which each comparison fails. If there are nodes where it has to hold, there is a
second array of keys, in which it has the least integer, and these nodes name the feature of that array.

**Leaves of forests are alike.** Most leaves of a grown forest have seen one class, so their shares are a one
and zeros. Equal lists of scores are stored once, and sums leave zeros out: a forest of ten digits takes a
third of the flash and, on Cortex-M0+, of the instructions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import fsum

import numpy as np

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.trees import Forest, TreeNode, Trees, TreeTest

__all__ = ["TreesView", "float_key"]

_NEVER = -(1 << 31)
_LEAF = -(1 << 31)
_MOST_FEATURES, _MOST_WAY = 1 << 16, 1 << 15


@dataclass(frozen=True, slots=True)
class TreesView:
    """Trees: ``stride`` is the number of words of a node; ``step`` is C code on ``*y`` and ``score``.

    ``is_plain``: each leaf has one score, for the target of its tree. ``is_dense``: each leaf has one for
    every target. Otherwise scores are stored beside their targets.
    """

    rows: int
    features: int
    targets: int
    trees: int
    stride: int
    has_low: bool
    is_plain: bool
    is_dense: bool
    start: str
    step: str


def float_key(x: float) -> int:
    """Return an integer that has the order of float32 values; NaN is not allowed."""
    bits = int(np.float32(x).view(np.uint32))
    return -(bits & 0x7FFFFFFF) if bits >> 31 else bits


@dataclass(slots=True)
class _Node:
    key: int
    feature: int = -1  # of a leaf: none
    low: bool = False
    way: int = 0


@dataclass(slots=True)
class _Table:
    forest: Forest
    is_plain: bool
    nodes: list[_Node] = field(default_factory=list)
    scores: list[tuple[int, float]] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    placed: dict[tuple[tuple[int, bytes], ...], int] = field(default_factory=dict)

    def fill(self) -> None:
        for root in self.forest.roots:
            self.roots.append(len(self.nodes))
            waiting: list[tuple[int, list[int]]] = [(root, [])]
            while waiting:
                index, open_ = waiting.pop()
                for at in open_:
                    self.nodes[at].way = len(self.nodes) - at
                waiting += reversed(list(self._added(self.forest.nodes[index])))

    def _added(self, node: TreeNode) -> Iterator[tuple[int, list[int]]]:
        # The nodes that follow, each with the places that have the way to it.
        at = len(self.nodes)
        if node.branch is None:
            self._leaf(node)
            return
        exact = node.branch in (TreeTest.EQ, TreeTest.NEQ)
        turned = node.branch in (TreeTest.GT, TreeTest.GTE, TreeTest.NEQ)
        first, second = (node.no, node.yes) if turned else (node.yes, node.no)
        low = (turned and not node.missing and not exact) or (node.missing and not turned)
        below = node.branch in (TreeTest.LT, TreeTest.GTE)
        key = float_key(node.value) - below
        self.nodes.append(_Node(key, node.feature, low))
        if not exact:
            yield first, []
            yield second, [at]
            return
        self.nodes.append(_Node(max(key - 1, _NEVER), node.feature))
        self.nodes.append(_Node(_NEVER, node.feature))
        yield first, [at + 1]
        yield second, [at, at + 2]

    def _leaf(self, node: TreeNode) -> None:
        if self.is_plain:
            ((_, score),) = node.scores
            self.nodes.append(_Node(int(np.float32(score).view(np.int32))))
        else:
            exact = tuple((target, np.float32(score).tobytes()) for target, score in node.scores)
            place = self.placed.setdefault(exact, len(self.scores))
            self.scores += node.scores if place == len(self.scores) else ()
            self.nodes.append(_Node(place, way=len(node.scores)))

    def packed(self, features: int, stride: int) -> list[int]:
        words = []
        for node in self.nodes:
            if node.feature < 0:
                words += [node.key, _LEAF | (0 if self.is_plain else node.way), *[0] * (stride - 2)]
                continue
            feature = node.feature + (features if node.low else 0)
            words += (
                [node.key, feature, stride * node.way]
                if stride == 3
                else [node.key, node.way << 16 | feature]
            )
        return words


@design(Trees, types=(DType.FLOAT32,))
def trees(op: Trees, sig: Signature, target: Target) -> Kernel:
    rows, features = sig.x.shape
    leaves = [node for node in op.forest.nodes if node.branch is None]
    own = [_targets(op.forest, root) for root in op.forest.roots]
    is_plain = all(len(n.scores) == 1 for n in leaves) and all(len(t) == 1 for t in own)
    is_dense = all([t for t, _ in n.scores] == list(range(op.targets)) for n in leaves)
    forest = op.forest
    if not is_plain and op.aggregate == "SUM":
        thin = _without_zeros(forest)
        if not is_dense or 2 * _count(thin) < _count(forest):
            forest, is_dense = thin, False
    table = _Table(forest, is_plain)
    table.fill()
    has_low = any(node.low for node in table.nodes)
    near = all(node.way < _MOST_WAY for node in table.nodes) and features << has_low <= _MOST_FEATURES
    stride = 2 if near else 3
    start, step = {
        "SUM": ("0.0f", "*y + score"),
        "MIN": ("__builtin_inff()", "(score < *y) ? score : *y"),
        "MAX": ("-__builtin_inff()", "(score > *y) ? score : *y"),
    }[op.aggregate]
    view = TreesView(rows, features, op.targets, len(own), stride, has_low, is_plain, is_dense, start, step)
    consts = tuple(_consts(table, view, [min(t, default=0) for t in own]))
    scratch = 4 * features << has_low
    return Kernel("trees", "trees.c.j2", view, consts, scratch=scratch, work=_work(forest, view))


def _without_zeros(forest: Forest) -> Forest:
    # A sum starts with 0, and a zero of either sign that is added changes nothing.
    kept = (tuple((t, s) for t, s in node.scores if np.float32(s) != 0) for node in forest.nodes)
    nodes = (replace(node, scores=scores) for node, scores in zip(forest.nodes, kept, strict=True))
    return Forest(tuple(nodes), forest.roots)


def _count(forest: Forest) -> int:
    return sum(len(node.scores) for node in forest.nodes)


def _targets(forest: Forest, root: int) -> set[int]:
    # The targets that the leaves of a tree score.
    found, waiting = set[int](), [root]
    while waiting:
        node = forest.nodes[waiting.pop()]
        found.update(t for t, _ in node.scores)
        waiting += [] if node.branch is None else [node.yes, node.no]
    return found


def _consts(table: _Table, view: TreesView, own: Sequence[int]) -> Iterator[Const]:
    words = np.array(table.packed(view.features, view.stride), np.int32)
    note = "key; feature, and words to the other side" if view.stride == 3 else "key; way << 16 | feature"
    yield Const.of("nodes", words, 4, f"{view.stride} words for each node: {note}")
    yield Const.of("roots", np.array(table.roots, np.int32) * view.stride, 4, "of each tree: its first word")
    if not view.is_plain:
        yield Const.of("scores", np.array([s for _, s in table.scores] or [0], np.float32))
        if not view.is_dense:
            places = [t for t, _ in table.scores] or [0]
            yield Const.of("targets", np.array(places, np.int32), 4, "of each score")
    elif view.targets > 1:
        yield Const.of("targets", np.array(own, np.int32), 4, "of each tree")


def _work(forest: Forest, view: TreesView) -> Work:
    # As many nodes as there are to a leaf on average; which ones, the inputs decide.
    work = Work().block("feature", view.rows * view.features, 1 + view.has_low).block("row", view.rows)
    work.block("node", view.rows * fsum(_depth(forest, root) for root in forest.roots))
    work.block("tree", view.rows * view.trees)
    if not view.is_plain:
        leaves = [len(node.scores) for node in forest.nodes if node.branch is None]
        work.block("score", view.rows * view.trees * sum(leaves) / len(leaves))
    return work


def _depth(forest: Forest, root: int) -> float:
    # Nodes above a leaf, on average over the leaves of a tree.
    depths, waiting = list[int](), [(root, 0)]
    while waiting:
        index, depth = waiting.pop()
        node = forest.nodes[index]
        if node.branch is None:
            depths.append(depth)
        else:
            waiting += [(node.yes, depth + 1), (node.no, depth + 1)]
    return sum(depths) / len(depths)
