"""What the instructions of a network are for: ``python -m benchmarks.limits MODEL...``.

Thousands of instructions at ``speed``, on a core with the DSP extension and on one with Helium. Assembly is
data, so each instruction is known and how often it runs; C counts with the rest. The limit is what would be
left if only sums and outputs took anything: the products, loads and widening of the inner loops as they are,
and for each output that is re-encoded the fewest instructions that do it.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import crtgen
from crtgen.compiler.kernels.engine.kernel import Kernel
from crtgen.compiler.plan import Plan

BOARDS = ("mps2_an386", "mps3_an547")
KINDS = {
    "products": ("smlad", "smlald", "vmladav", "vmlaldav"),
    "loads": ("ldr", "ldm", "vldr"),
    "widening": ("sxtb16", "sxtab16", "uxtab16"),
}
"""What mnemonics begin with."""
OUTPUT = {"mps2_an386": 3.5, "mps3_an547": 1.75}
"""Instructions of an output. DSP: multiply and add, shift and saturate, store, and half a subtraction, which
takes the gain out of a pair of sums. Helium: for eight of them four moves of sums into vectors, two loads of
constants, for each four a product, an addition and a shift that narrows, one that saturates, a store."""


def kind_of(mnemonic: str) -> str:
    """One of ``KINDS``, or the rest."""
    return next((kind for kind, begins in KINDS.items() if mnemonic.startswith(begins)), "rest")


def mixed(kernel: Kernel, times: float = 1.0) -> Iterator[tuple[str, float]]:
    """The instructions of so many runs of a kernel, each with its kind."""
    yield "rest", times * (kernel.cost.instructions - kernel.counted)
    for call in kernel.work.assembly.calls:
        runs = times * call.times
        yield "rest", runs * (len(call.routine.frame.begin) + len(call.routine.frame.end))
        for block in call.routine.blocks:
            for line in block.lines:
                yield kind_of(line.mnemonic), runs * block.runs(call.rounds)
    for part in kernel.parts:
        yield from mixed(part.kernel, times * part.calls)


def outputs(plan: Plan) -> int:
    """How many are re-encoded sums: those of layers that multiply."""
    nodes = [node for step in plan.steps for node in step.item.nodes]
    signatures = [plan.graph.signature(node) for node in nodes]
    pairs = zip(nodes, signatures, strict=True)
    return sum(sig.y.elements for node, sig in pairs if node.op.macs(sig))


def main() -> None:
    """The table."""
    print("| | all | products | loads | widening | outputs | limit |\n|---|--:|--:|--:|--:|--:|--:|")
    for board in BOARDS:
        for path in map(Path, sys.argv[1:]):
            (plan,) = crtgen.load(path).compile(board, optimize="speed").plans
            found = defaultdict[str, float](float)
            for step in plan.steps:
                for kind, number in mixed(step.kernel):
                    found[kind] += number
            written = OUTPUT[board] * outputs(plan)
            limit = sum(found[kind] for kind in KINDS) + written
            cells = [sum(found.values()), *(found[kind] for kind in KINDS), written, limit]
            print(f"| {path.stem}, {board} | {' | '.join(f'{n / 1000:,.1f}' for n in cells)} |", flush=True)


if __name__ == "__main__":
    main()
