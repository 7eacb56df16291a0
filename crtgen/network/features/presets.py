"""Presets of features, named after the libraries and benchmarks that define them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from crtgen.base.errors import UsageError
from crtgen.network.features.settings import (
    FeatureSettings,
    ImageSettings,
    MelSettings,
    MicroSettings,
    VibrationSettings,
)

__all__ = ["PRESETS", "settings_of"]

_MEL: Mapping[str, Mapping[str, Any]] = {
    "mlperf-sww": {
        "frame": 1024,
        "hop": 512,
        "fft": 1024,
        "window": "hamming",
        "periodic": False,
        "preemphasis": 0.96875,
        "divide": 1024.0,
        "low": 0.0,
        "high": 8000.0,
        "log": "db",
        "floor": 1e-30,
        "gain": 1 / 64,
        "offset": 52 / 64,
        "clip": (0.0, 1.0),
        "quantum": 0.003701042616739869,
        "zero_point": -128,
        "rounding": "truncate",
    },
    "mlperf-kws": {
        "unit": 1.0,
        "normalize": True,
        "per": "window",
        "spectrum": "magnitude",
        "high": 4000.0,
        "floor_kind": "add",
        "coefficients": 10,
        "dct": "even",
    },
    "mlperf-ad": {
        "frame": 1024,
        "hop": 512,
        "fft": 1024,
        "pad": "zero",
        "window_at": "middle",
        "bands": 128,
        "low": 0.0,
        "high": 8000.0,
        "scale": "slaney",
        "slope": "hz",
        "norm": "slaney",
        "log": "db",
        "floor": 2.220446049250313e-16,
        "floor_kind": "add",
        "stack": 5,
    },
    "kaldi-fbank": {
        "unit": 1.0,
        "frame": 400,
        "hop": 160,
        "window": "povey",
        "periodic": False,
        "remove_mean": True,
        "preemphasis": 0.97,
        "preemphasis_over": "frame",
        "bands": 23,
        "slope": "kaldi",
        "floor": 1.1920928955078125e-07,
    },
    "librosa-mel": {
        "frame": 2048,
        "hop": 512,
        "fft": 2048,
        "window_at": "middle",
        "pad": "zero",
        "bands": 128,
        "low": 0.0,
        "scale": "slaney",
        "slope": "hz",
        "norm": "slaney",
        "log": "none",
    },
    "python-speech-features": {
        "unit": 1.0,
        "frame": 400,
        "hop": 160,
        "tail": "zero",
        "window": "none",
        "preemphasis": 0.97,
        "divide": 512.0,
        "bands": 26,
        "low": 0.0,
        "slope": "bins",
        "floor": 2.220446049250313e-16,
        "floor_kind": "zero",
        "coefficients": 13,
        "lifter": 22.0,
        "energy": True,
    },
    "edge-impulse-mfe": {
        "frame": 320,
        "hop": 160,
        "fft": 256,
        "window": "none",
        "preemphasis": 0.98,
        "preemphasis_over": "window",
        "per": "window",
        "divide": 256.0,
        "low": 0.0,
        "slope": "bins",
        "log": "db",
        "floor": 1e-30,
        "gain": 1 / 64,
        "offset": 52 / 64,
        "clip": (0.0, 1.0),
        "steps": 256,
    },
}
_EI_MFCC: Mapping[str, Any] = {
    "unit": 1.0,
    "frame": 320,
    "hop": 320,
    "fft": 256,
    "window": "none",
    "preemphasis": 0.98,
    "preemphasis_over": "window",
    "per": "window",
    "divide": 256.0,
    "bands": 32,
    "low": 0.0,
    "slope": "bins",
    "floor": 1e-10,
    "floor_kind": "zero",
    "coefficients": 13,
    "energy": True,
    "cmvn": 101,
}
_TORCHAUDIO: Mapping[str, Any] = {
    "frame": 400,
    "hop": 200,
    "fft": 400,
    "pad": "reflect",
    "per": "window",
    "bands": 128,
    "low": 0.0,
    "slope": "hz",
    "log": "none",
}
_OF_A_CLIP: Mapping[str, Any] = {"log": "db", "floor": 1e-10, "top": 80.0, "per": "window"}
_ALL_MEL: Mapping[str, Mapping[str, Any]] = {
    **_MEL,
    "edge-impulse-mfcc": _EI_MFCC,
    "librosa-chroma": {
        **_MEL["librosa-mel"],
        "bands": 12,
        "slope": "chroma",
        "norm": "none",
        "row_norm": "max",
    },
    "librosa-mfcc": {**_MEL["librosa-mel"], **_OF_A_CLIP, "coefficients": 20},
    "torchaudio-mel": _TORCHAUDIO,
    "torchaudio-mfcc": {**_TORCHAUDIO, **_OF_A_CLIP, "coefficients": 40},
}

_MICRO: Mapping[str, Mapping[str, Any]] = {
    "microwakeword": {},
    "microwakeword-20ms": {"hop": 320},
    "tflm-micro-speech": {"hop": 320, "weights": "truncate", "tables": "float64"},
}

_VIBRATION: Mapping[str, Mapping[str, Any]] = {
    "edge-impulse-flatten": {},
    "edge-impulse-spectral": {"statistics": ("std", "skew", "kurtosis"), "bins": True},
}

PRESETS: Mapping[str, FeatureSettings] = MappingProxyType(
    {name: MelSettings(**values) for name, values in _ALL_MEL.items()}
    | {name: MicroSettings(**values) for name, values in _MICRO.items()}
    | {name: VibrationSettings(**values) for name, values in _VIBRATION.items()}
    | {"image": ImageSettings()}
)


def settings_of(preset: str) -> FeatureSettings:
    """Return the settings of a preset. Raises ``UsageError`` with a list of all presets for an unknown
    one.
    """
    if preset not in PRESETS:
        raise UsageError(
            f"unknown preset of features {preset!r}", hint=f"known: {', '.join(sorted(PRESETS))}"
        )
    return PRESETS[preset]
