"""Traits of operators for passes, planners and front ends.

A pass that tests a trait works for every operator that has it, including ones added later.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, AxisMap, Index, Op, Signature, Value
from crtgen.network.ops.attrs import Activation, Padding, padded_elements
from crtgen.network.ops.scheme import scheme_of

__all__ = [
    "Channelwise",
    "Clamping",
    "Real",
    "Tabulated",
    "Weighted",
    "Windowed",
    "along_all",
    "channels",
    "channelwise",
]

Real = npt.NDArray[np.float64]


def channels(value: Value) -> int:
    """Return the length of the last axis; 1 for a scalar."""
    return value.shape[-1] if value.shape else 1


def channelwise(sig: Signature) -> tuple[Index | None, ...]:
    """Group channels of an operator whose output channel i depends only on channel i of its inputs.

    An operand with another number of channels is broadcast, and keeps all of its channels.
    """
    count = channels(sig.y)
    values = (*sig.inputs, *sig.outputs)
    return tuple(np.arange(count) if channels(value) == count else None for value in values)


def along_all(sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
    """Return the pattern of an operator whose outputs depend only on inputs at their own position; inputs are
    broadcast.
    """
    rank = len(sig.y.shape)
    ends = [rank - len(value.shape) for value in sig.inputs]
    found = {axis + end for axis, end in zip(axes, ends, strict=True) if axis is not None}
    if len(found) != 1:
        return None
    (axis,) = found
    for value, own, end in zip(sig.inputs, axes, ends, strict=True):
        if own is None and axis >= end and value.shape[axis - end] != 1:
            return None
    return AxisMap(axis)


class Clamping(Op):
    """An operator that clamps its output, so a following activation can be merged into it."""

    __slots__ = ()

    activation: Activation

    def clamped(self, activation: Activation) -> "Op":
        return replace(self, activation=activation)  # type: ignore[type-var]


class Windowed(Op):
    """An operator on images ``[N,H,W,C]`` whose outputs each depend on a window of the first input."""

    __slots__ = ()

    stride: tuple[int, int]
    padding: Padding

    @property
    def spread(self) -> tuple[int, int]:
        return (1, 1)

    @abstractmethod
    def taps(self, sig: Signature) -> tuple[int, int]: ...

    @abstractmethod
    def padding_value(self, x: Value) -> int | None: ...

    def working_elements(self, sig: Signature) -> int:
        return super().working_elements(sig) + padded_elements(sig.x.shape, self.padding)

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        axis = axes[0]
        if axis not in (1, 2) or any(other is not None for other in axes[1:]):
            return None
        before = self.padding.top if axis == 1 else self.padding.left
        extent = (self.taps(sig)[axis - 1] - 1) * self.spread[axis - 1] + 1
        return AxisMap(axis, self.stride[axis - 1], before, extent)

    def padded(self, padding: Padding) -> Op:
        return replace(self, padding=padding)  # type: ignore[type-var]


class Weighted(Op):
    """An operator ``x, weights, bias -> y`` that sums products of inputs with weights, then requantises.

    ``channel_axis`` is the axis of output channels in the weights. With ``mixes``, an output reads all input
    channels, otherwise only one. With ``slides``, the same weights are used all over an image.
    """

    __slots__ = ()

    channel_axis: ClassVar[int]
    mixes: ClassVar[bool]
    slides: ClassVar[bool]

    @abstractmethod
    def parameters(self, sig: Signature) -> Any: ...

    @abstractmethod
    def sums(self, x: Real, w: Real, sig: Signature) -> Real:
        """Return the sums of products without bias; the zero point is already subtracted from ``x``."""

    def taps_seen(self, sig: Signature) -> Real:
        """Return the distinct windows that occur, as ``[windows, taps]``: 1 for a tap on the input, 0 for one
        on padding.
        """
        return np.ones((1, sig.inputs[1].elements // sig.inputs[1].shape[0] // sig.x.shape[-1]))

    def fewest_channels(self, sig: Signature) -> int:
        """Return the least number of output channels that must be kept so that the others are computed as
        before.
        """
        return 1


class Channelwise(Op):
    """An operator whose output channel i depends on channel i of its inputs."""

    __slots__ = ()

    def channel_groups(self, sig: Signature) -> tuple[Index | None, ...] | None:
        return channelwise(sig)


class Tabulated(Channelwise):
    __slots__ = ()

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        return along_all(sig, axes)

    def bounds(
        self, sig: Signature, low: Sequence[Array], high: Sequence[Array]
    ) -> tuple[Array, Array] | None:
        scheme = scheme_of(sig.x)
        (table,) = self.reference(sig, [scheme.every_number()])
        outside = np.tri(len(table), k=-1, dtype=np.bool_)  # [first, last] where last < first
        least = np.minimum.accumulate(np.where(outside, scheme.high, table), axis=1).astype(table.dtype)
        most = np.maximum.accumulate(np.where(outside, scheme.low, table), axis=1).astype(table.dtype)
        first, last = (a.astype(np.int64) - scheme.low for a in (low[0], high[0]))
        return least[first, last], most[first, last]
