"""Random layers of signs."""

import numpy as np
from hypothesis import strategies as st

from crtgen.network.ir import DType, Value
from crtgen.network.ops.attrs import Padding
from crtgen.network.ops.binarized import (
    BinaryConv2d,
    PackedMaxPool2d,
    PackSigns,
    UnpackSigns,
    packed,
    words_of,
)
from crtgen.network.ops.case import Case, floats, int8s, make, plain

__all__ = ["BINARIZED", "binarized"]

BINARIZED = (BinaryConv2d, PackSigns, PackedMaxPool2d, UnpackSigns)


@st.composite
def binarized(draw: st.DrawFn) -> Case:
    """Convolutions with and without padding, pools, and numbers as signs."""
    kind, channels = draw(st.sampled_from(BINARIZED)), draw(st.integers(1, 130))
    image = (1, draw(st.integers(1, 8)), draw(st.integers(1, 8)))
    words = words_of(channels)
    if kind is PackSigns:
        types = (floats("x", (*image, channels)), int8s("x", (*image, channels), 0.1, 3))
        return make("drawn", PackSigns(), [draw(st.sampled_from((*types, plain("x", (*image, channels)))))])
    x = plain("x", (*image, words))
    if kind is UnpackSigns:
        return make("drawn", UnpackSigns(channels), [x])
    window = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    stride = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    padding = Padding.same((image[1], image[2]), window, stride)
    if kind is PackedMaxPool2d:
        return make("drawn", PackedMaxPool2d(window, stride, padding), [x])
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    whole = 32 * words
    signs = random.random((draw(st.integers(1, 40)), *window, whole)) < 0.5
    weights = Value.constant("weights", packed(signs))
    assert weights.dtype is DType.INT32
    op = BinaryConv2d(whole, stride, padding, fill=draw(st.integers(0, 1)))
    return make("drawn", op, [x, weights])
