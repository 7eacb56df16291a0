"""Features that are standardised, in Python and in the C; pipelines from Python."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import crtgen
from crtgen.base.errors import MismatchError, UsageError
from crtgen.network.features import Features
from crtgen.network.ir import Array
from tests.network.pipeline.files import given, marvin
from tests.network.pipeline.pushed import check, load
from tests.support import ROOT

_SENSORS = {
    "kaldi-fbank": 'kind = "audio", rate = 16000, type = "int16"',
    "edge-impulse-flatten": 'kind = "imu", rate = 100, axes = 3',
}


def _file(folder: Path, preset: str, more: str, decision: str = "[decision]\nabove = -1e6\n") -> Path:
    file = folder / "scaled.toml"
    sensor = f'[pipeline]\nname = "scaled"\nsensor = {{ {_SENSORS[preset]} }}\n'
    file.write_text(f'{sensor}[features]\npreset = "{preset}"\n{more}\n{decision}')
    return file


def _recordings() -> npt.NDArray[np.int16]:
    return np.stack([given("mlperf_sww")[name][8000:24000] for name in ("wav0", "wav1")])


@pytest.mark.parametrize(("preset", "changes"), [("mlperf-sww", {}), ("mlperf-kws", {"deltas": (2,)})])
def test_scikit_learn_clones_features(preset: str, changes: dict[str, Any]) -> None:
    """It wants to find in the copy the very objects that it gave."""
    sklearn = pytest.importorskip("sklearn.base")
    features = Features(preset, **changes)
    copy = sklearn.clone(features)
    assert (copy.get_params(), repr(copy)) == (features.get_params(), repr(features))


def test_a_scaler_is_fitted() -> None:
    plain, fitted = Features("kaldi-fbank"), Features("kaldi-fbank", standardize=True)
    rows = plain.transform(_recordings())
    made = fitted.fit_transform(_recordings())
    real = rows.astype(np.float64)
    expected = (real - real.mean(axis=(0, 1))) / real.std(axis=(0, 1))
    assert float(np.abs(made - expected).max()) < 1e-4
    assert fitted.get_params()["standardize"] is True
    assert repr(fitted) == "Features('kaldi-fbank', standardize=True)"
    with pytest.raises(UsageError, match="the features are not fitted yet"):
        Features("kaldi-fbank", standardize=True).transform(_recordings())
    with pytest.raises(UsageError, match="the features are not fitted"):
        plain.save("scaler.npz")


@pytest.mark.cc
@pytest.mark.parametrize("preset", list(_SENSORS))
def test_the_c_has_what_was_learned(tmp_path: Path, preset: str) -> None:
    if preset == "kaldi-fbank":
        features = Features(preset, standardize=True).fit(_recordings())
        samples: Array = _recordings()[0]
        rows = features.transform(samples)
        more = ""
    else:
        windows = given("ei_spectral_v4")["x_f32"][:, :50]
        features = Features(preset, standardize=True, frame=50).fit(windows)
        samples, more = windows[0], "frame = 50\nhop = 50\n"
        rows = features.transform(samples[None])
    features.save(tmp_path / "scaler.npz")
    file = _file(tmp_path, preset, f'{more}scaler = "scaler.npz"')
    events = check(tmp_path, file, samples)
    assert [np.float32(event.score) for event in events] == [row.max() for row in rows]


@pytest.mark.parametrize(
    ("preset", "arrays", "said"),
    [
        ("kaldi-fbank", {"mean": np.zeros(5), "scale": np.ones(5)}, "it has 5 numbers, a row 23"),
        ("kaldi-fbank", {"mean": np.zeros(23), "scale": np.zeros(23)}, "a scale is not above 0"),
        ("kaldi-fbank", {"mean": np.zeros(23)}, "the scaler cannot be read"),
        ("kaldi-fbank", {"mean": np.zeros(23), "scale": np.ones(5)}, "scale are float64 of shape (5,)"),
    ],
)
def test_what_is_wrong_with_a_scaler(tmp_path: Path, preset: str, arrays: dict[str, Any], said: str) -> None:
    np.savez(tmp_path / "scaler.npz", **arrays)
    with pytest.raises(UsageError) as caught:
        load(_file(tmp_path, preset, 'scaler = "scaler.npz"'))
    assert said in str(caught.value)


@pytest.mark.parametrize("preset", ["microwakeword", "mlperf-sww", "image"])
def test_features_that_are_not_real_are_not_scaled(preset: str) -> None:
    with pytest.raises(UsageError, match="scaler: "):
        Features(preset, standardize=True)


@pytest.mark.cc
def test_a_pipeline_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = crtgen.Pipeline(marvin(tmp_path))
    samples = given("mlperf_sww")["wav0"]
    assert repr(pipeline) == "<Pipeline marvin: a run every 512 samples>"
    (event,) = pipeline.events(samples)
    assert (event.sample, event.label) == (15872, 0)
    assert pipeline.events(samples, "host") == [event]
    assert pipeline.verify(samples) == 92
    with pytest.raises(UsageError, match="samples of float64"):
        pipeline.events(samples / 32768)
    outputs = pipeline.outputs

    def wrong(samples: Array, board: str | None = None, *more: object) -> list[Array]:
        made = outputs(samples)
        return made if board is None else [*made[:-1], made[-1] - 1]

    monkeypatch.setattr(pipeline, "outputs", wrong)
    with pytest.raises(MismatchError, match="the outputs of run 91 are others"):
        pipeline.verify(samples)


def test_other_files_are_no_pipelines(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the file is not a pipeline"):
        crtgen.Pipeline(ROOT / "demo" / "digits.tflite")
