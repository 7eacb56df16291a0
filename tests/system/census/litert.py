"""Writes PyTorch's networks as litert-torch converts them, and what TensorFlow Lite computes.

python -m tests.system.census.litert FOLDER      # litert-torch 0.10, torch 2.14, torchao
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.system.census.torch import SHAPES, networks

_FLOAT = ("yolo", "windows")
_INT8 = ("mobile", "tcn")
_CALIBRATED = 8


_SHAPES = {**SHAPES, "windows": (1, 4, 4, 6, 4)}


def _networks() -> dict[str, Any]:
    # Also poolings of volumes and a local normalisation, which litert-torch writes as windows.
    torch = importlib.import_module("torch")
    nn, f = torch.nn, torch.nn.functional

    class Windows(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            norm = f.local_response_norm(x.flatten(3), 3).reshape(x.shape)
            return (
                f.max_pool3d(norm, 2)
                + f.avg_pool3d(x, 3, 2, 1)
                - f.avg_pool3d(x, (1, 3, 1), (2, 1, 2), (0, 1, 0))[..., ::2, :]
            )

    return {**networks(), "windows": Windows().eval()}


def interpreted(file: Path, seed: int) -> dict[str, Any]:
    """Inputs and outputs of a case, the inputs drawn over the range of their type."""
    runtime = importlib.import_module("ai_edge_litert.interpreter")
    kernels = runtime.OpResolverType.BUILTIN_REF
    network = runtime.Interpreter(model_path=str(file), experimental_op_resolver_type=kernels)
    network.allocate_tensors()
    cases, random = dict[str, Any](), np.random.default_rng(seed)
    for number, tensor in enumerate(network.get_input_details()):
        x = random.normal(size=tensor["shape"])
        if np.issubdtype(tensor["dtype"], np.integer):
            (scale, zero), info = tensor["quantization"], np.iinfo(tensor["dtype"])
            x = np.clip(np.rint(x / scale) + zero, info.min, info.max)
        cases[f"case0_input{number}"] = x.astype(tensor["dtype"])
        network.set_tensor(tensor["index"], cases[f"case0_input{number}"])
    network.invoke()
    for number, tensor in enumerate(network.get_output_details()):
        cases[f"case0_output{number}"] = network.get_tensor(tensor["index"])
    return cases


def _quantised(network: Any, shape: tuple[int, ...]) -> tuple[Any, dict[str, Any]]:
    # A network after PyTorch's quantisation of exported programs, and what the converter needs beside it.
    torch = importlib.import_module("torch")
    quantizers = importlib.import_module("litert_torch.quantize.pt2e_quantizer")
    config = importlib.import_module("litert_torch.quantize.quant_config")
    steps = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
    quantizer = quantizers.PT2EQuantizer().set_global(
        quantizers.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=False)
    )
    prepared = steps.prepare_pt2e(torch.export.export(network, (torch.randn(shape),)).module(), quantizer)
    for _ in range(_CALIBRATED):
        prepared(torch.randn(shape))
    made = steps.convert_pt2e(prepared, fold_quantize=False)
    return made, {"quant_config": config.QuantConfig(pt2e_quantizer=quantizer)}


def _main(folder: Path) -> None:
    torch, converter = importlib.import_module("torch"), importlib.import_module("litert_torch")
    wanted = [(name, "float") for name in _FLOAT] + [(name, "int8") for name in _INT8]
    for name, kind in wanted:
        network, options = _networks()[name], dict[str, Any]()
        if kind == "int8":
            network, options = _quantised(network, _SHAPES[name])
        file = folder / f"litert_{name}_{kind}.tflite"
        converter.convert(network, (torch.randn(_SHAPES[name]),), **options).export(str(file))
        np.savez_compressed(file.with_suffix(".npz"), **interpreted(file, 3))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
