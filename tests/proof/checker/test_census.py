"""Files of today's exporters: the checker's reading beside their own runtime, and proofs of their images."""

import numpy as np
import pytest

from crtgen import api
from crtgen.proof.checker import prove
from crtgen.proof.checker.network.network import Network
from tests.proof.checker.test_network import run
from tests.support import ROOT, nightly, require_tool

FILES = ROOT / "tests/system/census/files"
SMALL = (
    "keras_gelu_int8",
    "keras_mobile_int8",
    "keras_perceptron_int16",
    "keras_perceptron_int8",
    "keras_residual_int16",
    "keras_residual_int8",
    "keras_tcn_int8",
    "onnx2tf_mobile_int8",
)
ROUNDED_ONCE = ("keras_gelu_int16",)
"""TensorFlow Lite rounds the sums of its fully connected layers once, TensorFlow Lite Micro twice."""
LARGE = ("keras_unet_int16", "keras_unet_int8", "onnx2tf_unet_int8")


@pytest.mark.parametrize("name", [*SMALL, *ROUNDED_ONCE, *(nightly(name) for name in LARGE)])
def test_meaning(name: str) -> None:
    """Equal to the exporter's runtime, to the last bit if that rounds as TensorFlow Lite Micro does."""
    network, outputs = Network(FILES / f"{name}.tflite"), np.load(FILES / f"{name}.npz")
    x, wanted = outputs["case0_input0"], outputs["case0_output0"].ravel()
    (found,) = run(network, x.view(np.int32) if x.dtype == np.float32 else x)
    if wanted.dtype == np.float32:
        found = found.astype(np.int32).view(np.float32)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 if name in ROUNDED_ONCE else 0)


@pytest.mark.qemu
@pytest.mark.nightly
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547"])
@pytest.mark.parametrize("name", SMALL + ROUNDED_ONCE + LARGE)
def test_proven(name: str, board: str) -> None:
    require_tool("arm-none-eabi-gcc")
    file = FILES / f"{name}.tflite"
    image = api.load(file).compile(board).generate("standalone").build()
    proof = prove(image.path, file)
    assert proof.is_proven, proof.stopped or proof.first_reason
