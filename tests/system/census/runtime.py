"""Writes small ONNX networks as ONNX Runtime quantises and optimises them, and what it computes.

    python -m tests.system.census.runtime FOLDER

The networks before are those of ``tests/network/frontends/onnx/test_optimised.py``.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from tests.network.frontends.onnx.test_optimised import NETWORKS

_CASES = 2
_FORMS = {
    "qdq_int8": (QuantFormat.QDQ, QuantType.QInt8, QuantType.QInt8, True, {}),
    "qdq_uint8": (QuantFormat.QDQ, QuantType.QUInt8, QuantType.QInt8, False, {}),
    "qdq_pairs": (QuantFormat.QDQ, QuantType.QUInt8, QuantType.QInt8, True, {"AddQDQPairToWeight": True}),
    "operators": (QuantFormat.QOperator, QuantType.QUInt8, QuantType.QUInt8, False, {}),
}


class _Calibration(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, shape: list[int]) -> None:
        random = np.random.default_rng(5)
        self._left = [random.normal(size=shape).astype(np.float32) for _ in range(6)]

    def get_next(self) -> Any:
        return {"x": self._left.pop()} if self._left else None


def _session(data: bytes, level: str = "ORT_ENABLE_ALL", to: Path | None = None) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.log_severity_level = 4
    if to is not None:
        options.optimized_model_filepath = str(to)
    return ort.InferenceSession(data, options)


def _files(data: bytes, folder: Path) -> Iterator[tuple[str, bytes, bytes]]:
    # Each form: its name, the file, and the file that computes its outputs.
    real, made = folder / "real.onnx", folder / "made.onnx"
    real.write_bytes(data)
    shape = _session(data).get_inputs()[0].shape
    for form, (kind, activations, weights, by_channel, extra) in _FORMS.items():
        quantize_static(
            real,
            made,
            _Calibration(shape),
            quant_format=kind,
            activation_type=activations,
            weight_type=weights,
            per_channel=by_channel,
            extra_options=extra,
        )
        yield form, made.read_bytes(), made.read_bytes()
    quantize_dynamic(real, made)
    dynamic = made.read_bytes()
    yield "dynamic", dynamic, dynamic
    for form, before in (("optimised", data), ("dynamic_optimised", dynamic)):
        _session(before, "ORT_ENABLE_EXTENDED", made)
        yield form, made.read_bytes(), before


def _main(folder: Path) -> None:
    for name, make in NETWORKS.items():
        with tempfile.TemporaryDirectory() as work:
            for form, data, by in _files(make(), Path(work)):
                if name != "images" and form in ("qdq_pairs", "qdq_uint8"):  # much as qdq_int8
                    continue
                session, random, cases = _session(by), np.random.default_rng(7), dict[str, Any]()
                for case in range(_CASES):
                    x = random.normal(size=session.get_inputs()[0].shape).astype(np.float32)
                    (y,) = session.run(None, {"x": x})
                    cases |= {f"case{case}_input0": x, f"case{case}_output0": y}
                (folder / f"runtime_{name}_{form}.onnx").write_bytes(data)
                np.savez_compressed(folder / f"runtime_{name}_{form}.npz", **cases)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
