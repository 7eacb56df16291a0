"""Labelled recordings, and what a pipeline makes of them."""

import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import crtgen
from crtgen.errors import UsageError
from crtgen.ir import Array
from crtgen.measure import evaluation
from crtgen.pipeline import Pipeline
from tests.pipeline.files import given, marvin, yes_or_no


def _write(path: Path, samples: npt.NDArray[np.int16], rate: int = 16000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(samples.tobytes())


def _pipeline(file: Path) -> Pipeline:
    model = crtgen.load(file)
    assert isinstance(model, crtgen.Model)
    assert model.pipeline is not None
    return model.pipeline


def _runner(pipeline: Pipeline) -> evaluation.Run:
    def run(inputs: Sequence[Array]) -> list[Array]:
        return [y[0] for y in pipeline.graph.run([[x] for x in inputs])]

    return run


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
    assert evaluation.count_events(times, [(1.0, 1.5), (10.0, 10.5)]) == counts


def test_clips_in_folders(tmp_path: Path) -> None:
    pipeline = _pipeline(yes_or_no(tmp_path))
    reference = given("e2e_micro_speech")
    for name, key in (("yes", "wav0"), ("no", "wav1")):
        _write(tmp_path / "data" / name / "a.wav", reference[key])
    _write(tmp_path / "data" / "yes" / "b.wav", reference["wav1"])
    clips = evaluation.read_clips(tmp_path / "data", ["silence", "unknown", "yes", "no"])
    found = evaluation.classify(pipeline, clips, _runner(pipeline))
    assert found.confusion == ((0, 0, 0, 0), (0, 0, 0, 0), (0, 0, 1, 1), (0, 0, 0, 1))
    assert found.accuracy == pytest.approx(2 / 3)


def test_recordings_with_times(tmp_path: Path) -> None:
    pipeline = _pipeline(marvin(tmp_path))
    reference = given("mlperf_sww")
    _write(tmp_path / "long.wav", reference["wav0"])
    _write(tmp_path / "other.wav", reference["wav1"])
    table = tmp_path / "events.csv"
    table.write_text("file,start,stop\nlong.wav,0.4,0.9\nlong.wav,2.2,2.9\nother.wav,,\n")
    recordings = evaluation.read_recordings(table)
    found, kept = evaluation.detect(pipeline, recordings, _runner(pipeline))
    assert (found.hits, found.misses, found.false_alarms) == (1, 1, 0)
    assert found.hours == pytest.approx(6 / 3600)
    sweep = dict(evaluation.swept(pipeline, recordings, kept, found.hours))
    assert sweep[0.95] == found
    assert sweep[0.5].hits >= sweep[0.99].hits


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("long.wav,1\n", "row 1 is not file,start,stop"),
        ("file,start,stop\nlong.wav,3,2\n", "row 2: from 3 to 2 s"),
        ("file,start,stop\n", "it names no recordings"),
    ],
)
def test_what_is_wrong_with_a_table(tmp_path: Path, text: str, said: str) -> None:
    table = tmp_path / "events.csv"
    table.write_text(text)
    with pytest.raises(UsageError, match=said):
        evaluation.read_recordings(table)


def test_another_rate_is_refused(tmp_path: Path) -> None:
    pipeline = _pipeline(marvin(tmp_path))
    _write(tmp_path / "a" / "x.wav", np.zeros(20000, np.int16), rate=8000)
    clips = evaluation.read_clips(tmp_path, ["a"])
    with pytest.raises(UsageError, match="1 channels of 16 bits at 8000 Hz"):
        evaluation.classify(pipeline, clips, _runner(pipeline))


def test_a_folder_without_a_label_is_refused(tmp_path: Path) -> None:
    (tmp_path / "maybe").mkdir()
    with pytest.raises(UsageError, match="the folder maybe is called as no label"):
        evaluation.read_clips(tmp_path, ["yes", "no"])
