"""Writes networks trained with quantisation by Brevitas, and what ONNX Runtime computes.

python -m tests.system.census.brevitas FOLDER      # brevitas 0.13, torch 2.14, onnxoptimizer
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

_SHAPE = (1, 3, 8, 8)
_STEPS = 10
_KINDS = {"int8_qdq": (8, 8, "Int8WeightPerChannelFloat"), "int4_qdq": (4, 4, "Int8WeightPerTensorFloat")}
"""Bits of activations and weights, and the scheme of the weights."""


def _network(bits: int, weight_bits: int, scheme: str) -> Any:
    torch, layers = importlib.import_module("torch"), importlib.import_module("brevitas.nn")
    schemes = importlib.import_module("brevitas.quant")
    options = {
        "weight_bit_width": weight_bits,
        "weight_quant": getattr(schemes, scheme),
        "bias_quant": schemes.Int32Bias,
    }
    kept = {"return_quant_tensor": True}
    return torch.nn.Sequential(
        layers.QuantIdentity(bit_width=8, **kept),
        layers.QuantConv2d(3, 8, 3, padding=1, **options, **kept),
        layers.QuantReLU(bit_width=bits, **kept),
        layers.QuantConv2d(8, 8, 3, padding=1, stride=2, groups=8, **options, **kept),
        layers.QuantReLU(bit_width=bits, **kept),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        layers.QuantLinear(32, 5, bias=True, **options),
    )


def _main(folder: Path) -> None:
    torch, export = importlib.import_module("torch"), importlib.import_module("brevitas.export")
    for kind, (bits, weight_bits, scheme) in _KINDS.items():
        torch.manual_seed(0)
        network = _network(bits, weight_bits, scheme).train()
        for _ in range(_STEPS):
            network(torch.randn(4, *_SHAPE[1:]))
        file = folder / f"brevitas_cnn_{kind}.onnx"
        given = torch.randn(_SHAPE)
        export.export_onnx_qcdq(network.eval(), args=given, export_path=str(file), dynamo=False)
        session, x = (
            ort.InferenceSession(file),
            np.random.default_rng(3).normal(size=_SHAPE).astype(np.float32),
        )
        (y,) = session.run(None, {session.get_inputs()[0].name: x})
        np.savez_compressed(file.with_suffix(".npz"), case0_input0=x, case0_output0=y)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
