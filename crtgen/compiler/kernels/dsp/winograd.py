"""3x3 convolutions by Winograd's tiles, with the DSP extension: fewer products, larger weights."""

from dataclasses import dataclass, replace

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import rescale_of
from crtgen.compiler.kernels.asm import Routine
from crtgen.compiler.kernels.dsp.copy import copy
from crtgen.compiler.kernels.dsp.epilogue import Lanes, epilogue_lanes
from crtgen.compiler.kernels.dsp.walk import PIXELS, Walk, window_of
from crtgen.compiler.kernels.dsp.winograd_asm import (
    GAIN,
    POSITIONS,
    TileInputs,
    Tiles,
    Transform,
    WinogradWriter,
)
from crtgen.compiler.kernels.dsp.words import words16
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.layout import records, stream
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape
from crtgen.compiler.kernels.engine.words import Words, words
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.conv import Conv2d
from crtgen.network.ops.fixedpoint import Int8, Int64

__all__ = ["WinogradView", "winograd"]

# Their steps are written out.
_MOST_CHANNELS = 128
_TWICE_G = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]])
# In this order the channels of a word are widened.
_MIXED = [0, 2, 1, 3]


@dataclass(frozen=True, slots=True)
class WinogradView:
    """A convolution by tiles: groups of three, then the remaining ones.

    ``tile_step`` is the distance in bytes between outputs of adjacent tiles, ``row_advance`` the bytes from
    the end of a row of tiles to the next row.
    """

    inputs: tuple[TileInputs, ...]
    tiles: tuple[Tiles, ...]
    walk: Walk
    weight_words: int

    @property
    def tile_step(self) -> int:
        return 2 * self.tiles[0].stride

    @property
    def row_advance(self) -> int:
        return self.tiles[0].pitch

    @property
    def column_bytes(self) -> int:
        return self.inputs[0].nbytes

    @property
    def scratch(self) -> int:
        return self.column_bytes + self.walk.scratch

    @property
    def routines(self) -> tuple[Routine, ...]:
        """Routines: for each size of a tile group the products and the transform, then the row copy."""
        pairs = zip(self.tiles, self.inputs, strict=True)
        made = (part for t, x in pairs for part in (WinogradWriter.routine(t), Transform.routine(x)))
        return (*made, *((copy(),) if self.walk.rows else ()))


@design(Conv2d, types=(DType.INT8,), needs="dsp", weights=(1, 2))
def winograd(op: Conv2d, sig: Signature, target: Target) -> Kernel | None:
    """Tiles of 2x2 outputs; None with Helium, and for other levels and windows, odd sizes, or channels that
    do not fill words.
    """
    x, w, b = sig.inputs
    _, height, width, channels = sig.y.shape
    plain = w.shape[1:3] == (3, 3) and op.stride == (1, 1) and op.dilation == (1, 1)
    whole = height % 2 == width % 2 == channels % 2 == x.shape[3] % 4 == 0
    params = op.parameters(sig)
    if (
        not (plain and whole)
        or x.shape[3] > _MOST_CHANNELS
        or params.is_sum
        or not target.expanded
        or target.core.mve
    ):
        return None
    weights, bias = w.array().astype(np.int8, copy=False), b.array().astype(np.int64)
    rows = weights.reshape(channels, -1)
    even = np.arange(0, channels, 2)
    lanes = epilogue_lanes(rescale_of(params, rows, bias), ((1 << GAIN, even), (1 << GAIN, even + 1)))
    if lanes is None:
        return None
    tiles = replace(window_of(op, sig), out_height=height // 2, out_width=width // 2)
    tiles = replace(tiles, taps_y=4, taps_x=4, stride_y=2, stride_x=2)
    view = _view(tiles, -params.input_offset, channels, lanes)
    if not all(inputs.near and tiles.near for inputs, tiles in zip(view.inputs, view.tiles, strict=True)):
        return None
    folded = bias + params.input_offset * rows.astype(np.int64).sum(axis=1)
    return Kernel(
        design="dsp_winograd",
        template="dsp/winograd.c.j2",
        view=view,
        consts=(_const(weights, folded, lanes, view.weight_words),),
        scratch=view.scratch,
        inplace=(InPlace(lead=view.walk.lead(4 * channels, tiles=True)),),
        work=_work(view),
        routines=view.routines,
    )


def _view(window: WindowShape, zero_point: int, channels: int, lanes: Lanes) -> WinogradView:
    walk = Walk.of(window, zero_point)
    pitch = walk.rows.pitch if walk.rows else window.pitch
    steps, row = window.channels // 2, 2 * walk.width * channels
    of_a_pair = 2 * (POSITIONS * steps + 1 + lanes.epilogue.constants)
    return WinogradView(
        inputs=tuple(TileInputs(n, window.channels, pitch) for n in walk.counts),
        tiles=tuple(Tiles(n, steps, channels, row, lanes.epilogue) for n in walk.counts),
        walk=walk,
        weight_words=channels // 2 * of_a_pair,
    )


def _const(weights: Int8, bias: Int64, lanes: Lanes, length: int) -> Const:
    # Per pair of channels ``[position, channels in twos, channel]``, then start and requantisation.
    pairs = len(weights) // 2

    def pack(some: slice) -> Words:
        both = slice(2 * some.start, 2 * some.stop)
        spread = np.einsum("py,oyxc,qx->opqc", _TWICE_G, weights[both].astype(np.int64), _TWICE_G)
        ordered = spread.reshape(-1, 2, POSITIONS, spread.shape[3] // 4, 4)[..., _MIXED]
        twos = ordered.reshape(*ordered.shape[:3], -1, 2).transpose(0, 2, 3, 1, 4)
        taps = words16(twos[..., 0], twos[..., 1])
        ends = []
        for lane in (0, 1):
            start = bias[both][lane::2] + lanes.offsets[lane][some]
            ends += [words(start << GAIN), lanes.constants[lane][some]]
        return records(taps, *ends)

    note = "per pair of channels: weights of 16 positions; start and requantisation of each"
    return stream(pairs, length // pairs, pack, note)


def _work(view: WinogradView) -> Work:
    work, walk, wraps = Work(), view.walk, " wraps" if view.walk.wraps else ""
    for tiles, inputs in zip(view.tiles, view.inputs, strict=True):
        runs = walk.images * (walk.groups if tiles.tiles == PIXELS else 1)
        pairs = tiles.stride // 2
        products, transform = WinogradWriter.routine(tiles), Transform.routine(inputs)
        work.assembly += runs * (products.runs(pairs=pairs) + tiles.tiles * transform.runs())
        name = "group" if tiles.tiles == PIXELS else "last group"
        work.block(name, runs).block(f"tile{wraps}", runs * tiles.tiles, tiles.tiles)
        work.block("window", runs * bool(walk.rows), bool(walk.rows))
    if walk.rows:
        walk.work(work.fill(walk.scratch))
    return work.block("image", walk.images, walk.images > 1)
