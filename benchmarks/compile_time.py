"""Seconds and memory that compiling takes: ``python benchmarks/compile_time.py [--most LAYERS] [MODEL...]``.

The models that are given, and generated networks with 10, 100 and 1,000 layers: chains, residual blocks, and
sixteen branches that are added, one such block after the other. For one board of each kind at each level.
Each has a process of its own, in which everything is imported. Seconds are of CPU, of load, compile and
generate; the best of three, for 1,000 layers of one. Elsewhere only ratios mean something. Memory is the
peak, in MB, with Python, NumPy and crtgen.
"""

import argparse
import gc
import multiprocessing
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import crtgen
from crtgen.__main__ import COLLECTED
from crtgen.compiler.level import LEVELS
from crtgen.network.ir import DType, Graph, Node, Quant, Value
from crtgen.network.ops import Add, Conv2d, DepthwiseConv2d, Padding
from crtgen.network.ops.case import int8s, weights_and_bias

BOARDS = ("mps2_an386", "mps3_an547")
LAYERS = (10, 100, 1000)
KINDS = ("chain", "residual", "wide")
RUNS = 3
BRANCHES = 16


class Network:
    """A network of layers that keep the shape of their input."""

    def __init__(self, name: str, side: int = 16, channels: int = 16) -> None:
        self.name = name
        self.input = int8s("input", (1, side, side, channels), 0.05, -3)
        self.values, self.nodes = [self.input], list[Node]()

    def pointwise(self, x: Value) -> Value:
        channels = x.shape[3]
        return self._layer(Conv2d(), x, (channels, 1, 1, channels), 0)

    def depthwise(self, x: Value) -> Value:
        return self._layer(DepthwiseConv2d((1, 1), Padding(1, 1, 1, 1)), x, (1, 3, 3, x.shape[3]), 3)

    def sum(self, x: Value, other: Value) -> Value:
        return self._node(Add(), [x, other])

    def graph(self, last: Value) -> Graph:
        return Graph.build(self.name, self.values, self.nodes, ["input"], [last.name])

    def _layer(self, op: Conv2d | DepthwiseConv2d, x: Value, shape: tuple[int, ...], axis: int) -> Value:
        name = f"l{len(self.nodes)}"
        constants = weights_and_bias(name, x, shape, axis, True)
        constants = [replace(c, name=f"{name}_{c.name}") for c in constants]
        self.values += constants
        return self._node(op, [x, *constants])

    def _node(self, op: Conv2d | DepthwiseConv2d | Add, operands: list[Value]) -> Value:
        number = len(self.nodes)
        out = Value(f"v{number}", operands[0].shape, DType.INT8, Quant.tensor(0.05, -3))
        self.nodes.append(Node(f"l{number}", op, tuple(v.name for v in operands), (out.name,)))
        self.values.append(out)
        return out


def network(kind: str, layers: int) -> Graph:
    """About so many layers: whole blocks, where there are any."""
    net = Network(f"{kind}{layers}")
    last = net.input
    while len(net.nodes) < layers:
        last = {"chain": chain, "residual": residual, "wide": wide}[kind](net, last)
    return net.graph(last)


def chain(net: Network, x: Value) -> Value:
    """A pointwise layer and a depthwise one."""
    return net.depthwise(net.pointwise(x))


def residual(net: Network, x: Value) -> Value:
    """A pointwise layer, a depthwise one, a pointwise one, and the addition of what went in."""
    return net.sum(net.pointwise(chain(net, x)), x)


def wide(net: Network, x: Value) -> Value:
    """Pointwise layers of the same input, and their sum."""
    last, *others = [net.pointwise(x) for _ in range(BRANCHES)]
    for other in others:
        last = net.sum(last, other)
    return last


def measure(what: str, layers: int, board: str, level: str) -> tuple[float, float]:
    """Seconds of the best run, and the peak of memory in MB."""
    gc.set_threshold(COLLECTED)  # as the command does
    graph = network(what, layers) if layers else None
    crtgen.Model(network("residual", 4)).compile(board, optimize=level).generate()
    times = []
    for _ in range(RUNS if layers < LAYERS[-1] else 1):
        start = time.process_time()
        model = crtgen.Model(graph) if graph else crtgen.load(Path(what))
        model.compile(board, optimize=level).generate()
        times.append(time.process_time() - start)
    return min(times), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def cells(what: str, layers: int) -> Iterator[str]:
    """A cell of a row for each board and level."""
    for board in BOARDS:
        for level in LEVELS:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                seconds, memory = process.submit(measure, what, layers, board, level).result()
            yield f"{seconds:.2f} / {memory:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=LAYERS[-1])
    parser.add_argument("models", nargs="*")
    args = parser.parse_args()
    columns = [f"{board} {level}" for board in BOARDS for level in LEVELS]
    print(f"| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for path in args.models:
        print(f"| {Path(path).stem} | {' | '.join(cells(path, 0))} |", flush=True)
    for kind in KINDS:
        for layers in (n for n in LAYERS if n <= args.most):
            print(f"| {kind} {layers:,} | {' | '.join(cells(kind, layers))} |", flush=True)


if __name__ == "__main__":
    main()
