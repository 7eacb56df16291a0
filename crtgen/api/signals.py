"""A pipeline from Python: samples to events, by numpy on this computer or on a board."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import numpy as np

from crtgen.api.model import Model, load
from crtgen.base.errors import MismatchError, UsageError
from crtgen.boards import Board
from crtgen.compiler.request import RequestFields
from crtgen.device.run import Site
from crtgen.network.ir import Array, DType
from crtgen.network.pipeline import Event, JoinedPipeline, events_of, runs_of

__all__ = ["Pipeline"]

# Float32 outputs may differ by this fraction of the largest one.
_CLOSE = 1e-5


class Pipeline:
    """The pipeline in a file.

    Samples are those of its sensor: int16 audio, float32 axes, or rows of frames. Without a ``board`` numpy
    computes the pipeline; ``host`` compiles the C code for this computer. Options are those of
    ``crtgen.compile``.
    """

    def __init__(self, source: str | Path) -> None:
        model = load(source)
        if not isinstance(model, Model) or model.pipeline is None:
            raise UsageError(
                "the file is not a pipeline", where=str(source), hint="docs/pipelines.md shows one"
            )
        self.model = model
        self.joined: JoinedPipeline = model.pipeline

    def __repr__(self) -> str:
        return f"<Pipeline {self.model.name}: a run every {self.joined.hop} samples>"

    def outputs(
        self,
        samples: Array,
        board: str | Board | None = None,
        site: Site | None = None,
        **choices: Unpack[RequestFields],
    ) -> list[Array]:
        """Return the outputs of each run: those of the network, or the features if there is none.

        ``site`` says how to reach a board.
        """
        wanted = self.joined.samples
        if samples.dtype != wanted.dtype.numpy or samples.shape[1:] != wanted.shape[1:]:
            what = f"samples of {samples.dtype}, shape {samples.shape}"
            hint = f"{wanted.dtype.value}, [samples{''.join(f', {n}' for n in wanted.shape[1:])}]"
            raise UsageError(what, where=self.model.name, hint=hint)
        runs = runs_of(self.joined, samples)
        if board is None:
            return [y[0] for y in self.model.graph.run([[run] for run in runs])]
        with (
            self.model.compile(board, **choices).generate().build().run(counting=False, site=site) as session
        ):
            return [session.infer(run)[0] for run in runs]

    def events(
        self,
        samples: Array,
        board: str | Board | None = None,
        site: Site | None = None,
        **choices: Unpack[RequestFields],
    ) -> list[Event]:
        """Return the events in the samples. Raises ``UsageError`` for a pipeline without a decision."""
        return events_of(self.joined, self.outputs(samples, board, site, **choices))

    def verify(
        self,
        samples: Array,
        board: str | Board = "host",
        site: Site | None = None,
        **choices: Unpack[RequestFields],
    ) -> int:
        """Compare outputs and events of a board with numpy's, run by run, and return the number of runs.

        Raises ``MismatchError`` at the first difference. Float32 outputs may differ by 1e-5 of the largest.
        """
        expected = self.outputs(samples)
        made = self.outputs(samples, board, site, **choices)
        for number, (want, got) in enumerate(zip(expected, made, strict=True)):
            if not _alike(want, got):
                what = f"the outputs of run {number} are others than those of the reference"
                raise MismatchError(what, where=self.model.name)
        if self.joined.decision is not None and not _same(self.joined, expected, made):
            raise MismatchError("the events differ from those of the reference", where=self.model.name)
        return len(made)


def _alike(want: Array, got: Array) -> bool:
    if want.dtype != DType.FLOAT32.numpy:
        return np.array_equal(want, got)
    limit = _CLOSE * float(np.abs(want).max(initial=0.0))
    return bool((np.abs(want.astype(np.float64) - got.astype(np.float64)) <= limit).all())


def _same(pipeline: JoinedPipeline, expected: Sequence[Array], made: Sequence[Array]) -> bool:
    pairs = [[(e.sample, e.label) for e in events_of(pipeline, outputs)] for outputs in (expected, made)]
    return pairs[0] == pairs[1]
