"""Resize in all its modes: along each axis, outputs are weighted sums of inputs with constant weights.

The weights are obtained by applying the onnx package's own definition to an identity matrix.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx.reference import ReferenceEvaluator

from crtgen.base import budget
from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import (
    ANY,
    OnnxConverter,
    OnnxLayer,
    Operand,
    reshaped,
    transposed,
)
from crtgen.network.frontends.onnx_convert.resize_whole import WHOLE, resized_whole
from crtgen.network.ir import DType, Signature, Value
from crtgen.network.ops import FullyConnected
from crtgen.network.ops.gather import Gather
from crtgen.network.ops.resize import ResizeLinear, Sides

__all__ = ["CONVERTERS"]

Shares = npt.NDArray[np.float32]
_ATTRIBUTES = (
    "antialias",
    "coordinate_transformation_mode",
    "cubic_coeff_a",
    "exclude_outside",
    "extrapolation_value",
    "mode",
    "nearest_mode",
)
# Operations of the onnx package for each element, ``_PER_SHARE_ELSE`` in other modes.
_PER_SHARE = {"nearest": 4_000}

_PER_SHARE_ELSE = 300

_MOST = 1 << 20


def _resize(layer: OnnxLayer) -> Converted:
    made: Operand = layer.x
    targets = _targets(layer)
    if layer.x.dtype in WHOLE and layer.text("mode", "nearest") in ("linear", "bilinear") and targets:
        return resized_whole(layer, targets)
    shares = {axis: _shares(layer, axis, *given) for axis, given in targets.items()}
    bilinear = _bilinear(layer, shares, targets)
    if bilinear is not None:
        return bilinear
    for axis, (matrix, shift) in shares.items():
        made = _along(made, layer, axis, matrix, shift)
    return made if isinstance(made, Converted) else reshaped(made, layer.x.shape)


def _targets(layer: OnnxLayer) -> dict[int, tuple[str, float]]:
    # For each resized axis, ``sizes`` or ``scales`` and the number.
    at = 1 if layer.opset < 11 or layer.node.code == "Upsample" else 2
    axes, whole = _axes(layer), _roi(layer)
    sizes = layer.integers(3, "sizes") if at == 2 and layer.has(3) else []
    if sizes and layer.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        return _kept_aspect(layer, axes, sizes)
    if sizes:
        return {
            a: ("sizes", n) for a, n in zip(axes, sizes, strict=True) if n != layer.x.shape[a] or _roi(layer)
        }
    given = layer.attribute("scales")
    scales = list(given) if given else layer.constant(at, "scales").reshape(-1).tolist()
    return {a: ("scales", s) for a, s in zip(axes, scales, strict=True) if whole or s != 1}


def _axes(layer: OnnxLayer) -> list[int]:
    # The axes that sizes, scales and regions are given for.
    listed = layer.attribute("axes")
    return [layer.axis(int(a), layer.rank) for a in listed] if listed else list(range(layer.rank))


def _kept_aspect(layer: OnnxLayer, axes: list[int], sizes: list[int]) -> dict[int, tuple[str, float]]:
    # All axes by one factor: the least or the greatest.
    factors = [n / layer.x.shape[a] for a, n in zip(axes, sizes, strict=True)]
    larger = layer.text("keep_aspect_ratio_policy", "stretch") == "not_smaller"
    factor = max(factors) if larger else min(factors)
    lengths = {a: factor * layer.x.shape[a] for a in axes}
    if any(abs(n - round(n)) > 1e-6 for n in lengths.values()):
        raise RefusedOperator("lengths that are rounded to keep the aspect ratio; supported: whole ones")
    return {a: ("sizes", round(n)) for a, n in lengths.items() if round(n) != layer.x.shape[a]}


def _roi(layer: OnnxLayer) -> bool:
    return layer.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"


def _shares(layer: OnnxLayer, axis: int, kind: str, number: float) -> tuple[Shares, Shares]:
    # ``matrix[out, in]`` and ``shift[out]`` of one axis: ``y = matrix x + shift``.
    length = layer.x.shape[axis]
    _ask(layer, length, number * length if kind == "scales" else number)
    rows = np.concatenate([np.zeros((1, length)), np.eye(length)]).astype(np.float32)
    feeds: dict[str, Any] = {"x": rows}
    if kind == "scales":
        feeds["scales"] = np.array([1, number], np.float32)
    else:
        feeds["sizes"] = np.array([length + 1, number], np.int64)
    if _roi(layer):
        roi = layer.constant(1, "regions").astype(np.float32).reshape(-1)
        at = _axes(layer).index(axis)
        count = len(roi) // 2
        feeds["roi"] = np.array([0, roi[at], 1, roi[at + count]], np.float32)
    made = _run(layer, feeds)
    outputs = int(np.floor(np.float32(number) * np.float32(length)))
    if kind == "scales" and made.shape[1] != outputs and not _roi(layer):
        # The package multiplies doubles: 3 times the float32 of 5/3 is 4 for it, and 5 for everybody else.
        made = _run(layer, {"x": rows, "sizes": np.array([length + 1, outputs], np.int64)})
    if made.size > _MOST:
        raise RefusedOperator(f"an axis of {length} resized to {made.shape[1]}: {made.size:,} shares")
    return np.ascontiguousarray((made[1:] - made[0]).T), made[0]


def _ask(layer: OnnxLayer, length: int, outputs: float) -> None:
    # The package computes element by element.
    if not 0 < outputs < _MOST or (length + 1) * outputs > _MOST:
        raise RefusedOperator(f"an axis of {length} resized to {outputs:g}")
    each = _PER_SHARE.get(layer.text("mode", "nearest"), _PER_SHARE_ELSE)
    budget.current().compute(int(each * (length + 1) * outputs), "resizing an axis")


def _run(layer: OnnxLayer, feeds: Mapping[str, Any]) -> Shares:
    # The onnx package's Resize of two dimensions.
    kept = {name: layer.attribute(name) for name in _ATTRIBUTES if layer.attribute(name) is not None}
    if layer.opset < 11 or layer.node.code == "Upsample":
        kept |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    names = [name if name in feeds else "" for name in ("x", "roi", "scales", "sizes")]
    node = onnx.helper.make_node("Resize", names, ["y"], **kept)
    inputs = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in feeds.items()
    ]
    graph = onnx.helper.make_graph([node], "resize", inputs, [onnx.ValueInfoProto(name="y")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)])
    (made,) = ReferenceEvaluator(model).run(None, dict(feeds))
    return np.asarray(made, np.float32)


def _bilinear(
    layer: OnnxLayer, shares: Mapping[int, tuple[Shares, Shares]], targets: Mapping[int, tuple[str, float]]
) -> Converted | None:
    # The operator for images, where its shares are these.
    if layer.rank != 4 or not set(shares) <= {2, 3} or layer.x.dtype is not DType.FLOAT32 or _gathers(shares):
        return None
    have = layer.x.shape[2:]
    matrices = [shares[a][0] if a in shares else np.eye(layer.x.shape[a], dtype=np.float32) for a in (2, 3)]
    if any(np.any(shift) for _, shift in shares.values()):
        return None
    size = (matrices[0].shape[0], matrices[1].shape[0])
    height, width = (
        _scale(*targets[a], layer.x.shape[a]) if a in targets and a in shares else 1.0 for a in (2, 3)
    )
    x = transposed(layer.x, (0, 2, 3, 1))
    sig = Signature((Value("x", (1, *have, 1), DType.FLOAT32),), (Value("y", (1, *size, 1), DType.FLOAT32),))
    for centres, corners in ((True, False), (False, False), (False, True)):
        op = ResizeLinear(size, (height, width), centres, corners)
        dense = [_dense(sides, m.shape) for sides, m in zip(op.sides(sig), matrices, strict=True)]
        if all(np.allclose(d, m, atol=1e-6) for d, m in zip(dense, matrices, strict=True)):
            return transposed(Converted(op, (x,)), (0, 3, 1, 2))
    return None


def _scale(kind: str, number: float, length: int) -> float:
    return number if kind == "scales" else float(np.float32(number) / np.float32(length))


def _dense(sides: Sides, shape: tuple[int, ...]) -> Shares:
    matrix, rows = np.zeros(shape, np.float32), np.arange(shape[0])
    for k in range(2):
        np.add.at(matrix, (rows, sides.places[:, k]), sides.shares[:, k])
    return matrix


def _gathers(shares: Mapping[int, tuple[Shares, Shares]]) -> bool:
    return all(_picks(*pair) for pair in shares.values())


def _picks(matrix: Shares, shift: Shares) -> bool:
    # True if each output is one of the inputs.
    return not shift.any() and bool(
        np.all((matrix == 1).sum(axis=1) == 1) and np.all((matrix != 0).sum(axis=1) == 1)
    )


def _along(x: Operand, layer: OnnxLayer, axis: int, matrix: Shares, shift: Shares) -> Converted:
    if _picks(matrix, shift):
        return Converted(Gather(axis), (x, matrix.argmax(axis=1).astype(np.int32)), ("places",))
    if layer.x.dtype is not DType.FLOAT32:
        raise RefusedOperator(f"shares of {layer.x.type_name}; supported: FLOAT32")
    perm = [a for a in range(layer.rank) if a != axis] + [axis]
    back = [int(i) for i in np.argsort(perm)]
    operands = (transposed(x, perm), matrix, shift)
    made = Converted(FullyConnected(keep_dims=True), operands, ("shares", "shift"))
    return transposed(made, back)


CONVERTERS: Mapping[str, OnnxConverter] = {
    "Resize": OnnxConverter(_resize, ("resize",), ANY),
    "Upsample": OnnxConverter(_resize, ("upsample",), ANY),
}
