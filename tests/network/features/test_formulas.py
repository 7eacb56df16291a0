"""Presets whose libraries are not at hand in the tests, against their formulas in float64."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtgen.base.errors import UsageError
from crtgen.network.features import Features, MelSettings, changed, rows, settings_of
from crtgen.network.features.framing import starts_of
from crtgen.network.features.rows import features_of
from crtgen.network.features.steps import GraphSteps
from crtgen.network.ir import DType, Value
from tests.network.pipeline.files import given

Doubles = npt.NDArray[np.float64]

_CLOSE = 1e-5


def _signals() -> list[npt.NDArray[np.int16]]:
    reference = given("mlperf_sww")
    return [reference["wav0"][:16000], reference["wav1"][:20001]]


def _hann(length: int) -> Doubles:
    return np.asarray(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length))


def _cosines(bands: int, count: int, first: float) -> Doubles:
    rows = np.cos(np.pi * np.outer(np.arange(bands) + 0.5, np.arange(count)) / bands) * np.sqrt(2 / bands)
    rows[:, 0] *= first
    return np.asarray(rows)


def _triangles(edges: npt.NDArray[np.int64], bins: int) -> Doubles:
    """Bands that rise and fall between whole bins."""
    bank = np.zeros((bins, len(edges) - 2))
    for band in range(len(edges) - 2):
        low, middle, high = edges[band : band + 3]
        for i in range(low, middle):
            bank[i, band] = (i - low) / (middle - low)
        for i in range(middle, high):
            bank[i, band] = (high - i) / (high - middle)
    return bank


def _speech_features(signal: npt.NDArray[np.int16]) -> Doubles:
    """python_speech_features 0.6: mfcc(signal, 16000)."""
    x = signal.astype(float)
    x = np.append(x[0], x[1:] - 0.97 * x[:-1])
    count = 1 + -(-(len(x) - 400) // 160)
    x = np.append(x, np.zeros((count - 1) * 160 + 400 - len(x)))
    frames = np.stack([x[i * 160 : i * 160 + 400] for i in range(count)])
    power = np.abs(np.fft.rfft(frames, 512)) ** 2 / 512
    eps = np.finfo(float).eps
    energy = power.sum(axis=1)
    mels = np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 28)
    edges = np.floor(513 * 700 * (10 ** (mels / 2595) - 1) / 16000).astype(int)
    sums = power @ _triangles(edges, 257)
    rows = np.log(np.where(sums == 0, eps, sums)) @ _cosines(26, 13, np.sqrt(0.5))
    rows *= 1 + 11 * np.sin(np.pi * np.arange(13) / 22)
    rows[:, 0] = np.log(np.where(energy == 0, eps, energy))
    return np.asarray(rows)


def _keyword_spotting(signal: npt.NDArray[np.int16]) -> Doubles:
    """MLPerf Tiny's get_dataset.py for keyword spotting, on a clip of a second."""
    x = signal[:16000] / signal[:16000].max()
    frames = np.stack([x[i * 320 : i * 320 + 480] for i in range(49)]) * _hann(480)
    magnitude = np.abs(np.fft.rfft(frames, 512))

    def mel(hertz: Any) -> Doubles:
        return np.asarray(1127 * np.log1p(np.asarray(hertz, float) / 700))

    at, edges = mel(np.arange(257) * 31.25), np.linspace(mel(20.0), mel(4000.0), 42)
    rising = (at[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - at[:, None]) / (edges[2:] - edges[1:-1])
    bank = np.maximum(0, np.minimum(rising, falling))
    bank[0] = 0
    return np.asarray(np.log(magnitude @ bank + 1e-6) @ _cosines(40, 10, 1.0))


def _edge_impulse(signal: npt.NDArray[np.int16]) -> Doubles:
    """Edge Impulse's MFCC, version 4: of 320 samples 256 are transformed; 101 rows count."""
    x = signal.astype(np.float64)
    x = x - 0.98 * np.roll(x, 1)
    frames = np.stack([x[i * 320 : i * 320 + 256] for i in range((len(x) - 320) // 320 + 1)])
    power = np.abs(np.fft.rfft(frames)) ** 2 / 256
    energy = power.sum(axis=1)
    edges = 700 * np.expm1(np.linspace(0, 1127 * np.log1p(8000 / 700), 34) / 1127)
    edges = np.floor(257 * np.append(edges[:-1], edges[-1] - 0.001) / 16000).astype(int)
    sums = power @ _triangles(edges, 129)
    rows = np.log(np.where(sums == 0, 1e-10, sums)) @ _cosines(32, 13, np.sqrt(0.5))
    rows[:, 0] = np.log(np.where(energy == 0, 1e-10, energy))

    def around(rows: Doubles) -> list[Doubles]:
        padded = np.pad(rows, ((50, 50), (0, 0)), mode="symmetric")
        return [padded[i : i + 101] for i in range(len(rows))]

    rest = rows - np.array([part.mean(axis=0) for part in around(rows)])
    return np.asarray(rest / (np.array([part.std(axis=0) for part in around(rest)]) + 1e-10))


@pytest.mark.parametrize("number", [0, 1])
def test_edge_impulse(number: int) -> None:
    signal = _signals()[number]
    expected = _edge_impulse(signal)
    made = Features("edge-impulse-mfcc").transform(signal).astype(float)
    assert made.shape == expected.shape
    assert float(np.abs(made - expected).max()) <= 2 * _CLOSE * float(np.ptp(expected)), "deviations divide"


def _torchaudio(signal: npt.NDArray[np.int16]) -> tuple[Doubles, Doubles]:
    """torchaudio 2's defaults at 16 kHz: MelSpectrogram, MFCC."""
    x = np.pad(signal / 32768, 200, mode="reflect")
    frames = np.stack([x[i * 200 : i * 200 + 400] for i in range(1 + (len(x) - 400) // 200)]) * _hann(400)
    power = np.abs(np.fft.rfft(frames)) ** 2
    mels = np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 130)
    edges = 700 * (10 ** (mels / 2595) - 1)
    at = np.linspace(0, 8000, 201)[:, None]
    rising = (at - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - at) / (edges[2:] - edges[1:-1])
    bands = power @ np.maximum(0, np.minimum(rising, falling))
    decibels = 10 * np.log10(np.maximum(bands, 1e-10))
    raised = np.maximum(decibels, decibels.max() - 80)
    return np.asarray(bands), np.asarray(raised @ _cosines(128, 40, np.sqrt(0.5)))


@pytest.mark.parametrize("number", [0, 1])
def test_torchaudio(number: int) -> None:
    signal = _signals()[number]
    for name, expected in zip(("torchaudio-mel", "torchaudio-mfcc"), _torchaudio(signal), strict=True):
        made = Features(name).transform(signal).astype(float)
        assert made.shape == expected.shape
        assert float(np.abs(made - expected).max()) <= _CLOSE * float(np.ptp(expected))


@pytest.mark.parametrize("number", [0, 1])
def test_python_speech_features(number: int) -> None:
    signal = _signals()[number]
    expected = _speech_features(signal)
    made = Features("python-speech-features").transform(signal).astype(float)
    assert made.shape == expected.shape
    assert float(np.abs(made - expected).max()) <= _CLOSE * float(np.ptp(expected))


@pytest.mark.parametrize("number", [0, 1])
def test_keyword_spotting(number: int) -> None:
    signal = _signals()[number][:16000]
    expected = _keyword_spotting(signal)
    made = Features("mlperf-kws").transform(signal).astype(float)
    assert made.shape == expected.shape
    assert float(np.abs(made - expected).max()) <= _CLOSE * float(np.ptp(expected))


def test_slopes_of_the_first_and_last_rows() -> None:
    """scipy.signal.savgol_filter(deriv=1, polyorder=1, mode="interp"), which librosa.feature.delta calls."""
    signal = _signals()[0]
    rows = Features("mlperf-kws").transform(signal).astype(np.float64)
    fitted = np.array([np.polyfit(np.arange(9), rows[i : i + 9], 1)[0] for i in range(len(rows) - 8)])
    expected = np.concatenate([fitted[:1]] * 4 + [fitted] + [fitted[-1:]] * 4)
    made = Features("mlperf-kws", deltas=(4,), delta_ends="interp", per="window").transform(signal)[:, 10:]
    assert float(np.abs(made - expected).max()) <= _CLOSE * float(np.ptp(expected))
    with pytest.raises(UsageError, match="8 rows are fewer than the 9 of a slope"):
        Features("mlperf-kws", deltas=(4,), delta_ends="interp", per="window").transform(signal[:2800])


def test_the_second_delta_is_a_curvature() -> None:
    """scipy.signal.savgol_filter(deriv=2, polyorder=2, mode="interp"), as librosa's ``delta(order=2)``."""
    signal = _signals()[0]
    rows = Features("mlperf-kws").transform(signal).astype(np.float64)
    fitted = np.array([2 * np.polyfit(np.arange(9), rows[i : i + 9], 2)[0] for i in range(len(rows) - 8)])
    expected = np.concatenate([fitted[:1]] * 4 + [fitted] + [fitted[-1:]] * 4)
    options: dict[str, Any] = {"deltas": (4, 4), "delta_ends": "interp", "per": "window"}
    made = Features("mlperf-kws", delta_kind="orders", **options).transform(signal)
    assert float(np.abs(made[:, 20:] - expected).max()) <= _CLOSE * float(np.ptp(expected))
    slopes = Features("mlperf-kws", **options).transform(signal)
    np.testing.assert_array_equal(made[:, :20], slopes[:, :20])
    with pytest.raises(UsageError, match="deltas of orders"):
        Features("mlperf-kws", delta_kind="orders", deltas=(1, 1, 1), per="window")


def test_rows_of_chroma_have_a_greatest_value_of_1() -> None:
    made = Features("librosa-chroma").transform(_signals()[0])
    assert (made.max(axis=1) == 1.0).all()
    assert made.min() >= 0
    assert not Features("librosa-chroma").transform(np.zeros(4096, np.int16)).any()
    with pytest.raises(UsageError, match="a tuning of 2"):
        Features("librosa-chroma", tuning=2.0)


def test_deltas_are_slopes_over_rows() -> None:
    signal = _signals()[0]
    rows = Features("mlperf-kws").transform(signal).astype(np.float64)
    expected = [rows]
    for reach in (2, 3):
        padded = np.pad(expected[-1], ((reach, reach), (0, 0)), mode="edge")
        count = len(rows)
        terms = (
            n * (padded[reach + n : reach + n + count] - padded[reach - n : reach - n + count])
            for n in range(1, reach + 1)
        )
        expected.append(np.sum(list(terms), axis=0) / (2 * sum(n * n for n in range(1, reach + 1))))
    features = Features("mlperf-kws", deltas=(2, 3))
    made = features.transform(signal)
    assert made.shape == (49, 30)
    whole = np.hstack(expected)
    assert float(np.abs(made.astype(np.float64) - whole).max()) < _CLOSE * float(np.ptp(whole))
    assert isinstance(features.settings, MelSettings)
    steps = GraphSteps(
        Value("x", (16000,), DType.INT16), [int(s) for s in starts_of(features.settings, 16000)]
    )
    graph = steps.graph("deltas", features_of(steps, features.settings))
    ((rows_of_graph,),) = graph.run([[signal]])
    np.testing.assert_array_equal(rows_of_graph, made)
    with pytest.raises(UsageError, match="deltas look at rows that come later"):
        Features("mlperf-sww", deltas=(2,))
    with pytest.raises(UsageError, match="deltas over"):
        Features("mlperf-kws", deltas=(0,))


def test_statistics_of_vibrations() -> None:
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    x[:, 2] = 0
    names = ("peak_to_peak", "crest", "zero_crossings")
    made = Features("edge-impulse-flatten", frame=50, statistics=names).transform(x).reshape(3, 3)
    real = x.astype(np.float64)
    crest = np.abs(real[:, :2]).max(axis=0) / np.sqrt(np.square(real[:, :2]).mean(axis=0))
    expected = [np.ptp(real, axis=0), [*crest, 0], np.abs(np.diff(real < 0, axis=0)).sum(axis=0)]
    whole = np.array(expected, np.float64).T
    assert float(np.abs(made.astype(np.float64) - whole).max()) < 1e-6 * float(whole.max())
    with pytest.raises(UsageError, match="unknown statistics crests"):
        Features("edge-impulse-flatten", statistics=("crests",))


@pytest.mark.parametrize(
    ("preset", "changes", "powers"),
    [
        ("mlperf-kws", {}, 128),
        ("mlperf-sww", {}, 513),
        ("mlperf-sww", {"low": 2000.0}, 513 - 128 - 1),
        ("mlperf-sww", {"low": 2000.0, "arithmetic": "int32"}, 513 - 129 - 1),
        ("mlperf-sww", {"arithmetic": "int32"}, 511),
    ],
)
def test_bins_that_no_band_has_are_not_computed(preset: str, changes: dict[str, Any], powers: int) -> None:
    settings = changed(settings_of(preset), changes)
    assert isinstance(settings, MelSettings)
    steps = GraphSteps(Value("x", (1025,), DType.INT16), [1])
    graph = steps.graph("row", features_of(steps, settings))
    names = ("power", "block_power")
    (made,) = (graph.values[node.outputs[0]] for node in graph.nodes if node.op.name in names)
    assert made.elements == powers


@pytest.mark.parametrize("arithmetic", ["float32", "int32"])
def test_bins_that_are_left_out_change_no_bit(arithmetic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    features = Features("mlperf-sww", low=2000.0, high=6000.0, arithmetic=arithmetic)
    few = features.transform(_signals()[0])
    monkeypatch.setattr(rows, "_used", lambda bank, whole: (0, len(bank)))
    assert np.array_equal(features.transform(_signals()[0]), few)


def test_energies_over_what_they_were() -> None:
    """librosa's ``pcen`` with its defaults, whose filter begins as if all had been 1."""
    signal = _signals()[0]
    energies = Features("librosa-mel", log="none", unit=1.0).transform(signal).astype(np.float64)
    rows = 0.4 * 16000 / 512
    factor = (np.sqrt(1 + 4 * rows**2) - 1) / (2 * rows**2)
    expected, level = [], np.ones(energies.shape[1])
    for energy in energies:
        level = (1 - factor) * level + factor * energy
        expected.append((energy * (1e-6 + level) ** -0.98 + 2) ** 0.5 - 2**0.5)
    made = Features("librosa-mel", log="pcen", unit=1.0, floor=1e-6).transform(signal)
    whole = np.array(expected)
    assert float(np.abs(made.astype(np.float64) - whole).max()) < _CLOSE * float(np.ptp(whole))
    with pytest.raises(UsageError, match="pcen follows the energy of a stream"):
        Features("librosa-mel", log="pcen", per="window")


@pytest.mark.parametrize(
    ("name", "value"),
    [("time", 0.0), ("bias", 0.0), ("power", 0.0), ("power", 1.5), ("gain", -0.1), ("gain", 1.5)],
)
def test_what_pcen_cannot_be(name: str, value: float) -> None:
    options: dict[str, Any] = {f"pcen_{name}": value}
    with pytest.raises(UsageError, match=f"a pcen_{name} of {value}"):
        Features("librosa-mel", log="pcen", **options)
