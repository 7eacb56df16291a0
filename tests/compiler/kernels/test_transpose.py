"""Transposed images in the place of their inputs."""

import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target, applicable
from crtgen.compiler.plan import plan_model
from crtgen.network.ir import DType, Graph, Node, Value
from crtgen.network.ops import Conv2d, Padding, Transpose
from crtgen.network.ops.case import floats, make, weights_and_bias

_IN_PLACE = "transpose in place"


def _network() -> Graph:
    """An image of planes, as PyTorch has it, and a convolution of it."""
    planes, image = floats("planes", (1, 3, 48, 48)), floats("image", (1, 48, 48, 3))
    values = [planes, image, *weights_and_bias("conv", image, (8, 3, 3, 3), 0, True)]
    values += [Value("y", (1, 24, 24, 8), DType.FLOAT32)]
    conv = Node("conv", Conv2d((2, 2), Padding(0, 1, 0, 1)), ("image", "w", "b"), ("y",))
    nodes = [Node("turn", Transpose((0, 2, 3, 1)), ("planes",), ("image",)), conv]
    return Graph.build("net", values, nodes, ["planes"], ["y"])


def test_an_image_of_planes_takes_its_memory_once() -> None:
    graph = _network()
    plan, _ = plan_model(graph, Target(find_core("cortex-m4"), "speed"))
    assert plan.steps[0].kernel.design == _IN_PLACE
    assert plan.slots["planes"] == plan.slots["image"]
    assert plan.arena < 1.1 * graph.values["planes"].nbytes


@pytest.mark.parametrize(
    ("shape", "perm", "found"),
    [
        ((1, 3, 12, 8), (0, 2, 3, 1), True),
        ((1, 12, 8, 3), (0, 3, 1, 2), True),
        ((6, 40), (1, 0), True),
        ((2, 3, 12, 8), (0, 2, 3, 1), False),  # two images
        ((1, 3, 12, 8), (0, 1, 3, 2), False),
        ((1, 3, 12, 8), (0, 3, 2, 1), False),
        ((3, 41), (1, 0), False),  # nothing divides 41
        ((100, 100), (1, 0), False),  # neither side is short
    ],
)
def test_what_can_be_done_in_place(shape: tuple[int, ...], perm: tuple[int, ...], found: bool) -> None:
    case = make("turn", Transpose(perm), [floats("x", shape)])
    designs = [kernel.design for kernel in applicable(case.op, case.sig, Target())]
    assert (_IN_PLACE in designs) == found
