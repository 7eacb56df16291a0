"""Layers of quantised numbers whose results stay real, such as the last one of a classifier.

Training tools end a network with the real sums of its last layer, and quantise nothing behind it. Both of the
layer's operands are quantised all the same, so its sums are sums of integers: with inputs ``s * (q - z)`` and
weights ``t * r``, where ``t`` may differ between outputs,

    sum(s * (q - z) * t * r) + bias  =  s * t * sum((q - z) * r) + bias

The right side has one multiplication of float32 for each output instead of one for each weight, and the
weights stay bytes in flash. The sums are exact, so the result differs from ONNX Runtime's by the rounding of
its sums of float32.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from crtgen.network.frontends.onnx_edges import EIGHT, Links
from crtgen.network.frontends.onnx_file import FileNode, constant
from crtgen.network.ir import Array, DType

__all__ = ["real_sums"]

_CODES = {"Conv": "ConvInteger", "Gemm": "MatMulInteger", "MatMul": "MatMulInteger"}
_RANKS = {"Conv": (3, 4), "Gemm": (2,), "MatMul": (2,)}
_PLAIN = {"alpha": 1.0, "beta": 1.0, "transA": 0}
_FLOAT = 1  # the number of the type in a Cast
_MOST = 1 << 31

Real = npt.NDArray[np.float32]


def real_sums(links: Links, node: FileNode) -> list[FileNode] | None:
    """Return the nodes that compute a layer by sums of integers; None if its operands are not quantised."""
    if node.code not in _CODES or any(node.attributes.get(n, v) != v for n, v in _PLAIN.items()):
        return None
    x, weights = links.activation(node.inputs[0]), _weights(links, node)
    bias = _bias(links, node)
    if x is None or weights is None or bias is None:
        return None
    numbers, zero, scales = weights
    if numbers[0].size * 255 * 255 >= _MOST:
        return None
    result = node.outputs[0]
    sums, real, scaled = (f"{result}.{part}" for part in ("sums", "real", "scaled"))
    shape = (-1,) + (1,) * (numbers.ndim - 2 if node.code == "Conv" else 0)
    factors = _named(links, f"{result}.factors", (links.quant(x).scale * scales).astype(np.float32), shape)
    held = _named(links, f"{result}.weights", numbers if node.code == "Conv" else numbers.T, numbers.shape)
    zero_name = _named(links, f"{result}.zero", zero, ()) if zero.any() else ""
    for name, dtype in ((sums, DType.INT32), (real, DType.FLOAT32), (scaled, DType.FLOAT32)):
        links.add_like(name, result)
        links.tensors[name] = replace(links.tensors[name], dtype=dtype, type_name=dtype.name)
    attributes = node.attributes if node.code == "Conv" else {}
    inputs = (x.numbers, held, x.zero, zero_name)
    made = [
        replace(node, code=_CODES[node.code], inputs=inputs, outputs=(sums,), attributes=attributes),
        replace(node, code="Cast", inputs=(sums,), outputs=(real,), attributes={"to": _FLOAT}),
        replace(node, code="Mul", inputs=(real, factors), outputs=(scaled,), attributes={}),
    ]
    if not bias.size:
        return [*made[:-1], replace(made[-1], outputs=node.outputs)]
    added = scaled, _named(links, f"{result}.bias", bias, shape)
    return [*made, replace(node, code="Add", inputs=added, outputs=node.outputs, attributes={})]


def _named(links: Links, name: str, data: Array, shape: tuple[int, ...]) -> str:
    links.tensors[name] = constant(name, np.ascontiguousarray(data) if data.ndim > 1 else data.reshape(shape))
    return name


def _weights(links: Links, node: FileNode) -> tuple[Array, Array, Real] | None:
    # Constant weights with the outputs first, their one zero point, and a scale per output or for all.
    edge = links.source(node.inputs[1])
    if edge is None:
        return None
    numbers, scale = links.data(edge.numbers), links.data(edge.scale)
    zero = links.data(edge.zero) if edge.zero else np.zeros((), np.int8)
    if numbers is None or scale is None or zero is None or numbers.ndim not in _RANKS[node.code]:
        return None
    first = node.code == "Conv" or bool(node.attributes.get("transB", 0))
    axis = 0 if first else numbers.ndim - 1
    given = int(links.producers[node.inputs[1]].attributes.get("axis", 1)) % numbers.ndim
    is_along = scale.size == 1 or (scale.size == numbers.shape[axis] and given == axis)
    if numbers.dtype not in EIGHT or scale.dtype != np.float32 or not is_along:
        return None
    zeros = np.unique(zero)
    if zeros.size > 1:
        return None
    return (
        (numbers if first else numbers.T),
        zeros.astype(numbers.dtype),
        scale.reshape(-1).astype(np.float32),
    )


def _bias(links: Links, node: FileNode) -> Real | None:
    # The real bias, empty without one; None if it is computed at run time.
    if len(node.inputs) < 3 or not node.inputs[2]:
        return np.zeros(0, np.float32)
    data, edge = links.data(node.inputs[2]), links.source(node.inputs[2])
    if edge is not None:
        numbers, scale = links.data(edge.numbers), links.data(edge.scale)
        plain = not edge.zero or not np.any(links.data(edge.zero))
        if numbers is None or scale is None or not plain or links.data(edge.zero or edge.scale) is None:
            return None
        real = numbers.reshape(-1).astype(np.float64) * scale.reshape(-1).astype(np.float64)
        data = real.astype(np.float32)
    if data is None or data.dtype != np.float32 or data.shape[:-1] not in ((), (1,)):
        return None
    return data.reshape(-1).astype(np.float32)
