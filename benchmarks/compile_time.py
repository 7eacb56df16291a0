"""Seconds of CPU that load, compile and generate take: ``python benchmarks/compile_time.py [MODEL...]``.

The models that are given, and generated networks of residual blocks with 10, 100 and 1,000 layers, for one
board of each kind at each level. Best of three, in one process; elsewhere only ratios mean something.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import crtgen
from crtgen.ir import DType, Graph, Node, Op, Quant, Value
from crtgen.level import LEVELS
from crtgen.ops import Add, Conv2d, DepthwiseConv2d, Padding
from crtgen.ops.case import int8s, weights_and_bias

BOARDS = ("mps2_an386", "mps3_an547")
LAYERS = (10, 100, 1000)
RUNS = 3


def network(layers: int, side: int = 16, channels: int = 16) -> Graph:
    """Blocks of a pointwise layer, a depthwise one, a pointwise one, and the addition of what went in."""
    x = int8s("input", (1, side, side, channels), 0.05, -3)
    values, nodes, last, shortcut = [x], list[Node](), x, x
    for number in range(layers):
        name, out = f"l{number}", Value(f"v{number}", x.shape, DType.INT8, Quant.tensor(0.05, -3))
        kind, constants = number % 4, list[Value]()
        op: Op = Conv2d()
        if kind == 0:
            shortcut = last
        if kind == 3:
            op, operands = Add(), [last, shortcut]
        else:
            deep = kind == 1
            op = DepthwiseConv2d((1, 1), Padding(1, 1, 1, 1)) if deep else Conv2d()
            shape = (1, 3, 3, channels) if deep else (channels, 1, 1, channels)
            constants = weights_and_bias(name, last, shape, 3 if deep else 0, True)
            constants = [replace(c, name=f"{name}_{c.name}") for c in constants]
            operands = [last, *constants]
        nodes.append(Node(name, op, tuple(v.name for v in operands), (out.name,)))
        values += [*constants, out]
        last = out
    return Graph.build(f"deep{layers}", values, nodes, ["input"], [last.name])


def best(work: Callable[[], object]) -> float:
    """Seconds of CPU of the fastest of some runs."""
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def row(name: str, load: Callable[[], crtgen.Model]) -> None:
    """A line of the table: a column for each board and level."""
    cells = []
    for board in BOARDS:
        for level in LEVELS:
            seconds = best(lambda b=board, o=level: load().compile(b, optimize=o).generate())  # type: ignore[misc]
            cells.append(f"{seconds:.2f}")
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    columns = [f"{board} {level}" for board in BOARDS for level in LEVELS]
    print(f"| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for path in map(Path, sys.argv[1:]):
        row(path.stem, lambda p=path: crtgen.load(p))  # type: ignore[misc]
    for layers in LAYERS:
        graph = network(layers)
        row(f"{layers:,} layers", lambda g=graph: crtgen.Model(g))  # type: ignore[misc]


if __name__ == "__main__":
    main()
