"""The subject of an evaluation: a pipeline or a network, and how data become its runs and scores."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crtgen import api
from crtgen.base.errors import UsageError
from crtgen.device.session import Session
from crtgen.lab.measure.cases import interface_of, read_inputs, runs_in_array
from crtgen.lab.measure.labelled import Clip
from crtgen.lab.measure.media import Scaling
from crtgen.network.ir import Array, Value
from crtgen.network.pipeline import JoinedPipeline, read_samples, runs_of, signals_of

__all__ = ["Run", "Subject", "reference", "run_of", "runs_in", "seen_by"]

Run = Callable[[Sequence[Array]], list[Array]]
"""A function that runs a model on inputs one after the other, after a reset, and returns its first
outputs.
"""

_AS_IT_SUITS = Scaling()


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A model under evaluation: a pipeline, or a network with output ``names``.

    ``scaling`` converts the pixels of a picture to the real inputs of a network.
    """

    model: api.Model
    names: tuple[str, ...]
    scaling: Scaling = _AS_IT_SUITS

    @classmethod
    def of(cls, model: api.Model, names: Sequence[str] = (), scaling: Scaling = _AS_IT_SUITS) -> "Subject":
        """Return the subject. Raises ``UsageError`` for a pipeline that does not decide on scores, and for
        other names.
        """
        pipeline = model.pipeline
        if pipeline is None:
            if len(model.inputs) != 1:
                raise UsageError(
                    f"the model has {len(model.inputs)} inputs, expected one",
                    where=model.name,
                    hint="name a model with one input, or a pipeline",
                )
            made = cls(model, tuple(names), scaling)
        else:
            if pipeline.decision is None or pipeline.decision.boxes is not None:
                hint = "describe features, network and a decision on scores: docs/pipelines.md"
                raise UsageError("the pipeline has no decision on scores", where=model.name, hint=hint)
            if names or scaling != _AS_IT_SUITS:
                raise UsageError(
                    "a pipeline has its own labels and pixels",
                    where=model.name,
                    hint="leave --labels, --mean and --std out",
                )
            made = cls(model, pipeline.decision.names, scaling)
        if made.names and len(made.names) != max(made.count, 2):
            raise UsageError(
                f"{len(made.names)} labels for {made.count} outputs",
                where=model.name,
                hint="give one label per output, each on its own line",
            )
        return made

    @property
    def pipeline(self) -> JoinedPipeline | None:
        return self.model.pipeline

    @property
    def output(self) -> Value:
        return self.model.outputs[0]

    @property
    def count(self) -> int:
        gate = (
            self.pipeline is not None and self.pipeline.decision is not None and self.pipeline.decision.gate
        )
        return self.output.elements - bool(gate)

    @property
    def is_anomaly(self) -> bool:
        """True if its score tells how unusual an input is; a network does this if it reproduces its input."""
        if self.pipeline is not None:
            return self.pipeline.decision is not None and bool(self.pipeline.decision.anomaly)
        return self.output.elements == self.model.inputs[0].elements

    def runs(self, clip: Clip) -> list[Array]:
        if self.pipeline is not None:
            data = clip.data
            samples = read_samples(data, self.pipeline) if isinstance(data, Path) else data
            return runs_in(self.pipeline, samples, clip.where)
        interface = interface_of(self.model.inputs[0])
        if isinstance(clip.data, Path):
            runs = read_inputs(clip.data, [interface], quantize=True, scaling=self.scaling).runs
            return [run[0] for run in runs]
        return list(runs_in_array(clip.data, interface, clip.where, quantize=True))

    def scores(self, clip: Clip, run: Run) -> npt.NDArray[np.float64]:
        inputs = self.runs(clip)
        outputs = run(inputs)
        warm = self.pipeline.warm if self.pipeline is not None else 0
        scores = np.array([_real(y, self.output).ravel()[: self.count] for y in outputs[warm:]])
        if self.pipeline is not None or not self.is_anomaly:
            return scores
        given = np.array([_real(x, self.model.inputs[0]).ravel() for x in inputs])
        squares: npt.NDArray[np.float64] = np.square(given - scores).mean(axis=1, keepdims=True)
        return squares


def _real(stored: Array, value: Value) -> npt.NDArray[np.float64]:
    quant = value.quant
    real = np.asarray(stored, np.float64)
    return real if quant is None else (real - quant.zero_point) * quant.scale


def runs_in(pipeline: JoinedPipeline, samples: Array, where: str) -> list[Array]:
    """Return the samples of each run; ``where`` names their file in errors.

    Raises ``UsageError`` if the samples are of another type or shape, or too few to fill the first window.
    """
    if samples.dtype != pipeline.samples.dtype.numpy or samples.shape[1:] != pipeline.samples.shape[1:]:
        wanted = pipeline.samples
        what = (
            f"samples of {samples.dtype}, shape {samples.shape}, where the sensor gives {wanted.dtype.value}"
        )
        raise UsageError(what, where=where, hint="record or convert the data again: docs/pipelines.md")
    try:
        runs = runs_of(pipeline, samples)
    except UsageError as error:
        error.where = error.where or where
        raise
    if len(runs) <= pipeline.warm:
        needed = pipeline.span - pipeline.before + pipeline.warm * pipeline.hop
        what = f"{len(samples)} samples are fewer than the {needed} that fill the network's window"
        raise UsageError(what, where=where, hint="take longer recordings, or run the network more often")
    return runs


def reference(model: api.Model) -> Run:
    def run(inputs: Sequence[Array]) -> list[Array]:
        return [y[0] for y in model.graph.run([[x] for x in inputs])]

    return run


def run_of(session: Session) -> Run:
    def run(inputs: Sequence[Array]) -> list[Array]:
        session.reset()
        return [session.infer(samples)[0] for samples in inputs]

    return run


def seen_by(run: Run, pipeline: JoinedPipeline, signals: list[Array]) -> Run:
    def seeing(inputs: Sequence[Array]) -> list[Array]:
        signals.extend(signals_of(pipeline, inputs))
        return run(inputs)

    return seeing
