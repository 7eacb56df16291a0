"""The C code around a pipeline's model: takes any number of samples, and reports events."""

from collections.abc import Mapping
from dataclasses import dataclass

from crtgen.compiler.codegen.module import Interface, ModelInfo
from crtgen.compiler.codegen.names import c_string, unique_identifiers
from crtgen.compiler.codegen.render import render
from crtgen.compiler.kernels.engine.literal import c_float
from crtgen.network.ir import DType
from crtgen.network.pipeline import Decision, Finder, JoinedPipeline, least_sum, runs_in

__all__ = ["pipeline_files"]


@dataclass(frozen=True, slots=True)
class _Label:
    macro: str
    text: str


@dataclass(frozen=True, slots=True)
class _GateView:
    """A gate: ``limits`` are the smallest sums of 1 to ``average`` integers that exceed the threshold; none
    for floats.
    """

    place: int
    average: int
    above: str
    limits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _DecisionView:
    """A decision, with durations in runs: ``above`` is a comparison in C, ``before`` is the number of runs
    without a decision.

    ``limits`` are the smallest sums of ``least`` to ``average`` scores that exceed the threshold; for floats
    there is a single limit, as text.
    """

    labels: tuple[int, ...]
    average: int
    least: int
    limits: tuple[int | str, ...]
    patience: int
    vote: int
    quiet: int
    quiet_of_label: bool
    before: int
    above: str
    top: int
    gate: _GateView | None


@dataclass(frozen=True, slots=True)
class _BoxesView:
    # Box decoding; ``corner`` and ``size`` convert integers to real values.
    kind: str
    unit: str
    order: str
    most: int
    candidates: int
    labels: tuple[int, ...]
    rows: int
    row_step: int
    step: int
    first: int
    columns: int
    across: int
    down: int
    has_objectness: bool
    is_real: bool
    type: str
    wide: str
    above: str
    less_zero: str
    overlap: str
    share: int
    corner: str
    size: str
    real_score: str


@dataclass(frozen=True, slots=True)
class _PipelineView:
    # View for the templates; ``frame_width`` is the row length in pixels of a camera whose samples are rows.
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
    boxes: _BoxesView | None = None
    frame_width: int = 0
    input: str = ""

    @property
    def fills_input(self) -> bool:
        """True if samples are collected in the model's input; False if other code reads its rows."""
        return self.frame_width > 0 or self.decision is not None or self.boxes is not None

    @property
    def kept(self) -> int:
        # Samples of a run that the next one gets, too.
        return self.span - self.hop

    @property
    def first(self) -> int:
        return self.span - self.before + self.skip


def pipeline_files(
    pipeline: JoinedPipeline, info: ModelInfo, *, states: bool
) -> tuple[Mapping[str, str], str]:
    """Return ``<name>_pipeline.h`` and ``.c``, which call the model, and an example of a caller.

    ``states`` tells if the model has states.
    """
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
        decision=None if chosen is None or chosen.boxes else _decision(chosen, pipeline, output),
        boxes=_boxes(chosen, pipeline) if chosen is not None and chosen.boxes else None,
        frame_width=pipeline.samples.shape[1] if pipeline.is_camera else 0,
        input=info.inputs[0].c_name,
    )
    files = {
        f"{info.name}_pipeline.h": render("pipeline/pipeline.h.j2", v=view),
        f"{info.name}_pipeline.c": render("pipeline/pipeline.c.j2", v=view),
    }
    return files, render("pipeline/example.c.j2", v=view)


def _decision(decision: Decision, pipeline: JoinedPipeline, output: Interface) -> _DecisionView:
    is_real = output.dtype is DType.FLOAT32
    least = decision.least or decision.average
    counts = range(least, decision.average + 1) if least < decision.average else ()
    count = "(float)pipeline.kept" if counts else c_float(decision.average)
    if is_real:
        above = f"> ({c_float(decision.above)} * {count})"
        limits: tuple[int | str, ...] = (above,) if counts else ()
    else:
        above = f">= {least_sum(pipeline.output, decision.above, decision.average)}"
        limits = tuple(least_sum(pipeline.output, decision.above, n) for n in counts)
    return _DecisionView(
        labels=decision.labels or tuple(range(pipeline.output.elements - (decision.gate is not None))),
        average=decision.average,
        least=least,
        limits=limits,
        patience=decision.patience,
        vote=decision.vote,
        quiet=runs_in(decision.quiet, pipeline.rate, pipeline.hop),
        quiet_of_label=decision.quiet_of == "label",
        before=max(least - 1, runs_in(decision.ignore, pipeline.rate, pipeline.hop)),
        above=above,
        top=decision.top,
        gate=_gate(decision, pipeline, is_real),
    )


def _gate(decision: Decision, pipeline: JoinedPipeline, is_real: bool) -> _GateView | None:
    gate = decision.gate
    if gate is None:
        return None
    counts = () if is_real else range(1, gate.average + 1)
    limits = tuple(least_sum(pipeline.output, gate.above, n) for n in counts)
    return _GateView(pipeline.output.elements - 1, gate.average, c_float(gate.above), limits)


def _boxes(decision: Decision, pipeline: JoinedPipeline) -> _BoxesView:
    found = Finder.of(decision, pipeline.output, *pipeline.picture)
    layout, boxes, is_real = found.layout, found.boxes, found.is_real
    is_grid = boxes.kind == "fomo"

    def scaled(scale: float) -> str:
        return "" if is_real else f"{c_float(scale)} * (float)"

    return _BoxesView(
        kind=boxes.kind,
        unit="pixels of what the network gets" if is_grid else "the network's own",
        order="from above to below" if is_grid else "the best one first",
        most=boxes.most,
        candidates=found.candidates,
        labels=found.labels,
        rows=layout.rows,
        row_step=layout.row_step,
        step=layout.step,
        first=layout.first,
        columns=layout.columns,
        across=found.cell[0],
        down=found.cell[1],
        has_objectness=layout.has_objectness,
        is_real=is_real,
        type="float" if is_real else "int32_t",
        wide="float" if is_real else "int64_t",
        above=f"> {c_float(found.above)}" if is_real else f">= {found.least}",
        less_zero=_less(0 if is_real else found.zero),
        overlap=c_float(boxes.overlap),
        share=found.share,
        corner=scaled(found.scale / 2),
        size=scaled(found.scale),
        real_score=scaled(found.score_scale),
    )


def _less(zero: int) -> str:
    return "" if zero == 0 else f" - ({zero})"
