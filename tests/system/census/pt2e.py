"""Writes PyTorch's networks after its quantisation of exported programs (pt2e), as ONNX files.

python -m tests.system.census.pt2e FOLDER      # torch 2.14, torchao, onnxscript
"""

import importlib
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

from tests.system.census.torch import SHAPES, networks

_WANTED = ("mobile",)
_CALIBRATED = 8


def _main(folder: Path) -> None:
    torch = importlib.import_module("torch")
    steps = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
    known = importlib.import_module("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    for name in _WANTED:
        shape, network = SHAPES[name], networks()[name]
        quantizer = known.X86InductorQuantizer()
        quantizer.set_global(known.get_default_x86_inductor_quantization_config())
        exported = torch.export.export(network, (torch.randn(shape),)).module()
        prepared = steps.prepare_pt2e(exported, quantizer)
        for _ in range(_CALIBRATED):
            prepared(torch.randn(shape))
        file = folder / f"pt2e_{name}.onnx"
        made = steps.convert_pt2e(prepared)
        torch.onnx.export(made, (torch.randn(shape),), file, dynamo=True, external_data=False)
        session, x = (
            ort.InferenceSession(file),
            np.random.default_rng(3).normal(size=shape).astype(np.float32),
        )
        (y,) = session.run(None, {session.get_inputs()[0].name: x})
        np.savez_compressed(file.with_suffix(".npz"), case0_input0=x, case0_output0=y)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
