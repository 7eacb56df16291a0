"""Quantised ONNX networks: what the checker takes them to compute, and images of them."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from crtgen import api
from crtgen.prove import prove
from crtgen.prove.network.network import Network
from tests.frontends.onnx.quantised import FORMS, expected, inputs, quantised
from tests.prove.test_network import run
from tests.support import require_tool

NETWORKS = [
    (name, form)
    for name in ("autoencoder", "plain", "separable")
    for form in ("qdq_uint8", "qdq_int8", "qdq_uint8_weights")
]


@cache
def model(name: str, form: str) -> bytes:
    return quantised(name, FORMS[form])


@pytest.fixture
def file(name: str, form: str, tmp_path: Path) -> Path:
    found = tmp_path / f"{name}.onnx"
    found.write_bytes(model(name, form))
    return found


@pytest.mark.parametrize(("name", "form"), NETWORKS)
def test_meaning(name: str, form: str, file: Path) -> None:
    """As ONNX Runtime computes it, bit for bit."""
    network = Network(file)
    for x in inputs(name, 3):
        (found,) = run(network, x.view(np.int32))
        np.testing.assert_array_equal(
            found.astype(np.int32).view(np.float32), expected(model(name, form), x).ravel()
        )


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547"])
@pytest.mark.parametrize(("name", "form"), [("separable", "qdq_int8"), ("plain", "qdq_uint8")])
def test_proven(name: str, form: str, file: Path, board: str) -> None:
    require_tool("arm-none-eabi-gcc")
    image = api.load(file).compile(board).generate("standalone").build()
    proof = prove(image.path, file)
    assert proof.is_proven, proof.stopped or proof.first_reason
    assert [layer.missing for layer in proof.layers] == [0] * len(proof.layers)
