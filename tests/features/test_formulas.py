"""Presets whose libraries are not at hand in the tests, against their formulas in float64."""

import numpy as np
import numpy.typing as npt
import pytest

from crtgen.features import Features
from tests.pipeline.files import given

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
    bank = np.zeros((257, 26))
    for band in range(26):
        low, middle, high = edges[band : band + 3]
        for i in range(low, middle):
            bank[i, band] = (i - low) / (middle - low)
        for i in range(middle, high):
            bank[i, band] = (high - i) / (high - middle)
    sums = power @ bank
    rows = np.log(np.where(sums == 0, eps, sums)) @ _cosines(26, 13, np.sqrt(0.5))
    rows *= 1 + 11 * np.sin(np.pi * np.arange(13) / 22)
    rows[:, 0] = np.log(np.where(energy == 0, eps, energy))
    return np.asarray(rows)


def _keyword_spotting(signal: npt.NDArray[np.int16]) -> Doubles:
    """MLPerf Tiny's get_dataset.py for keyword spotting, on a clip of a second."""
    x = signal[:16000] / signal[:16000].max()
    frames = np.stack([x[i * 320 : i * 320 + 480] for i in range(49)]) * _hann(480)
    magnitude = np.abs(np.fft.rfft(frames, 512))

    def mel(hertz: Doubles) -> Doubles:
        return np.asarray(1127 * np.log1p(hertz / 700))

    at, edges = mel(np.arange(257) * 31.25), np.linspace(mel(np.array(20.0)), mel(np.array(4000.0)), 42)
    rising = (at[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - at[:, None]) / (edges[2:] - edges[1:-1])
    bank = np.maximum(0, np.minimum(rising, falling))
    bank[0] = 0
    return np.asarray(np.log(magnitude @ bank + 1e-6) @ _cosines(40, 10, 1.0))


@pytest.mark.parametrize("number", [0, 1])
def test_python_speech_features(number: int) -> None:
    signal = _signals()[number]
    expected = _speech_features(signal)
    made = Features("python-speech-features").transform(signal)
    assert made.shape == expected.shape
    assert float(np.abs(made - expected).max()) <= _CLOSE * float(np.ptp(expected))


@pytest.mark.parametrize("number", [0, 1])
def test_keyword_spotting(number: int) -> None:
    signal = _signals()[number][:16000]
    expected = _keyword_spotting(signal)
    made = Features("mlperf-kws").transform(signal)
    assert made.shape == expected.shape
    assert float(np.abs(made - expected).max()) <= _CLOSE * float(np.ptp(expected))
