"""Tree ensembles as scikit-learn, LightGBM and XGBoost export them (``ai.onnx.ml``).

Scores are ONNX Runtime's, to the last bit before a transformation. Labels follow ONNX Runtime, too, which
deviates from the standard if a class is scored in some leaves only; such ensembles are refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import (
    OnnxConverter,
    OnnxLayer,
    Operand,
    cast,
    number,
    reshaped,
)
from crtgen.network.ir import Array, DType
from crtgen.network.ops import Add, Concat, Logistic, Softmax, StridedSlice, Sub
from crtgen.network.ops.arithmetic import Div
from crtgen.network.ops.compare import Greater
from crtgen.network.ops.function import Neg
from crtgen.network.ops.gather import Gather
from crtgen.network.ops.reduce import ArgMax
from crtgen.network.ops.trees import Forest, TreeNode, Trees, TreeTest

__all__ = ["CONVERTERS"]

_MOST_COPIES = 16
_BRANCHES = {branch.value: branch for branch in TreeTest}
_NUMBERED = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def _list(layer: OnnxLayer, name: str, length: int | None = None, default: Any = None) -> list[Any]:
    # An attribute with an entry for each node; ``default`` for all where it is missing.
    given = layer.attribute(name)
    if given is None or not len(given):
        if length is None or default is None:
            raise ValueError(f"the attribute {name} is missing")
        return [default] * length
    if length is not None and len(given) != length:
        raise ValueError(f"{name} has {len(given)} entries for {length} nodes")
    return list(given)


def _word(given: Any) -> str:
    return given.decode(errors="replace") if isinstance(given, bytes) else str(given)


def _forest(layer: OnnxLayer, kind: str) -> Forest:
    # Read nodes from attributes, one list for each property; ``kind`` is the name of their scores.
    trees = [int(i) for i in _list(layer, "nodes_treeids")]
    count = len(trees)
    keys = list(zip(trees, map(int, _list(layer, "nodes_nodeids", count)), strict=True))
    index = {key: i for i, key in enumerate(keys)}
    if len(index) != count:
        raise ValueError("two nodes of a tree have the same number")
    scores = _scores(layer, kind, index)
    columns = (
        _list(layer, "nodes_modes", count),
        _list(layer, "nodes_featureids", count),
        _list(layer, "nodes_values", count),
        _list(layer, "nodes_missing_value_tracks_true", count, 0),
        _list(layer, "nodes_truenodeids", count),
        _list(layer, "nodes_falsenodeids", count),
    )
    nodes = []
    for at, (mode, feature, value, missing, yes, no) in enumerate(zip(*columns, strict=True)):
        if _word(mode) == "LEAF":
            nodes.append(TreeNode(scores=tuple(scores.get(at, ()))))
            continue
        sides = [index.get((trees[at], int(side))) for side in (yes, no)]
        if sides[0] is None or sides[1] is None:
            raise ValueError(f"node {keys[at][1]} of tree {trees[at]} leads to a node that is not there")
        nodes.append(_inner(_word(mode), int(feature), float(value), bool(missing), sides[0], sides[1]))
    roots = [i for i, tree in enumerate(trees) if i == 0 or trees[i - 1] != tree]
    return _checked(Forest(tuple(nodes), tuple(roots)))


def _inner(mode: str, feature: int, value: float, missing: bool, yes: int, no: int) -> TreeNode:
    if mode not in _BRANCHES:
        raise RefusedOperator(f"nodes of the mode {mode}; supported: {', '.join(_BRANCHES)}, LEAF")
    if np.isnan(np.float32(value)) or feature < 0:
        raise ValueError(f"a node that compares feature {feature} with {value}")
    return TreeNode(_BRANCHES[mode], feature, value, missing, yes, no)


def _scores(
    layer: OnnxLayer, kind: str, index: Mapping[tuple[int, int], int]
) -> dict[int, list[tuple[int, float]]]:
    # What leaves score, by the index of the node.
    trees = _list(layer, f"{kind}_treeids")
    columns = [_list(layer, f"{kind}_{name}", len(trees)) for name in ("nodeids", "ids", "weights")]
    found: dict[int, list[tuple[int, float]]] = {}
    for tree, node, target, weight in zip(trees, *columns, strict=True):
        at = index.get((int(tree), int(node)))
        if at is None:
            raise ValueError(f"a score of node {node} of tree {tree}, which is not there")
        found.setdefault(at, []).append((int(target), float(weight)))
    return found


def _checked(forest: Forest) -> Forest:
    """Return the forest with a copy of a node for each path that leads to it.

    LightGBM's exporter writes a set of categories as a comparison with each of them, all leading to the same
    node. Raises ``ValueError`` if a node leads to itself.
    """
    made, roots, most = list[TreeNode](), list[int](), _MOST_COPIES * len(forest.nodes)
    seen, is_shared = set[int](), False
    for root in forest.roots:
        roots.append(len(made))
        made.append(TreeNode())
        waiting = [(root, roots[-1], 0)]
        while waiting:
            at, place, depth = waiting.pop()
            node, is_shared = forest.nodes[at], is_shared or at in seen
            seen.add(at)
            if node.branch is None:
                made[place] = node
                continue
            if depth > len(forest.nodes):
                raise ValueError("a node of a tree leads to itself")
            if len(made) > most:
                raise RefusedOperator(f"trees that share nodes; supported: {_MOST_COPIES} times as many")
            made[place] = replace(node, yes=len(made), no=len(made) + 1)
            waiting += [(node.no, len(made) + 1, depth + 1), (node.yes, len(made), depth + 1)]
            made += [TreeNode(), TreeNode()]
    return Forest(tuple(made), tuple(roots)) if is_shared else forest


@dataclass(frozen=True, slots=True)
class _Ensemble:
    """Trees, the number of their targets, and the base value of each target."""

    layer: OnnxLayer
    forest: Forest
    targets: int

    def __post_init__(self) -> None:
        named = {t for node in self.forest.nodes for t, _ in node.scores}
        if named and not (min(named) >= 0 and max(named) < self.targets):
            raise ValueError(f"a score for target {max(named)} of {self.targets}")

    @property
    def base(self) -> Array:
        return np.array(self.layer.attribute("base_values") or [], np.float32)

    def always(self, target: int) -> bool:
        """Return True if the target gets a score for every input: some tree has it in all leaves."""
        return any(
            all(any(t == target for t, _ in leaf.scores) for leaf in leaves) for leaves in self._leaves()
        )

    def never(self, target: int) -> bool:
        return not any(t == target for node in self.forest.nodes for t, _ in node.scores)

    def _leaves(self) -> Iterator[list[TreeNode]]:
        for root in self.forest.roots:
            found, waiting = list[TreeNode](), [root]
            while waiting:
                node = self.forest.nodes[waiting.pop()]
                waiting += [] if node.branch is None else [node.yes, node.no]
                found += [node] if node.branch is None else []
            yield found

    def total(self, aggregate: str = "SUM") -> Converted:
        """Return the scores before base values are added, ``[N, targets]``."""
        return Converted(Trees(self.forest, self.targets, aggregate), (self.layer.x,))


def _regressor(layer: OnnxLayer) -> Converted:
    return _regression(layer, _Ensemble(layer, _forest(layer, "target"), layer.whole("n_targets", 1)))


class _Numbered:
    """Nodes of TreeEnsemble (``ai.onnx.ml`` 5), which lists leaves separately and encodes modes as integers.

    A leaf becomes a separate node for each path that leads to it: a tree that is one leaf gets a root with
    two.
    """

    def __init__(self, layer: OnnxLayer) -> None:
        self.layer = layer
        self.nodes: list[TreeNode] = []
        values = np.array(layer.attribute("membership_values", []), np.float32).reshape(-1)
        ends = [-1, *np.flatnonzero(np.isnan(values)).tolist(), values.size]
        self.sets = [values[a + 1 : b] for a, b in pairwise(ends)]

    def forest(self) -> Forest:
        layer = self.layer
        modes = [int(n) for n in np.array(layer.attribute("nodes_modes", [])).reshape(-1)]
        splits = np.array(layer.attribute("nodes_splits", [])).reshape(-1)
        count = len(modes)
        if splits.size != count:
            raise ValueError(f"{splits.size} thresholds for {count} nodes")
        self.nodes = [TreeNode()] * count
        missing = _list(layer, "nodes_missing_value_tracks_true", count, 0)
        features = _list(layer, "nodes_featureids", count)
        for at, mode in enumerate(modes):
            yes, no = (self._side(at, side, count) for side in ("true", "false"))
            if mode == len(_NUMBERED):
                self.nodes[at] = self._member(int(features[at]), bool(missing[at]), yes, no)
                continue
            if not 0 <= mode < len(_NUMBERED):
                raise ValueError(f"node {at} has mode {mode}")
            value = float(np.float32(splits[at]))
            self.nodes[at] = _inner(_NUMBERED[mode], int(features[at]), value, bool(missing[at]), yes, no)
        roots = tuple(int(root) for root in _list(layer, "tree_roots"))
        if not all(0 <= root < count for root in roots):
            raise ValueError(f"the roots {roots} of {count} nodes")
        return _checked(Forest(tuple(self.nodes), roots))

    def _side(self, at: int, side: str, count: int) -> int:
        # The node, or a new leaf.
        index = int(_list(self.layer, f"nodes_{side}nodeids", count)[at])
        if not _list(self.layer, f"nodes_{side}leafs", count)[at]:
            if not 0 <= index < count:
                raise ValueError(f"node {at} leads to node {index} of {count}")
            return index
        targets, weights = (
            _list(self.layer, "leaf_targetids"),
            np.array(self.layer.attribute("leaf_weights", [])),
        )
        if not 0 <= index < len(targets) == weights.size:
            raise ValueError(f"node {at} leads to leaf {index} of {len(targets)}")
        self.nodes.append(
            TreeNode(scores=((int(targets[index]), float(np.float32(weights.reshape(-1)[index]))),))
        )
        return len(self.nodes) - 1

    def _member(self, feature: int, missing: bool, yes: int, no: int) -> TreeNode:
        # One of some values: a comparison with each of them.
        values = self.sets.pop(0) if self.sets else np.zeros(0, np.float32)
        if not values.size:
            raise ValueError("a set of values without values")
        made = _inner("BRANCH_EQ", feature, float(values[-1]), missing, yes, no)
        for value in values[:-1].tolist():
            self.nodes.append(made)
            made = _inner("BRANCH_EQ", feature, value, missing, yes, len(self.nodes) - 1)
        return made


def _ensemble(layer: OnnxLayer) -> Converted:
    layer.refuse("post_transform", 0)
    number_ = layer.whole("aggregate_function", 1)
    if not 0 <= number_ < len(_AGGREGATES):
        raise ValueError(f"aggregate_function {number_}")
    ensemble = _Ensemble(layer, _Numbered(layer).forest(), layer.whole("n_targets", 1))
    return _aggregated(ensemble, _AGGREGATES[number_])


_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


def _regression(layer: OnnxLayer, ensemble: _Ensemble) -> Converted:
    layer.refuse("post_transform", "NONE")
    return _aggregated(ensemble, layer.text("aggregate_function", "SUM"))


def _aggregated(ensemble: _Ensemble, aggregate: str) -> Converted:
    if aggregate not in _AGGREGATES:
        raise RefusedOperator(f"aggregate_function {aggregate}; supported: SUM, AVERAGE, MIN, MAX")
    averages = aggregate == "AVERAGE"
    if aggregate in ("MIN", "MAX") and not all(map(ensemble.always, range(ensemble.targets))):
        raise RefusedOperator(f"{aggregate} of targets that some leaves do not score")
    made = ensemble.total("SUM" if averages else aggregate)
    if averages:
        made = Converted(Div(), (made, number(float(len(ensemble.forest.roots)))), ("trees",))
    if ensemble.base.size:
        if ensemble.base.size != ensemble.targets:
            raise ValueError(f"{ensemble.base.size} base values for {ensemble.targets} targets")
        # A target that nothing scores stays 0 in ONNX Runtime.
        unscored = [ensemble.never(target) for target in range(ensemble.targets)]
        base = np.where(unscored, np.float32(0), ensemble.base)
        made = Converted(Add(), (made, base), ("base",))
    return made


def _classifier(layer: OnnxLayer) -> tuple[Converted, ...]:
    labels = np.array(layer.attribute("classlabels_int64s") or [], np.int64)
    words = layer.attribute("classlabels_strings") or []
    if not labels.size and layer.node.outputs[0]:
        raise RefusedOperator("labels that are words", "number the classes before training")
    labels = labels if labels.size else np.arange(len(words))
    if labels.size < 2:
        raise RefusedOperator(f"{labels.size} class; supported: two or more")
    ensemble = _Ensemble(layer, _forest(layer, "class"), labels.size)
    kind = layer.text("post_transform", "NONE")
    if kind not in ("NONE", "SOFTMAX", "LOGISTIC"):
        raise RefusedOperator(f"post_transform {kind}; supported: NONE, SOFTMAX, LOGISTIC")
    if labels.size == 2 and any(map(ensemble.never, range(2))):
        return _of_one_score(ensemble, labels, kind)
    return _of_scores(ensemble, labels, kind)


def _of_one_score(ensemble: _Ensemble, labels: Array, kind: str) -> tuple[Converted, ...]:
    # Convert two classes that share one score; it is a probability if no leaf has a negative score.
    first = ensemble.never(1)
    if ensemble.base.size > 1 or (ensemble.base.size and not first):
        raise RefusedOperator(
            "base values of two classes, of which leaves score one; supported: one base value"
        )
    rows = ensemble.layer.x.shape[0]
    forest = ensemble.forest
    single = Forest(tuple(_of_target_0(node) for node in forest.nodes), forest.roots)
    score: Converted = _Ensemble(ensemble.layer, single, 1).total()
    if ensemble.base.size:
        score = Converted(Add(), (score, ensemble.base), ("base",))
    are_shares = all(weight >= 0 for node in forest.nodes for _, weight in node.scores)
    above = Converted(Greater(), (score, number(0.5 if are_shares else 0.0)), ("threshold",))
    label = _chosen(above, labels, rows)
    if not first:
        other: Operand = np.zeros((rows, 1), np.float32)
    elif are_shares and kind != "LOGISTIC":
        other = Converted(Sub(), (number(1.0), score))
    else:
        other = Converted(Neg(), (score,))
    if not first and kind == "NONE":
        return label, Converted(Concat(1), (_zeros(score), score))
    if not first:
        both = Converted(Concat(1), (_zeros(score), score))
        return label, Converted(Softmax() if kind == "SOFTMAX" else Logistic(), (both,))
    both = Converted(Concat(1), (other, score))
    return label, Converted(Logistic(), (both,)) if kind == "LOGISTIC" else both


def _zeros(score: Converted) -> Converted:
    return Converted(Sub(), (score, score))


def _of_target_0(node: TreeNode) -> TreeNode:
    scores = tuple((0, weight) for _, weight in node.scores)
    return TreeNode(node.branch, node.feature, node.value, node.missing, node.yes, node.no, scores)


def _chosen(above: Converted, labels: Array, rows: int) -> Converted:
    # One of two labels for each row.
    return Converted(Gather(0), (labels, reshaped(cast(above, DType.INT32), (rows,))), ("labels",))


def _of_scores(ensemble: _Ensemble, labels: Array, kind: str) -> tuple[Converted, ...]:
    # Convert classes with a score each; with two, the label is 1 if the second score is positive.
    base, count = ensemble.base, labels.size
    if base.size not in (0, count) or (count == 2 and base.size):
        raise RefusedOperator(f"{base.size} base values for {count} classes, each of which has a score")
    if not all(map(ensemble.always, range(1 if count == 2 else 0, count))) and not base.size:
        raise RefusedOperator(
            "a class that some leaves do not score",
            "export with scores of every class in each leaf",
        )
    scores = ensemble.total()
    if base.size:
        scores = Converted(Add(), (scores, base), ("base",))
    rows = ensemble.layer.x.shape[0]
    if count == 2:
        second = Converted(StridedSlice((0, 1), (rows, 2), (1, 1)), (scores,))
        above = Converted(Greater(), (second, number(0.0)), ("threshold",))
        label = _chosen(above, np.array([0, 1], np.int64), rows)
    else:
        label = Converted(Gather(0), (labels, Converted(ArgMax(1), (scores,))), ("labels",))
    if kind == "NONE":
        return label, reshaped(scores, (rows, count))  # by itself it would be computed once for each output
    return label, Converted(Softmax() if kind == "SOFTMAX" else Logistic(), (scores,))


CONVERTERS: Mapping[str, OnnxConverter] = {
    "ai.onnx.ml.TreeEnsemble": OnnxConverter(_ensemble, ("trees",)),
    "ai.onnx.ml.TreeEnsembleClassifier": OnnxConverter(_classifier, ("trees",), whole=2),
    "ai.onnx.ml.TreeEnsembleRegressor": OnnxConverter(_regressor, ("trees",)),
}
