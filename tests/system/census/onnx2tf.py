"""Writes PyTorch's networks as onnx2tf converts them, and what TensorFlow Lite's reference kernels compute.

python -m tests.system.census.onnx2tf FOLDER      # onnx2tf 1.29, TensorFlow 2.21
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

from tests.system.census.litert import interpreted

_WANTED = {
    "mobile": ("full_integer_quant", "float16", "full_integer_quant_with_int16_act"),
    "unet": ("full_integer_quant",),
}
_NAMES = {"full_integer_quant": "int8", "full_integer_quant_with_int16_act": "int16"}
_CALIBRATED = 10
_SAMPLE = "calibration_image_sample_data_20x128x128x3_float32.npy"
"""A file that onnx2tf reads from the working directory, or else downloads."""


def _converted(file: Path, work: Path) -> None:
    # All forms of a network; data to calibrate with has its channels last.
    arguments = []
    for tensor in onnx.load(file).graph.input:
        shape = [d.dim_value for d in tensor.type.tensor_type.shape.dim]
        data = np.random.default_rng(1).normal(size=(_CALIBRATED, *shape[1:])).astype(np.float32)
        data = np.moveaxis(data, 1, -1) if data.ndim > 2 else data
        np.save(work / f"{tensor.name}.npy", data)
        mean, spread = (np.full((1,) * data.ndim, n).tolist() for n in (0, 1))
        arguments += ["-cind", tensor.name, str(work / f"{tensor.name}.npy"), str(mean), str(spread)]
    np.save(work / _SAMPLE, np.random.default_rng(1).random((20, 128, 128, 3), np.float32))
    (work / file.name).write_bytes(file.read_bytes())  # it writes into the file that it reads
    command = ["onnx2tf", "-i", file.name, "-o", "made", "-oiqt", "-nuo", *arguments]
    subprocess.run(command, cwd=work, check=True, capture_output=True)


def _main(folder: Path) -> None:
    for name, forms in _WANTED.items():
        with tempfile.TemporaryDirectory() as work:
            source = folder / f"torch_{name}.onnx"
            _converted(source, Path(work))
            for form in forms:
                file = folder / f"onnx2tf_{name}_{_NAMES.get(form, form)}.tflite"
                file.write_bytes((Path(work) / "made" / f"{source.stem}_{form}.tflite").read_bytes())
                np.savez_compressed(file.with_suffix(".npz"), **interpreted(file, 3))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
