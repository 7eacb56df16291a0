"""A pipeline's graph against the scores that the original programs made of the same recordings."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from typer.testing import CliRunner

import crtgen
from crtgen.base.errors import UsageError
from crtgen.cli.app import app
from crtgen.cli.recorded import Heard
from crtgen.network.features import MelSettings
from crtgen.network.pipeline import Event, JoinedPipeline, events_of, runs_of
from tests.network.pipeline.files import describe, given, marvin, sound_dir, yes_or_no


def load(file: Path) -> JoinedPipeline:
    model = crtgen.load(file)
    assert isinstance(model, crtgen.Model)
    assert model.pipeline is not None
    return model.pipeline


def scores(pipeline: JoinedPipeline, samples: npt.NDArray[np.int16]) -> list[npt.NDArray[np.generic]]:
    return [y[0] for y in pipeline.graph.run([[run] for run in runs_of(pipeline, samples)])]


@pytest.mark.parametrize("number", [0, 1])
def test_scores_of_the_streaming_wake_word(tmp_path: Path, number: int) -> None:
    reference = given("mlperf_sww")
    pipeline = load(marvin(tmp_path))
    assert (pipeline.span, pipeline.hop, pipeline.before, pipeline.warm) == (1025, 512, 1, 29)
    made = np.concatenate(scores(pipeline, reference[f"wav{number}"])[pipeline.warm :])
    np.testing.assert_array_equal(made, reference[f"scores{number}_i8"])


@pytest.mark.parametrize("number", [0, 1])
def test_scores_of_micro_speech(tmp_path: Path, number: int) -> None:
    reference = given("e2e_micro_speech")
    pipeline = load(yes_or_no(tmp_path))
    made = scores(pipeline, reference[f"wav{number}"])
    assert len(made) == pipeline.warm + 1 == 49
    np.testing.assert_array_equal(made[-1].ravel(), reference[f"scores{number}_i8"])


def test_events_have_the_time_of_their_last_sample(tmp_path: Path) -> None:
    pipeline = load(marvin(tmp_path))
    (event,) = events_of(pipeline, scores(pipeline, given("mlperf_sww")["wav0"]))
    assert (event.sample, event.label, event.score) == (15872, 0, 127)


def test_a_network_with_states_runs_when_its_rows_are_there(tmp_path: Path) -> None:
    network = sound_dir().parent / "networks" / "streaming" / "v2_okay_nabu.tflite"
    pipeline = load(describe(tmp_path, "microwakeword", network))
    assert (pipeline.span, pipeline.hop, pipeline.warm) == (480 + 2 * 160, 3 * 160, 0)
    with pytest.raises(UsageError, match="`every` cannot be used with a stateful network"):
        load(describe(tmp_path, "microwakeword", network, "every = 2\n"))


def test_features_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    network = sound_dir() / "networks" / "str_ww_ref_model.tflite"
    with pytest.raises(UsageError, match="rows of 128 features do not make its input of 1x30x1x40"):
        load(describe(tmp_path, "mlperf-ad", network))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("preset", "presett", "preset: the key is missing"),
        ('"mlperf-sww"', '"mlperf-sw"', "unknown preset of features 'mlperf-sw'"),
        ("rate = 16000", "rate = 8000", "the features are for 16000 Hz, the sensor has 8000 Hz"),
        ("label = 0", 'label = "marvin"', "no label is called 'marvin'"),
        ("above = 0.95", "above = true", "True is no number"),
        ("[decision]", "[decisions]", "decisions: unknown key"),
        ('kind = "audio"', 'kind = "nose"', "unknown sensor 'nose'"),
        ("label = 0", "label = 3", "no label 3: it has 3"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, old: str, new: str, said: str) -> None:
    file = marvin(tmp_path)
    text = file.read_text()
    assert text.count(old)
    file.write_text(text.replace(old, new))
    with pytest.raises(UsageError) as caught:
        load(file)
    assert said in str(caught.value)


def test_inspect_spells_a_preset_out(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["inspect", str(marvin(tmp_path)), "--json"])
    settings = json.loads(done.stdout)["features"]
    assert (settings["frame"], settings["hop"], settings["window"]) == (1024, 512, "hamming")
    plain = CliRunner().invoke(app, ["inspect", str(marvin(tmp_path))])
    assert 'window = "hamming"' in plain.stdout


def test_a_core_without_an_fpu_computes_spectra_in_int32(tmp_path: Path) -> None:
    """Its scores are those of the benchmark, and the settings say so."""
    reference = given("mlperf_sww")
    pipeline = load(marvin(tmp_path))
    assert pipeline.on(fpu=True).graph is pipeline.graph
    whole = pipeline.on(fpu=False)
    assert [node.op.name for node in whole.graph.nodes][:2] == ["block_power", "bands"]
    assert isinstance(whole.settings, MelSettings)
    assert whole.settings.arithmetic == "int32"
    made = np.concatenate(scores(whole, reference["wav0"])[whole.warm :])
    np.testing.assert_array_equal(made, reference["scores0_i8"])
    model = crtgen.load(marvin(tmp_path))
    assert "block_power" in [layer.operator for layer in model.compile("rpi_pico").reports[0].layers]


def test_inspect_says_which_arithmetic_a_board_has(tmp_path: Path) -> None:
    for board, kind in (("rpi_pico", "int32"), ("mps2_an386", "float32")):
        done = CliRunner().invoke(app, ["inspect", str(marvin(tmp_path)), "--board", board, "--json"])
        assert json.loads(done.output)["features"]["arithmetic"] == kind


def test_scores_of_events_are_shown_in_the_unit_of_above(tmp_path: Path) -> None:
    """The C has sums as the output stores them; a person compares with ``above``, which is real."""
    pipeline = load(yes_or_no(tmp_path))
    quant = pipeline.output.quant
    assert quant is not None
    event = Event(16000, 2, 2 * 100, runs=2, top=((2, 2 * 100),))
    shown = Heard(pipeline, (), [event]).value()["events"][0]
    assert shown["score"] == (100 - quant.zero_point) * quant.scale
    assert shown["top"] == ((2, shown["score"]),)
