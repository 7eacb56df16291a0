"""Drift: a device counts as numpy does, usual windows stay within limits, and shifts are found."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import crtgen
from crtgen.api import Model
from crtgen.base.errors import ProtocolError, UnsupportedError, UsageError
from crtgen.compiler.codegen.drift import PARTS, DriftReference
from crtgen.compiler.codegen.module import ModelInfo
from crtgen.lab.measure.drift import (
    block_of,
    ks,
    make_reference,
    psi,
    read_window,
    run_counts,
    usual_layers,
    usual_runs,
)
from crtgen.network.ir import Array
from tests.support import ROOT, nightly

DIGITS = ROOT / "demo" / "digits.tflite"
RUNS = 32
_WATCHED = ("conv2d", "fully_connected")


def _digits() -> tuple[Model, list[Array]]:
    """The network, and pictures of it: strokes of some widths with a little noise."""
    model = crtgen.load(DIGITS)
    assert isinstance(model, Model)
    rng = np.random.default_rng(2)
    pictures: list[Array] = []
    for _ in range(200):
        picture = np.full((1, 8, 8, 1), -128, np.int64)
        at, width = rng.integers(1, 6), rng.integers(1, 3)
        picture[:, 1:7, at : at + width] = rng.integers(40, 120)
        picture += rng.integers(0, 12, picture.shape)
        pictures.append(picture.astype(np.int8))
    return model, pictures


def _reference(
    model: Model, pictures: list[Array], windows: int = 20_000
) -> tuple[ModelInfo, DriftReference]:
    compiled = model.compile(board="mps2_an386")
    (info,) = (module.info for module in compiled.modules)
    outputs = [next(iter(model.graph.run([(picture,)])))[0] for picture in pictures]
    layers = usual_layers(info, compiled.plans[0], _WATCHED, pictures)
    return info, make_reference(info, pictures, outputs, layers, RUNS, windows)


def _shifted(how: str, x: Array, rng: np.random.Generator) -> Array:
    if how == "gain":
        return np.asarray((x.astype(np.int64) + 128) // 3 - 128, np.int8)
    if how == "noise":
        return np.clip(x.astype(np.int64) + rng.normal(0, 40, x.shape), -128, 127).astype(np.int8)
    return np.full_like(x, -128) if how == "dead" else x


_SHIFTS = ("none", "gain", "noise", "dead")


def _counted(x: Array, step: int) -> npt.NDArray[np.int64]:
    return np.bincount((x.reshape(-1)[::step].astype(int) + 128) >> 4, minlength=16)


@pytest.mark.qemu
def test_a_device_finds_shifts_and_counts_as_numpy_does() -> None:
    model, pictures = _digits()
    info, reference = _reference(model, pictures)
    compiled = model.compile(board="mps2_an386")
    rng = np.random.default_rng(7)
    with compiled.generate(watched={info.name: reference}).build().run() as session:
        alarms = 0
        for name in _SHIFTS:
            for _ in range(2 * RUNS):
                session.infer(_shifted(name, pictures[rng.integers(len(pictures))], rng))
            window = read_window(session.drift() or b"")
            assert (window.limits, window.runs) == (reference.limits, 0)
            assert (window.alarms - alarms > 0) == (name != "none"), name
            alarms = window.alarms
        assert window.windows == 2 * len(_SHIFTS)
        given = [pictures[n] for n in range(5)]
        outputs = [session.infer(picture)[0] for picture in given]
        window = read_window(session.drift() or b"")
    bins = [_counted(picture, reference.input.step) for picture in given]
    assert window.counts["inputs"] == tuple(np.sum(bins, axis=0))
    best = np.bincount([min(int(o.argmax()), 7) for o in outputs], minlength=8)
    assert window.counts["classes"] == tuple(best)
    two = [np.sort(o.reshape(-1).astype(int))[-2:] for o in outputs]
    assert window.counts["margins"] == tuple(np.bincount([(b - a) // 32 for a, b in two], minlength=8))
    assert window.ends == sum(int((g.reshape(-1)[:: reference.input.step] == -128).sum()) for g in given)
    assert window.runs == 5
    assert window.counts["saturated"] == tuple(_saturated(model, reference, given))
    assert window.counts["entropy"] == (sum(_entropy(o) for o in outputs),)
    assert sum(window.counts["saturated"]) > 0
    assert window.counts["entropy"][0] > 0


def _saturated(model: Model, reference: DriftReference, given: list[Array]) -> list[int]:
    """Elements of the watched layers at -128 and 127, of those that are looked at."""
    (plan,) = model.compile(board="mps2_an386").plans
    counts = [0, 0, 0, 0]
    for picture in given:
        values = plan.graph.evaluate({plan.graph.inputs[0]: picture})
        for n, layer in enumerate(reference.layers):
            (step,) = (step for step in plan.steps if step.name == layer.name)
            taken = values[step.outputs[-1]].reshape(-1)[:: layer.values.step].astype(int)
            counts[n] += int(np.isin(taken, (-128, 127)).sum())
    return counts


def _entropy(output: Array) -> int:
    """64ths of a bit: floor of the sum of what each score has, rounded to 256ths."""
    p = (output.reshape(-1).astype(float) + 128) / 256
    return int(sum(round(-256 * x * math.log2(x)) for x in p if x > 0) // 4)


def _lasting(rng: np.random.Generator, count: int, last: int) -> list[Array]:
    """Pictures of a class that lasts so many runs: a stroke at one of six places, then at another."""
    found: list[Array] = []
    while len(found) < count:
        at, bright = rng.integers(1, 6), rng.integers(30, 110)
        for _ in range(last):
            picture = np.full((1, 8, 8, 1), -128, np.int64)
            picture[:, 1:7, at : at + 2] = bright
            picture += rng.integers(0, 16, picture.shape)
            found.append(np.clip(picture, -128, 127).astype(np.int8))
    return found[:count]


def _brighter(x: Array) -> Array:
    wide = np.asarray(x, np.int64)
    return np.asarray(np.clip(wide + (wide > -100) * 30, -128, 127), np.int8)


class _Counter:
    """What a device counts of runs, and the share of windows in which it alarms."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def outputs(self, inputs: list[Array]) -> list[Array]:
        return [next(iter(self.model.graph.run([(x,)])))[0] for x in inputs]

    def alarms(self, reference: DriftReference, inputs: list[Array], outputs: list[Array]) -> float:
        counts = run_counts(reference, inputs, outputs)
        unusual, alarms = [False] * 16, 0
        windows = len(inputs) // reference.runs
        for n in range(windows):
            rows = slice(n * reference.runs, (n + 1) * reference.runs)
            far = [int(np.abs(counts[p][rows].sum(axis=0) - reference.expected[p]).sum()) for p in PARTS]
            unusual = [*unusual[1:], any(d > most for d, most in zip(far, reference.lasting, strict=True))]
            beyond = any(d > most for d, most in zip(far, reference.limits, strict=True))
            alarms += beyond or sum(unusual) >= 7
        return alarms / windows


@pytest.mark.parametrize(("last", "step"), [nightly(1, 50), (8, 200), nightly(8, 50), nightly(16, 50)])
def test_a_recording_played_again_is_quiet(last: int, step: int) -> None:
    """Classes last so many runs: the recording is quiet, from any run on, and later runs nearly so.

    What shifts is found all the same: gain and noise in one window, what is a little brighter in time.
    """
    model, _ = _digits()
    counter = _Counter(model)
    (info,) = (module.info for module in model.compile(board="mps2_an386").modules)
    rng = np.random.default_rng(5)
    recorded = _lasting(rng, 640, last)
    outputs = counter.outputs(recorded)
    reference = make_reference(info, recorded, outputs, (), windows=20_000)
    for start in range(0, 640, step):
        again, after = ((x[start:] + x[:start]) * 2 for x in (recorded, outputs))
        assert counter.alarms(reference, again, after) == 0
    later = _lasting(rng, 64 * 40, last)
    assert counter.alarms(reference, later, counter.outputs(later)) <= 0.05
    for how in ("gain", "noise", "dead"):
        shifted = [_shifted(how, x, rng) for x in later[: 64 * 5]]
        assert counter.alarms(reference, shifted, counter.outputs(shifted)) == 1, how
    little = [_brighter(x) for x in later]
    assert counter.alarms(reference, little, counter.outputs(little)) > 0.4


@pytest.mark.cc
def test_seven_unusual_windows_of_sixteen_are_an_alarm() -> None:
    model, pictures = _digits()
    info, reference = _reference(model, pictures, windows=100)
    patient = replace(reference, layers=(), runs=1, limits=(0xFFFF,) * 5, lasting=(0,) * 5)
    image = model.compile(board="host").generate(watched={info.name: patient}).build()
    with image.run() as session:
        for window in range(1, 19):
            session.infer(pictures[0])
            found = read_window(session.drift() or b"")
            assert (found.windows, found.lasting) == (window, min(window, 16))
            assert found.alarms == max(0, window - 6)


def test_blocks_are_as_long_as_what_lasts() -> None:
    rng = np.random.default_rng(1)
    for last, block in ((1, 1), (4, 8), (8, 16), (16, 32), (60, 64)):
        kinds = np.repeat(rng.integers(0, 6, 4096 // last + 1), last)[:4096]
        assert block_of([np.eye(6, dtype=np.int64)[kinds]], 64) in (block, min(64, 2 * block))


@pytest.mark.nightly
def test_usual_windows_hardly_ever_reach_a_limit() -> None:
    """Of 10^6 windows that are drawn with another seed, fewer than 100."""
    model, pictures = _digits()
    _, reference = _reference(model, pictures, windows=1_000_000)
    kinds = np.stack([_counted(picture, reference.input.step) for picture in pictures])
    rng, beyond = np.random.default_rng(99), 0
    for _ in range(100):
        drawn = rng.multinomial(RUNS, np.full(len(kinds), 1 / len(kinds)), size=10_000)
        distances = np.abs(drawn @ kinds - np.array(reference.expected["inputs"])).sum(axis=1)
        beyond += int((distances > reference.limits[0]).sum())
    assert beyond < 100


def test_what_cannot_be_counted_is_refused() -> None:
    model, pictures = _digits()
    info, _ = _reference(model, pictures, windows=100)
    outputs = [np.zeros((1, 10), np.int8)] * 200
    with pytest.raises(UsageError, match="49 runs are too few, at least 50 are needed"):
        make_reference(info, pictures[:49], outputs[:49])
    with pytest.raises(UsageError, match="a window of 2000 runs is too long"):
        make_reference(info, pictures, outputs, runs=2000)
    with pytest.raises(UnsupportedError, match="only elements of 8 and 16 bits can be counted, not float32"):
        make_reference(info, [np.asarray(p, np.float32) for p in pictures], outputs)
    (plan,) = model.compile(board="mps2_an386").plans
    with pytest.raises(UsageError, match="no layer is called conv9"):
        usual_layers(info, plan, ["conv9"], pictures)
    with pytest.raises(UsageError, match="5 layers; supported here: 4"):
        usual_layers(info, plan, ["conv2d"] * 5, pictures)
    for data in (b"", b"\xa1", b"\xff\xff", b"\xa0"):
        with pytest.raises(ProtocolError, match="the counts of the device cannot be read"):
            read_window(data)


def test_runs_of_a_file(tmp_path: Path) -> None:
    model, pictures = _digits()
    info, _ = _reference(model, pictures, windows=100)
    expected = [next(iter(model.graph.run([(p,)])))[0] for p in pictures[:3]]
    arrays = {f"case{n}_input0": p for n, p in enumerate(pictures[:3])}
    arrays |= {f"case{n}_output0": y for n, y in enumerate(expected)}
    np.savez(tmp_path / "inputs.npz", image=np.stack(pictures[:3]))
    np.savez(tmp_path / "cases.npz", allow_pickle=False, **arrays)
    for name in ("inputs.npz", "cases.npz"):
        found = usual_runs(tmp_path / name, info, model.graph)
        np.testing.assert_array_equal(np.stack(found.inputs), np.stack(pictures[:3]))
        np.testing.assert_array_equal(np.stack(found.outputs), np.stack(expected))
        assert found.consecutive == (name == "cases.npz")


def test_indices() -> None:
    assert psi([10, 20, 30], [10, 20, 30]) == 0.0
    assert psi([60, 0, 0], [20, 20, 20]) > 0.25
    assert ks([10, 20, 30], [1, 2, 3]) == 0.0
    assert ks([60, 0, 0], [20, 20, 20]) == pytest.approx(2 / 3)
