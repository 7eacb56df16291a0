"""Features of presets against data that the libraries made that they are named after."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtgen.base.errors import UsageError
from crtgen.network.features import Features
from crtgen.network.features.tables import mel_bank
from tests.support import models_dir

_CLOSE = 1e-5
"""Of the range of the values: what float32 is allowed."""


def _given(name: str) -> dict[str, npt.NDArray[Any]]:
    file: Path = models_dir().parent / "sound" / "given" / f"{name}.npz"
    with np.load(file) as arrays:
        return dict(arrays)


@pytest.mark.parametrize(
    ("name", "features", "wanted"),
    [
        ("mlperf_sww", Features("mlperf-sww"), "lfbe{}_f32"),
        ("mlperf_ad_librosa", Features("mlperf-ad", stack=1), "logmel{}_f32"),
        ("kaldi_fbank80", Features("kaldi-fbank", bands=80), "fbank80_{}_f32"),
        ("mlperf_sww", Features("mlperf-sww", arithmetic="int32"), "lfbe{}_f32"),
        ("mlperf_ad_librosa", Features("mlperf-ad", stack=1, arithmetic="int32"), "logmel{}_f32"),
        ("kaldi_fbank80", Features("kaldi-fbank", bands=80, arithmetic="int32"), "fbank80_{}_f32"),
    ],
)
@pytest.mark.parametrize("number", [0, 1])
def test_float32(name: str, features: Features, wanted: str, number: int) -> None:
    given = _given(name)
    expected = given[wanted.format(number)]
    made = features.transform(given[f"wav{number}"])
    assert made.shape == expected.shape
    assert float(np.abs(made - expected).max()) <= _CLOSE * float(np.ptp(expected))


@pytest.mark.parametrize(
    ("name", "features", "wanted"),
    [
        ("microfrontend_10ms", Features("microwakeword", int8=False), "raw{}_u16"),
        ("microfrontend_10ms", Features("microwakeword"), "esphome{}_i8"),
        ("e2e_micro_speech", Features("tflm-micro-speech"), "features{}_i8"),
        ("ei_mfe_v4", Features("edge-impulse-mfe"), "mfe{}_f32"),
        ("ei_mfe_v4", Features("edge-impulse-mfe", arithmetic="int32"), "mfe{}_f32"),
    ],
)
@pytest.mark.parametrize("number", [0, 1])
def test_exact(name: str, features: Features, wanted: str, number: int) -> None:
    given = _given(name)
    np.testing.assert_array_equal(features.transform(given[f"wav{number}"]), given[wanted.format(number)])


@pytest.mark.parametrize("arithmetic", ["auto", "int32"])
@pytest.mark.parametrize("number", [0, 1])
def test_bytes_of_sww_wrap_as_in_the_benchmark(number: int, arithmetic: str) -> None:
    given = _given("mlperf_sww")
    made = Features("mlperf-sww", arithmetic=arithmetic).quantized(given[f"wav{number}"])
    np.testing.assert_array_equal(made, given[f"lfbe{number}_i8"])


def test_the_bank_of_sww() -> None:
    bank = mel_bank(rate=16000, fft=1024, count=40, low=0, high=8000, scale="htk", slope="mel", norm="none")
    expected = _given("mlperf_sww")["mel_513x40_f32"]
    assert int(np.count_nonzero(bank)) == 987
    assert float(np.abs(bank - expected).max()) < 1e-5


@pytest.mark.parametrize(
    ("features", "wanted"),
    [
        (Features("edge-impulse-spectral"), "spectral_a_f64"),
        (Features("edge-impulse-spectral", filter="low", cutoff=10.0, fft=64), "spectral_b_f64"),
        (Features("edge-impulse-flatten"), "flatten_f64"),
    ],
)
def test_vibrations(features: Features, wanted: str) -> None:
    given = _given("ei_spectral_v4")
    expected = given[wanted]
    made = features.transform(given["x_f32"])
    assert made.shape == expected.shape
    assert float(np.abs(made - expected).max()) <= _CLOSE * float(np.ptp(expected))


def test_what_is_far_below_the_greatest_value_of_a_clip_is_raised() -> None:
    samples = _given("mlperf_sww")["wav0"]
    decibels = Features("librosa-mel", log="db", floor=1e-10).transform(samples).astype(float)
    raised = np.maximum(decibels, decibels.max() - 80)
    assert (raised > decibels).any()
    rows = np.cos(np.pi * np.outer(np.arange(128) + 0.5, np.arange(20)) / 128) * np.sqrt(2 / 128)
    rows[:, 0] /= np.sqrt(2)
    made = Features("librosa-mfcc").transform(samples)
    expected = raised @ rows
    assert float(np.abs(made - expected).max()) <= _CLOSE * float(np.ptp(expected))


_MORE: dict[str, dict[str, Any]] = {
    "librosa-mel": {"pad": "none", "log": "db"},
    "mlperf-kws": {"normalize": False, "per": "stream"},
}


@pytest.mark.parametrize("peak", [0, 1, 30, 32767])
@pytest.mark.parametrize("preset", ["mlperf-sww", "kaldi-fbank", "librosa-mel", "mlperf-kws"])
def test_int32_is_as_good_as_float32(preset: str, peak: int) -> None:
    """Signals of any size; a rectangle is as loud as one can be. Some noise is in all bands."""
    noise = np.random.default_rng(peak).integers(-peak, peak + 1, 4096)
    places = np.arange(4096)
    for signal in (noise, peak * np.sign(np.sin(places / 7)), peak * np.sin(places / 3)):
        samples = (signal - np.sign(signal) * np.abs(noise) // 20).astype(np.int16)
        real, whole = (
            Features(preset, arithmetic=a, **_MORE.get(preset, {})).transform(samples).astype(np.float64)
            for a in ("float32", "int32")
        )
        assert float(np.abs(real - whole).max()) <= _CLOSE * max(float(np.ptp(real)), 1e-3)


def test_int32_is_for_powers_of_two() -> None:
    with pytest.raises(UsageError, match="an arithmetic of int32"):
        Features("mlperf-sww", frame=400, hop=160, fft=400, arithmetic="int32")
