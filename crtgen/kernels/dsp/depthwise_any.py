"""Depthwise convolutions of any window with the DSP extension: one pixel, four channels at a time.

A word of int8 is four channels; SXTB16 makes channels 0 and 2 of it, rotated 1 and 3. Two words of int16 are
four channels. The weights lie as int16 in the same order, two words per tap, and SMLABB and SMLATT multiply
each half by its own. Weights of four bits lie in fours of two taps: shifted, each is the highest of a half
once, and a mask leaves ``4096 * w``.

With a depth multiplier, inputs are repeated on their way into the rows in scratch: each output has its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.asm import LISTED, Function, Routine, Runs
from crtgen.kernels.cost import Work
from crtgen.kernels.dsp.copy import copy
from crtgen.kernels.dsp.epilogue import Epilogue, clamp, epilogue_lanes, floor, of_sums
from crtgen.kernels.dsp.walk import Geometry, PaddedRows, PixelSteps, groups_lead
from crtgen.kernels.dsp.words import FAR, Words, fours, words, words16
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.kernels.requant import rescale_of
from crtgen.ops.conv import DepthwiseConv2d
from crtgen.ops.fixedpoint import Int64

__all__ = ["Expansion", "WindowedView", "depthwise_any"]

_CHANNELS = 4
_UNROLL = 8  # taps of several rows written out
_GAIN_BITS = 12  # of weights of four bits
_GAIN = 1 << _GAIN_BITS
_MASK = 0xF000F000


@dataclass(frozen=True, slots=True)
class Expansion:
    """Each of a row's ``count`` inputs, of the C type ``type``, comes into the window ``repeats`` times."""

    count: int
    repeats: int
    type: str


@dataclass(frozen=True, slots=True)
class WindowedView:
    """A depthwise layer: per pixel ``rows`` times ``taps``, offsets of inputs; ``row_step`` bytes between.

    ``whole`` groups of four channels, and one more that ends at the last channel if ``rest``. Rows go
    through ``expansion`` if they are not copied as they are. Inputs and outputs have ``size`` bytes.
    ``packed``: weights have four bits.
    """

    images: int
    image_bytes: int
    channels: int
    size: int
    rows: int
    taps: tuple[int, ...]
    row_step: int
    walk: PixelSteps
    window: PaddedRows | None
    expansion: Expansion | None
    epilogue: Epilogue
    packed: bool

    @property
    def whole(self) -> int:
        return self.channels // _CHANNELS

    @property
    def rest(self) -> bool:
        return self.channels % _CHANNELS != 0

    @property
    def copies(self) -> bool:
        """Whether rows in scratch are copied as they are."""
        return self.window is not None and (self.window.kept > 0 or self.expansion is None)

    @property
    def pixel_bytes(self) -> int:
        """Of an output pixel."""
        return self.channels * self.size

    @property
    def last_group(self) -> int:
        """Where the last four channels of a pixel are, in bytes."""
        return self.pixel_bytes - _CHANNELS * self.size

    @property
    def tap_words(self) -> int:
        """Words of weights of four channels."""
        return self.rows * (-(-len(self.taps) // 2) if self.packed else 2 * len(self.taps))

    @property
    def group_words(self) -> int:
        """Words of four channels: starts, weights, requantisation."""
        return _CHANNELS + self.tap_words + _CHANNELS * self.epilogue.constants

    @property
    def whole_words(self) -> int:
        return self.whole * self.group_words


@lru_cache(maxsize=256)
def one_pixel(k: WindowedView) -> Routine:
    """``pixel(x, weights, y, groups)``: so many groups of four channels of a pixel."""
    f = Function(
        "pixel",
        "const int8_t *x",
        "const uint32_t *weights",
        "int8_t *y",
        "uint32_t groups",
        purpose="A pixel, so many groups of four channels.",
        keep=(0, 3),
    )
    x, weights, y, groups = f.arguments
    f.free(groups)
    taps = f.cores("weights, then requantisation", 2, LISTED)
    inputs = f.cores("inputs, then requantisation", 2, LISTED)
    sums = f.cores("sums", _CHANNELS, LISTED)
    rest = f.cores("of loops, then requantisation", 2, LISTED)
    spare = f.core("of loops, then requantisation", ("lr",))
    with f.loop("four channels", "groups") as again:
        f("ldm", f"{weights}!", f"{{{', '.join(sums)}}}")
        f("ldr", x, f.kept[0])
        f("add", spare, x, f"#{_CHANNELS * k.size}")
        f("str", spare, f.kept[0])
        if k.packed:
            f("mov", spare, f"#{_MASK}")
        row, given = (_nibbles, (*taps, spare)) if k.packed else (_row if k.size == 1 else _shorts, taps)
        if k.rows > 1:
            f.number(rest[1], k.row_step)
            with f.counted_loop("rows", rest[0], k.rows):
                row(f, k.taps, (x, weights), given, inputs, sums)
                f("add", x, x, rest[1])
        else:
            row(f, k.taps, (x, weights), given, inputs, sums)
        _requantise(f, k, weights, sums, (*taps, *inputs, *rest, spare, x))
        for place in (1, 2, 3):
            f(k.epilogue.store, sums[place], f"[{y}, #{place * k.size}]")
        f(k.epilogue.store, sums[0], f"[{y}], #{_CHANNELS * k.size}")
        f("ldr", spare, f.kept[3])
        f("subs", spare, spare, "#1")
        f("str", spare, f.kept[3])
        f("bne", again)
    return f.done()


def _row(
    f: Function,
    offsets: Sequence[int],
    pointers: tuple[str, str],
    taps: Sequence[str],
    inputs: Sequence[str],
    sums: Sequence[str],
) -> None:
    """The taps at these offsets: four channels of inputs, each half times its own."""
    for offset in offsets:
        _load(f, pointers[0], offset, inputs)
        f("ldrd", *taps, f"[{pointers[1]}], #8")
        for first, (word, tap) in enumerate(zip(inputs, taps, strict=True)):
            _halves(f, (sums[first], sums[first + 2]), word, tap)


def _shorts(
    f: Function,
    offsets: Sequence[int],
    pointers: tuple[str, str],
    taps: Sequence[str],
    inputs: Sequence[str],
    sums: Sequence[str],
) -> None:
    """The same for inputs of int16."""
    for offset in offsets:
        for word, at in zip(inputs, (offset, offset + 4), strict=True):
            f("ldr", word, f"[{pointers[0]}, #{at}]")
        f("ldrd", *taps, f"[{pointers[1]}], #8")
        for first, word, tap in ((0, inputs[0], taps[0]), (2, inputs[1], taps[1])):
            _halves(f, (sums[first], sums[first + 1]), word, tap)


def _nibbles(
    f: Function,
    offsets: Sequence[int],
    pointers: tuple[str, str],
    taps: Sequence[str],
    inputs: Sequence[str],
    sums: Sequence[str],
) -> None:
    """The same for weights of four bits; the last of the registers for taps has the mask."""
    packed, tap, mask = taps
    for number, offset in enumerate(offsets):
        if number % 2 == 0:
            f("ldr", packed, f"[{pointers[1]}], #4")
        _load(f, pointers[0], offset, inputs)
        for first, word in enumerate(inputs):
            shift = 8 * (number % 2) + 4 * first
            f("and", tap, mask, packed, *([f"lsl #{shift}"] if shift else []))
            _halves(f, (sums[first], sums[first + 2]), word, tap)


def _load(f: Function, x: str, offset: int, inputs: Sequence[str]) -> None:
    """Four channels of int8 as two words."""
    even, odd = inputs
    f("ldr", odd, f"[{x}, #{offset}]")
    f("sxtb16", even, odd, note="channels 0 and 2")
    f("sxtb16", odd, odd, "ror #8", note="channels 1 and 3")


def _halves(f: Function, sums: tuple[str, str], inputs: str, taps: str) -> None:
    """Two inputs, each times a weight."""
    f("smlabb", sums[0], inputs, taps, sums[0])
    f("smlatt", sums[1], inputs, taps, sums[1])


def _requantise(
    f: Function, k: WindowedView, weights: str, sums: Sequence[str], words: Sequence[str]
) -> None:
    """``words`` are registers for constants, of which all but the last two ascend."""
    epilogue = k.epilogue
    if epilogue.floor:
        f("ldm", f"{weights}!", f"{{{', '.join(words[:-2])}}}")
        f("ldrd", *words[-2:], f"[{weights}], #8")
        for number, total in enumerate(sums):
            floor(f, epilogue, total, words[2 * number], words[2 * number + 1], epilogue.shifts[0])
        clamp(f, epilogue, sums, words)
        return
    multiplier, constant, shift, spare = words[:4]
    for total in sums:
        f("ldm", f"{weights}!", f"{{{', '.join(words[: epilogue.constants])}}}")
        right, gain = epilogue.shifts[0] if epilogue.shifts else shift, _GAIN_BITS if k.packed else 0
        of_sums(f, epilogue, (total,), (multiplier, constant), spare, right, gain)
    clamp(f, epilogue, sums, words)


@design(DepthwiseConv2d, types=(DType.INT8, DType.INT16), needs="dsp", weights=(1, 2), packed=True)
def depthwise_any(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """Any window with four outputs or more that sees the image; None for others, or if inexact."""
    x, w, b = sig.inputs
    if sig.y.shape[3] < _CHANNELS:
        return None
    geometry, expansion = _geometry(op, sig)
    reach = (geometry.window[1] - 1) * geometry.dilation[1] * geometry.pixel_bytes
    if not geometry.sees_image or reach > FAR:
        return None
    params = op.parameters(sig)
    weights = w.array().astype(np.int64).reshape(-1, w.shape[3]).T  # [channel, tap]
    bias = b.array().astype(np.int64)
    gain = _GAIN if w.dtype is DType.INT4 else 1
    lanes = epilogue_lanes(rescale_of(params, weights, bias), ((gain, np.arange(len(bias))),))
    if lanes is None:
        return None
    zero_point, image = -params.input_offset, x.nbytes // x.shape[0]
    view = _view(geometry, expansion, (zero_point, image, len(bias)), lanes.epilogue, gain > 1)
    groups, words_each = fours(len(bias)), view.group_words

    def pack() -> Words:
        start = words(gain * (bias + params.input_offset * weights.sum(axis=1) + lanes.offsets[0]))
        constants = lanes.constants[0][groups].reshape(len(groups), -1)
        rows = weights[groups].reshape(len(groups), _CHANNELS, view.rows, -1)
        taps = _pack_nibbles(rows) if view.packed else _pack_taps(weights[groups], view.size)
        packed = np.concatenate([start[groups], taps, constants], axis=1)
        return packed.reshape(-1)

    note = "per four channels: start, weights, requantisation"
    return Kernel(
        design="dsp_depthwise_any",
        template="dsp/depthwise_any.c.j2",
        view=view,
        consts=(Const("weights", "uint32", (len(groups) * words_each,), pack, 4, note),),
        scratch=view.window.bytes if view.window else 0,
        inplace=_inplace(view),
        work=_work(view),
        routines=(one_pixel(view), *((copy(),) if view.copies else ())),
    )


def _geometry(op: DepthwiseConv2d, sig: Signature) -> tuple[Geometry, Expansion | None]:
    """The layer with as many inputs as outputs, and how its rows get them."""
    if op.multiplier == 1:
        return Geometry.of(op, sig), None
    images, height, width, inputs = sig.x.shape
    output = (sig.y.shape[1], sig.y.shape[2])
    taps, corner = (sig.inputs[1].shape[1], sig.inputs[1].shape[2]), (op.padding.top, op.padding.left)
    columns = (output[1] - 1) * op.stride[1] + (taps[1] - 1) * op.dilation[1] + 1
    pixel, seen = inputs * op.multiplier * sig.x.dtype.itemsize, min(width, columns - corner[1])
    geometry = Geometry(images, (height, width), output, taps, op.stride, op.dilation, corner, True, pixel)
    return geometry, Expansion(seen * inputs, op.multiplier, sig.x.dtype.c_name)


def _pack_taps(weights: Int64, size: int) -> Words:
    """``[group, word]`` from ``weights[group, 4, tap]``, for inputs of so many bytes."""
    a, b, c, d = weights.transpose(1, 0, 2)
    pairs = [words16(a, c), words16(b, d)] if size == 1 else [words16(a, b), words16(c, d)]
    return np.stack(pairs, axis=2).reshape(len(weights), -1)


def _pack_nibbles(weights: Int64) -> Words:
    """``[group, word]`` from ``weights[group, 4, row, tap]``: from the highest bits on, channels 2, 3, 2, 3.

    The first two are of one tap, the next ones of the second; 0, 1, 0 and 1 are in the lower half.
    """
    odd = weights.shape[3] % 2
    taps = np.pad(weights, ((0, 0), (0, 0), (0, 0), (0, odd))) & 15
    a, b, c, d = taps.transpose(1, 0, 2, 3).reshape(4, len(weights), -1, 2)
    upper, lower = (16 * first + second for first, second in ((c, d), (a, b)))
    return words16(256 * lower[..., 0] + lower[..., 1], 256 * upper[..., 0] + upper[..., 1])


def _view(
    geometry: Geometry,
    expansion: Expansion | None,
    numbers: tuple[int, int, int],
    epilogue: Epilogue,
    packed: bool,
) -> WindowedView:
    """``numbers`` are the zero point, the bytes of an image, and the output's channels."""
    zero_point, image_bytes, channels = numbers
    window = geometry.slide(zero_point, pixels=1)
    pitch = window.pitch if window else geometry.size[1] * geometry.pixel_bytes
    if window and expansion:
        window = replace(window, input_pitch=image_bytes // geometry.size[0])
    row_step, step = geometry.dilation[0] * pitch, geometry.dilation[1] * geometry.pixel_bytes
    rows, columns = geometry.window
    reach = (columns - 1) * step
    fits = [n for n in range(1, rows + 1) if rows % n == 0 and (n - 1) * row_step + reach <= FAR]
    unroll = max(n for n in fits if n == 1 or n * columns <= _UNROLL)
    return WindowedView(
        images=geometry.images,
        image_bytes=image_bytes,
        channels=channels,
        size=epilogue.bits // 8,
        rows=rows // unroll,
        taps=tuple(row * row_step + tap * step for row in range(unroll) for tap in range(columns)),
        row_step=unroll * row_step,
        walk=geometry.walk(pitch),
        window=window,
        expansion=expansion,
        epilogue=epilogue,
        packed=packed,
    )


def _inplace(view: WindowedView) -> tuple[InPlace, ...]:
    """Without a window, a last group that overlaps the one before would read what that one wrote."""
    if view.rest and not view.window:
        return ()
    return (
        InPlace(
            lead=groups_lead(
                view.walk, view.window, view.images, view.image_bytes, view.pixel_bytes, pixels=1
            )
        ),
    )


def _work(view: WindowedView) -> Work:
    routine, e, pixels = one_pixel(view), view.expansion, view.images * view.walk.pixels
    calls = [view.whole, *([1] if view.rest else [])]
    work = Work(pixels * Runs.sum(routine.runs(groups=n) for n in calls))
    work.block("pixel", pixels * len(calls), len(calls)).block("line", view.images * view.walk.height)
    if view.window:
        work.fill(view.window.bytes)
        view.window.work(work, view.walk.height, view.images, Runs() if e else None)
    if view.window and e:
        rows = work.blocks["row"].runs
        work.block("expanded", rows * e.count).block("expanded byte", rows * e.count * e.repeats, e.repeats)
    return work.block("image", view.images, view.images > 1)
