"""Operators that repeat elements: ``broadcast_to``, ``pad_with`` and ``mirror_pad``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Index, Op, Signature, Value, shape_text
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, floats, int8s, int16s, make, plain
from crtgen.network.ops.shape import Pad
from crtgen.network.ops.traits import channelwise

__all__ = ["BroadcastTo", "MirrorPad", "PadWith", "cases"]


@dataclass(frozen=True, slots=True)
class BroadcastTo(Op):
    """Repetition along axes of length 1, and along new leading axes."""

    name: ClassVar[str] = "broadcast_to"
    monotonic: ClassVar[bool] = True
    unscaled: ClassVar[bool] = True

    shape: tuple[int, ...]

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        shape = inputs[0].shape
        fits = len(shape) <= len(self.shape) and np.broadcast_shapes(shape, self.shape) == self.shape
        require(fits, f"{shape_text(shape)} cannot be repeated to {shape_text(self.shape)}")
        return ((self.shape, inputs[0].dtype),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.ascontiguousarray(np.broadcast_to(arrays[0], self.shape)),)

    def is_identity(self, sig: Signature) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class PadWith(Op):
    """``x, value``: adds ``before`` and ``after`` elements around each axis, all equal to the single element
    of ``value``.
    """

    name: ClassVar[str] = "pad_with"

    before: tuple[int, ...]
    after: tuple[int, ...]

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 2)
        x, value = inputs
        require(value.elements == 1, f"{shape_text(value.shape)} values to pad with")
        require(value.dtype is x.dtype, f"padding of {value.dtype.value} around {x.dtype.value}")
        return Pad(self.before, self.after).infer([x])

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        border = list(zip(self.before, self.after, strict=True))
        return (np.pad(arrays[0], border, constant_values=arrays[1].item()),)


@dataclass(frozen=True, slots=True)
class MirrorPad(Op):
    """``before`` and ``after`` elements around each axis, mirrored from those inside.

    ``repeats``: mirroring includes the outermost element.
    """

    name: ClassVar[str] = "mirror_pad"
    monotonic: ClassVar[bool] = True
    unscaled: ClassVar[bool] = True

    before: tuple[int, ...]
    after: tuple[int, ...]
    repeats: bool

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        ranks = len(self.before) == len(self.after) == len(x.shape)
        require(ranks, f"padding of {len(self.before)} axes on {len(x.shape)}")
        sizes = list(zip(self.before, x.shape, self.after, strict=True))
        most = [d if self.repeats else d - 1 for d in x.shape]
        inside = all(0 <= b <= m and 0 <= a <= m for (b, _, a), m in zip(sizes, most, strict=True))
        require(inside, f"padding {self.before} and {self.after} mirrors more than {shape_text(x.shape)}")
        return ((tuple(sum(axis) for axis in sizes), x.dtype),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        border = list(zip(self.before, self.after, strict=True))
        return (np.pad(arrays[0], border, mode="symmetric" if self.repeats else "reflect"),)

    def is_identity(self, sig: Signature) -> bool:
        return True

    def channel_groups(self, sig: Signature) -> tuple[Index | None, ...] | None:
        return channelwise(sig) if self.before[-1:] == self.after[-1:] == (0,) else None

    def segments(self, length: int, axis: int) -> tuple[tuple[int, int, int, int], ...]:
        """Return segments along an axis: first input element, step to the next one, count, and first output
        position.
        """
        shift = 0 if self.repeats else 1
        before, after = self.before[axis], self.after[axis]
        return tuple(
            segment
            for segment in (
                (before - 1 + shift, -1, before, 0),
                (0, 1, length, before),
                (length - 1 - shift, -1, after, before + length),
            )
            if segment[2]
        )


def cases() -> Iterator[Case]:
    for prefix, x in (("", int8s("x", (2, 3, 5, 4), 0.05, -7)), ("f32_", floats("x", (2, 3, 5, 4)))):
        yield make(f"{prefix}reflect", MirrorPad((0, 1, 2, 0), (0, 2, 0, 3), False), [x])
        yield make(f"{prefix}symmetric", MirrorPad((0, 3, 2, 0), (0, 0, 5, 0), True), [x])
    for prefix, x in (("", int8s("x", (3, 1, 4))), ("int16_", int16s("x", (3, 1, 4)))):
        yield make(f"{prefix}middle", BroadcastTo((3, 5, 4)), [x])
        yield make(f"{prefix}front", BroadcastTo((2, 3, 2, 4)), [x])
    ends = (0, 1, 2, 0), (0, 2, 0, 3)
    for dtype in (DType.INT8, DType.UINT16, DType.FLOAT32):
        values = [Value("x", (2, 3, 5, 4), dtype), Value("v", (), dtype)]
        yield make(f"{dtype.value}_onnx", PadWith(*ends), values)
    yield make("scalar", BroadcastTo((3, 4)), [plain("x", ())])
    yield make("rows", BroadcastTo((3, 4)), [floats("x", (3, 1))])
