"""Weights of four bits: what they cost beside those of int8, and that they stay packed."""

import numpy as np
import pytest

from crtgen.api import Model
from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Kernel, Target, applicable
from crtgen.compiler.kernels.engine.layout import nibbles
from crtgen.network.ir import DType, Op, Quant
from crtgen.network.ops import Case, Conv2d, DepthwiseConv2d, FullyConnected, Padding
from crtgen.network.ops.case import in_four_bits, int8s, make, weights_and_bias

_SAME = Padding(1, 1, 1, 1)
_LAYERS: tuple[tuple[Op, tuple[int, ...], tuple[int, ...], int], ...] = (
    (Conv2d((1, 1), _SAME), (1, 16, 16, 16), (16, 3, 3, 16), 0),
    (Conv2d((2, 2), Padding(4, 5, 1, 1)), (1, 49, 10, 1), (64, 10, 4, 1), 0),
    (Conv2d(), (1, 25, 5, 64), (64, 1, 1, 64), 0),
    (DepthwiseConv2d((1, 1), _SAME), (1, 25, 5, 64), (1, 3, 3, 64), 3),
    (DepthwiseConv2d((1, 1), Padding(2, 2, 2, 2)), (1, 25, 5, 64), (1, 5, 5, 64), 3),
    (FullyConnected(), (1, 256), (128, 256), 0),
    (FullyConnected(), (1, 640), (8, 640), 0),
)


def _case(op: Op, shape: tuple[int, ...], weights: tuple[int, ...], axis: int) -> Case:
    x = int8s("x", shape, 0.04, -5)
    parts = weights_and_bias("int4", x, weights, axis, not isinstance(op, FullyConnected))
    return make("layer", op, [x, *parts], Quant.tensor(2.0, 3))


def _kernel(case: Case, core: str, optimize: str) -> Kernel:
    return applicable(case.op, case.sig, Target(find_core(core), optimize, expanded=False))[0]


@pytest.mark.parametrize("optimize", ["speed", "size"])
@pytest.mark.parametrize("layer", _LAYERS, ids=lambda layer: f"{layer[0].name} {layer[2]}")
def test_instructions_and_flash_beside_int8(
    layer: tuple[Op, tuple[int, ...], tuple[int, ...], int], optimize: str
) -> None:
    """Four of nine bytes are saved of a window of 3x3, whose words have a rest; half of others."""
    case = _case(*layer)
    whole, packed = (_kernel(c, "cortex-m4", optimize) for c in (case, in_four_bits(case)))
    assert packed.design.startswith("dsp_")
    assert packed.cost.instructions <= 1.3 * whole.cost.instructions
    saved = sum(const.nbytes for const in whole.consts) - sum(const.nbytes for const in packed.consts)
    assert saved >= 0.44 * case.sig.inputs[1].elements


@pytest.mark.parametrize("layer", _LAYERS, ids=lambda layer: f"{layer[0].name} {layer[2]}")
def test_portable_weights_are_half(layer: tuple[Op, tuple[int, ...], tuple[int, ...], int]) -> None:
    case = in_four_bits(_case(*layer))
    (weights, *_) = _kernel(case, "cortex-m0plus", "speed").consts
    assert weights.nbytes <= 0.56 * case.sig.inputs[1].elements
    assert case.sig.inputs[1].nbytes == case.sig.inputs[1].elements / 2


def test_nibbles_are_the_low_half_first() -> None:
    numbers = np.array([[-8, 7, -1], [0, 1, 3]], np.int8)
    assert nibbles(numbers).view(np.uint8).tolist() == [[0x78, 0x0F], [0x10, 0x03]]


def test_an_image_has_half_of_the_weights() -> None:
    case = _case(FullyConnected(), (1, 256), (128, 256), 0)
    whole, packed = (
        Model(c.graph()).compile("mps2_an386", optimize="speed").reports[0]
        for c in (case, in_four_bits(case))
    )
    assert packed.layers[0].weights_bytes == 128 * 256 // 2 + 4 * 128
    assert whole.layers[0].weights_bytes == 128 * 256 + 4 * 128
    assert packed.weights_bytes <= 0.52 * whole.weights_bytes


def test_a_type_of_constants_is_stored_in_half() -> None:
    case = in_four_bits(_case(FullyConnected(), (1, 3), (3, 3), 0))
    weights = case.sig.inputs[1]
    assert (weights.dtype, weights.nbytes, weights.array().dtype.name) == (DType.INT4, 5, "int8")
    assert (DType.INT4.numpy, DType.INT4.c_name) == (np.dtype("int8"), "int8_t")
