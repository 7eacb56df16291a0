"""Features of presets as generated C computes them: the bits of the twin in Python, on every core."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.network.features import Features, MelSettings, changed, settings_of
from crtgen.network.pipeline import Description, join, runs_of
from tests.compiler.kernels.program import Run, run_on_host, run_on_qemu
from tests.network.pipeline.files import given
from tests.support import nightly

_PRESETS: list[tuple[str, dict[str, Any]]] = [
    ("mlperf-sww", {}),
    ("mlperf-sww", {"arithmetic": "int32"}),
    ("kaldi-fbank", {"arithmetic": "int32", "preemphasis_over": "frame"}),
    ("librosa-mel", {"pad": "none", "spectrum": "magnitude", "arithmetic": "int32"}),
    ("python-speech-features", {"arithmetic": "int32"}),
    ("mlperf-ad", {"stack": 1, "pad": "none"}),
    ("kaldi-fbank", {"bands": 80}),
    ("librosa-mel", {"pad": "none", "log": "db"}),
    ("mlperf-sww", {"log": "pcen", "rounding": "none", "unit": 1.0, "floor": 1e-6, "clip": (-9.0, 9.0)}),
    ("microwakeword", {}),
    ("tflm-micro-speech", {"int8": False}),
    ("python-speech-features", {}),
    ("mlperf-kws", {}),
    ("edge-impulse-mfe", {}),
    ("torchaudio-mfcc", {"pad": "none"}),
    ("edge-impulse-spectral", {"filter": "low", "cutoff": 10.0, "frame": 64, "fft": 32}),
    (
        "edge-impulse-flatten",
        {"frame": 50, "statistics": ("mean", "peak_to_peak", "crest", "zero_crossings")},
    ),
    ("mlperf-kws", {"deltas": (2, 1), "per": "window"}),
    ("mlperf-kws", {"deltas": (2, 3), "delta_kind": "orders", "per": "window"}),
    ("librosa-chroma", {"pad": "none", "frame": 256, "hop": 128, "fft": 256}),
    ("librosa-chroma", {"pad": "none", "frame": 256, "hop": 128, "fft": 256, "arithmetic": "int32"}),
    ("librosa-mel", {"pad": "none", "log": "db", "top": 40.0, "relative": True, "per": "window"}),
    ("librosa-mfcc", {"frame": 400, "hop": 200, "fft": 512, "length": 1700}),
    ("torchaudio-mfcc", {"length": 1300}),
    ("torchaudio-mel", {"frame": 256, "fft": 256, "arithmetic": "int32", "length": 500}),
    (
        "librosa-mel",
        {
            **{"pad": "none", "frame": 256, "hop": 128, "fft": 256, "spectrum": "magnitude"},
            **{"slope": "none", "norm": "none", "bands": 129},
        },
    ),
]


def _samples(settings: Any) -> np.ndarray[Any, Any]:
    if settings.rate == 100:
        window: np.ndarray[Any, Any] = given("ei_spectral_v4")["x_f32"][2][: settings.frame]
        return window
    length = getattr(settings, "length", 0) or settings.span
    signal: np.ndarray[Any, Any] = given("mlperf_sww")["wav0"][9000 : 9000 + length]
    return signal


def _run(preset: str, changes: dict[str, Any]) -> tuple[Run, bytes]:
    """The first row of features: what a run computes, and what the twin does."""
    settings = changed(settings_of(preset), changes)
    name = preset.replace("-", "_")
    graph = join(Description(name, settings, None, "", 1, None), None)
    (samples, *_) = runs_of(graph, _samples(settings))
    features = Features(preset, **changes)
    rows = features.transform(_samples(settings))
    if isinstance(settings, MelSettings) and settings.rounding != "none":
        assert rows.dtype == np.float32
    return Run(name, graph.graph, {graph.graph.inputs[0]: samples}), rows.tobytes()


def _check(runs: list[tuple[Run, bytes]], outputs: list[bytes]) -> None:
    wrong = [r.name for (r, wanted), out in zip(runs, outputs, strict=True) if out[: len(wanted)] != wanted]
    assert wrong == []


@pytest.mark.cc
def test_host(tmp_path: Path) -> None:
    runs = [_run(*row) for row in _PRESETS]
    _check(runs, run_on_host(tmp_path, [run for run, _ in runs]))


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("machine", "core"),
    [
        ("mps2-an386", "cortex-m4"),
        nightly("mps2-an500", "cortex-m7"),
        nightly("mps3-an547", "cortex-m55"),
        nightly("mps2-an385", "cortex-m0plus"),
        nightly("mps2-an385", "cortex-m3"),
    ],
)
def test_qemu(tmp_path: Path, machine: str, core: str) -> None:
    runs = [_run(*row) for row in _PRESETS]
    _check(runs, run_on_qemu(tmp_path, [run for run, _ in runs], machine, find_core(core)))
