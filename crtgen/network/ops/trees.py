"""Ensembles of decision trees: ``trees``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, DType, Op, Signature, Value
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, floats, make

__all__ = ["Forest", "TreeNode", "TreeTest", "Trees", "cases", "grown"]

Reals = npt.NDArray[np.float32]


class TreeTest(Enum):
    """The comparison of a feature with a node's value, as ONNX calls it."""

    LEQ = "BRANCH_LEQ"
    LT = "BRANCH_LT"
    GTE = "BRANCH_GTE"
    GT = "BRANCH_GT"
    EQ = "BRANCH_EQ"
    NEQ = "BRANCH_NEQ"

    def holds(self, x: Reals, value: np.float32) -> npt.NDArray[np.bool_]:
        """Compare in float32; only NEQ holds for a NaN."""
        functions = {
            TreeTest.LEQ: np.less_equal,
            TreeTest.LT: np.less,
            TreeTest.GTE: np.greater_equal,
            TreeTest.GT: np.greater,
            TreeTest.EQ: np.equal,
            TreeTest.NEQ: np.not_equal,
        }
        return np.asarray(functions[self](x, value))


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node of a tree: the index of the next node is ``yes`` if the comparison holds, otherwise ``no``.

    With ``missing`` the comparison also holds for a NaN. A leaf has no comparison; its ``scores`` are pairs
    of a target and a value to add to it.
    """

    branch: TreeTest | None = None
    feature: int = 0
    value: float = 0.0
    missing: bool = False
    yes: int = 0
    no: int = 0
    scores: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """Trees, given by the indices of their ``roots``; each node belongs to exactly one tree."""

    nodes: tuple[TreeNode, ...]
    roots: tuple[int, ...]

    @property
    def leaves(self) -> int:
        return sum(node.branch is None for node in self.nodes)


@dataclass(frozen=True, slots=True)
class Trees(Op):
    """``x[N, features] -> [N, targets]``: the scores of the leaves that a row reaches, in the order of the
    trees.

    They are added up in float32, in the order of ONNX Runtime with one thread; or the minimum or maximum is
    taken.
    """

    name: ClassVar[str] = "trees"

    forest: Forest
    targets: int
    aggregate: str = "SUM"

    def attributes(self) -> str:
        forest = self.forest
        return f"trees={len(forest.roots)} leaves={forest.leaves} targets={self.targets} {self.aggregate}"

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        require(x.dtype is DType.FLOAT32, f"the input is {x.dtype.value} instead of float32")
        require(len(x.shape) == 2, f"an input of {len(x.shape)} dimensions instead of 2")
        inner = (node.feature for node in self.forest.nodes if node.branch is not None)
        most = max(inner, default=0)
        require(most < x.shape[1], f"a node compares feature {most} of {x.shape[1]}")
        return (((x.shape[0], self.targets), DType.FLOAT32),)

    def macs(self, sig: Signature) -> int:
        return 0

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x = arrays[0].astype(np.float32)
        start = {"SUM": 0.0, "MIN": np.inf, "MAX": -np.inf}[self.aggregate]
        total = np.full(sig.y.shape, start, np.float32)
        step = {"SUM": np.add, "MIN": np.minimum, "MAX": np.maximum}[self.aggregate]
        for root in self.forest.roots:
            for rows, node in self._reached(root, x):
                for target, score in node.scores:
                    total[rows, target] = step(total[rows, target], np.float32(score))
        return (total,)

    def _reached(self, root: int, x: Reals) -> Iterator[tuple[npt.NDArray[np.int64], TreeNode]]:
        # The leaves of a tree, each with the rows that reach it.
        waiting = [(root, np.arange(len(x)))]
        while waiting:
            index, rows = waiting.pop()
            node = self.forest.nodes[index]
            if node.branch is None:
                yield rows, node
                continue
            column = x[rows, node.feature]
            holds = node.branch.holds(column, np.float32(node.value)) | (node.missing & np.isnan(column))
            waiting += [(node.yes, rows[holds]), (node.no, rows[~holds])]


def grown(
    seed: int,
    trees: int,
    depth: int,
    features: int,
    targets: int,
    kinds: Sequence[TreeTest],
    few: bool = False,
) -> Forest:
    """Make a random forest with few different thresholds.

    A leaf scores all targets; with ``few``, only the target of its tree.
    """
    random = np.random.default_rng(seed)
    nodes: list[TreeNode] = []

    def grow(left: int, target: int) -> int:
        at = len(nodes)
        nodes.append(TreeNode())
        if left == 0 or (left < depth and random.random() < 0.2):
            chosen = [target] if few else range(targets)
            scores = tuple((t, float(np.float32(random.normal()))) for t in chosen)
            nodes[at] = TreeNode(scores=scores)
            return at
        value = float(np.float32(random.choice([-2.5, -1.0, -0.0, 0.0, 0.25, 1.0, 3.0])))
        kind = kinds[int(random.integers(len(kinds)))]
        feature, missing = int(random.integers(features)), bool(random.integers(2))
        yes = grow(left - 1, target)
        no = grow(left - 1, target)
        nodes[at] = TreeNode(kind, feature, value, missing, yes, no)
        return at

    roots = tuple(grow(depth, tree % targets) for tree in range(trees))
    return Forest(tuple(nodes), roots)


def cases() -> Iterator[Case]:
    x = floats("x", (3, 4))
    for branch in TreeTest:
        yield make(f"{branch.name.lower()}_onnx", Trees(grown(1, 3, 4, 4, 1, [branch]), 1), [x])
    every = tuple(TreeTest)
    yield make("all_onnx", Trees(grown(2, 5, 5, 4, 3, every), 3), [x])
    yield make("each_onnx", Trees(grown(3, 6, 4, 4, 3, every, few=True), 3), [x])
    yield make("least_onnx", Trees(grown(4, 5, 3, 4, 2, every), 2, "MIN"), [x])
    yield make("greatest_onnx", Trees(grown(5, 5, 3, 4, 1, every), 1, "MAX"), [x])
    yield make("leaf_onnx", Trees(grown(6, 3, 0, 1, 1, every), 1), [floats("x", (2, 1))])
    uneven = (TreeNode(TreeTest.LEQ, 0, 0.5, False, 1, 2), TreeNode(scores=((1, 2.0),)), TreeNode())
    yield make("uneven_onnx", Trees(Forest(uneven, (0,)), 2), [x])
