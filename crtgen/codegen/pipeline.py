"""The C around a pipeline's model: samples come in, in any number, and events go out."""

from collections.abc import Mapping
from dataclasses import dataclass

from crtgen.codegen.module import Interface, ModelInfo
from crtgen.codegen.names import c_string, unique_identifiers
from crtgen.codegen.render import render
from crtgen.ir import DType
from crtgen.kernels.literal import c_float
from crtgen.pipeline import Decision, Pipeline, least_sum, runs_in

__all__ = ["pipeline_files"]


@dataclass(frozen=True, slots=True)
class _Label:
    """A label's name as the end of a macro, and as a string of C."""

    macro: str
    text: str


@dataclass(frozen=True, slots=True)
class _DecisionView:
    """A decision in runs: ``above`` is a comparison in C, ``before`` are runs that are not decided on."""

    labels: tuple[int, ...]
    average: int
    patience: int
    quiet: int
    before: int
    above: str


@dataclass(frozen=True, slots=True)
class _PipelineView:
    """What the templates read; ``frame_width`` are pixels of a row of a camera, whose rows are samples."""

    name: str
    macro: str
    rate: int
    type: str
    axes: int
    span: int
    hop: int
    before: int
    skip: int
    warm: int
    states: bool
    output: str
    output_type: str
    score_type: str
    labels: tuple[_Label, ...]
    decision: _DecisionView | None
    frame_width: int = 0
    input: str = ""

    @property
    def fills_input(self) -> bool:
        """Whether samples may be written to the model's input: none of a run belongs to another one."""
        return self.hop == self.span and not self.before

    @property
    def first(self) -> int:
        """Samples until the first run."""
        return self.span - self.before + self.skip


def pipeline_files(pipeline: Pipeline, info: ModelInfo, *, states: bool) -> Mapping[str, str]:
    """``<name>_pipeline.h`` and ``.c``, which call the model; ``states`` says whether it has any."""
    output = info.outputs[0]
    is_real = output.dtype is DType.FLOAT32
    chosen = pipeline.decision
    names = () if chosen is None else chosen.names
    view = _PipelineView(
        name=info.name,
        macro=info.name.upper(),
        rate=pipeline.rate,
        type=pipeline.samples.dtype.c_name,
        axes=pipeline.samples.elements // pipeline.span,
        span=pipeline.span,
        hop=pipeline.hop,
        before=pipeline.before,
        skip=pipeline.skip,
        warm=pipeline.warm,
        states=states,
        output=output.c_name,
        output_type=output.dtype.c_name,
        score_type="float" if is_real else "int32_t",
        labels=tuple(
            _Label(macro, c_string(n)) for n, macro in unique_identifiers(names, upper=True).items()
        ),
        decision=None if chosen is None else _decision(chosen, pipeline, output),
        frame_width=pipeline.samples.shape[1] if pipeline.is_camera else 0,
        input=info.inputs[0].c_name,
    )
    return {
        f"{info.name}_pipeline.h": render("pipeline.h.j2", v=view),
        f"{info.name}_pipeline.c": render("pipeline.c.j2", v=view),
    }


def _decision(decision: Decision, pipeline: Pipeline, output: Interface) -> _DecisionView:
    if output.dtype is DType.FLOAT32:
        above = f"> ({c_float(decision.above)} * {c_float(decision.average)})"
    else:
        above = f">= {least_sum(pipeline.output, decision)}"

    return _DecisionView(
        labels=decision.labels or tuple(range(pipeline.output.elements)),
        average=decision.average,
        patience=decision.patience,
        quiet=runs_in(decision.quiet, pipeline.rate, pipeline.hop),
        before=max(decision.average - 1, runs_in(decision.ignore, pipeline.rate, pipeline.hop)),
        above=above,
    )
