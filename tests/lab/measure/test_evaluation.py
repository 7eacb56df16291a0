"""Labelled recordings, and what a pipeline makes of them."""

import json
import wave
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from typer.testing import CliRunner

import crtgen
from crtgen.base.errors import UsageError
from crtgen.base.quality import limits_of, shortfalls
from crtgen.cli.app import app
from crtgen.lab.measure.evaluation import Classified, Detected, Evaluation, Ranked, count_events, evaluate
from crtgen.lab.measure.labelled import read_arrays, read_clips, read_recordings
from crtgen.lab.measure.subject import Subject, reference, runs_in
from crtgen.network.ir import DType, Value
from tests.network.pipeline.files import describe, given, marvin, sound_dir, yes_or_no
from tests.support import ROOT
from tests.tflite_builder import Model, Operator, Options, Tensor

DIGITS = ROOT / "demo" / "digits.tflite"


def _write(path: Path, samples: npt.NDArray[np.int16], rate: int = 16000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(samples.tobytes())


def _subject(file: Path, names: tuple[str, ...] = ()) -> Subject:
    model = crtgen.load(file)
    assert isinstance(model, crtgen.Model)
    return Subject.of(model, names)


def _evaluate(subject: Subject, data: Path) -> Evaluation:
    return evaluate(subject, data, reference(subject.model))


@pytest.mark.parametrize(
    ("times", "counts"),
    [
        ([], (0, 2, 0)),
        ([1.5], (1, 1, 0)),
        ([0.9, 1.0, 4.0, 4.1], (1, 1, 2)),
        ([3.0, 12.0], (2, 0, 0)),
        ([6.0, 6.5, 7.2, 20.0], (0, 2, 3)),
    ],
)
def test_events_count_as_in_the_benchmark(times: list[float], counts: tuple[int, int, int]) -> None:
    assert count_events(times, [(1.0, 1.5), (10.0, 10.5)]) == counts


def test_clips_in_folders(tmp_path: Path) -> None:
    reference = given("e2e_micro_speech")
    for name, key in (("yes", "wav0"), ("no", "wav1")):
        _write(tmp_path / "data" / name / "a.wav", reference[key])
    _write(tmp_path / "data" / "yes" / "b.wav", reference["wav1"])
    found = _evaluate(_subject(yes_or_no(tmp_path)), tmp_path / "data")
    assert isinstance(found.result, Classified)
    assert found.result.confusion == ((0, 0, 0, 0), (0, 0, 0, 0), (0, 0, 1, 1), (0, 0, 0, 1))
    assert found.figures == {"accuracy": pytest.approx(2 / 3)}
    assert found.taken == (3, 2, 3)


def test_recordings_with_times(tmp_path: Path) -> None:
    reference = given("mlperf_sww")
    _write(tmp_path / "long.wav", reference["wav0"])
    _write(tmp_path / "other.wav", reference["wav1"])
    table = tmp_path / "events.csv"
    table.write_text("file,start,stop\nlong.wav,0.4,0.9\nlong.wav,2.2,2.9\nother.wav,,\n")
    found = _evaluate(_subject(marvin(tmp_path)), table)
    result = found.result
    assert isinstance(result, Detected)
    assert (result.hits, result.misses, result.false_alarms) == (1, 1, 0)
    assert result.hours == pytest.approx(6 / 3600)
    sweep = {each.above: each for each in found.thresholds}
    assert (sweep[0.95].hits, sweep[0.95].misses, sweep[0.95].an_hour) == (1, 1, 0.0)
    assert sweep[0.5].hits >= sweep[0.99].hits
    assert shortfalls(limits_of("mlperf-sww"), found.figures) == []
    assert shortfalls({"misses": 0}, found.figures) == ["misses 1, at most 0 wanted"]


def test_arrays_of_signals(tmp_path: Path) -> None:
    reference = given("e2e_micro_speech")
    np.savez(tmp_path / "data.npz", x=np.stack([reference["wav0"], reference["wav1"]]), y=[2, 2])
    found = _evaluate(_subject(yes_or_no(tmp_path)), tmp_path / "data.npz")
    assert (found.taken, found.figures["accuracy"]) == ((2, 3), 0.5)


def _digits(folder: Path, count: int = 9) -> Path:
    """Digits, every third of them with another label than the network says."""
    with np.load(ROOT / "demo" / "digits.npz") as arrays:
        x = np.stack([arrays[f"case{n}_input0"] for n in range(count)])
        y = np.array([int(arrays[f"case{n}_output0"].argmax()) for n in range(count)])
    y[::3] = (y[::3] + 1) % 10
    np.savez(folder / "data.npz", x=x, y=y)
    return folder / "data.npz"


def test_a_network_alone(tmp_path: Path) -> None:
    found = _evaluate(_subject(DIGITS), _digits(tmp_path))
    assert found.figures == {"accuracy": pytest.approx(2 / 3)}


def _autoencoder(folder: Path) -> Path:
    """What it gets, if that is between -1 and 1."""
    tensors = [Tensor("x", [1, 3], "float32"), Tensor("y", [1, 3], "float32")]
    operators = [Operator("RELU_N1_TO_1", ["x"], ["y"])]
    (folder / "auto.tflite").write_bytes(Model(tensors, operators, ["x"], ["y"]).to_bytes())
    return folder / "auto.tflite"


def test_anomalies_are_ranked(tmp_path: Path) -> None:
    """The score is the mean square of the difference; those of several rows of a clip are averaged."""
    rows = np.array([[0.5, 0, 0], [1.3, 0, 0], [2, 0, 0], [1.2, 1.2, 0], [3, 0, 0]], np.float32)
    clips = np.stack([np.stack([row, row / 4])[:, None] for row in rows])
    np.savez(tmp_path / "data.npz", x=clips, y=[0, 0, 1, 1, 2])
    found = _evaluate(_subject(_autoencoder(tmp_path)), tmp_path / "data.npz")
    assert isinstance(found.result, Ranked)
    assert (found.result.normal, found.result.anomalies) == (2, 3)
    assert [(t.hits, t.misses, t.false_alarms) for t in found.thresholds] == [(2, 1, 0)]
    assert shortfalls(limits_of("mlperf-ad"), found.figures) == ["auc 0.8333, at least 0.85 wanted"]


def _bright(folder: Path) -> Path:
    """The mean of a picture's pixels, in one number."""
    tensors = [
        Tensor("x", [1, 4, 4, 1], "float32"),
        Tensor("axes", [2], "int32", data=np.array([1, 2], np.int32)),
        Tensor("y", [1, 1], "float32"),
    ]
    operators = [Operator("MEAN", ["x", "axes"], ["y"], Options("ReducerOptions", KeepDims=False))]
    (folder / "bright.tflite").write_bytes(Model(tensors, operators, ["x"], ["y"]).to_bytes())
    return folder / "bright.tflite"


def test_pictures_for_a_network_of_one_score(tmp_path: Path) -> None:
    for name, shades in (("dark", (10, 60, 180)), ("light", (90, 200, 250))):
        for shade in shades:
            (tmp_path / "data" / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((4, 4), shade, np.uint8)).save(tmp_path / "data" / name / f"{shade}.png")
    found = _evaluate(_subject(_bright(tmp_path), ("dark", "light")), tmp_path / "data")
    assert isinstance(found.result, Classified)
    assert found.result.confusion == ((2, 1), (1, 2))
    assert found.figures == {"accuracy": pytest.approx(4 / 6), "auc": pytest.approx(8 / 9)}
    with pytest.raises(UsageError, match="the folder dark is not named after a label") as caught:
        _evaluate(_subject(_bright(tmp_path)), tmp_path / "data")
    assert "--labels" in caught.value.hint


def _invoke(*words: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, ["eval", *words, "--board", "host", "--json"], catch_exceptions=False)
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.cc
def test_a_network_against_another_one_and_a_goal(tmp_path: Path) -> None:
    words = (str(DIGITS), str(_digits(tmp_path)), "--against", str(DIGITS), "--goal", "mlperf-kws")
    code, found = _invoke(*words)
    assert code == 8
    assert found["shortfalls"] == ["accuracy 0.6667, at least 0.9 wanted"]
    assert [(each["by"], each["same"]) for each in found["against"]] == [("digits.tflite, reference", 9)]
    assert (found["accuracy"], found["clips"], found["board"]) == (pytest.approx(2 / 3), 9, "host")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("long.wav,1\n", "row 1 is not file,start,stop"),
        ("file,start,stop\nlong.wav,3,2\n", "row 2: from 3 to 2 s"),
        ("file,start,stop\n", "the table names no recordings"),
    ],
)
def test_what_is_wrong_with_a_table(tmp_path: Path, text: str, said: str) -> None:
    table = tmp_path / "events.csv"
    table.write_text(text)
    with pytest.raises(UsageError, match=said):
        read_recordings(table)


def test_another_rate_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "data" / "yes" / "x.wav", np.zeros(20000, np.int16), rate=8000)
    with pytest.raises(UsageError, match="1 channels of 16 bits at 8000 Hz"):
        _evaluate(_subject(yes_or_no(tmp_path)), tmp_path / "data")


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": np.zeros((2, 4))}, "the data cannot be read"),
        ({"x": np.zeros((2, 4)), "y": np.zeros(2)}, "y of float64"),
        ({"x": np.zeros((2, 4)), "y": np.array([0, 5])}, "the labels are 0 to 5, but there are 4 of them"),
        ({"x": np.zeros((3, 4)), "y": np.array([0, 1])}, "x of shape (3, 4)"),
    ],
)
def test_what_is_wrong_with_arrays(tmp_path: Path, arrays: dict[str, Any], said: str) -> None:
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(UsageError) as caught:
        read_arrays(tmp_path / "data.npz", 4)
    assert said in str(caught.value)


def test_what_cannot_be_evaluated_is_said(tmp_path: Path) -> None:
    boxes = '[decision]\nboxes = "fomo"\n'
    network = sound_dir() / "networks" / "micro_speech_quantized.tflite"
    with pytest.raises(UsageError, match="boxes need a pipeline of pictures"):
        _subject(describe(tmp_path, "tflm-micro-speech", network, boxes))
    with pytest.raises(UsageError, match="the pipeline has no decision on scores"):
        _subject(describe(tmp_path, "tflm-micro-speech", network))
    with pytest.raises(UsageError, match="3 labels for 10 outputs"):
        _subject(DIGITS, ("a", "b", "c"))
    with pytest.raises(UsageError, match="neither a folder"):
        _evaluate(_subject(DIGITS), DIGITS)
    with pytest.raises(UsageError, match="unknown goal 'mlperf'"):
        limits_of("mlperf")
    with pytest.raises(UsageError, match="auc is not measured for such data"):
        shortfalls({"auc": 0.9}, {"accuracy": 1.0})


def test_a_folder_without_a_label_is_refused(tmp_path: Path) -> None:
    (tmp_path / "maybe").mkdir()
    with pytest.raises(UsageError, match="the folder maybe is not named after a label"):
        read_clips(tmp_path, ["yes", "no"])


@pytest.mark.parametrize("runs", [2, 3, 4])
def test_a_recording_that_only_fills_the_window(runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first three runs fill the network's window; a decision needs one more."""
    samples = np.zeros(400 + 100 * runs, np.int16)
    given = {"samples": Value("x", (100,), DType.INT16), "warm": 3, "span": 500, "before": 0, "hop": 100}
    pipeline: Any = SimpleNamespace(**given)
    monkeypatch.setattr("crtgen.lab.measure.subject.runs_of", lambda *_: [samples[:100]] * runs)
    if runs > 3:
        assert len(runs_in(pipeline, samples, "a.wav")) == runs
    else:
        with pytest.raises(UsageError, match=f"{len(samples)} samples are fewer than the 800 that fill"):
            runs_in(pipeline, samples, "a.wav")
