"""Quantised layers whose results stay floats, such as the last one of a classifier.

Training tools end a network with the float sums of its last layer, and do not quantise them. Both of the
layer's operands are still quantised, so its sums are sums of integers: with inputs ``s * (q - z)`` and
weights ``t * r``, where ``t`` may differ between outputs,

    sum(s * (q - z) * t * r) + bias  =  s * t * sum((q - z) * r) + bias

The right side has one float32 multiplication per output instead of one per weight, and the weights stay bytes
in flash. A bias that is a multiple of ``s * t`` is added to the integer sums. These are exact, so the result
differs from ONNX Runtime's by the rounding of its float32 sums.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from crtgen.network.frontends.onnx_edges import DEQUANTIZE, EIGHT, Links
from crtgen.network.frontends.onnx_file import FileNode, constant
from crtgen.network.ir import Array, DType

__all__ = ["PLAIN_GEMM", "real_sums"]

PLAIN_GEMM = {"alpha": 1.0, "beta": 1.0, "transA": 0}
"""Attributes of a Gemm that adds up products, and a bias."""

_CODES = {"Conv": "ConvInteger", "Gemm": "MatMulInteger", "MatMul": "MatMulInteger"}
_RANKS = {"Conv": (3, 4), "Gemm": (2,), "MatMul": (2,)}
_MOST = 1 << 31
_APART = 1e-6
_LEAST = 16

Real = npt.NDArray[np.float32]


def real_sums(links: Links, node: FileNode) -> list[FileNode] | None:
    """Return the nodes that compute a layer with integer sums; None if its operands are not quantised."""
    if node.code not in _CODES or any(node.attributes.get(n, v) != v for n, v in PLAIN_GEMM.items()):
        return None
    x, weights = links.activation(node.inputs[0]), _weights(links, node)
    bias = _bias(links, node)
    if x is None or weights is None or bias is None:
        return None
    numbers, zero, scales = weights
    room = _MOST - numbers[0].size * 255 * 255
    if room <= 0 or not _pays(node, numbers):
        return None
    result, is_conv = node.outputs[0], node.code == "Conv"
    factors = (links.quant(x).scale * scales).astype(np.float32)
    start = _steps(bias, factors, room)
    sums = links.new_name(f"{result}.sums")
    scaled = result if start is not None else links.new_name(f"{result}.scaled")
    links.add_like(sums, result)
    links.tensors[sums] = replace(links.tensors[sums], dtype=DType.INT32, type_name=DType.INT32.name)
    inputs = (
        x.numbers,
        _named(links, f"{result}.weights", np.ascontiguousarray(numbers if is_conv else numbers.T)),
        x.zero,
        _named(links, f"{result}.zero", zero.reshape(())) if zero.any() else "",
    )
    scale = _named(links, f"{result}.factors", factors if factors.size > 1 else factors.reshape(()))
    place = _named(links, f"{result}.start", -start) if start is not None and start.any() else ""
    made = [
        replace(
            node,
            code=_CODES[node.code],
            inputs=inputs,
            outputs=(sums,),
            attributes=node.attributes if is_conv else {},
        ),
        replace(
            node,
            code=DEQUANTIZE,
            inputs=(sums, scale, *([place] if place else [])),
            outputs=(scaled,),
            attributes={"axis": 1} if is_conv else {"axis": -1},
        ),
    ]
    if start is not None:
        return made
    links.add_like(scaled, result)
    shape = (-1,) + (1,) * (numbers.ndim - 2 if is_conv else 0)
    added = scaled, _named(links, f"{result}.bias", bias.reshape(shape))
    return [*made, replace(node, code="Add", inputs=added, outputs=node.outputs, attributes={})]


def _pays(node: FileNode, numbers: Array) -> bool:
    # A convolution's integer sums are stored, then converted in a second pass. With an FPU that pass costs
    # more than integer products save if there are few: a network by pt2e took 1.3 times as many instructions
    # on a Cortex-M4 when its depthwise layers and those of eight inputs were computed this way.
    return node.code != "Conv" or (numbers[0].size >= _LEAST and int(node.attributes.get("group", 1)) == 1)


def _steps(bias: Real, factors: Real, room: int) -> npt.NDArray[np.int32] | None:
    # A bias as steps of the sums, empty without one; None if it is not a multiple of them below ``room``.
    if not bias.size:
        return np.zeros(0, np.int32)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = bias.astype(np.float64) / factors.astype(np.float64)
    whole = np.rint(steps)
    if not (np.abs(whole) < room).all() or not (np.abs(steps - whole) <= _APART * np.abs(whole)).all():
        return None
    return whole.astype(np.int32)


def _named(links: Links, name: str, data: Array) -> str:
    name = links.new_name(name)
    links.tensors[name] = constant(name, data)
    return name


def _weights(links: Links, node: FileNode) -> tuple[Array, Array, Real] | None:
    # Constant weights with the outputs first, their one zero point, and a scale per output or for all.
    edge = links.source(node.inputs[1])
    if edge is None:
        return None
    numbers, scale = links.data(edge.numbers), links.data(edge.scale)
    zero = links.data(edge.zero) if edge.zero else np.zeros((), np.int8)
    if numbers is None or scale is None or zero is None:
        return None
    if numbers.ndim not in _RANKS[node.code] or not numbers.size:
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
        zero = links.data(edge.zero) if edge.zero else np.zeros((), np.int32)
        if numbers is None or scale is None or zero is None or zero.any():
            return None
        real = numbers.reshape(-1).astype(np.float64) * scale.reshape(-1).astype(np.float64)
        data = real.astype(np.float32)
    if data is None or data.dtype != np.float32 or data.shape[:-1] not in ((), (1,)):
        return None
    return data.reshape(-1).astype(np.float32)
