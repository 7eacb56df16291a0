"""Functions of others are told by their numbers."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtgen.base.errors import UsageError
from crtgen.network.features import Features, like
from tests.network.pipeline.files import given
from tests.support import nightly

Shorts = npt.NDArray[np.int16]


def _signal() -> Shorts:
    samples: Shorts = given("mlperf_sww")["wav0"][:16000]
    return samples


def test_a_preset_is_recognised() -> None:
    found = like(lambda x: Features("kaldi-fbank", bands=80).transform(x), _signal())
    assert found.is_equal
    assert found.features.preset == "kaldi-fbank"
    assert found.steps == ()


def test_settings_that_differ_are_named() -> None:
    other = Features("mlperf-sww", window="hann", periodic=True)
    found = like(lambda x: other.transform(x).T, _signal())
    assert found.is_equal
    assert {name for name, _, _ in found.steps} <= {"window", "periodic"}
    assert found.difference == 0.0
    assert "equal: Features('mlperf-sww'" in str(found)


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        nightly("python-speech-features", {"deltas": (1, 1), "per": "window"}),
        nightly("kaldi-fbank", {"deltas": (4,), "per": "window", "high": 7600.0}),
        ("librosa-mel", {"log": "pcen", "floor": 1e-6, "pcen_gain": 0.8, "pcen_power": 0.25}),
    ],
)
def test_slopes_and_energies_over_what_they_were(preset: str, changes: dict[str, Any]) -> None:
    other = Features(preset, **changes)
    found = like(lambda x: other.transform(x), _signal()[:9000])
    assert found.difference == 0.0
    assert {name: getattr(found.features.settings, name) for name in changes} == changes


_LIBROSA: dict[str, tuple[str, dict[str, Any]]] = {
    "mfcc": ("librosa-mfcc", {"coefficients": 13, "bands": 40, "frame": 400, "hop": 160, "fft": 400}),
    "mel_db": (
        "librosa-mel",
        {"bands": 64, "frame": 1024, "fft": 1024, "log": "db", "floor": 1e-10, "top": 80.0},
    ),
    "mel_of_max": ("librosa-mel", {"log": "db", "floor": 1e-10, "top": 80.0, "relative": True}),
    "magnitudes": (
        "librosa-mel",
        {
            **{"frame": 512, "hop": 256, "fft": 512, "bands": 257, "slope": "none", "norm": "none"},
            "spectrum": "magnitude",
        },
    ),
    "no_ends": ("librosa-mfcc", {"coefficients": 13, "pad": "none"}),
    "limits": ("librosa-mfcc", {"bands": 64, "low": 20.0, "high": 7600.0}),
    "odd_hop": ("librosa-mfcc", {"coefficients": 13, "frame": 600, "hop": 300, "fft": 600}),
    "small_floor": (
        "librosa-mel",
        {"bands": 80, "frame": 400, "hop": 160, "fft": 400, "log": "ln", "floor": 1e-9, "floor_kind": "add"},
    ),
    "rate": ("librosa-mfcc", {"coefficients": 13, "rate": 22050}),
    "deltas": ("librosa-mfcc", {"coefficients": 13, "deltas": (4,)}),
    "delta": ("librosa-mfcc", {"coefficients": 13, "deltas": (4,), "delta_ends": "interp"}),
    "order": (
        "librosa-mfcc",
        {"coefficients": 13, "deltas": (4, 4), "delta_ends": "interp", "delta_kind": "orders"},
    ),
    "chroma": ("librosa-chroma", {"frame": 1024, "hop": 256, "fft": 1024, "tuning": -0.06}),
}
"""Settings that ``like`` found for ordinary calls of librosa 0.11, whose values differ by less than 2e-5."""


_NIGHTLY = ("chroma", "deltas", "order", "small_floor", "no_ends", "limits", "rate", "odd_hop")


@pytest.mark.parametrize("call", [nightly(call) if call in _NIGHTLY else call for call in _LIBROSA])
def test_hop_frame_and_bands_follow_from_the_shape(call: str) -> None:
    preset, changes = _LIBROSA[call]
    other = Features(preset, **changes, per="window")
    found = like(lambda x: other.transform(x).T, _signal(), other.settings.rate)
    assert found.is_equal
    settings = found.features.settings
    assert {name: getattr(settings, name) for name in changes} == changes


def test_values_less_the_greatest_one() -> None:
    """librosa's ``power_to_db(..., ref=np.max)`` of 80 dB."""
    made = Features("librosa-mel", log="db", floor=1e-10, top=80.0, relative=True, per="window").transform(
        _signal()
    )
    plain = Features("librosa-mel", log="db", floor=1e-10, per="window").transform(_signal())
    wanted = np.maximum(plain - plain.max(), -80.0).astype(np.float64)
    np.testing.assert_allclose(made.astype(np.float64), wanted, atol=1e-4)


def test_what_is_something_else_is_not_equal() -> None:
    noise = np.random.default_rng(4).normal(size=(8, 40))
    assert not like(lambda x: noise, _signal()[:4096]).is_equal


def test_an_image_is_no_row_of_features() -> None:
    with pytest.raises(UsageError, match=r"an array of shape \(3, 4, 5\)"):
        like(lambda x: np.zeros((3, 4, 5)), _signal())


def test_what_is_unknown_is_named() -> None:
    with pytest.raises(UsageError, match=r"an array of shape \(13,\)"):
        like(lambda x: np.zeros(13), _signal())
    with pytest.raises(UsageError, match=r"no preset gives features of shape \(700, 3\)") as error:
        like(lambda x: np.zeros((700, 3)), _signal())
    assert error.value.hint is not None
    assert (
        "3 rows are a hop of about 5333 or 700 rows are a hop of about 22; fft and frame" in error.value.hint
    )
