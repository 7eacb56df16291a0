"""Recordings for ``crtgen run``: the runs of a pipeline, and the events in its outputs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from crtgen.base.errors import UsageError
from crtgen.cli.groups import Files, Loaded
from crtgen.lab.measure.cases import Inputs
from crtgen.lab.measure.media import Scaling
from crtgen.network.ir import Array
from crtgen.network.pipeline import Event, JoinedPipeline, events_of, read_samples, runs_of

__all__ = ["Heard", "Recorded", "recorded_by"]


@dataclass(frozen=True, slots=True)
class Recorded:
    pipeline: JoinedPipeline
    loaded: Loaded

    def inputs(self, file: Path, quantize: bool, scaling: Scaling) -> Inputs:
        """Return the runs of a recording. Raises ``UsageError`` for options that a pipeline does not use."""
        pipeline = self.pipeline
        if quantize or scaling != Scaling():
            what = "a pipeline file already says what its network gets"
            hint = "leave --quantize-input, --mean and --std out: [features] says it"
            raise UsageError(what, where=pipeline.graph.name, hint=hint)
        samples = read_samples(file, pipeline)
        says = f"{file}, {len(samples) / pipeline.rate:.2f} s" if not pipeline.is_camera else ""
        says = says or f"{file}, {_count(len(samples) // pipeline.hop, 'frame')}"
        return Inputs(tuple((run,) for run in runs_of(pipeline, samples)), says, is_sequence=True)

    def heard(self, outputs: Sequence[Array]) -> "Heard | None":
        if self.pipeline.decision is None:
            return None
        return Heard(self.pipeline, self.pipeline.decision.names, events_of(self.pipeline, outputs))


@dataclass(frozen=True, slots=True)
class Heard:
    pipeline: JoinedPipeline
    names: Sequence[str]
    events: Sequence[Event]

    def value(self) -> dict[str, Any]:
        """Return the events as JSON, with the scores that ``above`` selects."""
        return {"events": [asdict(self._real(event)) for event in self.events]}

    def show(self, console: Console) -> None:
        pipeline = self.pipeline
        for event in map(self._real, self.events):
            at = f"frame {event.sample // pipeline.hop}" if pipeline.is_camera else ""
            at = at or f"{event.sample / pipeline.rate:8.3f} s"
            others = "".join(f"; {self._name(label)} {score:g}" for label, score in event.top[1:])
            console.print(f"  {at}  {self._name(event.label)}, score {event.score:g}{others}")
            for box in event.boxes:
                place = f"{box.width:g}x{box.height:g} at {box.x:g}, {box.y:g}"
                console.print(f"    {self._name(box.label)}, score {box.score:g}, {place}")
        console.print(f"  {_count(len(self.events), 'event')}")

    def _real(self, event: Event) -> Event:
        # Return the event with the dequantised mean of its scores, which ``above`` is compared with.
        if event.boxes:
            return event
        quant = self.pipeline.output.quant

        def real(total: float) -> float:
            mean = total / event.runs
            return mean if quant is None else (mean - quant.zero_point) * quant.scale

        return replace(event, score=real(event.score), top=tuple((n, real(each)) for n, each in event.top))

    def _name(self, label: int) -> str:
        return self.names[label] if label < len(self.names) else f"label {label}"


def recorded_by(source: Path, files: Files) -> Recorded | None:
    loaded = files.loaded(source)
    pipeline = loaded.model.pipeline
    return None if pipeline is None else Recorded(pipeline, loaded)


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"
