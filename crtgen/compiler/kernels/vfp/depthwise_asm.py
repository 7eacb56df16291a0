"""Assembly of depthwise convolutions in float32: eight channels of two adjacent outputs at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

from crtgen.compiler.kernels.asm import listed
from crtgen.compiler.kernels.engine.layout import groups_of
from crtgen.compiler.kernels.shared.ring import FloatLine, FloatRow
from crtgen.compiler.kernels.vfp.unit import Clamp, FloatLimits, FloatUnit, add_products

__all__ = ["CHANNELS", "NEIGHBOURS", "FloatDepthwiseRow", "VfpDepthwiseLine"]

CHANNELS, NEIGHBOURS = 8, 2  # at a time
_STORED = 4  # outputs at once, by general registers


@dataclass(frozen=True, slots=True)
class FloatDepthwiseRow(FloatRow):
    """A row of depthwise outputs. ``unroll``: the taps of a row are unrolled."""

    unroll: bool
    limits: FloatLimits
    unit: FloatUnit


class VfpDepthwiseLine(FloatLine):
    at_once = NEIGHBOURS

    def __init__(self, k: FloatDepthwiseRow) -> None:
        super().__init__(k)
        self.k = k

    def outputs(self, count: int) -> None:
        for channels, blocks in groups_of(self.k.channels, CHANNELS):
            with self.f.repeated("blocks", blocks):
                self._block(channels, count)

    def _block(self, channels: int, outputs: int) -> None:
        f, k = self.f, self.k
        sums = [f.singles("sums of an output", channels) for _ in range(outputs)]
        taps, inputs = f.singles("weights", channels), f.singles("inputs, products, limits", max(channels, 2))
        for number, total in enumerate(sums, 1):
            f("vldmia", f"{self.weights}{'!' if number == outputs else ''}", listed(total))
        places = f.cores("inputs of an output", outputs)
        with f.repeated("rows of a window", k.taps_y):
            f("ldr", places[0], f"[{self.rows}], #4")
            f("add", places[0], places[0], self.column)
            if outputs > 1:
                f("mov", places[1], places[0])
                f.advance(places[1], k.stride * k.pixel)
            self._taps(sums, taps, inputs[:channels], places)
        f.free(*places)
        f.advance(self.rows, -4 * k.taps_y)
        f.advance(self.column, 4 * channels)
        self._store(sums, inputs)
        f.free(*(s for total in sums for s in total), *taps, *inputs)

    def _taps(
        self,
        sums: Sequence[Sequence[str]],
        taps: Sequence[str],
        inputs: Sequence[str],
        places: Sequence[str],
    ) -> None:
        f, k = self.f, self.k
        written = k.taps_x if k.unroll else 1
        with f.repeated("taps", k.taps_x // written):
            for tap in range(written):
                f("vldmia", f"{self.weights}!", listed(taps))
                for total, place in zip(sums, places, strict=True):
                    f("vldmia", place, listed(inputs))
                    if not k.unroll or tap < k.taps_x - 1:
                        f.advance(place, k.dilation * k.pixel)
                    add_products(f, k.unit, total, inputs, taps, inputs)

    def _store(self, sums: Sequence[Sequence[str]], spare: Sequence[str]) -> None:
        f, k = self.f, self.k
        clamp = Clamp(f, k.unit, k.limits, spare, _STORED)
        clamp.begin()
        clamp.store(sums[0], self.y)
        for total in sums[1:]:
            f.advance(self.y, k.pixel - 4 * len(total))
            clamp.store(total, self.y)
            f.advance(self.y, -k.pixel)
