"""How near integer features lie to where they would be others."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crtgen.cli.app import app
from crtgen.network.features import Features, MelSettings
from crtgen.network.features.exact import ExactSteps
from crtgen.network.features.framing import framed
from crtgen.network.features.rows import features_of
from crtgen.network.ir import Quant
from crtgen.network.pipeline import Borders, JoinedPipeline, count_borders, runs_of, signals_of
from tests.network.pipeline.files import describe, given, marvin, sound_dir
from tests.network.pipeline.pushed import load

_CHOICES: list[tuple[str, dict[str, Any]]] = [
    ("mlperf-sww", {}),
    ("mlperf-sww", {"arithmetic": "int32"}),
    ("mlperf-kws", {}),
    ("kaldi-fbank", {}),
    ("kaldi-fbank", {"arithmetic": "int32"}),
    ("librosa-mel", {"log": "pcen", "floor": 1e-6, "pad": "none"}),
    ("python-speech-features", {"deltas": (2, 2), "per": "window"}),
    ("librosa-mfcc", {}),
    ("python-speech-features", {}),
    ("edge-impulse-mfcc", {}),
]


@pytest.mark.parametrize(("preset", "changes"), _CHOICES)
def test_float64_is_what_float32_is_near_to(preset: str, changes: dict[str, Any]) -> None:
    samples = given("mlperf_sww")["wav0"][:16000]
    features = Features(preset, stack=1, **changes)
    assert isinstance(features.settings, MelSettings)
    steps = ExactSteps(*framed(features.settings, samples))
    rows = steps.array(features_of(steps, features.settings))
    exact = rows.astype(np.float64)
    made = features.transform(samples).astype(np.float64)
    assert rows.dtype == np.float64
    assert exact.shape == made.shape
    assert 0 < float(np.abs(exact - made).max()) <= 1e-5 * float(np.ptp(exact))


def _counted(pipeline: JoinedPipeline) -> Borders:
    samples = given("mlperf_sww")["wav0"]
    counted = count_borders(pipeline, signals_of(pipeline, runs_of(pipeline, samples)))
    assert counted is not None
    return counted


def test_features_of_the_wake_word(tmp_path: Path) -> None:
    """Those of silence are the least value of ``clip``, which is no border."""
    pipeline = load(marvin(tmp_path))
    assert pipeline.rounded is not None
    assert _counted(pipeline) == _counted(pipeline.on(fpu=False)) == Borders(3680, 11, 0, 0)
    nearest = replace(pipeline, rounded=replace(pipeline.rounded, truncates=False))
    assert _counted(nearest).elsewhere == _counted(nearest).differ == 0
    assert 0 < _counted(nearest).near < 40


def test_what_differs_elsewhere_is_counted(tmp_path: Path) -> None:
    """Steps as small as the rounding of float32."""
    pipeline = load(marvin(tmp_path))
    assert pipeline.rounded is not None
    assert isinstance(pipeline.settings, MelSettings)
    fine = replace(pipeline.settings, quantum=1e-7)
    rounded = replace(pipeline.rounded, quant=Quant.tensor(1e-7, -128))
    counted = _counted(replace(pipeline, settings=fine, rounded=rounded))
    assert counted.differ > 500
    assert counted.elsewhere > 500


def test_features_that_are_integers_have_no_borders(tmp_path: Path) -> None:
    network = sound_dir() / "networks" / "micro_speech_quantized.tflite"
    pipeline = load(describe(tmp_path, "tflm-micro-speech", network))
    assert count_borders(pipeline, []) is None


@pytest.mark.cc
def test_eval_counts_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=given("mlperf_sww")["wav0"][None], y=[0])
    words = ["eval", str(marvin(tmp_path)), str(tmp_path / "data.npz"), "--board", "host"]
    done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert json.loads(done.stdout)["borders"] == {"features": 3680, "near": 11, "differ": 0, "elsewhere": 0}
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "3680 integer features: " in " ".join(done.stdout.split())


@pytest.mark.cc
def test_verify_counts_them(tmp_path: Path) -> None:
    words = ["verify", str(marvin(tmp_path)), "--board", "host", "--cases", "2"]
    done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    made = json.loads(done.stdout)["borders"]
    assert (made["features"], made["differ"], made["elsewhere"]) == (320, 0, 0)
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "320 integer features: " in done.stdout
