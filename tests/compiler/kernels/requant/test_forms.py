"""The re-encodings, at every threshold and the value below it, against TFLite's arithmetic."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtgen.compiler.kernels.arithmetic.half_away import HalfAway, solve_half_away
from crtgen.compiler.kernels.arithmetic.requant import (
    FloorRequantisation,
    Rescale,
    accumulator_range,
    rescale_of,
    solve_floor,
    solve_rounded,
)
from crtgen.compiler.kernels.base.epilogue import limbs_of
from crtgen.network.frontends import load
from crtgen.network.ir import Signature
from crtgen.network.ops.conv import Conv2d, DepthwiseConv2d
from crtgen.network.ops.dense import FullyConnected
from crtgen.network.ops.fixedpoint import Int64, quantize_multiplier
from crtgen.network.ops.scheme import INT16
from tests.support import INT8_MODELS, model_path


def tflite(rescale: Rescale, channel: int, acc: int) -> int:
    """TFLite Micro's double rounding, in Python's integers."""
    multiplier, shift = int(rescale.multipliers[channel]), int(rescale.shifts[channel])
    product = (acc << max(shift, 0)) * multiplier
    nudge = 1 << 30 if product >= 0 else 1 - (1 << 30)
    total = product + nudge
    high = abs(total) >> 31
    high = high if total >= 0 else -high
    right = max(-shift, 0)
    if right:
        magnitude = (abs(high) + (1 << (right - 1))) >> right
        high = magnitude if high >= 0 else -magnitude
    return min(max(high + rescale.zero_point, rescale.act_min), rescale.act_max)


def points(rescale: Rescale, seed: int = 0) -> Int64:
    """``[n, O]``: every threshold, the value below it, both ends, and some between."""
    thresholds = rescale.thresholds()
    random = np.random.default_rng(seed).integers(rescale.low, rescale.high + 1, (50, rescale.channels))
    both = np.concatenate([thresholds, thresholds - 1, random, [rescale.low], [rescale.high]])
    clipped: Int64 = np.clip(both, rescale.low, rescale.high)
    return clipped


def check(rescale: Rescale, form: FloorRequantisation | HalfAway) -> None:
    acc = points(rescale)
    result = np.clip(form.apply(acc), rescale.act_min, rescale.act_max)
    assert (result == rescale.apply(acc)).all()


def rescales(draw: st.DrawFn, channels: int, largest: float) -> Rescale:
    scales = [draw(st.floats(1e-6, largest)) for _ in range(channels)]
    pairs = np.array([quantize_multiplier(s) for s in scales], np.int64)
    zero_point = draw(st.integers(-128, 127))
    relu = draw(st.booleans())
    act_min = zero_point if relu else -128
    act_max = draw(st.sampled_from([127, 127, min(127, act_min + 40)]))
    spread = st.integers(1, 1 << 20)
    low = np.array([-draw(spread) for _ in scales], np.int64)
    high = np.array([draw(spread) for _ in scales], np.int64)
    return Rescale(pairs[:, 0], pairs[:, 1], zero_point, act_min, act_max, low, high)


many = st.composite(lambda draw: rescales(draw, 4, 0.4))
one = st.composite(lambda draw: rescales(draw, 1, 4.0))


@given(many())
def test_thresholds_are_where_the_result_first_reaches_its_level(rescale: Rescale) -> None:
    thresholds = rescale.thresholds()
    for level, row in zip(rescale.levels()[::16].tolist(), thresholds[::16].tolist(), strict=True):
        for channel, threshold in enumerate(row):
            if threshold <= rescale.high[channel]:
                assert tflite(rescale, channel, threshold) >= level
            if threshold > rescale.low[channel]:
                assert tflite(rescale, channel, threshold - 1) < level


@given(one())
def test_reference_is_tflites(rescale: Rescale) -> None:
    acc = points(rescale)[::7]
    want = [tflite(rescale, 0, int(a)) for a in acc[:, 0]]
    assert rescale.apply(acc)[:, 0].tolist() == want


@settings(max_examples=60, deadline=None)
@given(many(), st.sampled_from([1, 256]))
def test_floor_is_exact(rescale: Rescale, gain: int) -> None:
    form = solve_floor(rescale, gain)
    if form is not None:
        check(rescale, form)
        accumulator = (points(rescale) + form.offset) * gain
        varying = form.multiplier != 0
        assert (np.abs(accumulator[:, varying]) < 1 << 31).all()
        assert (np.abs(((accumulator * form.multiplier) >> 32) + form.constant) < 1 << 31).all()
        assert max(form.multiplier.max(), np.abs(form.constant).max()) < 1 << 31


@settings(max_examples=60, deadline=None)
@given(many())
def test_half_away_is_exact_and_always_there_below_a_half(rescale: Rescale) -> None:
    form = solve_half_away(rescale)
    assert form is not None
    check(rescale, form)


@st.composite
def wide(draw: st.DrawFn) -> Rescale:
    """Sums of 64 bits to int16, of which some need more than 32."""
    pairs = np.array([quantize_multiplier(draw(st.floats(1e-7, 0.3))) for _ in range(3)], np.int64)
    spread = st.one_of(st.integers(0, 1000), st.integers(1, 1 << 31), st.integers(1, 1 << 32))
    low, high = (np.array([sign * draw(spread) for _ in pairs], np.int64) for sign in (-1, 1))
    act_min = draw(st.sampled_from([-32768, 0]))
    return Rescale(pairs[:, 0], pairs[:, 1], 0, act_min, 32767, low, high, INT16, True)


@settings(max_examples=200, deadline=None)
@given(wide(), st.integers(0, 1 << 30))
def test_wide_sums_are_exact_where_32_bits_hold_them(rescale: Rescale, seed: int) -> None:
    form = solve_floor(rescale)
    assert solve_half_away(rescale) is None
    if not rescale.narrow:
        assert form is None
    if form is None:
        return
    random = np.random.default_rng(seed).integers(rescale.low, rescale.high + 1, (2000, 3))
    near = random // 64  # where outputs do not saturate
    acc = np.concatenate([random, near, [rescale.low], [rescale.high]]).clip(rescale.low, rescale.high)
    result = np.clip(form.apply(acc), rescale.act_min, rescale.act_max)
    assert (result == rescale.apply(acc)).all()
    assert (np.abs(((acc * form.multiplier) >> 32) + form.constant) < 1 << 31).all()


def test_wide_sums_of_usual_scales_have_a_form() -> None:
    pairs = np.array([quantize_multiplier(s) for s in (0.2, 1e-4, 1e-5)], np.int64)
    limit = np.full(3, (1 << 31) - 1, np.int64)
    rescale = Rescale(pairs[:, 0], pairs[:, 1], 0, -32768, 32767, -limit, limit, INT16, True)
    form = solve_floor(rescale)
    assert form is not None
    assert form.shift >= 1


@st.composite
def coarse(draw: st.DrawFn) -> Rescale:
    """Scales of a half and more, to int16."""
    pairs = np.array([quantize_multiplier(draw(st.floats(0.5, 100))) for _ in range(3)], np.int64)
    low, high = (
        np.array([sign * draw(st.integers(0, 1 << 27)) for _ in pairs], np.int64) for sign in (-1, 1)
    )
    return Rescale(pairs[:, 0], pairs[:, 1], 0, -32768, 32767, low, high, INT16)


@settings(max_examples=100, deadline=None)
@given(coarse(), st.integers(0, 1 << 30))
def test_scales_of_a_half_and_more_are_rounded_once(rescale: Rescale, seed: int) -> None:
    form = solve_rounded(rescale)
    if form is None:
        most = np.maximum(np.abs(rescale.low), np.abs(rescale.high)) << rescale.shifts
        assert most.max() >= 1 << 30
        return
    acc = np.random.default_rng(seed).integers(rescale.low, rescale.high + 1, (1000, 3))
    for values in (acc, acc // 1000):
        assert (form.apply(values) == rescale.apply(values)).all()


def test_half_away_refuses_left_shifts() -> None:
    ones = np.ones(1, np.int64)
    rescale = Rescale(ones << 30, ones, 0, -128, 127, -1000 * ones, 1000 * ones)
    assert solve_half_away(rescale) is None


@settings(max_examples=60, deadline=None)
@given(st.floats(0.5, 0.999), st.integers(-128, 127), st.booleans(), st.integers(1, 1 << 20))
def test_half_away_is_exact_from_a_half_on(scale: float, zero_point: int, relu: bool, extent: int) -> None:
    """It is there wherever negative sums are cut off."""
    multiplier, shift = quantize_multiplier(scale)
    limits = zero_point, zero_point if relu else -128, 127
    rescale = Rescale.one((multiplier, shift), None, limits, (-extent, extent))
    form = solve_half_away(rescale)
    if form is not None:
        check(rescale, form)
    assert form is not None or not relu or shift > 0


@pytest.mark.parametrize("scale", [0.5, 0.5931, 0.75, 0.9887])
def test_offsets_lift_sums_above_zero(scale: float) -> None:
    """Linear outputs of scales that make no sum nearly a half."""
    multiplier, shift = quantize_multiplier(scale)
    form = solve_half_away(Rescale.one((multiplier, shift), None, (3, -128, 127), (-50000, 50000)))
    assert form is not None
    assert form.shift.tolist() == [0]
    assert form.offset[0] * scale > 128


def test_a_scale_that_makes_halves_of_both_signs_has_no_offset() -> None:
    """29.5 and -29.5, nearly: both go away from zero."""
    multiplier, shift = quantize_multiplier(0.59)
    rescale = Rescale.one((multiplier, shift), None, (3, -128, 127), (-50000, 50000))
    assert solve_half_away(rescale) is None


def test_limbs_are_there_whatever_constant_channels_sum_up_to() -> None:
    """A channel of tiny weights has a bias of 2**30 of their steps, and one output."""
    multipliers, shifts = np.array([1 << 30, 1 << 30]), np.array([-7, -28])
    low, high = np.array([-50_000, -(1 << 30) - 900]), np.array([50_000, -(1 << 30) + 900])
    found = limbs_of(Rescale(multipliers, shifts, 3, -128, 127, low, high))
    assert found is not None
    assert limbs_of(Rescale(multipliers, shifts, 3, -128, 127, 100 * low, -100 * low)) is None


def test_constant_channels_share_the_shift() -> None:
    """A channel that is 5 everywhere does not keep the other from its solution."""
    multipliers = np.array([1 << 30, 1 << 30], np.int64)
    low, high = np.array([-5000, 500]), np.array([5000, 501])
    rescale = Rescale(multipliers, np.array([-6, -6]), 0, 0, 127, low, high)
    form = solve_floor(rescale)
    assert form is not None
    assert form.multiplier[1] == 0
    assert form.apply(np.array([[0, 500], [0, 501]]))[:, 1].tolist() == [4, 4]
    check(rescale, form)


def test_accumulator_range_is_reached() -> None:
    random = np.random.default_rng(1)
    weights = random.integers(-127, 128, (3, 4))
    least, greatest = accumulator_range(weights, -125, 3)
    corners = np.array(np.meshgrid(*[(-125, 3)] * 4)).reshape(4, -1)
    assert least.tolist() == (weights @ corners).min(axis=1).tolist()
    assert greatest.tolist() == (weights @ corners).max(axis=1).tolist()


def _weights(op: object, sig: Signature) -> Int64:
    w: Int64 = sig.inputs[1].array().astype(np.int64)
    return w[0].reshape(-1, w.shape[3]).T if isinstance(op, DepthwiseConv2d) else w.reshape(w.shape[0], -1)


@pytest.mark.models
@pytest.mark.parametrize("model", INT8_MODELS)
def test_reference_models(model: str) -> None:
    """All their layers with the gains that kernels give them; those cut at zero have the cheapest form."""
    graph = load(model_path(model))
    layers = [n for n in graph.nodes if isinstance(n.op, Conv2d | DepthwiseConv2d | FullyConnected)]
    assert layers
    for node in layers:
        sig = graph.signature(node)
        assert isinstance(node.op, Conv2d | DepthwiseConv2d | FullyConnected)
        params = node.op.parameters(sig)
        rescale = rescale_of(params, _weights(node.op, sig), sig.inputs[2].array().astype(np.int64))
        for gain in (1,) if isinstance(node.op, DepthwiseConv2d) else (1, 256):
            floor, half = solve_floor(rescale, gain), solve_half_away(rescale, gain)
            assert floor is not None or half is not None
            assert floor is not None or params.act_min != params.output_offset
            for form in (floor, half):
                if form is not None:
                    check(rescale, form)
