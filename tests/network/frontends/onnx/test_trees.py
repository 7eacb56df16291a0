"""Ensembles of trees against ONNX Runtime: random ones with every comparison, and what it says of labels."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.boards.core import find_core
from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Array
from tests.compiler.kernels.program import Run, run_on_host, run_on_qemu

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
VALUES = (-np.inf, -2.5, -1.0, -0.0, 0.0, 1e-40, 0.25, 1.0, 3.0, np.inf)
FEATURES = 5


def grown(
    seed: int, trees: int, depth: int, modes: Sequence[str], scores: Sequence[int], each: bool
) -> dict[str, Any]:
    """Attributes of random trees; a leaf scores all of ``scores``, or with ``each`` the one of its tree."""
    random = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_modes", "nodes_values",
            "nodes_missing_value_tracks_true", "nodes_truenodeids", "nodes_falsenodeids",
            "treeids", "nodeids", "ids", "weights",
        )
    }  # fmt: skip

    def put(**given: Any) -> None:
        for name, value in given.items():
            columns[name].append(value)

    def grow(tree: int, count: Iterator[int], left: int) -> int:
        node, at = next(count), len(columns["nodes_treeids"])
        is_leaf = left == 0 or (left < depth and random.random() < 0.15)
        put(
            nodes_treeids=tree,
            nodes_nodeids=node,
            nodes_featureids=int(random.integers(FEATURES)),
            nodes_modes="LEAF" if is_leaf else str(random.choice(modes)),
            nodes_values=float(random.choice(VALUES)),
            nodes_missing_value_tracks_true=int(random.integers(2)),
            nodes_truenodeids=0,
            nodes_falsenodeids=0,
        )
        if is_leaf:
            for target in [scores[tree % len(scores)]] if each else scores:
                put(treeids=tree, nodeids=node, ids=target, weights=float(np.float32(random.normal())))
        else:
            columns["nodes_truenodeids"][at] = grow(tree, count, left - 1)
            columns["nodes_falsenodeids"][at] = grow(tree, count, left - 1)
        return node

    for tree in range(trees):
        grow(tree, iter(range(1 << 20)), depth)
    return columns


def model(columns: Mapping[str, Any], outputs: int, rows: int = 1, classes: int = 0, **more: Any) -> bytes:
    """A file with one ensemble; with ``classes`` it has labels from 10 on."""
    kind = "class" if classes else "target"
    own = {n: v for n, v in columns.items() if n.startswith("nodes_")}
    own |= {f"{kind}_{n}": v for n, v in columns.items() if not n.startswith("nodes_")}
    own |= {"classlabels_int64s": list(range(10, 10 + classes))} if classes else {"n_targets": outputs}
    code = "TreeEnsembleClassifier" if classes else "TreeEnsembleRegressor"
    results = ["label", "scores"] if classes else ["scores"]
    node = helper.make_node(code, ["x"], results, domain="ai.onnx.ml", **own, **more)
    types = {"label": (TensorProto.INT64, [rows]), "scores": (TensorProto.FLOAT, [rows, outputs])}
    made = [helper.make_tensor_value_info(name, *types[name]) for name in results]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, FEATURES])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node], "trees", [x], made)
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def by_runtime(data: bytes, x: Array) -> list[Array]:
    """With one thread, as more of them add up in another order."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(data, options)
    return [np.asarray(y) for y in session.run(None, {"x": x})]


def drawn(rows: int, seed: int = 0) -> Array:
    """Features that are thresholds, beside them, no numbers of either sign, and both zeros."""
    random = np.random.default_rng(seed)
    near = [np.nextafter(np.float32(v), np.float32(s)) for v in VALUES for s in (-9, 9)]
    some = np.array([*VALUES, *near, np.nan, -np.nan, 1e-45, -1e-45], np.float32)
    return random.choice(some, (rows, FEATURES)).astype(np.float32)


def _shared() -> dict[str, list[Any]]:
    """Two comparisons that lead to one node with leaves, as LightGBM's exporter writes a set of two."""
    rows = [
        (0, "BRANCH_EQ", 0, VALUES[0], 2, 1),
        (1, "BRANCH_EQ", 0, VALUES[1], 2, 5),
        (2, "BRANCH_LEQ", 1, VALUES[2], 3, 4),
        *((number, "LEAF", 0, 0.0, 0, 0) for number in (3, 4, 5)),
    ]
    names = ("nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids")
    columns = {
        f"nodes_{name}": list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    leaves: dict[str, list[Any]] = {
        "treeids": [0] * 3,
        "nodeids": [3, 4, 5],
        "ids": [0] * 3,
        "weights": [1.5, -2.0, 4.0],
    }
    return {**columns, "nodes_treeids": [0] * 6, **leaves}


def models() -> Iterator[tuple[str, bytes]]:
    """Each comparison by itself, and all of them with one target and several."""
    for number, mode in enumerate(MODES):
        yield mode, model(grown(number, 6, 5, [mode], [0], False), 1, 40)
    yield "one", model(grown(10, 9, 6, MODES, [0], False), 1, 40, base_values=[0.5])
    yield "all", model(grown(11, 9, 5, MODES, [0, 1, 2], False), 3, 40, base_values=[0.5, -1.0, 0.1])
    yield "each", model(grown(12, 9, 5, MODES, [0, 1, 2], True), 3, 40)
    for aggregate in ("AVERAGE", "MIN", "MAX"):
        yield aggregate, model(grown(13, 7, 4, MODES, [0, 1], False), 2, 40, aggregate_function=aggregate)
        yield f"{aggregate}_1", model(grown(14, 7, 4, MODES, [0], False), 1, 40, aggregate_function=aggregate)
    yield "stumps", model(grown(15, 5, 0, MODES, [0], False), 1, 40)
    yield "shared", model(_shared(), 1, 40)
    yield "unscored", model(grown(17, 4, 3, MODES, [0], False), 2, 40, base_values=[0.5, -1.0])
    yield "classes", model(grown(16, 6, 5, MODES, [0, 1, 2], True), 3, 40, 3)


@pytest.mark.parametrize(("name", "data"), tuple(models()))
def test_scores_equal_onnx_runtimes(name: str, data: bytes) -> None:
    x = drawn(40)
    (found,) = load_onnx(data).run([(x,)])
    for actual, expected in zip(found, by_runtime(data, x), strict=True):
        np.testing.assert_array_equal(actual, expected)
        assert len(np.unique(expected)) > 1 or name == "stumps"


def differences(runs: Sequence[tuple[Run, bytes]], printed: Sequence[bytes]) -> list[str]:
    return [
        run.name
        for (run, data), found in zip(runs, printed, strict=True)
        if found != b"".join(y.tobytes() for y in by_runtime(data, run.inputs["x"]))
    ]


def all_runs() -> list[tuple[Run, bytes]]:
    return [(Run(name, load_onnx(data), {"x": drawn(40)}), data) for name, data in models()]


@pytest.mark.cc
def test_generated_code_equals_onnx_runtime(tmp_path: Path) -> None:
    runs = all_runs()
    assert differences(runs, run_on_host(tmp_path, [run for run, _ in runs])) == []


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("machine", "core"),
    [("mps2-an385", "cortex-m0plus"), ("mps2-an386", "cortex-m4"), ("mps3-an547", "cortex-m55")],
)
def test_generated_code_equals_onnx_runtime_on(machine: str, core: str, tmp_path: Path) -> None:
    runs = all_runs()
    printed = run_on_qemu(tmp_path, [run for run, _ in runs], machine, find_core(core))
    assert differences(runs, printed) == []


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("shift", [0.0, 3.0])
@pytest.mark.parametrize(
    ("classes", "scores", "each", "base"),
    [
        (2, [0], False, ()),
        (2, [0], False, (0.25,)),
        (2, [1], False, ()),
        (2, [0, 1], False, ()),
        (3, [0, 1, 2], False, ()),
        (3, [0, 1, 2], True, (0.1, 0.2, 0.3)),
        (3, [0, 1], True, (0.1, 0.2, 0.3)),
    ],
)
def test_labels_and_transformed_scores(
    classes: int, scores: list[int], each: bool, base: tuple[float, ...], shift: float, transform: str
) -> None:
    """A ``shift`` makes all scores of leaves positive, by which the rules for two classes differ."""
    columns = grown(20, 4, 3, MODES, scores, each)
    columns["weights"] = [abs(w) * 0.2 if shift else w for w in columns["weights"]]
    more: dict[str, Any] = {"base_values": list(base)} if base else {}
    data, x = model(columns, classes, 30, classes, post_transform=transform, **more), drawn(30)
    (label, found), (wanted, expected) = next(iter(load_onnx(data).run([(x,)]))), by_runtime(data, x)
    np.testing.assert_array_equal(label, wanted)
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), atol=2e-7)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"nodes_truenodeids": 99}, CorruptModelError, "leads to a node that is not there"),
        ({"nodes_truenodeids": 0}, CorruptModelError, "leads to itself"),
        ({"nodes_featureids": 7}, CorruptModelError, "compares feature 7 of 5"),
        ({"nodes_values": float("nan")}, CorruptModelError, "compares feature"),
        ({"nodes_modes": "BRANCH_MEMBER"}, UnsupportedError, "mode BRANCH_MEMBER"),
        ({"ids": 4}, CorruptModelError, "target 4 of 1"),
        ({"nodeids": 77}, CorruptModelError, "a score of node 77"),
        ({"nodes_nodeids": 1}, CorruptModelError, "the same number"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_file(change: dict[str, Any], error: type[Exception], text: str) -> None:
    columns = grown(3, 1, 2, ["BRANCH_LEQ"], [0], False)
    for name, value in change.items():
        columns[name][0] = value
    with pytest.raises(error, match=text):
        load_onnx(model(columns, 1))


def test_a_class_that_some_leaves_do_not_score_is_refused() -> None:
    columns = grown(3, 1, 3, MODES, [0, 1, 2], False)
    for name in ("treeids", "nodeids", "ids", "weights"):
        columns[name] = columns[name][:-1]
    with pytest.raises(UnsupportedError, match="a class that some leaves do not score"):
        load_onnx(model(columns, 3, 1, 3))


@pytest.mark.parametrize("each", [False, True])
def test_trees_are_walked_once_for_label_and_scores(each: bool) -> None:
    graph = load_onnx(model(grown(1, 3, 3, MODES, [0, 1, 2], each), 3, 1, 3))
    assert [node.op.name for node in graph.nodes].count("trees") == 1
