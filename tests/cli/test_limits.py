"""Limits of --watch are drawn once for the same runs, model and layers."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import crtgen
from crtgen.cli import limits
from crtgen.cli.limits import limits_of
from crtgen.compiler.codegen.drift import DriftReference
from crtgen.compiler.codegen.module import ModelInfo
from crtgen.compiler.plan import Plan
from crtgen.lab.measure.drift import make_reference, usual_layers, usual_runs
from tests.support import ROOT

DIGITS = ROOT / "demo" / "digits.tflite"


def _runs(file: Path, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    np.save(file, rng.integers(-128, 128, (60, 1, 8, 8, 1)).astype(np.int8))
    return file


def test_limits_are_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("CRTGEN_TRUST", raising=False)
    drawn: list[DriftReference] = []

    def few(file: Path, info: ModelInfo, plan: Plan, layers: Sequence[str]) -> DriftReference:
        """Draw limits as the real function does, from a hundred windows."""
        found = usual_runs(file, info, plan.graph)
        watched = usual_layers(info, plan, layers, found.inputs)
        drawn.append(make_reference(info, found.inputs, found.outputs, watched, windows=100))
        return drawn[-1]

    monkeypatch.setattr(limits, "usual", few)
    compiled = crtgen.load(DIGITS).compile("host")
    file = _runs(tmp_path / "usual.npy", 1)
    first = limits_of(file, [], compiled)
    assert limits_of(file, [], compiled) == first
    assert len(drawn) == 1
    (kept,) = (tmp_path / "cache" / "crtgen" / "limits").glob("*.json")
    kept.write_bytes(kept.read_bytes().replace(b'"runs":64', b'"runs":65'))
    assert limits_of(file, [], compiled) == first, "somebody else changed it"
    assert len(drawn) == 2
    layers = ["max_pool2d_1"]
    assert limits_of(file, layers, compiled).layers
    assert limits_of(_runs(file, 2), [], compiled).expected != first.expected
    assert len(drawn) == 4
