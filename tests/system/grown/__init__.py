"""Random small networks as `.tflite` files, and what TFLite Micro's interpreter computes with them.

A network grows operator by operator on tensors that it already has, so that it branches and joins; subgraphs
of branches and loops grow alike. Scales are such that the values of quantised tensors spread over their
ranges: a network that saturates tests nothing.
"""

import math
from collections.abc import Sequence

import numpy as np
from tflite_micro import runtime

from crtgen.network.ir import Array
from tests.system.grown import elements, flow, moving, remembering, weighted
from tests.system.grown.network import SPREAD, Network, Step

__all__ = ["expected", "network"]

_ARENA = 1 << 21
_LAYERS: list[Step] = [*weighted.STEPS * 2, *elements.STEPS, *moving.STEPS]
_INSIDE: list[Step] = [*elements.STEPS, *weighted.STEPS, *moving.STEPS]
_INSIDE += remembering.STEPS
_INSIDE += flow.steps(_INSIDE)
_STEPS: list[Step] = [*_LAYERS, *remembering.STEPS, *flow.steps(_INSIDE)]


def network(seed: int, plain: bool = False) -> Network:
    """The network of a seed: one to three inputs, some operators, every loose end an output.

    A ``plain`` one has neither states nor control flow.
    """
    rng = np.random.default_rng(seed)
    net = Network(rng, str(rng.choice(["int8", "int16", "float32"], p=[0.6, 0.2, 0.2])))
    _inputs(net)
    wanted = net.integer(3, 24)
    for _ in range(300):
        if len(net.operators) >= wanted:
            break
        net.pick(_LAYERS if plain else _STEPS)(net)
    for name in [n for n in net.fresh if n in net.inputs]:
        x = net.tensors[name]
        net.add("RESHAPE", [x], net.like(x, [math.prod(x.shape)]), exact=True)
    _outputs(net)
    remembering.begin(net)
    return net


def expected(data: bytes, runs: Sequence[Sequence[Array]], outputs: int) -> list[list[Array]]:
    """The outputs of runs in a row of a `.tflite` file, by TFLite Micro."""
    interpreter = runtime.Interpreter.from_bytes(data, arena_size=_ARENA)
    found = []
    for inputs in runs:
        for index, array in enumerate(inputs):
            interpreter.set_input(array, index)
        interpreter.invoke()
        found.append([interpreter.get_output(i).copy() for i in range(outputs)])
    return found


def _inputs(net: Network) -> None:
    shapes = [(1, net.integer(1, 13), net.integer(1, 13), net.pick([net.integer(1, 9), 4, 16]))]
    more = [
        (1, net.integer(1, 60)),
        (net.integer(1, 4), 5),
        (1, 1, net.integer(1, 5), 4),
        (2, 3, 8),
        (1, 9, 5),
    ]
    shapes += [net.pick([shapes[0], *more]) for _ in range(2)]
    for shape in shapes[: net.pick([1, 1, 2, 3])]:
        other = net.pick(["int8", "int16", "float32", "int32", "uint8"]) if net.chance(0.2) else net.dtype
        x = net.input(other, shape)
        if x.dtype == "uint8":
            net.add("QUANTIZE", [x], net.tensor("int8", shape, net.unit(x)))
        if x.dtype == "float32" and net.dtype != "float32":
            net.add("QUANTIZE", [x], net.tensor(net.dtype, shape, 1 / SPREAD, 0))
    if net.chance(0.4):
        net.input("bool", ())


def _outputs(net: Network) -> None:
    """Every loose end, dequantised now and then, and perhaps a tensor that is read as well."""
    net.outputs = list(net.fresh)
    inner = [n for o in net.operators for n in o.outputs if n not in net.fresh]
    inner = [n for n in inner if net.tensors[n].dtype != "resource"]
    if inner and net.chance(0.2):
        net.outputs.append(net.pick(inner))
    x = net.tensors[net.outputs[-1]]
    if x.scales and net.chance(0.15):
        net.outputs[-1] = net.add("DEQUANTIZE", [x], net.tensor("float32", x.shape)).name
