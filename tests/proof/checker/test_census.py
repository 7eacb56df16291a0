"""Files of today's exporters: the checker's reading beside their own runtime, and proofs of their images."""

import numpy as np
import pytest

from crtgen import api
from crtgen.proof.checker import prove
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.refusal import Refusal
from tests.proof.checker.test_network import run
from tests.support import ROOT, nightly, require_tool

FILES = ROOT / "tests/system/census/files"
SMALL = (
    "keras_gelu_int8",
    "keras_groups_int8",
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
NEAR = ("keras_encoder_int8",)
"""Files of which an output is one step apart, because TensorFlow Lite rounds those sums once."""
LARGE = ("keras_unet_int16", "keras_unet_int8", "onnx2tf_unet_int8")
ONNX = {
    "brevitas_cnn_int4_qdq": 1,
    "brevitas_cnn_int8_qdq": 1,
    "runtime_gelus_operators": 0,
    "runtime_gelus_qdq_int8": 0,
    "runtime_images_qdq_int8": 2,
    "runtime_images_qdq_pairs": 2,
    "runtime_images_qdq_uint8": 2,
}
"""ONNX files, and how many steps of float32 ONNX Runtime is from exact sums and from tanh at the end."""
REAL = {
    "pt2e_mobile": "the result of Conv is not quantised",
    "runtime_attention_operators": "LayerNormalization has no proof yet",
    "runtime_attention_qdq_int8": "LayerNormalization has no proof yet",
    "runtime_images_operators": "GlobalAveragePool of float32 numbers, which are not quantised",
}
"""Quantised files with float32 within."""


@pytest.mark.parametrize("name", [*SMALL, *ROUNDED_ONCE, *NEAR, *(nightly(name) for name in LARGE)])
def test_meaning(name: str) -> None:
    """Equal to the exporter's runtime, to the last bit if that rounds as TensorFlow Lite Micro does."""
    network, outputs = Network(FILES / f"{name}.tflite"), np.load(FILES / f"{name}.npz")
    x, wanted = outputs["case0_input0"], outputs["case0_output0"].ravel()
    (found,) = run(network, x.view(np.int32) if x.dtype == np.float32 else x)
    if wanted.dtype == np.float32:
        found = found.astype(np.int32).view(np.float32)
    atol = 1e-4 if name in ROUNDED_ONCE else 1 if name in NEAR else 0
    np.testing.assert_allclose(found, wanted, rtol=0, atol=atol)


@pytest.mark.parametrize("name", ONNX)
def test_meaning_of_onnx(name: str) -> None:
    network, outputs = Network(FILES / f"{name}.onnx"), np.load(FILES / f"{name}.npz")
    (found,) = run(network, outputs["case0_input0"].view(np.int32))
    wanted = outputs["case0_output0"].ravel()
    np.testing.assert_array_max_ulp(found.astype(np.int32).view(np.float32), wanted, ONNX[name])


@pytest.mark.parametrize("name", REAL)
def test_real_numbers_within(name: str) -> None:
    with pytest.raises(Refusal, match=REAL[name]):
        Network(FILES / f"{name}.onnx")


@pytest.mark.qemu
@pytest.mark.nightly
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547"])
@pytest.mark.parametrize("name", [*SMALL, *ROUNDED_ONCE, *NEAR, *LARGE, *ONNX])
def test_proven(name: str, board: str) -> None:
    require_tool("arm-none-eabi-gcc")
    (file,) = (f for f in FILES.glob(f"{name}.*") if f.suffix in (".tflite", ".onnx"))
    image = api.load(file).compile(board).generate("standalone").build()
    proof = prove(image.path, file)
    assert proof.is_proven, proof.stopped or proof.first_reason
