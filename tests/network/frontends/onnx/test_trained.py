"""Networks that were trained: the demonstration's, and those of scikit-learn by its exporter."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Array, Graph
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.compiler.kernels.program import Run, run_on_host
from tests.support import ROOT

if TYPE_CHECKING:  # loading scikit-learn takes seconds, and workers that run other tests need none
    from sklearn.base import BaseEstimator


def test_the_demonstration_reads_digits() -> None:
    from demo.train import load  # it takes scikit-learn along

    graph, _ = run_passes(load_onnx(ROOT / "demo" / "digits.onnx"), DEFAULT_PASSES)
    _, _, images, labels = load()
    outputs = [
        graph.evaluate({"image": image.reshape(1, 1, 8, 8)})["probabilities"] for image in images[:100]
    ]
    assert np.mean(np.concatenate(outputs).argmax(1) == labels[:100]) > 0.95


def _estimator(name: str) -> "BaseEstimator":
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer, StandardScaler

    if name == "mlp":
        return MLPClassifier((24,), max_iter=8, random_state=1)
    if name == "scaled":
        tanh = MLPClassifier((16, 12), activation="tanh", max_iter=8, random_state=1)
        return make_pipeline(StandardScaler(), tanh)
    if name == "logistic":
        return make_pipeline(Normalizer(), LogisticRegression(max_iter=30))
    if name == "regressor":
        return MLPRegressor(hidden_layer_sizes=(16,), max_iter=8, random_state=1)
    return LinearRegression()


def _fitted(name: str) -> "tuple[BaseEstimator, Array]":
    from sklearn.datasets import load_digits
    from sklearn.exceptions import ConvergenceWarning

    x, labels = load_digits(return_X_y=True)
    data = x.astype(np.float32)[:400]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return _estimator(name).fit(data, labels[:400]), data


def _exported(model: "BaseEstimator", data: Array, **options: bool) -> bytes:
    from skl2onnx import to_onnx

    exported = to_onnx(model, data[:1], options=options or None, target_opset={"": 17, "ai.onnx.ml": 1})
    return bytes(exported.SerializeToString())


def _graph(content: bytes) -> Graph:
    return run_passes(load_onnx(content), DEFAULT_PASSES)[0]


@pytest.mark.cc
@pytest.mark.parametrize("name", ["mlp", "scaled", "logistic"])
def test_classifiers(name: str, tmp_path: Path) -> None:
    """Compare the references, and the C on a host, with scikit-learn."""
    model, data = _fitted(name)
    graph = _graph(_exported(model, data, zipmap=False))
    wanted = model.predict_proba(data[:20])
    for row, shares in zip(data[:20], wanted, strict=True):
        found = graph.evaluate({graph.inputs[0]: row[None]})
        label, probabilities = (found[name] for name in graph.outputs)
        assert label.tolist() == [shares.argmax()]
        assert np.allclose(probabilities, shares, atol=1e-5)
    (data_,) = run_on_host(tmp_path, [Run(name, graph, {graph.inputs[0]: data[:1]})])
    assert np.allclose(np.frombuffer(data_[-40:], np.float32), wanted[0], atol=1e-5)


@pytest.mark.parametrize("name", ["regressor", "linear"])
def test_regressors(name: str) -> None:
    model, data = _fitted(name)
    graph = _graph(_exported(model, data))
    wanted = model.predict(data[:20]).reshape(-1)
    found = [graph.evaluate({graph.inputs[0]: row[None]})[graph.outputs[0]].item() for row in data[:20]]
    assert np.allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_dictionary_of_probabilities_is_an_array() -> None:
    """The exporter's default is a ZipMap."""
    model, data = _fitted("mlp")
    graph = load_onnx(_exported(model, data))
    assert "without their dictionary" in graph.notes[0]
    found = graph.evaluate({graph.inputs[0]: data[:1]})[graph.outputs[1]]
    assert np.allclose(found, model.predict_proba(data[:1]), atol=1e-5)
