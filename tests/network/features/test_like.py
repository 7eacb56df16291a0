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
    found = like(lambda x: other.transform(x), _signal())
    assert found.difference == 0.0
    assert {name: getattr(found.features.settings, name) for name in changes} == changes


def test_what_is_something_else_is_not_equal() -> None:
    noise = np.random.default_rng(4).normal(size=(30, 40))
    assert not like(lambda x: noise, _signal()).is_equal


def test_an_image_is_no_row_of_features() -> None:
    with pytest.raises(UsageError, match=r"an array of shape \(3, 4, 5\)"):
        like(lambda x: np.zeros((3, 4, 5)), _signal())
