"""Fourier transforms: fast ones for real inputs, others as products with constant matrices."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx.reference import ReferenceEvaluator

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import (
    OnnxConverter,
    OnnxLayer,
    Operand,
    ask_for_room,
    reshaped,
    transposed,
)
from crtgen.network.ir import shape_text
from crtgen.network.ops import FullyConnected, Mul, Rfft
from crtgen.network.ops.fft import is_fast
from crtgen.network.ops.gather import Gather

__all__ = ["CONVERTERS"]

_MOST = 1 << 20
# Numbers of a fast transform; a product is as good for fewer.
_FEWEST = 16

Matrix = npt.NDArray[np.float32]


def _dft(layer: OnnxLayer) -> Converted:
    # ``[..., n, ..., c]`` along an axis, where c is 1 for real numbers and 2 for complex ones.
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
    perm = [a for a in range(layer.rank) if a not in (axis, last)] + [axis, last]
    rest = [layer.x.shape[a] for a in perm[:-2]]
    made = _transformed(transposed(layer.x, perm), (*rest, length, layer.x.shape[last]), wanted, kind)
    return transposed(made, np.argsort(perm).tolist())


def _transformed(x: Operand, shape: tuple[int, ...], wanted: int, kind: tuple[bool, bool]) -> Converted:
    # The transforms of ``[..., n, c]``: fast ones of real numbers, else products with a matrix. ``kind`` is
    # whether they are inverse, and whether only half of the numbers are there.
    *rest, length, parts = shape
    if parts == 1 and wanted >= _FEWEST and is_fast(wanted) and length <= wanted and not kind[0]:
        return _fast(x, rest, length, wanted, onesided=kind[1])
    return _multiplied(x, rest, _matrix(length, parts, wanted, kind))


def _fast(x: Operand, rest: list[int], length: int, wanted: int, *, onesided: bool) -> Converted:
    # ``[*rest, n, 1]`` by ``Rfft``; the second half are the first one's conjugates, the other way round.
    real = Converted(Rfft(wanted), (reshaped(x, (*rest, length)),), ())
    pairs = reshaped(real, (*rest, wanted // 2 + 1, 2))
    if onesided:
        return pairs
    places = np.arange(wanted, dtype=np.int32)
    places = np.where(places > wanted // 2, wanted - places, places).astype(np.int32)
    signs = np.ones((wanted, 2), np.float32)
    signs[wanted // 2 + 1 :, 1] = -1
    whole = Converted(Gather(len(rest)), (pairs, places), ("places",))
    return Converted(Mul(), (whole, signs), ("signs",))


def _multiplied(x: Operand, rest: list[int], matrix: Matrix) -> Converted:
    # ``[*rest, n, c]`` times ``matrix[n, c, k, parts]``.
    n, c, k, parts = matrix.shape
    weights = np.ascontiguousarray(matrix.reshape(n * c, k * parts).T)
    operands = (reshaped(x, (*rest, n * c)), weights, np.zeros(k * parts, np.float32))
    made = Converted(FullyConnected(keep_dims=True), operands, ("transform", "zeros"))
    return reshaped(made, (*rest, k, parts))


def _matrix(length: int, parts: int, wanted: int, kind: tuple[bool, bool]) -> Matrix:
    # Applies the onnx package's definition to the identity matrix. ``kind``: is the transform inverse, and is
    # only half of the spectrum stored?
    rows = length * parts
    if rows * wanted * 2 > _MOST:
        raise RefusedOperator(f"a transform of {length} numbers to {wanted}: {rows * wanted * 2:,} constants")
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


def _frames(x: Operand, shape: tuple[int, int, int], size: int, step: int) -> Converted:
    # Frames of ``[batch, length, parts]`` in steps: ``[batch, frames, size, parts]``.
    batch, length, parts = shape
    count = (length - size) // step + 1
    if size == length:
        return reshaped(x, (batch, count, size, parts))
    ask_for_room((2, count, size))
    places = (np.arange(count)[:, None] * step + np.arange(size)).astype(np.int32)
    return Converted(Gather(1), (x, places), ("places",))


def _stft(layer: OnnxLayer) -> Converted:
    # Transforms of frames of a signal ``[batch, length, parts]``, each times a window. Without the last axis,
    # which ONNX asks for and torch's older exporter leaves out, a signal is real.
    if layer.rank not in (2, 3):
        raise ValueError(f"a signal of {shape_text(layer.x.shape)} instead of three dimensions")
    batch, length, parts = (*layer.x.shape, 1)[:3]
    step = int(layer.constant(1, "steps").reshape(-1)[0].item())
    window = layer.constant(2, "windows") if layer.has(2) else None
    size = len(window) if window is not None else 0
    if layer.has(3):
        size = int(layer.constant(3, "lengths of frames").reshape(-1)[0].item())
    if step < 1 or not 0 < size <= length or (window is not None and len(window) != size):
        raise ValueError(f"frames of {size} in steps of {step} of {length} numbers")
    count = (length - size) // step + 1
    signal = layer.x if layer.rank == 3 else reshaped(layer.x, (batch, length, 1))
    frames = _frames(signal, (batch, length, parts), size, step)
    if window is not None:
        frames = Converted(Mul(), (frames, window.astype(np.float32)[:, None]), ("window",))
    return _transformed(frames, (batch, count, size, parts), size, (False, bool(layer.whole("onesided", 1))))


CONVERTERS: Mapping[str, OnnxConverter] = {
    "DFT": OnnxConverter(_dft, ("dft",)),
    "STFT": OnnxConverter(_stft, ("stft",)),
}
