"""The float weights as an `.onnx` file, as PyTorch would export them: channels before rows and columns."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

__all__ = ["write"]

Floats = npt.NDArray[np.float32]
_OPSET, _IR = 17, 8


def write(stem: Path, weights: list[Floats], images: Floats) -> None:
    """``<stem>.onnx``, and ``<stem>_images.npz`` with ``images`` to calibrate a quantisation with.

    The layouts of ``weights`` are HWIO and [in, out], those of the file OIHW and [out, in].
    """
    w1, b1, w2, b2, w3, b3 = weights
    rows = w3.reshape(2, 2, -1, 10).transpose(3, 2, 0, 1).reshape(10, -1)
    constants = {
        "conv1.weight": w1.transpose(3, 2, 0, 1),
        "conv1.bias": b1,
        "conv2.weight": w2.transpose(3, 2, 0, 1),
        "conv2.bias": b2,
        "dense.weight": rows,
        "dense.bias": b3,
    }
    around: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1] * 4}
    half: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = []
    source = "image"
    for n in (1, 2):
        operands = [source, f"conv{n}.weight", f"conv{n}.bias"]
        nodes.append(helper.make_node("Conv", operands, [f"conv{n}.sum"], name=f"conv{n}", **around))
        nodes.append(helper.make_node("Relu", [f"conv{n}.sum"], [f"conv{n}.out"], name=f"relu{n}"))
        source = f"pool{n}.out"
        nodes.append(helper.make_node("MaxPool", [f"conv{n}.out"], [source], name=f"pool{n}", **half))
    operands = ["flat", "dense.weight", "dense.bias"]
    nodes += [
        helper.make_node("Flatten", [source], ["flat"], name="flatten"),
        helper.make_node("Gemm", operands, ["logits"], name="dense", transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], name="softmax"),
    ]
    graph = helper.make_graph(
        nodes,
        stem.name,
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(np.ascontiguousarray(data), name) for name, data in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    stem.with_suffix(".onnx").write_bytes(model.SerializeToString())
    np.savez_compressed(stem.with_name(f"{stem.name}_images.npz"), image=images.reshape(-1, 1, 1, 8, 8))
