"""Fully connected layers with the DSP extension: four outputs at a time for one row of inputs.

The weights are those of the matrix micro-kernel, two words per step: channels 0 and 1, channels 2 and 3.
Several rows, or less than four outputs, are a pointwise convolution.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.asm import LISTED, Function, Routine
from crtgen.kernels.cost import Work
from crtgen.kernels.dsp.conv import matrix_kernel
from crtgen.kernels.dsp.dense4 import groups_of_outputs4, halfwords, heads4, sums_fit
from crtgen.kernels.dsp.dense16 import groups_of_outputs16, heads16
from crtgen.kernels.dsp.epilogue import (
    Epilogue,
    clamp,
    epilogue_lanes,
    floor,
    of_sums,
    rounded_lanes,
    saturate,
)
from crtgen.kernels.dsp.form import fits
from crtgen.kernels.dsp.packing import Packing, order_weights, pack_windows
from crtgen.kernels.dsp.walk import Geometry
from crtgen.kernels.dsp.words import fours, words16
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.kernels.requant import Rescale, rescale_of
from crtgen.kernels.window import is_row
from crtgen.kernels.words import NO_WORDS, Words, by_output, packed_rows, words
from crtgen.ops.conv import Conv2d, ConvParams
from crtgen.ops.dense import FullyConnected
from crtgen.ops.fixedpoint import Int8, Int64

__all__ = ["DenseView", "dense_kernel", "fully_connected"]

_GAIN_BITS = 8
_GAIN = 1 << _GAIN_BITS
_LANES = 4
_STEPS_WRITTEN_OUT = {"speed": 16, "size": 2}


@dataclass(frozen=True, slots=True)
class DenseView:
    """A fully connected layer: ``whole`` groups of four outputs; if ``rest``, one more that ends at the last.

    ``header`` words before the groups hold the requantisation of all channels, where they are scaled alike.
    ``packed``: weights have four bits. ``wide``: two sums at a time have 64 bits. ``swapped``: of two outputs
    side by side the second one has the gain.
    """

    outputs: int
    whole: int
    rest: bool
    packing: Packing
    steps: int
    unroll: int
    header: int
    group_words: int
    epilogue: Epilogue
    packed: bool
    wide: bool
    swapped: bool

    @property
    def looped(self) -> bool:
        return self.unroll < self.steps

    @property
    def short(self) -> bool:
        """Whether it is one of int16."""
        return self.packing.size == 2

    @property
    def whole_words(self) -> int:
        return self.whole * self.group_words


@lru_cache(maxsize=256)
def groups_of_outputs(k: DenseView) -> Routine:
    """``dense(weights, y, columns, end)``: groups of four outputs from ``weights`` to ``end``."""
    if k.packed:
        return groups_of_outputs4(k.steps, k.unroll, k.packing.steps, k.header > 0, k.epilogue)
    if k.wide:
        return groups_of_outputs16(k.steps, k.unroll, k.header > 0, k.epilogue)
    writer = _Writer(k)
    writer.write()
    return writer.f.done()


class _Writer:
    """Writes the groups of outputs: registers, and what is done with them."""

    def __init__(self, k: DenseView) -> None:
        self.k = k
        self.f = f = Function(
            "dense",
            "const uint32_t *weights",
            "void *y",
            "const uint32_t *columns",
            "const uint32_t *end",
            purpose="Groups of four outputs from `weights` to `end`.",
            keep=(1, 2, 3) if k.looped else (2, 3),
        )
        self.weights, self.y, columns, end = f.arguments
        f.free(columns, end)
        self.columns = columns
        inputs = f.core("inputs", (columns,))
        self.taps = f.cores("weights, then requantisation", 4, LISTED)
        self.pair = f.cores("inputs of two steps, then requantisation", 2, LISTED)
        self.mix = f.cores("256 * a + b of two pairs", 2, LISTED)
        self.low = f.cores("b of two pairs", 2, LISTED)
        self.spare = f.core("ends")
        if k.looped:
            f.number(self.spare, 4 * k.steps)
            f("add", self.spare, self.spare, inputs)
            f("str", self.spare, f.kept[1])

    def write(self) -> None:
        f, k = self.f, self.k
        with f.loop("four outputs", "groups") as again:
            f("ldr", self.columns, f.kept[2])
            f("ldm", f"{self.weights}!", _listed((*self.mix, *self.low)))
            if k.looped:
                f("ldr", self.spare, f.kept[1])
                with f.loop("steps", k.steps // k.unroll) as next_steps:
                    self._steps()
                    f("cmp", self.columns, self.spare)
                    f("bne", next_steps)
            else:
                self._steps()
            for mix, low in zip(self.mix, self.low, strict=True):
                f("sub", mix, mix, low, note="256 * a")
            self._requantise()
            clamp(f, k.epilogue, (*self.mix, *self.low))
            (a, c), (b, d) = (self.low, self.mix) if k.swapped else (self.mix, self.low)
            store, step = k.epilogue.store, k.epilogue.bits // 8
            for place, output in ((1, b), (2, c), (3, d)):
                f(store, output, f"[{self.y}, #{place * step}]")
            f(store, a, f"[{self.y}], #{4 * step}")
            f("ldr", self.spare, f.kept[3])
            f("cmp", self.weights, self.spare)
            f("bne", again)

    def _steps(self) -> None:
        f = self.f
        for _ in range(self.k.unroll // 2):
            f("ldrd", *self.pair, f"[{self.columns}], #8")
            f("ldm", f"{self.weights}!", _listed(self.taps))
            self._step(self.pair[0], self.taps[:2])
            self._step(self.pair[1], self.taps[2:])

    def _step(self, inputs: str, weights: Sequence[str]) -> None:
        """Two inputs times the weights of four outputs."""
        f = self.f
        for total, word in zip(self.mix, weights, strict=True):
            f("smlad", total, inputs, word, total)
        for word in weights:
            f("sxtb16", word, word)
        for total, word in zip(self.low, weights, strict=True):
            f("smlad", total, inputs, word, total)

    def _requantise(self) -> None:
        f, k = self.f, self.k
        if k.epilogue.form == "sum":
            for mix in self.mix:
                f("asr", mix, mix, f"#{_GAIN_BITS}")
            return
        outputs = (self.mix[0], self.low[0], self.mix[1], self.low[1])
        if k.header:
            f("ldr", self.columns, f.kept[2])
        if k.epilogue.form == "rounded":
            self._rounded(outputs)
            return
        if not k.epilogue.floor:
            self._by_channel(outputs)
            return
        if k.header:
            f("ldmdb", self.columns, _listed(self.taps))
            constants = (*self.taps, *self.taps)
        else:
            f("ldm", f"{self.weights}!", _listed((*self.taps, *self.pair)))
            f("ldrd", self.spare, self.columns, f"[{self.weights}], #8")
            constants = (*self.taps, *self.pair, self.spare, self.columns)
        for number, output in enumerate(outputs):
            shift = k.epilogue.shifts[number % len(k.epilogue.shifts)]
            floor(f, k.epilogue, output, constants[2 * number], constants[2 * number + 1], shift)

    def _by_channel(self, outputs: Sequence[str]) -> None:
        f, k = self.f, self.k
        multiplier, constant, shift, spare = self.taps
        if k.header:
            f("ldmdb", self.columns, _listed((multiplier, constant)))
        for number, output in enumerate(outputs):
            if not k.header:
                f("ldm", f"{self.weights}!", _listed(self.taps[: k.epilogue.constants]))
            right = k.epilogue.shifts[number] if k.epilogue.shifts else shift
            gain = _GAIN_BITS if output in self.mix else 0
            of_sums(f, k.epilogue, (output,), (multiplier, constant), spare, right, gain)

    def _rounded(self, outputs: Sequence[str]) -> None:
        """From the words before the columns."""
        f, k, multiplier = self.f, self.k, self.taps[0]
        f("ldr", multiplier, f"[{self.columns}, #-4]")
        left = 1 + k.epilogue.shifts[0]
        for mix in self.mix:
            f("asr" if left < 8 else "lsl", mix, mix, f"#{abs(8 - left)}")
        for low in self.low:
            f("lsl", low, low, f"#{left}")
        for output in outputs:
            f("smmulr", output, output, multiplier)
            saturate(f, k.epilogue, output)


def _listed(registers: Sequence[str]) -> str:
    return f"{{{', '.join(registers)}}}"


@design(FullyConnected, types=(DType.INT8, DType.INT16), needs="dsp", weights=(1, 2), packed=True)
def fully_connected(op: FullyConnected, sig: Signature, target: Target) -> Kernel | None:
    """Four outputs at a time for a single row, else the matrix design; None if inexact or for one output."""
    return dense_kernel(op.parameters(sig), sig, target)


@design(Conv2d, types=(DType.INT8, DType.INT16), needs="dsp", weights=(1, 2), packed=True)
def whole_image(op: Conv2d, sig: Signature, target: Target) -> Kernel | None:
    """The same for a convolution of which the only window is the whole image; None for others."""
    return dense_kernel(op.parameters(sig), sig, target) if is_row(op, sig) else None


def dense_kernel(params: ConvParams, sig: Signature, target: Target) -> Kernel | None:
    """A fully connected layer that does that with its sums; None as above."""
    x, w, b = sig.inputs
    weights, bias = by_output(w), b.array().astype(np.int64)
    outputs, depth = weights.shape
    rows = x.elements // depth
    size, packed = x.dtype.itemsize, w.dtype is DType.INT4
    rescale = rescale_of(params, weights, bias)
    if rows > 1 or outputs < _LANES or (packed and not sums_fit(rescale, depth)):
        return matrix_kernel(Geometry.rows(rows, depth * size), params, weights, bias, target, packed)
    folded = bias + params.input_offset * weights.sum(axis=1)
    return row_of_sums(weights, folded, rescale, size, target, packed)


def row_of_sums(
    weights: Int8, start: Int64, rescale: Rescale, size: int, target: Target, packed: bool = False
) -> Kernel | None:
    """A row of inputs of ``size`` bytes times ``weights[O, K]``, with sums that begin with ``start``.

    ``packed``: weights have four bits. None if inexact, or for less than four outputs.
    """
    outputs, depth = weights.shape
    if outputs < _LANES:
        return None
    packing = Packing.of((1, 1), (1, 1), depth * size, depth * size, size)
    steps, unroll = _unrolling(packing.steps, target.steps(_STEPS_WRITTEN_OUT[target.optimize]))
    form = _INT4 if packed else _WIDE if size > 1 else _INT8
    stream = _stream(form, weights, packing, steps, start, rescale)
    if stream is None and form is _INT8 and not rescale.is_sum:
        form = _WIDE
        stream = _stream(form, weights, packing, steps, start, rescale)
    if stream is None:
        return None
    view = DenseView(
        outputs=outputs,
        whole=outputs // _LANES,
        rest=outputs % _LANES != 0,
        packing=packing,
        steps=steps,
        unroll=unroll,
        header=len(stream.header),
        group_words=stream.group_words,
        epilogue=stream.epilogue,
        packed=packed,
        wide=form is _WIDE,
        swapped=stream.swapped,
    )
    return Kernel(
        design="dsp_dense",
        template="dsp/dense.c.j2",
        view=view,
        consts=(stream.const,),
        scratch=4 * (steps + view.header),
        inplace=() if stream.epilogue.form == "sum" else (InPlace(),),
        work=_work(view),
        routines=(groups_of_outputs(view), pack_windows(packing, 1)),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Weights:
    header: Words
    group_words: int
    epilogue: Epilogue
    const: Const
    swapped: bool


@dataclass(frozen=True, slots=True)
class _Form:
    """How four outputs share words: ``_INT8``, ``_WIDE`` for int16 and for sums that need it, ``_INT4``.

    ``gains`` are those of their sums, ``mixed`` makes halfwords ``[group, parts, input]`` of weights
    ``[group, 4, input]``, and ``heads`` makes ``[group, head_words]`` of the starts of sums, ``[group, 4]``.
    """

    gains: tuple[int, ...]
    mixed: Callable[[Int64], Int64]
    parts: int
    heads: Callable[[Int64], Words]
    head_words: int


def _pairs(weights: Int64) -> Int64:
    return _GAIN * weights[:, 0::2] + weights[:, 1::2]


def _heads(start: Int64) -> Words:
    a, b, c, d = start.T
    return words(np.stack([_GAIN * a + b, _GAIN * c + d, b, d], axis=1))


_INT8 = _Form((_GAIN, 1, _GAIN, 1), _pairs, 2, _heads, 4)
_WIDE = _Form((1, 1, 1, 1), _pairs, 2, heads16, 6)
_INT4 = _Form((1, 1, 1, 1), lambda weights: halfwords(weights)[:, None], 1, heads4, 5)


def _stream(
    form: _Form, weights: Int8, packing: Packing, steps: int, start: Int64, rescale: Rescale
) -> _Weights | None:
    """The packed ``weights[O, K]``; None if inexact, or for weights of -128 in wrong places."""
    channels, shared = fours(len(weights)), rescale.uniform
    swapped = form is _INT8 and not _fits(weights, channels)
    if swapped:
        channels = channels[:, [1, 0, 3, 2]]
    united = rescale.united() if shared else rescale
    lanes = epilogue_lanes(united, [(gain, channels[:, lane]) for lane, gain in enumerate(form.gains)])
    if lanes is None and shared and form is _INT8:
        lanes = rounded_lanes(united.take(channels[:, 0]), _LANES)
    if lanes is None or not rescale.narrow or not (form is _INT4 or _fits(weights, channels)):
        return None
    ends = () if shared else lanes.constants
    shares = [lanes.constants[0][0], lanes.constants[1][0]] if shared else []
    header = np.concatenate([NO_WORDS, *shares])

    group_words = form.head_words + form.parts * steps + sum(end.shape[1] for end in ends)
    count = len(header) + len(channels) * group_words

    def groups(some: slice) -> Words:
        mixed = form.mixed(weights[channels[some]].astype(np.int64))
        flat = order_weights(mixed.reshape(-1, mixed.shape[2]), packing, steps)
        halves = flat.reshape(*mixed.shape[:2], steps, 2)
        mixes = words16(halves[..., 0], halves[..., 1]).transpose(0, 2, 1).reshape(len(mixed), -1)
        heads = form.heads((start[channels] + np.stack(lanes.offsets, axis=1))[some])
        return np.concatenate([heads, mixes, *(end[some] for end in ends)], axis=1)

    def pack() -> Words:
        return packed_rows(len(channels), group_words, groups, header)

    note = "requantisation; per four outputs: start, weights"
    const = Const("weights", "uint32", (count,), pack, 4, note)
    return _Weights(header, group_words, lanes.epilogue, const, swapped)


def _fits(weights: Int8, channels: Int64) -> bool:
    """Whether halfwords hold the weights of two outputs of each group."""
    return fits(weights[channels[:, 0::2]], weights[channels[:, 1::2]])


def _unrolling(steps: int, most: int) -> tuple[int, int]:
    """The steps, made even or more for a good unrolling, and how many are written out."""
    even = steps + steps % 2
    if even <= most:
        return even, even
    counts = {u: -(-even // u) * u for u in range(2, most + 1, 2)}
    unroll = min(counts, key=lambda u: counts[u] * (7 + 2 / u))
    return counts[unroll], unroll


def _work(view: DenseView) -> Work:
    groups = groups_of_outputs(view)
    counted = groups.runs(groups=view.whole) + bool(view.rest) * groups.runs(groups=1)
    work = Work(counted + pack_windows(view.packing, 1).runs())
    return work.block("rest", view.rest, view.rest).block("header", view.header, view.header > 0)
