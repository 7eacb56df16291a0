"""A network gets in a pipeline what ``Features`` gives for training: every preset, every type of input."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import crtgen
from crtgen.base.errors import UsageError
from crtgen.network.features import PRESETS, Features, ImageSettings, MelSettings, VibrationSettings
from crtgen.network.pipeline import runs_of
from tests.tflite_builder import Model, Operator, Options, Tensor

_ROWS = 3
_FAR = (0.37, 11)
"""A quantisation that is no preset's."""
_PADDED = ("librosa-mfcc", "torchaudio-mel", "torchaudio-mfcc")
"""Windows with padding at their ends."""
_VIBRATIONS = ("edge-impulse-flatten", "edge-impulse-spectral")
"""Their windows are whole: a network gets one at a time."""
_STREAMED = [name for name in PRESETS if name not in ("image", *_PADDED)]


def _signal(features: Features) -> npt.NDArray[Any]:
    """Five windows of the preset's samples, and some more."""
    random, s = np.random.default_rng(5), features.settings
    assert not isinstance(s, ImageSettings)
    length = s.frame + (_ROWS + 5) * s.hop + 7
    if isinstance(s, VibrationSettings):
        return random.normal(size=(length, s.axes)).astype(np.float32)
    loud = np.linspace(100, 9000, length)
    return (random.normal(size=length) * loud).clip(-32768, 32767).astype(np.int16)


def _network(folder: Path, width: int, rows: int, quant: tuple[float, int] | None) -> Path:
    """A network that gives what it gets."""
    dtype, scales, zeros = ("float32", [], []) if quant is None else ("int8", [quant[0]], [quant[1]])
    shapes = {"x": [1, rows, width], "y": [1, rows * width]}
    tensors = [Tensor(name, shape, dtype, scales, zeros) for name, shape in shapes.items()]
    tensors.append(Tensor("to", [2], "int32", data=np.array(shapes["y"], np.int32)))
    operators = [Operator("RESHAPE", ["x", "to"], ["y"], Options("ReshapeOptions"))]
    file = folder / "net.tflite"
    file.write_bytes(Model(tensors, operators, inputs=["x"], outputs=["y"]).to_bytes())
    return file


def _described(folder: Path, features: Features, network: Path, every: int, more: str = "") -> Path:
    s, kind = features.settings, '{ kind = "audio", rate = 16000, type = "int16" }'
    if isinstance(s, VibrationSettings):
        kind = f'{{ kind = "imu", rate = {s.rate}, type = "float32", axes = {s.axes} }}'
    elif s.rate != 16000:
        kind = kind.replace("16000", str(s.rate))
    lines = ["[pipeline]", 'name = "heard"', f"sensor = {kind}", "[features]"]
    lines += [f'preset = "{features.preset}"', more]
    if isinstance(s, MelSettings):
        lines.append("stack = 1")
    lines += ["[network]", f'file = "{network}"', *([f"every = {every}"] if every > 1 else [])]
    file = folder / "heard.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def _given(file: Path, signal: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return what the network gets in each run after the warm-up."""
    model = crtgen.load(file)
    assert isinstance(model, crtgen.Model)
    pipeline = model.pipeline
    assert pipeline is not None
    outputs = pipeline.graph.run([[run] for run in runs_of(pipeline, signal)])
    return np.array([y[0].ravel() for y in outputs])[pipeline.warm :]


@pytest.mark.parametrize("quant", [None, _FAR], ids=["float32", "int8"])
@pytest.mark.parametrize(
    ("preset", "every"),
    [(name, every) for name in _STREAMED for every in (1, 2) if every == 1 or name not in _VIBRATIONS],
)
def test_a_network_gets_what_it_was_trained_on(
    preset: str, every: int, quant: tuple[float, int] | None, tmp_path: Path
) -> None:
    features = Features(preset)
    if isinstance(features.settings, MelSettings) and features.settings.stack > 1:
        features = Features(preset, stack=1)
    is_one = isinstance(features.settings, VibrationSettings)
    rows = 1 if is_one else _ROWS
    network = _network(tmp_path, features.settings.width, rows, quant)
    file = _described(tmp_path, features, network, every)
    signal = _signal(features)
    wanted = features.windows(signal, rows, every).astype(np.float32)
    if quant is not None:
        steps = wanted / np.float32(quant[0])
        away = np.copysign(np.floor(np.abs(steps) + np.float32(0.5)), steps)
        wanted = np.clip(away + quant[1], -128, 127)
    found = _given(file, signal)
    assert len(found) >= 2
    np.testing.assert_array_equal(found, wanted.reshape(len(wanted), -1)[: len(found)])
    assert len(wanted) == len(found)


_WINDOWS: list[tuple[str, int, dict[str, Any]]] = [
    ("librosa-mfcc", 1100, {}),  # each frame reaches beyond both ends
    ("librosa-mfcc", 1700, {"frame": 300, "hop": 150, "fft": 512}),
    ("librosa-mel", 2001, {"fft": 400, "frame": 400, "hop": 160}),
    ("torchaudio-mel", 999, {}),
    ("torchaudio-mfcc", 1000, {"tail": "zero", "hop": 300}),
    ("torchaudio-mel", 1201, {"preemphasis": 0.97, "preemphasis_over": "frame", "remove_mean": True}),
    ("mlperf-kws", 1439, {}),  # the greatest sample may be behind the last frame
    ("mlperf-kws", 1439, {"tail": "zero", "pad": "zero", "window_at": "middle"}),
    ("python-speech-features", 0, {"deltas": [1]}),
    ("kaldi-fbank", 1111, {"arithmetic": "int32", "pad": "reflect", "window_at": "middle"}),
]


@pytest.mark.parametrize("every", [1, 2, 99])
@pytest.mark.parametrize(("preset", "length", "changes"), _WINDOWS)
def test_whole_windows(preset: str, length: int, changes: dict[str, Any], every: int, tmp_path: Path) -> None:
    """Windows of a given length, padded or not, as ``transform`` computes them of a clip."""
    features = Features(preset, per="window", length=length, **changes)
    signal = _signal(features)
    signal = np.concatenate([signal, signal, signal])
    rows = len(features.transform(signal[: length or 1000]))
    network = _network(tmp_path, features.settings.width, rows, None)
    given = {"per": "window", "length": length, **changes}
    more = "\n".join(f"{key} = {json.dumps(value)}" for key, value in given.items())
    every = min(every, rows)
    found = _given(_described(tmp_path, features, network, every, more), signal)
    wanted = features.windows(signal, rows, every)
    assert len(found) >= 2
    np.testing.assert_array_equal(found, wanted.reshape(len(wanted), -1))


def test_codes_of_a_preset_go_to_a_network_that_has_them(tmp_path: Path) -> None:
    features = Features("mlperf-sww")
    settings = features.settings
    assert isinstance(settings, MelSettings)
    network = _network(tmp_path, settings.width, 1, (settings.quantum * 1.001, settings.zero_point))
    signal = _signal(features)
    found = _given(_described(tmp_path, features, network, 1), signal)
    np.testing.assert_array_equal(found, features.quantized(signal)[: len(found)])


def test_a_longer_signal_of_vibrations_is_cut_as_a_pipeline_cuts_it() -> None:
    features = Features("edge-impulse-flatten")
    s = features.settings
    assert isinstance(s, VibrationSettings)
    signal = np.random.default_rng(1).normal(size=(s.frame + 2 * s.hop, 3)).astype(np.float32)
    each = [features.transform(signal[i * s.hop : i * s.hop + s.frame]) for i in range(3)]
    np.testing.assert_array_equal(features.transform(signal), each)
    np.testing.assert_array_equal(features.windows(signal, 1)[:, 0], each)


def test_what_has_no_windows() -> None:
    with pytest.raises(UsageError, match="pictures have no windows"):
        Features("image").windows(np.zeros((4, 4, 3), np.uint8), 1)
    for preset in _PADDED:
        with pytest.raises(UsageError, match="depend on its number of samples") as error:
            Features(preset).windows(np.zeros(90000, np.int16), 7)
        hop = 512 if preset == "librosa-mfcc" else 200
        assert error.value.hint == f"set length: for 7 rows, from {6 * hop} to {7 * hop - 1} samples"
    with pytest.raises(UsageError, match="16000 samples make 81 rows, but the network takes 80"):
        Features("torchaudio-mel", length=16000).windows(np.zeros(90000, np.int16), 80)
    with pytest.raises(UsageError, match="a length is that of a window"):
        Features("mlperf-sww", length=16000)
    with pytest.raises(UsageError, match="padding at the ends of a window is not known to the sample before"):
        Features("torchaudio-mel", length=16000, preemphasis=0.97).windows(np.zeros(90000, np.int16), 81)
    with pytest.raises(UsageError, match="rows of features are fewer than the 70 of a window"):
        Features("mlperf-sww").windows(np.zeros(5000, np.int16), 70)
