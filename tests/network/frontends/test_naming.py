"""Readable names from the names that training leaves in a file."""

import pytest

from crtgen.network.frontends.naming import Names, identifier, layer_name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("input_1", "input_1"),
        ("serving_default_dense_input:0", "dense_input"),
        ("StatefulPartitionedCall:0", "default"),
        ("StatefulPartitionedCall:1", "default"),
        ("model/Softmax;model/Exp", "model_softmax"),
        ("3x", "default_3x"),
        ("ünï côdé", "n_c_d"),
        ("", "default"),
        ("a" * 50 + "/last", "a" * 35 + "_last"),
    ],
)
def test_identifier(text: str, expected: str) -> None:
    assert identifier(text, "default") == expected


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        ("net/re_lu/Relu;net/conv2d_3/BiasAdd;net/conv2d/Conv2D;net/conv2d_3/Conv2D", "conv2d_3"),
        ("net/depthwise_conv2d/depthwise;net/conv2d_1/Conv2D", "conv2d_1"),
        ("StatefulPartitionedCall:0", "conv2d"),
        ("", "conv2d"),
    ],
)
def test_layer_name(tensor: str, expected: str) -> None:
    assert layer_name(tensor, ("conv2d",)) == expected


def test_names_are_handed_out_once() -> None:
    names = Names()
    wanted = ["conv", "conv", "conv_1", "conv"]
    assert [names.unique(n) for n in wanted] == ["conv", "conv_1", "conv_1_1", "conv_2"]
