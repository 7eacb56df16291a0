"""Where layers are far from what they could take: ``python -m benchmarks.cliffs MODEL...``.

Each model is built at ``speed`` for a core of each kind, and instructions of each layer are counted in QEMU.
Layers of a network that are of one kind, and have one kernel, are a row of the table: their share of the
network's instructions, what they take for a multiplication (or for an element of what has none), the floor,
and how many times that it is. Rows come by what of the network would go if they were at their floors; those
that hardly matter, or are near enough, are left out.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import crtgen
from benchmarks.proofs import board_of
from crtgen.base.errors import CrtgenError
from crtgen.compiler.plan import Step
from crtgen.lab.measure.benchmark import profile_model
from crtgen.network.ir import DType, Graph, Node, Signature, shape_text

CORES = ("M0+", "M3", "M4", "M55")
"""QEMU has no M0+: an M3 stands in, which knows its code."""
SHARE, TIMES = 0.03, 1.6
"""What is shown: at least this share of a network, and this many times its floor."""
LEAST = 500
"""Instructions of a row: the timer ticks every 40."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Instructions by core: for each multiplication, or element of the output; outputs and inputs beside."""

    each: tuple[float, ...]
    output: tuple[float, ...] = (0, 0, 0, 0)
    input: tuple[float, ...] = (0, 0, 0, 0)

    def of(self, core: str, units: int, outputs: int, inputs: int) -> float:
        place = CORES.index(core)
        return self.each[place] * units + self.output[place] * outputs + self.input[place] * inputs


_SUM = (25, 6, 3.5, 1.75)
"""To re-encode a sum and store it. M4 and M55 as in ``benchmarks.limits``; M3: SMULL, an addition, a shift, a
saturation, a store, the start; M0+: three products of eleven bits and their carries."""

FLOORS = {
    # M0+, M3: two multiplications and two additions for four products, and their loads (``pairs``); M4: 8.5
    # instructions for 12 products; M55: 14 for 128
    "convolution": Floor((2.6, 1.4, 0.71, 0.11), _SUM),
    # M0+: a weight, MULS, ADDS; M3: a weight, MLA; M4: halves of a word, 14 instructions for 16; M55: a load
    # of weights and a product of 16. An input is loaded, and on M4 widened
    "fully connected": Floor((3, 2, 0.875, 0.14), _SUM, (1.5, 1, 0.75, 0.07)),
    "lstm": Floor((3, 2, 0.875, 0.14), (60, 40, 20, 5)),
    "svdf": Floor((3, 2, 0.875, 0.14), _SUM),
    "products of matrices": Floor((3.3, 1.75, 0.75, 0.2), _SUM),
    # two loads and a product (M0+: and an addition, and the address); M4: vertical pairs, 42 for 36; M55: a
    # patch of 16 inputs serves four windows of nine
    "depthwise": Floor((4.5, 3, 1, 0.25), _SUM),
    # no input is loaded for two outputs. M0+: two loads, MULS, ADDS, the offset; M3: without the last two;
    # M4: 13 for 8 (two loads, one of weights, two that pair, four that widen, four products); M55: for 32 of
    # them four loads, four products, two additions in 16 bits, eight that widen and add
    "depthwise of one pixel": Floor((5, 3, 1.63, 0.56), _SUM),
    # M4: VMUL, VADD and loads of a tile; M55: 24 for 64; M0+, M3: the compiler's library
    "products of floats": Floor((200, 75, 2.1, 0.4)),
    # what issue trackers of similar libraries and prototypes of these loops came to, an element
    "sum": Floor((22, 10, 5, 1.2)),
    "product": Floor((25, 11, 5, 1.2)),
    # a load, a load of the table, a store, and a quarter of a round
    "table": Floor((4.5, 3.5, 3.5, 0.25)),
    # four bytes of a word at a time, sixteen of a vector
    "copy": Floor((0.6, 0.5, 0.5, 0.2)),
    "extreme": Floor((5, 4, 1.5, 0.2)),
    # a load, a product, a comparison near borders, a store
    "quantise floats": Floor((40, 40, 8, 2)),
    "make floats": Floor((60, 40, 5, 1.5)),
    "prelu": Floor((25, 12, 6, 2)),
    # of each input of a window
    "greatest of windows": Floor((3, 2.5, 0.8, 0.1), (4, 2, 1, 0.2)),
    "means of windows": Floor((4, 2.5, 1, 0.2), (40, 12, 6, 1.5)),
    # exp by a table, the sum, a product with its reciprocal
    "softmax": Floor((60, 30, 20, 15), (0, 0, 0, 0)),
}
"""By kind of layer. Kinds that nobody has a floor for count in networks, and are not shown."""

_KINDS = {
    "conv2d": "convolution",
    "depthwise_conv2d": "depthwise",
    "fully_connected": "fully connected",
    "lstm": "lstm",
    "svdf": "svdf",
    "batch_matmul": "products of matrices",
    "add": "sum",
    "sub": "sum",
    "mul": "product",
    "maximum": "extreme",
    "minimum": "extreme",
    "dequantize": "make floats",
    "prelu": "prelu",
    "softmax": "softmax",
    "max_pool2d": "greatest of windows",
    "average_pool2d": "means of windows",
    "mean": "means of windows",
}
_COPIES = ("reshape", "identity", "pad", "strided_slice", "concat", "transpose", "broadcast_to")
_TABLES = ("logistic", "tanh", "relu", "leaky_relu", "lookup", "abs", "hard_swish")


def kind_of(node: Node, sig: Signature) -> str:
    """The key of ``FLOORS`` for a layer."""
    name = node.op.name
    if sig.x.dtype is DType.FLOAT32:
        if node.op.macs(sig):
            return "products of floats"
        return "quantise floats" if name == "quantize" else "other"
    if name == "conv2d" and sig.x.shape[1:3] == sig.inputs[1].shape[1:3]:
        return "fully connected"
    if name == "depthwise_conv2d" and sig.y.shape[1:3] == (1, 1):
        return "depthwise of one pixel"
    if name in _COPIES:
        return "copy"
    if name in _TABLES or name == "quantize":
        same = name == "quantize" and sig.x.quant and sig.y.quant and sig.x.quant.scale == sig.y.quant.scale
        small = sig.x.dtype in (DType.INT8, DType.UINT8)
        return "copy" if same else "table" if small else "other"
    return _KINDS.get(name, "other")


def units_of(node: Node, sig: Signature) -> int:
    """What a floor is for one of: multiplications, inputs of windows, or elements of the output."""
    outputs = sum(y.elements for y in sig.outputs)
    if node.op.name in ("max_pool2d", "average_pool2d"):
        taps = node.op.taps(sig)
        return outputs * taps[0] * taps[1]
    if node.op.name == "mean":
        return sig.x.elements
    return node.op.macs(sig) or outputs


@dataclass(frozen=True, slots=True)
class Layer:
    """What a layer is, the kernel that it has, what it took, what it could, and for how many of what."""

    kind: str
    kernel: str
    instructions: int
    floor: float
    units: int


def _layer(graph: Graph, core: str, step: Step, instructions: int) -> Layer:
    nodes = step.item.nodes
    found, floor, units = [], 0.0, 0
    for node in nodes:
        sig = graph.signature(node)
        kind, number = kind_of(node, sig), units_of(node, sig)
        known = FLOORS.get(kind)
        floor += known.of(core, number, sig.y.elements, sig.x.elements) if known else instructions
        units += number if node.op.macs(sig) or len(nodes) == 1 else 0
        found.append(_named(kind, node, sig))
    return Layer(" + ".join(found), step.kernel.design, instructions, floor, units)


def _named(kind: str, node: Node, sig: Signature) -> str:
    """The kind with what matters of its shape."""
    if kind == "other":
        return node.op.name
    if not kind.startswith(("convolution", "depthwise", "fully connected")):
        return kind
    if kind == "fully connected":
        weights = sig.inputs[1]
        return f"{kind} {weights.elements // weights.shape[0]} to {weights.shape[0]}"
    steps = max(getattr(node.op, "stride", (1, 1)))
    return f"{kind} {shape_text(sig.inputs[1].shape[1:3])}" + (f" step {steps}" if steps > 1 else "")


def measured(path: Path, core: str) -> list[Layer]:
    """All layers of a model's first graph."""
    compiled = crtgen.load(path).compile(board_of(core), optimize="speed")
    (plan,) = compiled.plans
    steps = {step.name: step for step in plan.steps}
    layers = profile_model(compiled).layers
    return [_layer(plan.graph, core, steps[layer.name], layer.instructions or 0) for layer in layers]


def rows(path: Path, core: str) -> list[tuple[float, str]]:
    """The lines of a model, each with what part of the network would go."""
    try:
        layers = measured(path, core)
    except CrtgenError as error:
        print(f"{path.stem}, {core}: {error}", file=sys.stderr, flush=True)
        return []
    total = sum(layer.instructions for layer in layers)
    groups = defaultdict[tuple[str, str], list[Layer]](list)
    for layer in layers:
        groups[layer.kind, layer.kernel].append(layer)
    return [row for names, group in groups.items() for row in _row(path.stem, core, names, group, total)]


def _row(
    model: str, core: str, names: tuple[str, str], group: Sequence[Layer], total: int
) -> Iterator[tuple[float, str]]:
    taken, floor = sum(layer.instructions for layer in group), sum(layer.floor for layer in group)
    if taken < max(LEAST, SHARE * total) or taken < TIMES * floor:
        return
    units = sum(layer.units for layer in group) or 1
    share, (kind, kernel) = taken / total, names
    number = f"{len(group)} x " if len(group) > 1 else ""
    cells = [core, model, number + kind, kernel, f"{100 * share:.0f} %"]
    cells += [f"{taken / units:.2f}", f"{floor / units:.2f}", f"{taken / floor:.1f}"]
    yield share * (1 - floor / taken), f"| {' | '.join(cells)} |"


def main() -> None:
    """The table."""
    tasks = [(Path(path), core) for core in CORES for path in sys.argv[1:]]
    with ProcessPoolExecutor(2) as pool:
        found = [row for some in pool.map(rows, *zip(*tasks, strict=True)) for row in some]
    print(
        "| core | network | layer | kernel | share | now | floor | times |\n|---|---|---|---|--:|--:|--:|--:|"
    )
    for _, line in sorted(found, reverse=True):
        print(line)


if __name__ == "__main__":
    main()
