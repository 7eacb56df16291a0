"""Fourier transforms, as products with constant matrices."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx.reference import ReferenceEvaluator

from crtgen.frontends.builder import Converted, Refused
from crtgen.frontends.onnx_convert.layer import Converter, Layer, Operand, ask_for_room, reshaped, transposed
from crtgen.ir import shape_text
from crtgen.ops import FullyConnected, Mul
from crtgen.ops.gather import Gather

__all__ = ["CONVERTERS"]

_MOST = 1 << 20

Matrix = npt.NDArray[np.float32]


def _dft(layer: Layer) -> Converted:
    """``[..., n, ..., c]`` along an axis, where c is 1 for real numbers and 2 for complex ones."""
    if layer.opset >= 20:
        axis = int(layer.constant(2, "axes").reshape(-1)[0].item()) if layer.has(2) else -2
    else:
        axis = layer.whole("axis", 1)
    axis, last = layer.axis(axis, layer.rank), layer.rank - 1
    if axis == last:
        raise ValueError(f"a transform along the parts of the numbers of {shape_text(layer.x.shape)}")
    length, kind = layer.x.shape[axis], (bool(layer.whole("inverse")), bool(layer.whole("onesided")))
    wanted = 2 * (length - 1) if all(kind) else length
    if layer.has(1):
        wanted = int(layer.constant(1, "lengths").reshape(-1)[0].item())
    matrix = _matrix(length, layer.x.shape[last], wanted, kind)
    perm = [a for a in range(layer.rank) if a not in (axis, last)] + [axis, last]
    rest = [layer.x.shape[a] for a in perm[:-2]]
    made = _transformed(transposed(layer.x, perm), rest, matrix)
    return transposed(made, np.argsort(perm).tolist())


def _transformed(x: Operand, rest: list[int], matrix: Matrix) -> Converted:
    """``[*rest, n, c]`` times ``matrix[n, c, k, parts]``."""
    n, c, k, parts = matrix.shape
    weights = np.ascontiguousarray(matrix.reshape(n * c, k * parts).T)
    operands = (reshaped(x, (*rest, n * c)), weights, np.zeros(k * parts, np.float32))
    made = Converted(FullyConnected(keep_dims=True), operands, ("transform", "zeros"))
    return reshaped(made, (*rest, k, parts))


def _matrix(length: int, parts: int, wanted: int, kind: tuple[bool, bool]) -> Matrix:
    """What the onnx package's own definition makes of the rows of an identity matrix.

    ``kind`` is whether the transform is inverse, and whether only half of the numbers are there.
    """
    rows = length * parts
    if rows * wanted * 2 > _MOST:
        raise Refused(f"a transform of {length} numbers to {wanted}: {rows * wanted * 2:,} constants")
    ask_for_room((2, rows, rows))
    x = np.eye(rows, dtype=np.float32).reshape(rows, length, parts)
    feeds: dict[str, Any] = {"x": x, "n": np.array(wanted, np.int64), "axis": np.array(1, np.int64)}
    inverse, onesided = map(int, kind)
    node = onnx.helper.make_node("DFT", list(feeds), ["y"], inverse=inverse, onesided=onesided)
    inputs = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in feeds.items()
    ]
    graph = onnx.helper.make_graph([node], "dft", inputs, [onnx.ValueInfoProto(name="y")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)])
    (made,) = ReferenceEvaluator(model).run(None, feeds)
    matrix = np.asarray(made, np.float32)
    return matrix.reshape(length, parts, *matrix.shape[1:])


def _stft(layer: Layer) -> Converted:
    """Transforms of frames of a signal ``[batch, length, parts]``, each times a window."""
    if layer.rank != 3:
        raise ValueError(f"a signal of {shape_text(layer.x.shape)} instead of three dimensions")
    batch, length, parts = layer.x.shape
    step = int(layer.constant(1, "steps").reshape(-1)[0].item())
    window = layer.constant(2, "windows") if layer.has(2) else None
    size = len(window) if window is not None else 0
    if layer.has(3):
        size = int(layer.constant(3, "lengths of frames").reshape(-1)[0].item())
    if step < 1 or not 0 < size <= length or (window is not None and len(window) != size):
        raise ValueError(f"frames of {size} in steps of {step} of {length} numbers")
    count = (length - size) // step + 1
    ask_for_room((2, count, size))
    places = (np.arange(count)[:, None] * step + np.arange(size)).astype(np.int32)
    frames = Converted(Gather(1), (layer.x, places), ("places",))
    if window is not None:
        frames = Converted(Mul(), (frames, window.astype(np.float32)[:, None]), ("window",))
    matrix = _matrix(size, parts, size, (False, bool(layer.whole("onesided", 1))))
    return _transformed(frames, [batch, count], matrix)


CONVERTERS: Mapping[str, Converter] = {
    "DFT": Converter(_dft, ("dft",)),
    "STFT": Converter(_stft, ("stft",)),
}
