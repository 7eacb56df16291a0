"""Storage of weights for pairs of channels, and the SMLAD code that multiplies them: one class per form.

A word of weights serves two channels A and B and two inputs of a pixel, which are the halves of a word.
Storage and multiplication are defined together here; the rest of a kernel is the same for every form.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np

from crtgen.compiler.kernels.asm import Function
from crtgen.compiler.kernels.dsp.packing import Packing, order_weights
from crtgen.compiler.kernels.dsp.words import words16
from crtgen.compiler.kernels.engine.words import Words, words
from crtgen.network.ops.fixedpoint import Int8, Int64

__all__ = ["BYTES", "HALFWORDS", "NIBBLES", "Form", "Products", "fits"]


class Products(Protocol):
    f: Function
    weights: str
    taps: tuple[str, ...]
    a: tuple[str, ...]
    b: tuple[str, ...]
    bias: str

    def load(self) -> None:
        """Load two inputs of each pixel."""

    def products(self, sums: Sequence[str], weights: str, first: bool = False) -> None:
        """Multiply these inputs by two weights; with ``first``, sums start with the product of the last
        pixel.
        """


class Form:
    """A form of weights.

    The sums of A are ``2**gain * a + b``, or those of a alone if the gain is 0. Weights take ``taps``
    registers. ``spills``: no register is left for the end of the columns and for the output.
    """

    gain: ClassVar[int]
    taps: ClassVar[int] = 2
    spills: ClassVar[bool] = True
    steps_of_a_word: ClassVar[int] = 1
    """Steps of two inputs each whose weights share a word."""

    def name(self, bits: int) -> str:
        raise NotImplementedError

    def pin(self, t: Products) -> None: ...

    def steps(self, t: Products, count: int, fresh: bool) -> None:
        for pair in range(count // 2):
            t.f("ldrd", *t.taps[:2], f"[{t.weights}], #8")
            self.step(t, t.taps[0], fresh and not pair)
            self.step(t, t.taps[1], False)
        if count % 2:
            t.f("ldr", t.taps[0], f"[{t.weights}], #4")
            self.step(t, t.taps[0], fresh and count == 1)

    def step(self, t: Products, word: str, first: bool) -> None:
        raise NotImplementedError

    def words(self, a: Int8, b: Int8, packing: Packing, steps: int) -> Words:
        """Return ``[pair, words]`` from the weights ``[pair, inputs of a window]`` of each channel."""
        raise NotImplementedError

    def holds(self, a: Int8, b: Int8) -> bool:
        return True

    def starts(self, a: Int64, b: Int64) -> Words:
        """Return the initial sums ``[pair, 2]``, from the initial values of both channels."""
        return np.stack([words((a << self.gain) + b if self.gain else a), words(b)], axis=1)

    @property
    def gains(self) -> tuple[int, int]:
        """Factors of the first and of the second channel's sums."""
        return 1 << self.gain, 1


class _Halfwords(Form):
    """Halfwords of ``256 * a + b``: one SMLAD for both channels, and one for b alone, which SXTB16
    extracts.
    """

    gain = 8
    spills = False

    def name(self, bits: int) -> str:
        return "group"

    def step(self, t: Products, word: str, first: bool) -> None:
        t.load()
        t.products(t.a, word, first)
        t.f("sxtb16", word, word)
        t.products(t.b, word, first)

    def words(self, a: Int8, b: Int8, packing: Packing, steps: int) -> Words:
        mixed: Int64 = 256 * a.astype(np.int64) + b
        halves = order_weights(mixed, packing, steps)
        return words16(halves[..., 0], halves[..., 1])

    def holds(self, a: Int8, b: Int8) -> bool:
        return fits(a, b)


class _Bytes(Form):
    """Bytes a0, b0, a1, b1 of two inputs, widened by SXTB16; each channel has its own 32-bit sums.

    Used for int16 inputs, and for int8 inputs whose sums need more than 24 bits or whose weights of -128
    cannot be combined. For a single channel only A is computed.
    """

    gain = 0
    taps = 3

    def name(self, bits: int) -> str:
        return "group16" if bits > 8 else "group_apart"

    def step(self, t: Products, word: str, first: bool) -> None:
        t.load()
        t.f("sxtb16", t.taps[2], word)
        if t.b:
            t.f("sxtb16", word, word, "ror #8")
        t.products(t.a, t.taps[2], first)
        t.products(t.b, word, first)

    def words(self, a: Int8, b: Int8, packing: Packing, steps: int) -> Words:
        both = [order_weights(channel, packing, steps) for channel in (a, b)]
        return np.stack(both, axis=3).reshape(len(a), -1).view(np.uint32)  # [pair, step, input, channel]


class _Nibbles(Form):
    """4-bit weights: bytes of ``16 * a + b + 8``, in words of four for two steps.

    As a signed byte, minus 8, it is ``16 * a + b``; its low half, minus 8, is b. SXTAB16 and UXTAB16 subtract
    while they widen bytes 0 and 2 for the first step, 1 and 3 for the second.
    """

    gain = 4
    steps_of_a_word = 2
    _BIAS = 8

    def name(self, bits: int) -> str:
        return "group4"

    def pin(self, t: Products) -> None:
        t.bias = t.f.core("-8 twice", ("lr",))
        t.f("mvn", t.bias, "#0x70007")

    def steps(self, t: Products, count: int, fresh: bool) -> None:
        f, (word, taps) = t.f, t.taps
        for number in range(count // 2):
            f("ldr", word, f"[{t.weights}], #4")
            for rotated, low in (((), taps), (("ror #8",), word)):
                first = fresh and number == 0 and not rotated
                t.load()
                f("sxtab16", taps, t.bias, word, *rotated)
                t.products(t.a, taps, first)
                f("and", low, word, "#0x0f0f0f0f")
                f("uxtab16", low, t.bias, low, *rotated)
                t.products(t.b, low, first)

    def words(self, a: Int8, b: Int8, packing: Packing, steps: int) -> Words:
        first, second = (order_weights(channel.astype(np.int64), packing, steps) for channel in (a, b))
        both = (16 * first + second + self._BIAS).reshape(len(a), -1, 2, 2)  # [pair, word, step, input]
        return both.transpose(0, 1, 3, 2).astype(np.int8, order="C").reshape(len(a), -1).view(np.uint32)


HALFWORDS, BYTES, NIBBLES = _Halfwords(), _Bytes(), _Nibbles()


def fits(a: Int8, b: Int8) -> bool:
    """Return True if halfwords can hold ``256 * a + b``: not if a weight is -128 and its neighbour is
    negative.
    """
    return not ((a == -128) & (b < 0)).any()
