"""Weights of int8 on float32: in flash as they are, or as numbers of float32 where speed counts."""

import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Kernel, Target, applicable, select
from crtgen.network.ir import Op, Quant, Value
from crtgen.network.ops import Case, Conv2d, FullyConnected, Padding
from crtgen.network.ops.case import floats, in_eight_bits, make, weights_and_bias

_LAYERS: tuple[tuple[Op, tuple[int, ...], tuple[int, ...]], ...] = (
    (FullyConnected(), (1, 256), (64, 256)),
    (Conv2d((1, 1), Padding(1, 1, 1, 1)), (1, 9, 9, 16), (32, 3, 3, 16)),
)


def _case(op: Op, shape: tuple[int, ...], weights: tuple[int, ...]) -> Case:
    x = floats("x", shape)
    return in_eight_bits(make("real", op, [x, *weights_and_bias("real", x, weights, 0, True)]))


def _nbytes(kernel: Kernel) -> int:
    return sum(const.nbytes for const in kernel.consts)


@pytest.mark.parametrize(
    ("number", "optimize", "whole"),
    [
        (0, "speed", True),
        (1, "speed", True),
        (0, "balanced", True),  # of a row, bytes take 2.5 times the instructions
        (1, "balanced", False),
        (0, "size", False),
        (1, "size", False),
    ],
)
def test_a_quarter_of_the_flash(number: int, optimize: str, whole: bool) -> None:
    case = _case(*_LAYERS[number])
    (kernel,) = select(case.graph(), Target(find_core("cortex-m4"), optimize)).values()
    weights, channels = case.sig.inputs[1].elements, case.sig.y.shape[-1]
    wanted = 4 * weights + 4 * channels if whole else weights + 8 * channels
    assert _nbytes(kernel) == wanted


def test_a_bias_far_beyond_its_scales_stays_real() -> None:
    """In steps of the weights' scales it would be infinite."""
    x, w, b = _case(*_LAYERS[0]).sig.inputs
    small = Value.constant("w", w.array(), Quant((1e-39,) * 64, (0,) * 64, 0))
    case = make("small", FullyConnected(), [x, small, b])
    target = Target(find_core("cortex-m4"), "size")
    kernels = applicable(case.op, case.sig, target)
    assert [k.consts[0].dtype for k in kernels] == ["float32"]
