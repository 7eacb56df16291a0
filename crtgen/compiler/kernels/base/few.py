"""A few fully connected outputs in narrow instructions: one offset register addresses inputs and weights.

LDRSB only takes its offset from a register, so the weights of each output are stored in the order of the
inputs.
"""

from functools import lru_cache, partial

import numpy as np

from crtgen.compiler.kernels.asm import HIGH, LOW, Function, Routine, Runs
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.shared.few import few_outputs
from crtgen.network.ir import Array, DType, Signature
from crtgen.network.ops import Conv2d, FullyConnected
from crtgen.network.ops.fixedpoint import Int8

__all__ = ["few"]

_UNROLL = {"speed": 8, "size": 2}  # inputs written out
_NEAR = 12  # inputs over which a branch with a condition reaches


@design(FullyConnected, Conv2d, types=(DType.INT8,), needs="narrow", weights=(1, 2))
def few(op: FullyConnected | Conv2d, sig: Signature, target: Target) -> Kernel | None:
    unroll = max(min(target.steps(_UNROLL[target.optimize]), _NEAR) // 2 * 2, 2)
    return few_outputs("base few", op, sig, partial(_sums, unroll), _ordered)


def _ordered(weights: Int8) -> Array:
    return np.ascontiguousarray(weights).ravel()


@lru_cache(maxsize=256)
def _sums(unroll: int, outputs: int, depth: int) -> tuple[Routine, Runs]:
    # ``sums(x, weights, sums)``, with ``unroll`` inputs in a round.
    f = Function(
        "sums",
        "const int8_t *x",
        "const int8_t *weights",
        "int32_t *sums",
        purpose=f"{outputs} sums of {depth} products.",
        keep=(2,),
        narrow=True,
    )
    writer = _BaseFewWriter(f, outputs, depth)
    rounds, left = divmod(depth, unroll)
    if rounds > 1:
        writer.rounds(rounds, unroll)
    else:
        left = depth
    writer.some(left)
    writer.end()
    routine = f.done()
    return routine, routine.runs()


class _BaseFewWriter:
    # With a single output, every second input and weight has another address: the offset advances by two.
    def __init__(self, f: Function, outputs: int, depth: int) -> None:
        self.f = f
        x, weights, result = f.arguments
        f.free(result)
        self.offset, self.value, self.tap = f.cores("offset, input, weight", 3, LOW)
        alone = outputs == 1
        spare = f.cores("others", 2 if alone else outputs - 1, LOW)
        self.sums = f.cores("sums", outputs, LOW if alone else HIGH)
        if alone:
            self.places = [(x, (weights,)), (spare[0], spare[1:])]
            f("adds", spare[0], x, "#1")
            f("adds", spare[1], weights, "#1")
        else:
            self.places = [(x, (weights, *spare))]
            f.number(self.value, depth)
            for before, after in zip((weights, *spare), spare, strict=False):
                f("adds", after, before, self.value)
        f("movs", self.offset, "#0")
        for total in self.sums:
            f("mov", total, self.offset)

    def rounds(self, rounds: int, unroll: int) -> None:
        f = self.f
        end = f.core("where the rounds end", ("r12",))
        f.number(self.value, rounds * unroll)
        f("mov", end, self.value)
        with f.loop("inputs", rounds) as again:
            self.some(unroll)
            f("cmp", self.offset, end)
            f("bne", again)

    def some(self, count: int) -> None:
        f, step = self.f, len(self.places)
        for number in range(count):
            x, weights = self.places[number % step]
            f("ldrsb", self.value, f"[{x}, {self.offset}]")
            for total, taps in zip(self.sums, weights, strict=True):
                f("ldrsb", self.tap, f"[{taps}, {self.offset}]")
                f("muls", self.tap, self.value, self.tap)
                f(*(("adds", total, total, self.tap) if total in LOW else ("add", total, self.tap)))
            if number % step == step - 1:
                f("adds", self.offset, f"#{step}")

    def end(self) -> None:
        f = self.f
        f("ldr", self.tap, f.kept[2])
        for number, total in enumerate(self.sums):
            f("mov", self.value, total)
            f("str", self.value, f"[{self.tap}, #{4 * number}]")
