"""Spectra and bands in what other tools export."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import crtgen
from crtgen.network.ir import DType, Graph, Node, Value
from crtgen.network.ops import Activation, FullyConnected, Mul, Sum
from crtgen.network.passes import DEFAULT_PASSES, FindBands, FindPowers, run_passes
from tests.support import models_dir

Real = npt.NDArray[np.float32]


def _run(graph: Graph, x: Real) -> npt.NDArray[Any]:
    return next(graph.run([[x]]))[0]


@dataclass
class _Layer:
    matrix: Real
    bias: float = 0.0
    activation: Activation = Activation.NONE

    def graph(self) -> Graph:
        inputs, outputs = self.matrix.shape
        values = [
            Value("x", (3, inputs), DType.FLOAT32),
            Value.constant("w", self.matrix.T.copy()),
            Value.constant("b", np.full(outputs, self.bias, np.float32)),
            Value("y", (3, outputs), DType.FLOAT32),
        ]
        node = Node("bank", FullyConnected(self.activation), ("x", "w", "b"), ("y",))
        return Graph.build("bands", values, [node], ["x"], ["y"])


def _triangles() -> Real:
    bins, bands = np.arange(60), np.arange(12)
    heights: Real = np.maximum(0, 1 - np.abs(bins[:, None] - 5 * bands - 3) / 5).astype(np.float32)
    return heights


def test_a_filter_bank_has_its_bands_only() -> None:
    graph = _Layer(_triangles()).graph()
    made = FindBands().run(graph)
    assert [node.op.name for node in made.nodes] == ["bands"]
    assert made.macs == 3 * np.count_nonzero(_triangles())
    x = np.random.default_rng(1).uniform(-1, 1, (3, 60)).astype(np.float32)
    np.testing.assert_allclose(_run(made, x), x @ _triangles(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "layer",
    [
        _Layer(_triangles() + np.float32(0.1)),
        _Layer(_triangles(), bias=0.5),
        _Layer(_triangles(), activation=Activation.RELU),
        _Layer(np.where(_triangles() > 0, np.float32(np.inf), np.float32(0))),
    ],
    ids=["dense", "bias", "activation", "no numbers"],
)
def test_other_layers_stay(layer: _Layer) -> None:
    assert FindBands().rewrite(layer.graph())[1] == ()


@pytest.mark.parametrize("keep", [False, True])
def test_squares_of_pairs(keep: bool) -> None:
    values = [
        Value("x", (2, 5, 2), DType.FLOAT32),
        Value("squares", (2, 5, 2), DType.FLOAT32),
        Value("y", (2, 5, 1) if keep else (2, 5), DType.FLOAT32),
    ]
    nodes = [Node("mul", Mul(), ("x", "x"), ("squares",)), Node("sum", Sum((2,), keep), ("squares",), ("y",))]
    graph = Graph.build("powers", values, nodes, ["x"], ["y"])
    made = FindPowers().run(graph)
    assert [node.op.name for node in made.nodes] == (["mul", "sum"] if keep else ["reshape", "power"])
    x = np.random.default_rng(2).uniform(-1, 1, (2, 5, 2)).astype(np.float32)
    np.testing.assert_allclose(_run(made, x), _run(graph, x), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("logmel_stft.onnx", {"rfft", "power", "bands"}),
        ("logmel_stft512.onnx", {"rfft", "power"}),
        ("tf_lfbe.tflite", {"rfft", "power", "bands"}),
    ],
)
def test_exported_features_are_fast_transforms(name: str, kernels: set[str]) -> None:
    model = crtgen.load(models_dir().parent / "sound" / "networks" / name)
    assert isinstance(model, crtgen.Model)
    graph, _ = run_passes(model.graph, DEFAULT_PASSES)
    assert kernels <= {node.op.name for node in graph.nodes}
    x = np.random.default_rng(3).uniform(-1, 1, model.inputs[0].shape).astype(np.float32)
    before = _run(model.graph, x)
    np.testing.assert_allclose(_run(graph, x), before, atol=1e-5 * float(np.ptp(before)))
