"""Operators of ONNX that move elements."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crtgen.proof.checker.refusal import Refusal

__all__ = ["ARRANGED", "Arrangement"]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Tensors to be moved; other operands, constants, by position; ``zero`` is what 0.0 is as an integer.

    Padding of integers has its own integer as the attribute ``fill``.
    """

    arrays: Sequence[Any]
    attributes: Mapping[str, Any]
    constants: Mapping[int, Any]
    zero: int
    shapes: Sequence[tuple[int, ...]]

    @property
    def x(self) -> Any:
        return self.arrays[0]

    def given(self, place: int, name: str, default: Any = None) -> Any:
        """Return what newer files have as an operand, and older ones as an attribute."""
        found = self.constants.get(place)
        return self.attributes.get(name, default) if found is None else np.asarray(found).ravel().tolist()


def _same(m: Arrangement) -> Any:
    return m.x


def _transposed(m: Arrangement) -> Any:
    return m.x.transpose(m.attributes.get("perm", list(range(m.x.ndim))[::-1]))


def _joined(m: Arrangement) -> Any:
    return np.concatenate(m.arrays, m.attributes["axis"])


def _split(m: Arrangement) -> list[Any]:
    axis = m.attributes.get("axis", 0)
    sizes = [shape[axis] for shape in m.shapes]
    return list(np.split(m.x, np.cumsum(sizes)[:-1], axis))


def _slice(m: Arrangement) -> Any:
    starts, ends = m.given(1, "starts"), m.given(2, "ends")
    axes, steps = m.given(3, "axes", list(range(len(starts)))), m.given(4, "steps", [1] * len(starts))
    places = [slice(None)] * m.x.ndim
    for axis, first, end, step in zip(axes, starts, ends, steps, strict=True):
        size = m.x.shape[axis]
        low, high = (0, size) if step > 0 else (-1, size - 1)
        first, end = (v + size if v < 0 else v for v in (first, end))
        first, end = min(max(first, 0), high), min(max(end, low), size)
        places[axis] = slice(first, None if end < 0 else end, step)
    return m.x[tuple(places)]


def _gathered(m: Arrangement) -> Any:
    if 1 not in m.constants:
        raise Refusal("indices must be constant")
    return np.take(m.x, np.asarray(m.constants[1]), m.attributes.get("axis", 0))


def _padded(m: Arrangement) -> Any:
    pads, mode = m.given(1, "pads"), m.attributes.get("mode", b"constant")
    fill = m.attributes.get("fill")
    value = m.given(2, "value", 0.0) if fill is None else 0.0
    if mode != b"constant" or 3 in m.constants or np.any(value) or min(pads) < 0:
        raise Refusal("padding with anything but 0")
    count = m.x.ndim
    return np.pad(
        m.x,
        list(zip(pads[:count], pads[count:], strict=True)),
        constant_values=m.zero if fill is None else fill,
    )


def _nearest(m: Arrangement) -> Any:
    # These two ways are the same if each element is repeated.
    ways = (b"asymmetric", b"floor"), (b"half_pixel", b"round_prefer_floor")
    way = (
        m.attributes.get("coordinate_transformation_mode", b"half_pixel"),
        m.attributes.get("nearest_mode", b"round_prefer_floor"),
    )
    x, (shape,) = m.x, m.shapes
    factors = [out // size for out, size in zip(shape, x.shape, strict=True)]
    whole = all(size * k == out for size, k, out in zip(x.shape, factors, shape, strict=True))
    if m.attributes.get("mode", b"nearest") != b"nearest" or way not in ways or not whole:
        raise Refusal("a resizing that does not repeat elements")
    for axis, k in enumerate(factors):
        x = np.repeat(x, k, axis)
    return x


def _from_depth(m: Arrangement) -> Any:
    n, (b, c, h, w) = m.attributes["blocksize"], m.x.shape
    if m.attributes.get("mode", b"DCR") == b"DCR":
        return m.x.reshape(b, n, n, c // (n * n), h, w).transpose(0, 3, 4, 1, 5, 2)
    return m.x.reshape(b, c // (n * n), n, n, h, w).transpose(0, 1, 4, 2, 5, 3)


def _to_depth(m: Arrangement) -> Any:
    n, (b, c, h, w) = m.attributes["blocksize"], m.x.shape
    return m.x.reshape(b, c, h // n, n, w // n, n).transpose(0, 3, 5, 1, 2, 4)


def _expanded(m: Arrangement) -> Any:
    return np.broadcast_to(m.x, m.shapes[0])


ARRANGED: Mapping[str, Callable[[Arrangement], Any]] = {
    **dict.fromkeys(("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"), _same),
    "Concat": _joined,
    "DepthToSpace": _from_depth,
    "Expand": _expanded,
    "Gather": _gathered,
    "Pad": _padded,
    "Resize": _nearest,
    "Slice": _slice,
    "SpaceToDepth": _to_depth,
    "Split": _split,
    "Transpose": _transposed,
}
