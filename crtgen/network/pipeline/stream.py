"""Cuts a recording into the runs of a pipeline, and finds the events in their outputs."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from crtgen.base.errors import UsageError
from crtgen.base.files import PICTURES
from crtgen.base.formats.arrays import read_array
from crtgen.base.formats.sounds import read_wav
from crtgen.network.features import ImageSettings
from crtgen.network.ir import Array, DType, Value
from crtgen.network.pipeline.decider import Decider, Event
from crtgen.network.pipeline.frames import read_picture
from crtgen.network.pipeline.join import JoinedPipeline

__all__ = ["events_of", "read_samples", "runs_of", "times_of"]


def read_samples(path: Path, pipeline: JoinedPipeline) -> Array:
    """Return the samples in a file: a mono int16 WAV at the pipeline's rate, or an array in a ``.npy``.

    For a camera, return the rows of frames: a picture is one frame, an array ``[frames, H, W, ...]`` has
    several or one. Raises ``UsageError`` for any other file.
    """
    if isinstance(pipeline.settings, ImageSettings):
        return _frames(path, pipeline.settings, pipeline.samples)
    if path.suffix.lower() == ".npy":
        return _array(path, pipeline.samples)
    if pipeline.samples.dtype is not DType.INT16:
        raise UsageError(
            "the file is not a recording of a sensor with axes", where=str(path), hint="give a .npy"
        )
    return np.frombuffer(read_wav(path, 1, 16, pipeline.rate), "<i2").astype(np.int16)


def _frames(path: Path, settings: ImageSettings, wanted: Value) -> Array:
    if path.suffix.lower() in PICTURES:
        return read_picture(path, settings)
    array = read_array(path, "the frames")
    several = array.shape[1:] == wanted.shape
    if array.dtype != wanted.dtype.numpy or not (several or array.shape == wanted.shape):
        what = f"it is no frame of {wanted.dtype.value} and shape {list(wanted.shape)}"
        raise UsageError(what, where=str(path), hint="one frame or several in a .npy, or a picture")
    return array.reshape(-1, *wanted.shape[1:])


def _array(path: Path, wanted: Value) -> Array:
    array = read_array(path, "the samples")
    if array.dtype != wanted.dtype.numpy or not array.ndim or array.shape[1:] != wanted.shape[1:]:
        axes = "".join(f", {length}" for length in wanted.shape[1:])
        what = f"it is no array of {wanted.dtype.value}"
        raise UsageError(what, where=str(path), hint=f"its shape is [samples{axes}]")
    return array


def runs_of(pipeline: JoinedPipeline, samples: Array) -> list[Array]:
    """Return the samples of each run. Raises ``UsageError`` for fewer samples than the first run needs."""
    given = samples[pipeline.skip :]
    signal = np.concatenate([np.zeros((pipeline.before, *given.shape[1:]), given.dtype), given])
    count = (len(signal) - pipeline.span) // pipeline.hop + 1
    if len(signal) < pipeline.span:
        needed = pipeline.span - pipeline.before + pipeline.skip
        raise UsageError(
            f"{len(samples)} samples are fewer than the {needed} of the first run",
            hint="give a longer recording",
        )
    return [signal[i * pipeline.hop : i * pipeline.hop + pipeline.span] for i in range(count)]


def times_of(pipeline: JoinedPipeline) -> Iterator[int]:
    """Yield the index of the last sample of each run, counted from 1."""
    sample = pipeline.span - pipeline.before + pipeline.skip
    while True:
        yield sample
        sample += pipeline.hop


def events_of(pipeline: JoinedPipeline, outputs: Sequence[Array]) -> list[Event]:
    """Find the events in the outputs of consecutive runs, starting with the first run.

    Raises ``UsageError`` for a pipeline without a decision.
    """
    if pipeline.decision is None:
        raise UsageError(
            "the pipeline has no [decision]", where=pipeline.graph.name, hint="add a [decision] table"
        )
    size = pipeline.picture
    decider = Decider(pipeline.decision, pipeline.output, pipeline.rate, pipeline.hop, *size)
    pairs = list(zip(outputs, times_of(pipeline), strict=False))[pipeline.warm :]
    return [event for output, sample in pairs if (event := decider.decide(output, sample)) is not None]
