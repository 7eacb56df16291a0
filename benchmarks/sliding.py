"""What windows that overlap cost: ``python -m benchmarks.sliding MODELS``.

MODELS is the directory of the reference models.

kws by two of its 49 frames, and a network for vibrations without padding, 16 of 256 samples of three axes: on
whole windows, and sliding.
"""

import sys
from pathlib import Path

import crtgen
from crtgen.api import Model
from crtgen.network.ir import Graph, Node, Op, Quant, Value
from crtgen.network.ops import Activation, Conv2d, FullyConnected, MaxPool2d, Mean
from crtgen.network.ops.case import int8s, weights_and_bias
from crtgen.network.passes import Sliding

BOARDS = ("mps2_an386", "mps3_an547")
LEVELS = ("speed", "size")


def vibrations() -> Graph:
    """Three convolutions along 256 samples of three axes, a mean, and four classes."""
    relu = Activation.RELU
    layers: tuple[tuple[Op, tuple[int, ...]], ...] = (
        (Conv2d((2, 1), activation=relu), (16, 9, 1, 3)),
        (Conv2d(activation=relu), (16, 5, 1, 16)),
        (MaxPool2d((2, 1), (2, 1)), ()),
        (Conv2d(activation=relu), (32, 3, 1, 16)),
        (Mean((1, 2)), ()),
        (FullyConnected(), (4, 32)),
    )
    x = last = int8s("x", (1, 256, 1, 3), 0.05, -3)
    values, nodes = [x], list[Node]()
    for number, (op, shape) in enumerate(layers):
        name, constants = f"l{number}", list[Value]()
        if shape:
            made = weights_and_bias(name, last, shape, 0, True)
            constants = [Value.constant(f"{name}_{v.name}", v.array(), v.quant) for v in made]
        ((size, dtype),) = op.infer([last, *constants])
        out = Value(f"v{number}", size, dtype, Quant.tensor(0.05, -3))
        nodes.append(Node(name, op, (last.name, *(v.name for v in constants)), (out.name,)))
        values += [*constants, out]
        last = out
    return Graph.build("vibrations", values, nodes, ["x"], [last.name])


def row(model: Model, board: str, level: str, sliding: Sliding | None) -> str:
    """A line of the table."""
    compiled = model.compile(board, optimize=level, sliding=sliding)
    sizes = compiled.generate("standalone").build().size.sizes
    with compiled.generate().build().run() as session:
        instructions = session.measure().instructions
    state = compiled.modules[0].info.state
    cells = (model.name, board, level, "sliding" if sliding else "whole", f"{instructions:,}")
    return f"| {' | '.join((*cells, *(f'{n:,}' for n in (sizes.ram, state, sizes.flash))))} |"


def main() -> None:
    kws = crtgen.load(Path(sys.argv[1]) / "kws_int8.tflite")
    assert isinstance(kws, Model)
    print("| network | board | level | windows | instructions | RAM | of it state | flash |")
    print("|---|---|---|---|---|---|---|---|")
    for model, sliding in ((kws, Sliding(1, 2)), (Model(vibrations()), Sliding(1, 16))):
        for board in BOARDS:
            for level in LEVELS:
                for choice in (None, sliding):
                    print(row(model, board, level, choice), flush=True)


if __name__ == "__main__":
    main()
