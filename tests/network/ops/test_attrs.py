"""Activations and padding by values worked out by hand."""

import pytest

from crtgen.network.ops import Activation, Padding
from crtgen.network.ops.case import int8s


@pytest.mark.parametrize(
    ("activation", "scale", "zero", "expected"),
    [
        (Activation.NONE, 0.1, 5, (-128, 127)),
        (Activation.RELU, 0.1, 5, (5, 127)),
        (Activation.RELU, 0.1, -128, (-128, 127)),
        (Activation.RELU6, 0.1, 5, (5, 65)),
        (Activation.RELU6, 6 / 255, -128, (-128, 127)),
        (Activation.RELU6, 0.01, 0, (0, 127)),
        (Activation.RELU6, 1e-45, -128, (-128, 127)),
        (Activation.RELU_N1_1, 0.4, 1, (-2, 4)),  # 2.5 is 3, -2.5 is -3
    ],
)
def test_quantized_range(activation: Activation, scale: float, zero: int, expected: tuple[int, int]) -> None:
    assert activation.quantized_range(int8s("y", (1,), scale, zero)) == expected


@pytest.mark.parametrize(
    ("size", "window", "stride", "dilation", "expected"),
    [
        ((32, 32), (3, 3), (1, 1), (1, 1), Padding(1, 1, 1, 1)),
        ((32, 32), (3, 3), (2, 2), (1, 1), Padding(0, 1, 0, 1)),
        ((49, 10), (10, 4), (2, 2), (1, 1), Padding(4, 5, 1, 1)),
        ((32, 32), (1, 1), (2, 2), (1, 1), Padding()),
        ((7, 9), (3, 2), (1, 3), (2, 1), Padding(2, 2, 0, 0)),
    ],
)
def test_same_padding(
    size: tuple[int, int],
    window: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    expected: Padding,
) -> None:
    padding = Padding.same(size, window, stride, dilation)
    assert padding == expected
    outputs = (-(-size[0] // stride[0]), -(-size[1] // stride[1]))
    assert padding.output_size(size, window, stride, dilation) == outputs


def test_a_window_larger_than_the_image_is_refused() -> None:
    with pytest.raises(ValueError, match="a window of 5 does not fit into 4"):
        Padding().output_size((4, 4), (3, 3), (1, 1), (2, 2))


def test_a_stride_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        Padding().output_size((4, 4), (3, 3), (0, 1))
