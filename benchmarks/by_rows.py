"""What images by rows and the level ``ram`` save and cost.

``python -m benchmarks.by_rows MODELS [NETWORK...]`` from the root of the repository.

MODELS is the directory of the reference models, with ``networks`` beside it. MobileNetV2 for images of
224x224 has weights at random, which change neither memory nor, but for a little, instructions.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import crtgen
from crtgen.api import Model
from crtgen.base.errors import UnsupportedError
from crtgen.network.ir import Graph, Node, Op, Quant, Value
from crtgen.network.ops import Activation, Add, Conv2d, DepthwiseConv2d, FullyConnected, Mean, Padding
from crtgen.network.ops.case import int8s, weights_and_bias

BOARDS = ("mps2_an386", "mps3_an547")
LEVELS = ("speed", "balanced", "ram")
FILES = {
    "kws": "models/kws_int8.tflite",
    "vww": "models/vww_int8.tflite",
    "person_detect": "networks/tflm/person_detect.tflite",
    "mbnet96": "networks/tinymaix/mbnet96_0.25_q.tflite",
}

_BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, repeats and first stride: table 2 of arXiv:1801.04381."""

_QUANT = Quant.tensor(0.05, -3)


class _Layers:
    """A chain of layers with weights at random."""

    def __init__(self, side: int) -> None:
        self.last = int8s("image", (1, side, side, 3), 0.05, -3)
        self.values, self.nodes = [self.last], list[Node]()

    def layer(self, op: Op, shape: tuple[int, ...] = (), axis: int = 0) -> None:
        """What ``op`` makes of the last value, with weights of this shape."""
        name, constants = f"l{len(self.nodes)}", list[Value]()
        if shape:
            made = weights_and_bias(name, self.last, shape, axis, True)
            constants = [Value.constant(f"{name}_{v.name}", v.array(), v.quant) for v in made]
        self._node(name, op, (self.last, *constants))
        self.values += constants

    def add(self, other: Value) -> None:
        self._node(f"l{len(self.nodes)}", Add(), (self.last, other))

    def _node(self, name: str, op: Op, inputs: tuple[Value, ...]) -> None:
        ((shape, dtype),) = op.infer(inputs)
        self.last = Value(f"{name}_out", shape, dtype, _QUANT)
        self.values.append(self.last)
        self.nodes.append(Node(name, op, tuple(v.name for v in inputs), (self.last.name,)))


def mobilenet_v2(side: int = 224) -> Graph:
    """MobileNetV2 with a thousand classes."""
    relu, net = Activation.RELU6, _Layers(side)
    halved = Padding(0, 1, 0, 1)
    net.layer(Conv2d((2, 2), halved, activation=relu), (32, 3, 3, 3))
    channels = 32
    for expansion, outputs, repeats, first in _BLOCKS:
        for number in range(repeats):
            before, wide, stride = net.last, expansion * channels, first if number == 0 else 1
            if expansion > 1:
                net.layer(Conv2d(activation=relu), (wide, 1, 1, channels))
            padding = halved if stride == 2 else Padding(1, 1, 1, 1)
            net.layer(DepthwiseConv2d((stride, stride), padding, activation=relu), (1, 3, 3, wide), 3)
            net.layer(Conv2d(), (outputs, 1, 1, wide))
            if number:
                net.add(before)
            channels = outputs
    net.layer(Conv2d(activation=relu), (1280, 1, 1, channels))
    net.layer(Mean((1, 2)))
    net.layer(FullyConnected(), (1000, 1280))
    return Graph.build("mobilenet_v2_224", net.values, net.nodes, ["image"], [net.last.name])


def rows(model: Model, board: str, level: str) -> Iterator[str]:
    """Two lines of the table: the image in memory, and by rows, if it can be fed so.

    RAM is that of a standalone image, less the array from which it feeds itself.
    """
    for feed in ("", "rows"):
        try:
            compiled = model.compile(board, optimize=level, feed=feed)
        except UnsupportedError:
            continue
        sizes = compiled.generate("standalone").build().size.sizes
        with compiled.generate().build().run() as session:
            instructions = session.measure().instructions or 0
        (info,) = (module.info for module in compiled.modules)
        ram = sizes.ram - (info.inputs[0].nbytes if feed else 0)
        cells = (
            model.name,
            board,
            level,
            feed or "whole",
            *(f"{n:,}" for n in (info.arena, ram, sizes.flash)),
        )
        yield f"| {' | '.join((*cells, f'{instructions:,}'))} |"


def main() -> None:
    folder, chosen = Path(sys.argv[1]).parent, sys.argv[2:]
    print("| network | board | level | image | arena | RAM | flash | instructions |")
    print("|---|---|---|---|---|---|---|---|")
    for name in chosen or (*FILES, "mobilenet_v2"):
        model = crtgen.load(folder / FILES[name]) if name in FILES else Model(mobilenet_v2())
        assert isinstance(model, Model)
        for board in BOARDS if name in FILES else BOARDS[:1]:  # which has flash for 3.7 MB of weights
            for level in LEVELS:
                for line in rows(model, board, level):
                    print(line, flush=True)


if __name__ == "__main__":
    main()
