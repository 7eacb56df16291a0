"""Resizing of pictures, with the integer and float arithmetic of the libraries used in training."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, DType, Op, Quant, Signature, Value, shape_text
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, floats, make, plain

__all__ = ["BLEND_BITS", "Blend", "ByteTable", "Resample", "cases"]

_U8, _I16, _I32, _F32 = DType.UINT8, DType.INT16, DType.INT32, DType.FLOAT32
_Longs = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float32]
_Outputs = tuple[tuple[tuple[int, ...], DType], ...]

BLEND_BITS = 11
"""Fraction bits of integer blend weights."""


@dataclass(frozen=True, slots=True)
class Resample(Op):
    """``x[..., N, ...], weights, first[C], widths[C] -> y[..., C, ...]``: weighted sums of neighbours on
    ``axis``.

    The weights of all sums are stored one after another. Bytes with int32 weights give bytes, ``(2^(shift -
    1) + sum) >> shift``, clamped, as in Pillow. With float32 weights, products are added to 0 in order; bytes
    give float32, and float32 gives bytes: the sum times ``scale``, rounded to nearest with ties to even,
    clamped, as in OpenCV's area resize.
    """

    name: ClassVar[str] = "resample"

    axis: int
    shift: int = 0
    scale: float = 1.0

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        require_inputs(inputs, 4)
        x, weights, first, widths = inputs
        types = tuple(v.dtype for v in inputs)
        known = ((_U8, _I32), (_U8, _F32), (_F32, _F32))
        require(
            types[:2] in known and types[2:] == (_I16, _I16), f"types {', '.join(t.value for t in types)}"
        )
        require(all(v.is_constant for v in inputs[1:]), "its weights are computed at run time")
        require(0 <= self.axis < len(x.shape), f"axis {self.axis} of {shape_text(x.shape)}")
        require(
            first.shape == widths.shape == (first.elements,),
            f"{widths.elements} widths of {first.elements} sums",
        )
        _require_spans(x.shape[self.axis], weights, first, widths)
        if weights.dtype is _I32:
            self._require_room(weights, widths)
        shape = (*x.shape[: self.axis], first.elements, *x.shape[self.axis + 1 :])
        return ((shape, _F32 if types[:2] == (_U8, _F32) else _U8),)

    def _require_room(self, weights: Value, widths: Value) -> None:
        require(1 <= self.shift <= 24, f"a shift of {self.shift}; supported: 1 to 24")
        sizes = np.abs(weights.array().astype(np.int64))
        ends = np.cumsum(widths.array().astype(np.int64))
        totals = np.diff(np.concatenate([[0], np.cumsum(sizes)])[np.concatenate([[0], ends])])
        most = 255 * int(totals.max(initial=0)) + (1 << (self.shift - 1))
        require(most < 1 << 31, "its sums leave 32 bits")

    def sizes(self, sig: Signature) -> tuple[int, int, int]:
        """Return the number of elements before the axis, along it, and after it."""
        shape = sig.x.shape
        return prod(shape[: self.axis]), shape[self.axis], prod(shape[self.axis + 1 :])

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, weights, first, widths = arrays
        outer, length, inner = self.sizes(sig)
        wide = np.int64 if weights.dtype == np.int32 else np.float32
        rows, factors = x.reshape(outer, length, inner).astype(wide), weights.astype(wide)
        sums, at = [], 0
        for start, width in zip(first.astype(int).tolist(), widths.astype(int).tolist(), strict=True):
            total = np.zeros((outer, inner), wide)
            for i in range(width):
                total = total + factors[at + i] * rows[:, start + i]
            sums.append(total)
            at += width
        made = np.stack(sums, axis=1).reshape(sig.y.shape)
        if sig.y.dtype is _F32:
            return (made,)
        if weights.dtype == np.int32:
            made = (made.astype(np.int64) + (1 << (self.shift - 1))) >> self.shift
        else:
            made = np.rint(made * np.float32(self.scale))
        return (np.clip(made, 0, 255).astype(np.uint8),)

    def macs(self, sig: Signature) -> int:
        outer, _, inner = self.sizes(sig)
        return sig.inputs[1].elements * outer * inner


def _require_spans(length: int, weights: Value, first: Value, widths: Value) -> None:
    starts, counts = (v.array().astype(np.int64) for v in (first, widths))
    inside = (starts >= 0) & (counts >= 0) & (starts + counts <= length)
    require(bool(inside.all()), f"a sum leaves its {length} numbers")
    used = int(counts.sum())
    require(used == weights.elements, f"{weights.elements} weights, {used} used")


@dataclass(frozen=True, slots=True)
class Blend(Op):
    """``x[H, W, C] of bytes -> y[h, w, C]``: each pixel is interpolated between two rows and two columns.

    Operands: ``rows[2, h]``, ``row_weights``, ``columns[2, w]``, ``column_weights``. Weights of int16, ``[2,
    h]`` and ``[2, w]``, are in units of 2^-11, and the result is bytes as in OpenCV's linear resize: a row's
    sum s is exact, and the pixel is ``((above * (s0 >> 4) >> 16) + (below * (s1 >> 4) >> 16) + 2) >> 2``.
    Weights of float32, ``[h]`` and ``[w]``, are those of the second pixel, as in ``left + (right - left) *
    weight``; the result is float32 as in TensorFlow.
    """

    name: ClassVar[str] = "blend"

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        require_inputs(inputs, 5)
        x, rows, _, columns, _ = inputs
        require(x.dtype is _U8 and len(x.shape) == 3, f"pixels of {shape_text(x.shape)} {x.dtype.value}")
        require(all(v.is_constant for v in inputs[1:]), "its weights are computed at run time")
        kind = inputs[2].dtype
        for i, length in ((1, x.shape[0]), (3, x.shape[1])):
            _require_places(inputs[i], inputs[i + 1], length)
            other = inputs[i + 1].dtype
            require(other is kind, f"weights of {kind.value} and {other.value}")
        shape = (rows.shape[1], columns.shape[1], x.shape[2])
        return ((shape, _U8 if kind is _I16 else _F32),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, rows, row_weights, columns, column_weights = arrays
        at = rows.astype(np.int64), columns.astype(np.int64)
        if sig.y.dtype is _F32:
            return (_blended(x, at, row_weights, column_weights),)
        w = column_weights.astype(np.int64)[:, None, :, None]
        lines = x.astype(np.int64)[at[0]]
        sums = w[0] * lines[:, :, at[1][0]] + w[1] * lines[:, :, at[1][1]]
        parts = (row_weights.astype(np.int64)[:, :, None, None] * (sums >> 4)) >> 16
        return (((parts[0] + parts[1] + 2) >> 2).astype(np.uint8),)


def _blended(x: Array, at: tuple[_Longs, _Longs], row_weights: Array, column_weights: Array) -> _Floats:
    lines = x.astype(np.float32)[at[0]]
    left, right = lines[:, :, at[1][0]], lines[:, :, at[1][1]]
    above, below = left + (right - left) * column_weights.astype(np.float32)[None, None, :, None]
    made: _Floats = above + (below - above) * row_weights.astype(np.float32)[:, None, None]
    return made


def _require_places(places: Value, weights: Value, length: int) -> None:
    good = places.dtype is _I16 and len(places.shape) == 2 and places.shape[0] == 2
    require(good, f"places of {shape_text(places.shape)} {places.dtype.value}")
    at = places.array().astype(np.int64)
    require(int(at.min(initial=0)) >= 0 and int(at.max(initial=0)) < length, f"a place outside of {length}")
    if weights.dtype is _F32:
        require(weights.shape == places.shape[1:], f"weights of {shape_text(weights.shape)}")
        return
    require(
        weights.dtype is _I16 and weights.shape == places.shape, f"weights of {shape_text(weights.shape)}"
    )
    numbers = weights.array().astype(np.int64)
    within = (numbers >= 0).all() and (numbers.sum(axis=0) <= (1 << BLEND_BITS) + 1).all()
    require(bool(within), "weights that are more than 2^11 together")


@dataclass(frozen=True, slots=True)
class ByteTable(Op):
    """``x[..., C] of bytes, table[T, 256] -> y[..., C]``: a table lookup for each byte, with one table for
    all channels or one for each.

    T is 1 or C. The output has the type of the table: int8, uint8 or float32.
    """

    name: ClassVar[str] = "byte_table"

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        require_inputs(inputs, 2)
        x, table = inputs
        require(x.dtype is _U8 and len(x.shape) > 0, f"bytes of {shape_text(x.shape)} {x.dtype.value}")
        known = (DType.INT8, _U8, _F32)
        require(table.dtype in known and table.is_constant, f"a table of {table.dtype.value}")
        rows = len(table.shape) == 2 and table.shape[1] == 256 and table.shape[0] in (1, x.shape[-1])
        require(rows, f"a table of {shape_text(table.shape)} for {shape_text(x.shape)}")
        return ((x.shape, table.dtype),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, table = arrays
        rows = np.arange(x.shape[-1]) if len(table) > 1 else np.zeros(x.shape[-1], np.int64)
        return (table[rows, x.astype(np.int64)],)


def _sums(weights: Array) -> list[Value]:
    # Operands of five sums of up to 4 numbers.
    spans = (("f", [0, 1, 2, 6, 3]), ("n", [3, 2, 4, 1, 2]))
    return [Value.constant("w", weights), *(Value.constant(n, np.array(s, np.int16)) for n, s in spans)]


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(343)
    x = plain("x", (7, 8, 3), _U8)
    whole = _sums(rng.integers(-(1 << 20), 1 << 21, 12).astype(np.int32))
    real = _sums(rng.uniform(0, 0.5, 12).astype(np.float32))
    for axis in (0, 1):
        yield make(f"bytes{axis}_features", Resample(axis, 22), [x, *whole])
        yield make(f"sums{axis}_features", Resample(axis), [x, *real])
        limits = {"x": (0.0, 400.0)}
        op = Resample(axis, scale=0.75)
        yield make(f"rounded{axis}_features", op, [floats("x", (7, 8, 3)), *real], limits=limits)
    for channels in (1, 3):
        frame = plain("x", (6, 5, channels), _U8)
        for kind in (_I16, _F32):
            tables = [v for i, n in ((6, 4), (5, 9)) for v in _blend_tables(rng, i, n, kind)]
            yield make(f"{kind.value}_{channels}_features", Blend(), [frame, *tables])
    for name in ("int8", "uint8", "float32"):
        for rows in (1, 3):
            table = rng.integers(-128, 128, (rows, 256)).astype(name)
            quant = Quant.tensor(0.5, 3) if name == "int8" else None
            given = [x, Value.constant("t", table)]
            yield make(f"{name}_{rows}_features", ByteTable(), given, quant)


def _blend_tables(rng: np.random.Generator, length: int, count: int, kind: DType) -> list[Value]:
    places = rng.integers(0, length, (2, count)).astype(np.int16)
    second = rng.integers(0, (1 << BLEND_BITS) + 1, count)
    weights = (
        np.stack([(1 << BLEND_BITS) - second, second]).astype(np.int16)
        if kind is _I16
        else (second / (1 << BLEND_BITS)).astype(np.float32)
    )
    tag = str(length)
    return [Value.constant(f"p{tag}", places), Value.constant(f"w{tag}", weights)]
