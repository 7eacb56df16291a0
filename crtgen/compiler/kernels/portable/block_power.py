"""Power spectra of frames in 32-bit integers."""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import Op, Signature
from crtgen.network.ops.block_power import EIGHTH30, ROOM, BlockPower, half_turns30, turns30, window30
from crtgen.network.ops.fft import digit_order, radices

__all__ = ["BlockView", "block_power"]


@dataclass(frozen=True, slots=True)
class BlockView:
    """A frame of ``size`` samples becomes ``count`` complex values, transformed by a stage of radix
    ``first``, then of radix 4.

    ``stages`` are the sizes and numbers of groups of the radix-4 stages, ``room`` is the number of bits of
    the largest sample, ``exponent`` that of the powers' roots. ``before`` is the sample before the first one
    and ``factor`` the pre-emphasis with 30 fractional bits, as C; it is empty without pre-emphasis. ``bins``
    are the computed powers, from the first index up to the second (exclusive).
    """

    op: Op
    size: int
    count: int
    first: int
    stages: tuple[tuple[int, int], ...]
    room: int
    exponent: int
    before: str
    factor: str
    bins: tuple[int, int]

    @property
    def low(self) -> tuple[int, int]:
        """First and last index of the values that, when separated, give a power at their own position."""
        return max(self.bins[0], 1), min(self.bins[1] - 1, self.count // 2)

    @property
    def high(self) -> tuple[int, int]:
        """First and last index of those that give a power at the same distance from the end."""
        first, end = self.bins
        return max(self.count - end + 1, 1), min(self.count - first, self.count // 2)

    @property
    def apart(self) -> tuple[int, int]:
        # First and last index of both groups together.
        used = [pair for pair in (self.low, self.high) if pair[0] <= pair[1]]
        return min(pair[0] for pair in used), max(pair[1] for pair in used)

    @property
    def bits(self) -> int:
        return self.first.bit_length() - 1

    @property
    def eighth(self) -> int:
        return EIGHTH30


@design(BlockPower, weights=(1,))
def block_power(op: BlockPower, sig: Signature, target: Target) -> Kernel:
    """Make one pass over the samples for their range and one to window them, then compute the stages of a
    transform.
    """
    count, size = op.length // 2, sig.inputs[1].elements
    window, exponent = window30(sig.inputs[1].array().astype(np.float32))
    first, *others = reversed(radices(count, eight=True))
    sizes = [first * 4**n for n in range(len(others))]
    places = np.empty(count, np.int64)
    places[digit_order(count, eight=True)] = np.arange(count)
    view = BlockView(
        op=op,
        size=size,
        count=count,
        first=first,
        stages=tuple((s, count // (4 * s)) for s in sizes),
        room=ROOM - op.centred,
        exponent=op.length.bit_length() - 1 + exponent,
        before=_before(op, sig),
        factor=str(op.factor) if op.preemphasis else "",
        bins=op.bins,
    )
    apart, halves = view.apart, half_turns30(count).astype(np.int32)
    turned = sum((s - 1) * count // (4 * s) for s in sizes)
    plain = sum(count // (4 * s) for s in sizes)
    kind = "difference" if view.factor else "sample"
    work = (
        Work()
        .block(f"{kind} {'centred' if op.centred else 'plain'}", size)
        .block("bin", (op.bins[1] - op.bins[0]) // 2)
    )
    work.block(f"first {first}", count // first).block("turned", turned).block("plain", plain)
    return Kernel(
        design="block of 32 bits",
        template="spectral/block_power.c.j2",
        view=view,
        consts=(
            Const.of("weights", window.astype(np.int32), 4, "30 fractional bits"),
            Const.of("places", places.astype(np.uint16), 2, "of pairs of samples"),
            Const.of("turns", turns30(count).astype(np.int32).ravel(), 4, "real, imaginary"),
            Const.of("halves", halves[apart[0] - 1 : apart[1]].ravel(), 4, "real, imaginary"),
        ),
        scratch=8 * count,
        inplace=(InPlace(),),
        work=work,
    )


def _before(op: BlockPower, sig: Signature) -> str:
    place = op.before.place(op.start, sig.x.elements)
    return "0" if place is None else f"x[{place}]"
