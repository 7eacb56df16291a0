"""Decoded weights: against Vela's codec, and streams that are damaged."""

import numpy as np
import pytest

from crtgen.npu.weights import Order, decode, ordered

mlw_codec = pytest.importorskip("ethosu.mlw_codec")


def _weights(kind: int, random: np.random.Generator) -> list[int]:
    count = int(random.integers(16, 3000))
    drawn = [
        random.integers(-127, 128, count),
        np.clip(random.normal(0, 20, count).round(), -255, 255),
        random.choice([0, 0, 0, 0, 0, 3, -5, 7], count),
        random.choice([1, -1, 2, 9], count),
        np.where(random.random(count) < 0.95, 0, random.integers(-9, 9, count)),
    ]
    return [int(each) for each in drawn[kind]]


@pytest.mark.parametrize("kind", range(5))
def test_weights_are_those_of_velas_codec(kind: int) -> None:
    random = np.random.default_rng(kind)
    for _ in range(20):
        data = bytes(mlw_codec.encode(_weights(kind, random)))
        np.testing.assert_array_equal(decode(data), mlw_codec.decode(bytearray(data)))


def test_damaged_weights_are_refused_or_are_other_weights() -> None:
    """No other exception leaves the decoder, and it ends."""
    random = np.random.default_rng(1)
    data = bytearray(mlw_codec.encode(_weights(1, random)))
    refused = 0
    for _ in range(200):
        broken = bytearray(data[: int(random.integers(1, len(data) + 1))])
        broken[int(random.integers(0, min(len(broken), 40)))] ^= 1 << int(random.integers(0, 8))
        try:
            decode(bytes(broken))
        except ValueError:
            refused += 1
    assert refused > 50


def test_too_few_weights_are_refused() -> None:
    order = Order(8, 8, (1, 1), 8, (8, 8), 8, 8, part_kernel=False, depthwise=False, short=False)
    with pytest.raises(ValueError, match="3 weights in the stream, expected 256"):
        ordered(np.zeros(3, np.int64), order)
