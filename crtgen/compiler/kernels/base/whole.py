"""Depthwise convolutions whose window is the whole image, without the DSP extension: one channel at a time.

Nothing is copied: each channel has one output, and each input is used once.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import rescale_of
from crtgen.compiler.kernels.asm import FAR, LISTED, LOW, Function, Routine, listed
from crtgen.compiler.kernels.base.epilogue import Limbs, LongProducts, exact_form
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.layout import records, stream
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape
from crtgen.compiler.kernels.engine.words import Words, words
from crtgen.compiler.kernels.shared.single_routine import single_routine
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import DepthwiseConv2d

__all__ = ["Whole", "whole_image"]

_NAME = "depthwise whole image"
_UNROLL = {"speed": 16, "size": 8}  # taps written out
_NEAR = 24  # taps over which a narrow branch with a condition reaches


@dataclass(frozen=True, slots=True)
class Whole:
    """``taps`` pixels of ``channels`` channels; ``unroll`` taps are unrolled."""

    taps: int
    channels: int
    unroll: int
    epilogue: LongProducts | Limbs

    @property
    def rounds(self) -> int:
        return self.taps // self.unroll

    @property
    def left(self) -> int:
        return self.taps % self.unroll

    @property
    def padding(self) -> int:
        """Bytes of padding after the weights of a channel, up to a word boundary."""
        return -self.taps % 4


@design(DepthwiseConv2d, types=(DType.INT8,), needs="base", weights=(1, 2))
def whole_image(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    _, w, b = sig.inputs
    window = WindowShape.of(op, sig)
    whole = (window.batch, window.taps_y, window.taps_x) == (1, window.height, window.width)
    weights, bias = w.array().reshape(-1, w.shape[3]), b.array().astype(np.int64)
    taps, channels = weights.shape
    if not whole or window.padded or op.multiplier > 1 or channels > FAR:
        return None
    params, by_channel = op.parameters(sig), weights.T.astype(np.int64)
    start = bias + params.input_offset * by_channel.sum(axis=1)
    found = exact_form(rescale_of(params, by_channel, bias), start, target.core.narrow)
    if found is None:
        return None
    form, start, constants = found
    unroll = min(target.steps(_UNROLL[target.optimize]), taps, FAR // channels + 1)
    if isinstance(form, Limbs):
        unroll = min(unroll, _NEAR)
        numbers = records(words(start), constants).ravel()
        consts = (
            Const.of("weights", weights.astype(np.int8), 1, "[tap][channel]"),
            Const.of("constants", numbers, 4, "per channel: start, requantisation"),
        )
        return single_routine(_NAME, _narrow(Whole(taps, channels, unroll, form)), consts, inplace=True)
    k = Whole(taps, channels, unroll, form)

    def some_channels(some: slice) -> Words:
        return records(words(start[some]), weights.T[some].astype(np.int8), constants[some])

    each = 1 + (taps + k.padding) // 4 + form.constants
    note = "per channel: start, weights, requantisation"
    return single_routine(_NAME, _wide(k), [stream(channels, each, some_channels, note)], inplace=True)


def _purpose(k: Whole) -> str:
    return f"The only output of {k.channels} channels, of {k.taps} taps each."


@lru_cache(maxsize=256)
def _wide(k: Whole) -> Routine:
    # ``whole(x, y, weights)``, for MLA and SMULL.
    parameters = ("const int8_t *x", "int8_t *y", "const uint32_t *weights")
    f = Function("whole", *parameters, purpose=_purpose(k))
    x, y, weights = f.arguments
    constants = f.cores("requantisation", 3, LISTED)
    total, at, tap, value, left = f.cores("sum, place, weight, input, channels left", 5)
    assert isinstance(k.epilogue, LongProducts)

    def some(count: int) -> None:
        for number in range(count):
            f("ldrsb", value, f"[{at}, #{number * k.channels}]")
            f("ldrsb", tap, f"[{weights}], #1")
            f("mla", total, value, tap, total)

    with f.counted_loop("channels", left, k.channels):
        f("ldr", total, f"[{weights}], #4")
        f("mov", at, x)
        f("add", x, x, "#1")
        with f.repeated("taps", k.rounds):
            some(k.unroll)
            if k.rounds > 1 or k.left:
                f.advance(at, k.unroll * k.channels, spare=value)
        some(k.left)
        f.advance(weights, k.padding)
        used = constants[: k.epilogue.constants]
        f("ldm", f"{weights}!", listed(used))
        k.epilogue.append(f, total, used, (tap, value))
        f("strb", total, f"[{y}], #1")
    return f.done()


@lru_cache(maxsize=256)
def _narrow(k: Whole) -> Routine:
    # ``whole(x, y, weights, constants)``, for narrow instructions: weights are stored like the inputs. So one
    # offset serves both, which LDRSB wants in a register.
    assert isinstance(k.epilogue, Limbs)
    parameters = ("const int8_t *x", "int8_t *y", "const int8_t *weights", "const uint32_t *constants")
    f = Function("whole", *parameters, purpose=_purpose(k), narrow=True)
    x, y, weights, constants = f.arguments
    total, offset, tap, value = f.cores("sum, offset, weight, input", 4, LOW)
    step, end, last = f.cores("step, end of the rounds, last channel", 3, ("r8", "r9", "r10"))
    numbers = ("r12", k.epilogue.low), ("lr", k.epilogue.high)
    f.cores("limits", 2, ("r12", "lr"))
    for register, number in (*numbers, (step, k.channels), (end, k.rounds * k.unroll * k.channels)):
        f.number(value, number)
        f("mov", register, value)
    f.number(value, k.channels)
    f("add", value, x)
    f("mov", last, value)

    def some(count: int) -> None:
        for _ in range(count):
            f("ldrsb", value, f"[{x}, {offset}]")
            f("ldrsb", tap, f"[{weights}, {offset}]")
            f("muls", tap, value, tap)
            f("adds", total, total, tap)
            f("add", offset, step)

    done = f.label("done")
    with f.loop("channels", k.channels) as again:
        f("ldr", total, f"[{constants}]")
        f("movs", offset, "#0")
        if k.rounds > 1:
            with f.loop("taps", k.rounds) as taps:
                some(k.unroll)
                f("cmp", offset, end)
                f("bne", taps)
        else:
            some(k.unroll)
        some(k.left)
        result = k.epilogue.append(f, total, (constants, 4), (value, tap))
        f("strb", result, f"[{y}]")
        f("adds", constants, f"#{4 + 4 * k.epilogue.constants}")
        for pointer in (x, y, weights):
            f("adds", pointer, "#1")
        f("cmp", x, last)
        f("beq", done)
        f("b", again)
    f.place(done)
    return f.done()
