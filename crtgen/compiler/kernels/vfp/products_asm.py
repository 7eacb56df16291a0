"""Assembly of float32 products: a few pixels times all outputs, some outputs at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

from crtgen.compiler.kernels.asm import Function, Writer, listed
from crtgen.compiler.kernels.engine.layout import ChannelGroup, groups_of
from crtgen.compiler.kernels.vfp.unit import Clamp, FloatLimits, FloatUnit, add_products, cut

__all__ = ["FloatTile", "ProductsWriter"]

_ROW = 8  # inputs of a lone pixel that are loaded at once
_WEIGHTS = 16  # registers for its weights
_PAIR = 2  # inputs of each of several pixels, and pixels whose inputs are there at the same time


@dataclass(frozen=True, slots=True)
class FloatTile:
    """``depth`` inputs of ``pixels`` pixels times the weights of ``outputs`` outputs, ``channels`` at a time.

    ``unroll`` inputs are unrolled.
    """

    pixels: int
    channels: int
    depth: int
    outputs: int
    unroll: int
    limits: FloatLimits
    unit: FloatUnit

    @property
    def blocks(self) -> tuple[ChannelGroup, ...]:
        return groups_of(self.outputs, self.channels)


class ProductsWriter(Writer):
    """Writes ``tile(x0, y0, weights)``, which multiplies some pixels by the weights of some outputs.

    The inputs of a pixel are contiguous, and so are the pixels.
    """

    def __init__(self, k: FloatTile) -> None:
        self.k = k
        self.f = f = Function(
            "tile",
            "const float *x0",
            "float *y0",
            "const float *weights",
            purpose=f"{k.pixels} pixels of {k.depth} inputs times the weights of {k.outputs} outputs.",
        )
        x, self.y, self.weights = f.arguments
        self.rows = (x, *f.cores("inputs of a pixel", k.pixels - 1))
        for before, row in zip(self.rows, self.rows[1:], strict=False):
            f.number(row, 4 * k.depth)
            f("add", row, row, before)

    def write(self) -> None:
        f, k = self.f, self.k
        for channels, count in k.blocks:
            with f.repeated("groups of outputs", count):
                _ProductGroup(self, channels).write()

    def rewind(self) -> None:
        """Append a return to the first inputs, if there are more outputs."""
        if self.k.outputs > self.k.channels:
            for row in self.rows:
                self.f.advance(row, -4 * self.k.depth)


class _ProductGroup:
    """Some outputs of all pixels: the FPU registers that they use, and their roles."""

    def __init__(self, writer: ProductsWriter, channels: int) -> None:
        self.writer = writer
        self.f = f = writer.f
        self.k = k = writer.k
        self.alone = alone = k.pixels == 1
        self.sums = [f.singles("sums of a pixel", channels) for _ in range(k.pixels)]
        self.steps = max(n for n in (1, 2, 4, 8) if n * channels <= _WEIGHTS) if alone else _PAIR
        self.taps = f.singles("weights", self.steps * channels)
        self.inputs = f.singles("inputs, then limits", _ROW if alone else _PAIR * _PAIR)
        spare = alone or k.unit.fused
        self.products = () if spare else f.singles("products", channels)

    def write(self) -> None:
        f, k, weights = self.f, self.k, self.writer.weights
        for number, sums in enumerate(self.sums, 1):
            f("vldmia", f"{weights}{'!' if number == k.pixels else ''}", listed(sums))
        with f.repeated("inputs", k.depth // k.unroll):
            self._inputs(k.unroll)
        self._inputs(k.depth % k.unroll)
        self.writer.rewind()
        self._store()
        f.free(*(s for sums in self.sums for s in sums), *self.taps, *self.inputs, *self.products)

    def _inputs(self, count: int) -> None:
        # ``count`` inputs of each pixel, as many at once as there are registers for.
        for some in cut(range(count), _ROW if self.alone else _PAIR):
            if self.alone:
                self._load(self.writer.rows[0], self.inputs[: len(some)])
            for steps in cut(range(len(some)), self.steps):
                self._steps(steps)

    def _steps(self, steps: Sequence[int]) -> None:
        # These steps of the inputs that are there, or are loaded now.
        channels = len(self.sums[0])
        taps = [self.taps[n * channels : (n + 1) * channels] for n in range(len(steps))]
        self._load(self.writer.weights, [tap for step in taps for tap in step])
        if self.alone:
            for step, weights in zip(steps, taps, strict=True):
                inputs = (self.inputs[step],) * channels
                add_products(self.f, self.k.unit, self.sums[0], inputs, weights, weights)
            return
        for pair in cut(list(zip(self.writer.rows, self.sums, strict=True)), _PAIR):
            loaded = cut(self.inputs, _PAIR)
            for (row, _), words in zip(pair, loaded, strict=False):
                self._load(row, words[: len(steps)])
            for step, weights in enumerate(taps):
                for (_, sums), words in zip(pair, loaded, strict=False):
                    inputs = (words[step],) * channels
                    add_products(self.f, self.k.unit, sums, inputs, weights, self.products)

    def _load(self, pointer: str, registers: Sequence[str]) -> None:
        self.f("vldmia", f"{pointer}!", listed(registers))

    def _store(self) -> None:
        f, k, y = self.f, self.k, self.writer.y
        clamp = Clamp(f, k.unit, k.limits, self.inputs)
        clamp.begin()
        for number, sums in enumerate(self.sums, 1):
            clamp.store(sums, y)
            if number < k.pixels:
                f.advance(y, 4 * (k.outputs - len(sums)))
        f.advance(y, -4 * k.outputs * (k.pixels - 1))
