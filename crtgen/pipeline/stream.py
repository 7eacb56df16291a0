"""A recording as the runs of a pipeline, and the events in what came out."""

import wave
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crtgen import files
from crtgen.errors import UsageError
from crtgen.features import ImageSettings
from crtgen.files import PICTURES
from crtgen.ir import Array, DType, Value
from crtgen.pipeline.decider import Decider, Event
from crtgen.pipeline.frames import read_picture
from crtgen.pipeline.join import JoinedPipeline

__all__ = ["events_of", "read_samples", "runs_of", "times_of"]

Shorts = npt.NDArray[np.int16]


def read_samples(path: Path, pipeline: JoinedPipeline) -> Array:
    """The samples in a file: WAV of one channel of int16 at the pipeline's rate, or an array in a ``.npy``.

    Of a camera the rows of frames: a picture is one, an array ``[frames, H, W, ...]`` or of one frame.
    Raises ``UsageError`` for any other.
    """
    if isinstance(pipeline.settings, ImageSettings):
        return _frames(path, pipeline.settings, pipeline.samples)
    data = files.read(path, "the recording")
    if path.suffix.lower() == ".npy":
        return _array(path, data, pipeline.samples)
    if pipeline.samples.dtype is not DType.INT16:
        raise UsageError("it is no recording of a sensor with axes", where=str(path), hint="give a .npy")
    return _sound(path, data, pipeline.rate)


def _sound(path: Path, data: bytes, rate: int) -> Shorts:
    try:
        with wave.open(BytesIO(data)) as sound:
            form = (sound.getnchannels(), 8 * sound.getsampwidth(), sound.getframerate())
            frames = sound.readframes(sound.getnframes())
    except (wave.Error, EOFError, ValueError) as error:
        hint = "export it as WAV, 16 bits, one channel"
        raise UsageError(f"the sound cannot be read: {error}", where=str(path), hint=hint) from error
    if form != (1, 16, rate):
        what = f"it has {form[0]} channels of {form[1]} bits at {form[2]} Hz"
        hint = f"convert it to one channel of 16 bits at {rate} Hz: another rate gives other features"
        raise UsageError(what, where=str(path), hint=hint)
    return np.frombuffer(frames[: len(frames) // 2 * 2], "<i2").astype(np.int16)


def _frames(path: Path, settings: ImageSettings, wanted: Value) -> Array:
    if path.suffix.lower() in PICTURES:
        return read_picture(path, settings)
    array = _loaded(path, files.read(path, "the frames"))
    several = array.shape[1:] == wanted.shape
    if array.dtype != wanted.dtype.numpy or not (several or array.shape == wanted.shape):
        what = f"it is no frame of {wanted.dtype.value} and shape {list(wanted.shape)}"
        raise UsageError(what, where=str(path), hint="one frame or several in a .npy, or a picture")
    return array.reshape(-1, *wanted.shape[1:])


def _loaded(path: Path, data: bytes) -> Array:
    try:
        array = np.load(BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise UsageError(f"the samples cannot be read: {error}", where=str(path)) from error
    return np.asarray(array)


def _array(path: Path, data: bytes, wanted: Value) -> Array:
    array = _loaded(path, data)
    if array.dtype != wanted.dtype.numpy or not array.ndim or array.shape[1:] != wanted.shape[1:]:
        axes = "".join(f", {length}" for length in wanted.shape[1:])
        what = f"it is no array of {wanted.dtype.value}"
        raise UsageError(what, where=str(path), hint=f"its shape is [samples{axes}]")
    return array


def runs_of(pipeline: JoinedPipeline, samples: Array) -> list[Array]:
    """The samples of each run. Raises ``UsageError`` for fewer samples than the first run needs."""
    given = samples[pipeline.skip :]
    signal = np.concatenate([np.zeros((pipeline.before, *given.shape[1:]), given.dtype), given])
    count = (len(signal) - pipeline.span) // pipeline.hop + 1
    if len(signal) < pipeline.span:
        needed = pipeline.span - pipeline.before + pipeline.skip
        raise UsageError(f"{len(samples)} samples are fewer than the {needed} of the first run")
    return [signal[i * pipeline.hop : i * pipeline.hop + pipeline.span] for i in range(count)]


def times_of(pipeline: JoinedPipeline) -> Iterator[int]:
    """The number of the last sample of each run, counted from 1."""
    sample = pipeline.span - pipeline.before + pipeline.skip
    while True:
        yield sample
        sample += pipeline.hop


def events_of(pipeline: JoinedPipeline, outputs: Sequence[Array]) -> list[Event]:
    """The events in the outputs of runs one after the other, from the first one on.

    Raises ``UsageError`` for a pipeline that decides nothing.
    """
    if pipeline.decision is None:
        raise UsageError("it has no [decision]", where=pipeline.graph.name)
    size = pipeline.picture
    decider = Decider(pipeline.decision, pipeline.output, pipeline.rate, pipeline.hop, *size)
    pairs = list(zip(outputs, times_of(pipeline), strict=False))[pipeline.warm :]
    return [event for output, sample in pairs if (event := decider.decide(output, sample)) is not None]
