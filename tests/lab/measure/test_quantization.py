"""Quantising a float network by ONNX Runtime, and what is said of it."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from crtgen.base.errors import UsageError
from crtgen.lab.measure.quantization import quantize
from crtgen.network.frontends import load_onnx
from crtgen.network.ir import DType
from crtgen.network.ops.traits import Weighted
from tests.network.frontends.onnx.quantised import NETWORKS, expected
from tests.support import ROOT, exporter_file

_CASES = 12


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with ``net.onnx`` and its ``inputs.npz``."""
    folder = tmp_path_factory.mktemp("network")
    net = NETWORKS["autoencoder"]()
    onnx.save(net.model(), folder / "net.onnx")
    random = np.random.default_rng(2)
    np.savez(folder / "inputs.npz", x=random.normal(size=(_CASES, *net.shape)).astype(np.float32))
    return folder


def test_onnx_runtime_sends_nothing(tmp_path: Path) -> None:
    """Its telemetry makes a database in the cache when it is loaded, and sends what is in it later."""
    code = "from crtgen.lab.measure.quantization import onnx_runtime; onnx_runtime()"
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, timeout=120, check=True)
    assert list(tmp_path.rglob("*")) == []


def test_a_network_becomes_one_of_integers(network: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.onnx"
    found = quantize(network / "net.onnx", network / "inputs.npz", made)
    graph = load_onnx(made)
    layers = [node for node in graph.nodes if node.op.name == "fully_connected"]
    assert [graph.signature(node).x.dtype for node in layers] == [DType.INT8] * 4
    x = np.load(network / "inputs.npz")["x"]
    outputs = [graph.evaluate({"x": one})[graph.outputs[0]] for one in x]
    assert all(np.array_equal(y, expected(made.read_bytes(), one)) for y, one in zip(outputs, x, strict=True))
    real = np.stack([expected((network / "net.onnx").read_bytes(), one) for one in x]).astype(np.float64)
    near = np.stack(outputs).astype(np.float64)
    assert found.cases == _CASES
    assert found.largest == pytest.approx(np.abs(real - near).max() / np.abs(real).max())
    ratio = np.linalg.norm(real) / np.linalg.norm(real - near)
    assert found.sqnr == pytest.approx(20 * np.log10(ratio), rel=1e-4)
    assert found.same == sum(int(a.argmax() == b.argmax()) for a, b in zip(real, near, strict=True))


def test_layers_come_worst_first(network: Path, tmp_path: Path) -> None:
    found = quantize(network / "net.onnx", network / "inputs.npz", tmp_path / "made.onnx")
    ratios = [layer.sqnr for layer in found.layers]
    assert len(ratios) >= 4
    assert ratios == sorted(ratios)
    assert 15 < ratios[0] < ratios[-1] < 80
    assert {layer.operator for layer in found.layers} <= {"Gemm", "Relu"}


def test_what_is_quantised_is_refused(network: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.onnx"
    quantize(network / "net.onnx", network / "inputs.npz", made)
    with pytest.raises(UsageError, match="quantised already"):
        quantize(made, network / "inputs.npz", tmp_path / "twice.onnx")


def test_other_files_are_refused(network: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"reads and writes \.onnx"):
        quantize(network / "net.onnx", network / "inputs.npz", tmp_path / "made.tflite")


def test_inputs_of_another_shape_are_refused(network: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "wrong.npz", x=np.zeros((1, 63), np.float32))
    with pytest.raises(UsageError, match="63"):
        quantize(network / "net.onnx", tmp_path / "wrong.npz", tmp_path / "made.onnx")
    assert not (tmp_path / "made.onnx").exists()


def test_without_onnx_runtime(network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UsageError, match="needs onnxruntime") as error:
        quantize(network / "net.onnx", network / "inputs.npz", tmp_path / "made.onnx")
    assert error.value.hint == "pip install 'crtgen[quantize]'"


@pytest.mark.models
def test_scores_beside_boxes_are_not_lost(tmp_path: Path) -> None:
    """The head of a detector: boxes in pixels and scores from 0 to 1 in one output of one scale."""
    network, made = exporter_file("yolov8_raw.onnx"), tmp_path / "made.onnx"
    images = np.random.default_rng(5).random((12, 1, 3, 32, 32)).astype(np.float32)
    np.savez(tmp_path / "images.npz", images=images)
    found = quantize(network, tmp_path / "images.npz", made)
    (part,) = found.lost
    assert (part.output, part.axis, part.first, part.end, part.length) == ("output0", 1, 4, 6, 7)
    assert part.values <= 8
    assert part.concat.startswith("Concat")
    (near,) = onnxruntime.InferenceSession(made).run(None, {"images": images[0]})
    (real,) = onnxruntime.InferenceSession(network).run(None, {"images": images[0]})
    assert np.unique(near[:, 4:6]).size > 16
    assert np.abs(near - real)[:, 4:6].max() < 0.05


@pytest.mark.parametrize("labels", ["numbers", "words"])
@pytest.mark.parametrize("kind", ["mlp", "logistic"])
def test_networks_of_scikit_learn(kind: str, labels: str, tmp_path: Path) -> None:
    """skl2onnx writes biases [1, N], classifiers, labels and dictionaries of scores."""
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    random = np.random.default_rng(1)
    x = random.normal(size=(120, 6)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(np.int64)
    names = np.array(["no", "yes"])[y] if labels == "words" else y
    model = MLPClassifier((8,), max_iter=40, random_state=0) if kind == "mlp" else LogisticRegression()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = to_onnx(model.fit(x, names), x[:1], target_opset=17)
    (tmp_path / "net.onnx").write_bytes(made.SerializeToString())
    np.savez(tmp_path / "x.npz", x)
    found = quantize(tmp_path / "net.onnx", tmp_path / "x.npz", tmp_path / "net8.onnx")
    assert found.cases == 120
    assert found.same > 110
    graph = load_onnx(tmp_path / "net8.onnx")
    (layer, *_) = (node for node in graph.nodes if isinstance(node.op, Weighted))
    assert graph.signature(layer).x.dtype is DType.INT8
    scores = load_onnx(tmp_path / "net.onnx")
    ((*_, near),) = scores.run([[x[:1]]])
    assert np.abs(np.asarray(near) - model.predict_proba(x[:1])).max() < 1e-5
    assert ("labels in order: no, yes" in " ".join(scores.notes)) == (labels == "words")
