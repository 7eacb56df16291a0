"""A few fully connected outputs with Helium: sixteen inputs at a time, and sixteen weights of each output."""

from functools import lru_cache, partial

from crtgen.compiler.kernels.asm import EVEN, Function, Routine, Runs
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.layout import grouped
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.mve.elements import BYTES, unrolling
from crtgen.compiler.kernels.shared.few import few_outputs
from crtgen.network.ir import Array, DType, Signature
from crtgen.network.ops.conv import Conv2d
from crtgen.network.ops.dense import FullyConnected
from crtgen.network.ops.fixedpoint import Int8

__all__ = ["few"]


@design(FullyConnected, Conv2d, types=(DType.INT8,), needs="mve", weights=(1, 2))
def few(op: FullyConnected | Conv2d, sig: Signature, target: Target) -> Kernel | None:
    return few_outputs("mve few", op, sig, partial(_sums, unrolling(target)), _ordered)


def _ordered(weights: Int8) -> Array:
    # ``[input / 16][output][input % 16]``, with zeros behind the last inputs.
    return grouped(weights, len(weights), BYTES).ravel()


@lru_cache(maxsize=256)
def _sums(unroll: int, outputs: int, depth: int) -> tuple[Routine, Runs]:
    # ``sums(x, weights, sums)``, with so many vectors of inputs in a round.
    f = Function(
        "sums",
        "const int8_t *x",
        "const int8_t *weights",
        "int32_t *sums",
        purpose=f"{outputs} sums of {depth} products.",
    )
    x, weights, result = f.arguments
    totals = [f.core("sums", EVEN) for _ in range(outputs)]
    inputs, taps = f.vectors("inputs", 2), f.vectors("weights", 2)
    for total in totals:
        f.number(total, 0)

    def vector(turn: int) -> None:
        f("vldrb.8", inputs[turn], f"[{x}], #{BYTES}")
        for n, total in enumerate(totals):
            tap = taps[(turn + n) % 2]
            f("vldrb.8", tap, f"[{weights}], #{BYTES}")
            f("vmladava.s8", total, inputs[turn], tap)

    rounds, rest = divmod(depth, BYTES * unroll) if unroll > 1 else (0, depth)
    if rounds:
        with f.low_overhead_loop("rounds", rounds):
            for n in range(unroll):
                vector(n % 2)
    if rest:
        with f.predicated_loop("rest", 8, rest):
            vector(0)
    for n, total in enumerate(totals):
        f("str", total, f"[{result}, #{4 * n}]")
    routine = f.done()
    return routine, routine.runs()
