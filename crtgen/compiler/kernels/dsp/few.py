"""A few fully connected outputs with the DSP extension: four inputs at a time, widened in place."""

from functools import lru_cache, partial

from crtgen.compiler.kernels.asm import Function, Routine, Runs, listed
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.layout import grouped
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.shared.few import few_outputs
from crtgen.network.ir import Array, DType, Signature
from crtgen.network.ops.conv import Conv2d
from crtgen.network.ops.dense import FullyConnected
from crtgen.network.ops.fixedpoint import Int8

__all__ = ["few"]

_LANES = 4
_WORDS = 4  # of weights at a time
_ROUND = {"speed": 16, "size": 4}  # words of weights in a round


@design(FullyConnected, Conv2d, types=(DType.INT8,), needs="dsp", weights=(1, 2))
def few(op: FullyConnected | Conv2d, sig: Signature, target: Target) -> Kernel | None:
    written = target.steps(_ROUND[target.optimize])
    return few_outputs("dsp few", op, sig, partial(_sums, written), _ordered)


def _ordered(weights: Int8) -> Array:
    # ``[input / 4][output][input % 4]``, with zeros behind the last inputs.
    return grouped(weights, len(weights), _LANES).ravel()


@lru_cache(maxsize=256)
def _sums(written: int, outputs: int, depth: int) -> tuple[Routine, Runs]:
    # ``sums(x, weights, sums)``, with so many words of weights in a round.
    f = Function(
        "sums",
        "const int8_t *x",
        "const int8_t *weights",
        "int32_t *sums",
        purpose=f"{outputs} sums of {depth} products.",
    )
    writer = _DspFewWriter(f, outputs)
    groups = depth // _LANES
    at_once = writer.at_once * max(1, written // (writer.at_once * outputs))
    if groups >= 2 * at_once:
        with f.repeated("rounds", groups // at_once):
            writer.groups(at_once)
        groups %= at_once
    writer.groups(groups)
    if depth % _LANES:
        writer.last(depth % _LANES)
    writer.end()
    routine = f.done()
    return routine, routine.runs()


class _DspFewWriter:
    """Writer of sums: four inputs become two words, with the even and the odd ones, and so do weights."""

    def __init__(self, f: Function, outputs: int) -> None:
        self.f = f
        self.x, self.weights, self.result = f.arguments
        self.totals = f.cores("sums", outputs)
        self.at_once = max(1, _WORDS // outputs)  # groups of four inputs
        self.words = sorted(f.cores("weights", self.at_once * outputs), key=lambda r: int(r[1:]))
        self.even, self.odd, self.spare = f.cores("inputs, weights of even places", 3)
        for total in self.totals:
            f.number(total, 0)

    def groups(self, count: int) -> None:
        # ``count`` groups of four inputs.
        for begin in range(0, count, self.at_once):
            some = min(self.at_once, count - begin)
            words = self._weights(some)
            for n in range(some):
                self.f("ldr", self.even, f"[{self.x}], #{_LANES}")
                self._multiply(words[n * len(self.totals) :])

    def last(self, count: int) -> None:
        # One to three inputs, and no byte behind them.
        f = self.f
        words = self._weights(1)
        f("ldrh" if count > 1 else "ldrb", self.even, f"[{self.x}]")
        if count > 2:
            f("ldrb", self.odd, f"[{self.x}, #2]")
            f("orr", self.even, self.even, self.odd, "lsl #16")
        self._multiply(words)

    def end(self) -> None:
        for n, total in enumerate(self.totals):
            self.f("str", total, f"[{self.result}, #{4 * n}]")

    def _weights(self, groups: int) -> list[str]:
        words = self.words[: groups * len(self.totals)]
        if len(words) == 1:
            self.f("ldr", words[0], f"[{self.weights}], #4")
        else:
            self.f("ldm", f"{self.weights}!", listed(words))
        return words

    def _multiply(self, words: list[str]) -> None:
        f = self.f
        f("sxtb16", self.odd, self.even, "ror #8")
        f("sxtb16", self.even, self.even)
        for total, word in zip(self.totals, words, strict=False):
            f("sxtb16", self.spare, word)
            f("sxtb16", word, word, "ror #8")
            f("smlad", total, self.even, self.spare, total)
            f("smlad", total, self.odd, word, total)
