"""Drift: a device counts as numpy does, usual windows stay within limits, and shifts are found."""

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import crtgen
from crtgen.api import Model
from crtgen.codegen.drift import DriftReference
from crtgen.codegen.module import ModelInfo
from crtgen.errors import ProtocolError, UnsupportedError, UsageError
from crtgen.ir import Array
from crtgen.measure.drift import ks, make_reference, psi, read_window, usual_layers, usual_runs
from tests.support import ROOT

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
    with pytest.raises(UsageError, match="49 runs do not show what is usual: 50 do"):
        make_reference(info, pictures[:49], outputs[:49])
    with pytest.raises(UsageError, match="a window of 2000 runs is too long"):
        make_reference(info, pictures, outputs, runs=2000)
    with pytest.raises(UnsupportedError, match="elements of 8 and 16 bits are counted, not float32"):
        make_reference(info, [np.asarray(p, np.float32) for p in pictures], outputs)
    (plan,) = model.compile(board="mps2_an386").plans
    with pytest.raises(UsageError, match="no layer is called conv9"):
        usual_layers(info, plan, ["conv9"], pictures)
    with pytest.raises(UsageError, match="5 layers; supported here: 4"):
        usual_layers(info, plan, ["conv2d"] * 5, pictures)
    for data in (b"", b"\xa1", b"\xff\xff", b"\xa0"):
        with pytest.raises(ProtocolError, match="what the device counted cannot be read"):
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
        inputs, outputs = usual_runs(tmp_path / name, info, model.graph)
        np.testing.assert_array_equal(np.stack(inputs), np.stack(pictures[:3]))
        np.testing.assert_array_equal(np.stack(outputs), np.stack(expected))


def test_indices() -> None:
    assert psi([10, 20, 30], [10, 20, 30]) == 0.0
    assert psi([60, 0, 0], [20, 20, 20]) > 0.25
    assert ks([10, 20, 30], [1, 2, 3]) == 0.0
    assert ks([60, 0, 0], [20, 20, 20]) == pytest.approx(2 / 3)
