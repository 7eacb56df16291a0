"""Cycles that are estimated from instructions."""

import pytest

from crtgen.boards import find_core
from crtgen.measure.estimate import estimate_cycles

MIX = [("conv2d", 300), ("depthwise_conv2d", 100)]


@pytest.mark.parametrize(
    ("core", "cycles"),
    [
        ("cortex-m3", (3 * 1.74 + 1.55) / 4 * 1000),
        ("cortex-m4", (3 * 1.40 + 1.29) / 4 * 1000),
        ("cortex-m33", (3 * 1.40 + 1.29) / 4 * 1000),
        ("cortex-m55", (3 * 1.37 + 1.57) / 4 * 1000),
    ],
)
def test_factors_are_weighted_by_the_layers(core: str, cycles: float) -> None:
    assert estimate_cycles(find_core(core), 1000, MIX) == round(cycles)


def test_an_operator_without_a_factor_has_the_mean() -> None:
    assert estimate_cycles(find_core("cortex-m4"), 1000, [("resize_nearest", 7)]) == 1390


@pytest.mark.parametrize("core", ["host", "cortex-m0plus", "cortex-m7", "cortex-m85"])
def test_other_cores_have_no_model(core: str) -> None:
    assert estimate_cycles(find_core(core), 1000, MIX) is None


def test_without_instructions_there_is_no_estimate() -> None:
    assert estimate_cycles(find_core("cortex-m4"), 1000, [("conv2d", 0)]) is None
