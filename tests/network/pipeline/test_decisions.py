"""Decisions on scores: what the settings mean, and that the C decides as its twin does."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtgen.base.errors import UsageError
from crtgen.network.features import Features
from crtgen.network.ir import DType, Quant, Value
from crtgen.network.pipeline import Decider, Decision
from tests.network.pipeline.files import given, sound_dir
from tests.network.pipeline.pushed import check, load, twin

_UINT8 = Value("y", (1, 4), DType.UINT8, Quant((1 / 256,), (0,)))


def _described(folder: Path, preset: str, decision: str, more: str = "") -> Path:
    file = folder / "heard.toml"
    sensor = 'sensor = { kind = "audio", rate = 16000, type = "int16" }'
    text = f'[pipeline]\nname = "heard"\n{sensor}\n[features]\npreset = "{preset}"\n'
    file.write_text(f"{text}{more}\n[decision]\n{decision}\n")
    return file


def _sound() -> npt.NDArray[np.int16]:
    samples: npt.NDArray[np.int16] = given("microfrontend_10ms")["wav0"][:16000]
    return samples


_ON_INTEGERS = [
    "above = 20.0\naverage = 4\nleast = 2\nquiet = 0.1",
    "above = 20.0\npatience = 2\nvote = 5",
    "above = 20.0\nvote = 4\nquiet = 0.2\nquiet_of = 'label'\nignore = 0.3",
    "above = -20.0\naverage = 3\ntop_k = 5\nlabel = [3, 1, 4, 15, 9, 2, 6]\nquiet = 0.05",
]
_ON_REALS = [
    "above = 14.0\naverage = 4\nleast = 2\nquiet = 0.1\ntop_k = 3",
    "above = 14.0\nvote = 5\nquiet = 0.2\nquiet_of = 'label'",
]


@pytest.mark.cc
@pytest.mark.parametrize("decision", _ON_INTEGERS)
def test_integers(tmp_path: Path, decision: str) -> None:
    assert len(check(tmp_path, _described(tmp_path, "microwakeword", decision), _sound())) > 2


@pytest.mark.cc
@pytest.mark.parametrize("decision", _ON_REALS)
def test_reals(tmp_path: Path, decision: str) -> None:
    assert len(check(tmp_path, _described(tmp_path, "kaldi-fbank", decision), _sound())) > 2


@pytest.mark.cc
def test_energies_that_are_followed(tmp_path: Path) -> None:
    """A state of the features, in float32."""
    file = _described(tmp_path, "kaldi-fbank", "above = 2.0\nquiet = 0.05")
    text = file.read_text()
    file.write_text(text.replace('"kaldi-fbank"', '"kaldi-fbank"\nlog = "pcen"\nfloor = 1e-6'))
    events = check(tmp_path, file, _sound())
    assert len(events) > 2
    rows = Features("kaldi-fbank", log="pcen", floor=1e-6).transform(_sound())
    runs = [(event.sample - 400) // 160 for event in events]
    assert [np.float32(event.score) for event in events] == [rows[run].max() for run in runs]


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("preset", "decision"), [("microwakeword", _ON_INTEGERS[3]), ("kaldi-fbank", _ON_REALS[0])]
)
def test_on_a_core(tmp_path: Path, preset: str, decision: str) -> None:
    file = _described(tmp_path, preset, decision)
    assert len(check(tmp_path, file, _sound()[:8000], "mps2_an386")) > 1


def _decide(decision: Decision, scores: npt.NDArray[Any], hop: int = 20) -> list[tuple[int, int]]:
    """Runs, counted from 0, and labels of the events of scores that come in every ``hop`` milliseconds."""
    decider = Decider(decision, _UINT8, 1000, hop)
    events = [decider.decide(row, place * hop) for place, row in enumerate(scores)]
    return [(event.sample // hop, event.label) for event in events if event is not None]


def _scores(seed: int, count: int) -> npt.NDArray[np.uint8]:
    """Scores that stay near one label for a while, and sum to about 256."""
    rng = np.random.default_rng(seed)
    winners = np.repeat(rng.integers(0, 4, count // 40 + 1), 40)[:count]
    shares = rng.dirichlet(np.ones(4) * 0.5, count) + 6 * np.eye(4)[winners] * rng.random((count, 1)) ** 0.2
    scaled: npt.NDArray[np.uint8] = np.floor(shares / shares.sum(axis=1, keepdims=True) * 255).astype(
        np.uint8
    )
    return scaled


def _recognize_commands(scores: npt.NDArray[np.uint8], hop: int) -> list[tuple[int, int]]:
    """New commands as TensorFlow Lite Micro's example finds them: at which result, and which label."""
    found, last, last_time = [], 0, -(10**9)
    for now, _ in enumerate(scores):
        kept = scores[max(0, now - 1000 // hop) : now + 1].astype(int)
        if len(kept) < 3 or (len(kept) - 1) * hop < 250:
            continue
        averages = kept.sum(axis=0) // len(kept)
        top = int(np.argmax(averages))
        waited = 10**9 if last == 0 else now * hop - last_time
        if averages[top] > 200 and (top != last or waited > 1500):
            found.append((now, top))
            last, last_time = top, now * hop
    return found


@pytest.mark.parametrize("seed", range(4))
def test_settings_of_recognize_commands(seed: int) -> None:
    """Label 0 is silence there, of which each run is one more; it says nothing."""
    scores = _scores(seed, 1500)
    decision = Decision(above=200.99 / 256, average=51, least=14, quiet=1.52, quiet_of="label")
    made = [event for event in _decide(decision, scores) if event[1] != 0]
    assert made == [event for event in _recognize_commands(scores, 20) if event[1] != 0]
    assert len(made) > 5


def test_most_of_the_last_runs() -> None:
    tops = [1, 2, 1, 0, 1, 1, 1, 2, 2, 1]
    scores = np.eye(4, dtype=np.uint8)[tops] * 200
    decision = Decision(labels=(1, 2, 3), vote=5, patience=3)
    assert _decide(decision, scores) == [(4, 1), (9, 1)]  # what was counted is forgotten after an event
    assert _decide(Decision(labels=(1, 2, 3), patience=3), scores) == [(6, 1)]


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        ("vote = 3\npatience = 4", "patience is 4 of 3 runs that vote"),
        ("average = 2\nleast = 3", "least is 3 of 2 runs"),
        ("quiet_of = 'label'", "quiet_of without quiet"),
        ("quiet = 1.0\nquiet_of = 'none'", "'none' is unknown; known: all, label"),
        ("top_k = 41", "the 41 best of 40 labels"),
        ("label = [1, 2]\ntop_k = 3", "the 3 best of 2 labels"),
        ("label = [1, 1]", "two are called 1"),
        ("vote = 0", "0 is not an integer above 0"),
        ("anomaly = 'gmm'", "'gmm' is unknown; known: mse, kmeans"),
        ("anomaly = 'kmeans'", 'clusters go with anomaly = "kmeans"'),
        ("clusters = 'x.npz'", 'they go with anomaly = "kmeans"'),
        ("boxes = 'fomo'", "boxes need a pipeline of pictures"),
        ("most = 3", 'it goes with boxes = "fomo" or "nms"'),
        ("boxes = 'nms'\naverage = 3", "boxes are found in each run by itself"),
        ("boxes = 'fomo'\noverlap = 0.5", 'it goes with boxes = "nms"'),
        ("boxes = 'nms'\nmost = 101", "most is 101"),
    ],
)
def test_what_contradicts_is_said(tmp_path: Path, decision: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(_described(tmp_path, "microwakeword", decision))
    assert said in str(caught.value)


def _gated(folder: Path, gate: str, above: float = 0.5, names: tuple[str, str] | None = None) -> Path:
    streaming = sound_dir().parent / "networks" / "streaming"
    names = names or ("v2_okay_nabu_logits", "v2_vad_logits")
    main, other = (streaming / f"{each}.tflite" for each in names)
    networks = f'[network]\nfile = "{main}"\n[gate]\nfile = "{other}"\n{gate}'
    return _described(folder, "microwakeword", f"above = {above}\naverage = 2", networks)


@pytest.mark.cc
@pytest.mark.parametrize(
    ("gate", "names"),
    [
        ("above = 7.5\naverage = 4", ("v2_okay_nabu_logits", "v2_vad_logits")),
        ("above = 0.003\naverage = 6", ("v2_okay_nabu", "v2_okay_nabu")),
    ],
)
def test_a_second_network_is_a_gate(tmp_path: Path, gate: str, names: tuple[str, str]) -> None:
    """One whose scores are real, as the networks do not agree how they store them; one of bytes."""
    file = _gated(tmp_path, gate, -20.0, names)
    events = check(tmp_path, file, _sound())
    without = twin(load(_gated(tmp_path, "above = -1000.0", -20.0, names)), _sound())
    assert 0 < len(events) < len(without)
    assert {event.sample for event in events} < {event.sample for event in without}


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ("label = 1", "no output 1: it has 1"),
        ("average = 0", "0 is not an integer"),
        ("abov = 1", "unknown key"),
    ],
)
def test_what_is_wrong_with_a_gate(tmp_path: Path, gate: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load(_gated(tmp_path, gate))


def test_a_gate_without_a_decision(tmp_path: Path) -> None:
    file = _gated(tmp_path, "")
    file.write_text(file.read_text().partition("[decision]")[0])
    with pytest.raises(UsageError, match=r"needs a \[network\] and a \[decision\]"):
        load(file)


def test_a_gate_of_other_rows_is_refused(tmp_path: Path) -> None:
    file = _gated(tmp_path, "")
    other = sound_dir() / "networks" / "str_ww_ref_model.tflite"
    vad = sound_dir().parent / "networks" / "streaming" / "v2_vad_logits.tflite"
    file.write_text(file.read_text().replace(str(vad), str(other)))
    with pytest.raises(UsageError, match="window of the gate differs"):
        load(file)


def _drawn(seed: int) -> tuple[str, str]:
    """A preset and settings that do not contradict each other."""
    draw = random.Random(seed)
    is_real = draw.random() < 0.5
    lines = [f"above = {draw.choice([14.0, 13.0] if is_real else [20.0, 0.0])}"]
    average, vote, count = draw.choice([1, 2, 5, 9]), draw.choice([0, 3, 6]), 23 if is_real else 40
    lines += [f"average = {average}", f"least = {draw.randint(1, average)}"]
    lines += [f"vote = {vote}"] if vote else []
    lines += [f"patience = {draw.randint(1, vote or 4)}", f"ignore = {draw.choice([0.0, 0.1])}"]
    if draw.random() < 0.6:
        lines += [f"quiet = {draw.choice([0.01, 0.3])}", f"quiet_of = '{draw.choice(['all', 'label'])}'"]
    labels = draw.sample(range(count), draw.randint(1, 10))
    lines += [f"label = {labels}", f"top_k = {draw.randint(1, len(labels))}"]
    return ("kaldi-fbank" if is_real else "microwakeword"), "\n".join(lines)


@pytest.mark.cc
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(12))
def test_drawn_settings(tmp_path: Path, seed: int) -> None:
    preset, decision = _drawn(seed)
    check(tmp_path, _described(tmp_path, preset, decision), _sound()[:12000])
