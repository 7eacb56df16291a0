"""Assembles a report from the compiled model, its plan and its image."""

from collections.abc import Iterator, Sequence

from crtgen.api.report.report import ArenaPlace, Report, ReportedLayer
from crtgen.base.errors import UnsupportedError
from crtgen.boards import Board, silicon_range
from crtgen.compiler.byoc import External
from crtgen.compiler.codegen.module import LayerInfo, ModelInfo, cycles_of
from crtgen.compiler.kernels import Target, select
from crtgen.compiler.plan import Call, Lifetime, Plan, Step, lifetimes
from crtgen.firmware.builder import SizeReport
from crtgen.firmware.builder.layers import LayerSize
from crtgen.network.ir import DType, Graph

__all__ = ["reports_of"]


def reports_of(
    models: Sequence[ModelInfo],
    board: Board,
    optimize: str,
    plans: Sequence[Plan] = (),
    image: SizeReport | None = None,
) -> tuple[Report, ...]:
    """Return a report of each model of an image. Imported code has no plan, so its values are unknown."""
    planned = {plan.graph.name: plan for plan in plans}
    return tuple(_report(info, board, optimize, planned.get(info.name), image) for info in models)


def _report(
    info: ModelInfo, board: Board, optimize: str, plan: Plan | None, image: SizeReport | None
) -> Report:
    steps = {step.name: step for step in plan.steps} if plan else {}
    sizes = image.layers[info.name] if image else [None] * len(info.layers)
    graph = plan.graph if plan else None
    rows = zip(info.layers, sizes, strict=True)
    code = board.reads(board.code) if board.memories else None
    target = Target(board.core, optimize, code=code, constants=code)
    return Report(
        model=info.name,
        board=board.name,
        optimize=optimize,
        inputs=info.inputs,
        outputs=info.outputs,
        macs=info.macs,
        weights_bytes=info.weights,
        arena_bytes=info.arena,
        arena_lower_bound=info.lower_bound,
        arena_optimal=info.optimal,
        layers=tuple(_layer(layer, graph, steps.get(layer.name), size, target) for layer, size in rows),
        graph=str(plan.graph) if plan else None,
        arena=tuple(_place(plan.graph, life) for life in lifetimes(plan)) if plan else None,
        state_bytes=info.state,
        states=tuple(_states(plan)) if plan else None,
        image=image,
        cycles_estimated=cycles_of(info.layers) if info.layers else None,
        pj_per_cycle=board.energy.pj_per_cycle if board.energy else None,
        silicon=sum(silicon_range(board.core)) / 2,
        flash_bytes=image.sizes.library_flash if image else None,
        parts=dict(plan.parts) if plan else {},
    )


def _layer(
    info: LayerInfo, graph: Graph | None, step: Step | None, size: LayerSize | None, target: Target
) -> ReportedLayer:
    return ReportedLayer(
        name=info.name,
        operator=info.operator,
        kernel=info.kernel,
        function=info.function,
        macs=info.macs,
        cycles_estimated=info.cycles,
        inputs=step.inputs if step else None,
        outputs=step.outputs if step else None,
        shape=graph.values[step.outputs[0]].shape if graph and step and step.outputs else None,
        is_float32=_is_float32(graph, step) if graph and step else None,
        weights_bytes=_weights(graph, step) if graph and step else None,
        instructions_estimated=round(step.kernel.cost.instructions) if step else None,
        scratch=step.scratch if step else None,
        npu_cycles=step.kernel.estimate if step else None,
        core_cycles=_on_core(step, target) if step else None,
        code_bytes=size.code if size else None,
        shared_by=size.shared_by if size else None,
        constants_bytes=size.constants if size else None,
        stack_bytes=size.stack if size else None,
        loop=info.operators,
    )


def _on_core(step: Step, target: Target) -> int | None:
    # Cycles of the core for a layer that an NPU computes; None if a kernel or its estimate is missing.
    if step.kernel.estimate is None or not isinstance(step.item, Call):
        return None
    op = step.item.node.op
    assert isinstance(op, External)
    try:
        cycles = [kernel.cycles for kernel in select(op.subgraph, target).values()]
    except UnsupportedError:
        return None
    known = [count for count in cycles if count is not None]
    return round(sum(known)) if len(known) == len(cycles) else None


def _is_float32(graph: Graph, step: Step) -> bool:
    return any(graph.values[name].dtype is DType.FLOAT32 for name in (*step.inputs, *step.outputs))


def _weights(graph: Graph, step: Step) -> int:
    # Bytes of a layer's constants as the model has them.
    values = (graph.values[name] for name in step.inputs)
    return sum(value.nbytes for value in values if value.is_constant)


def _states(plan: Plan) -> Iterator[ArenaPlace]:
    # They are alive from before the first step to after the last.
    for name, slot in plan.states.items():
        value, end = plan.graph.values[name], len(plan.steps) + 1
        yield ArenaPlace(name, slot.offset, slot.size, 0, end, shape=value.shape, dtype=value.dtype)


def _place(graph: Graph, life: Lifetime) -> ArenaPlace:
    slot = life.slot
    place = ArenaPlace(life.name, slot.offset, slot.size, life.first, life.last, part=slot.part)
    if life.is_scratch:
        return place
    value = graph.values[life.name]
    return ArenaPlace(
        name=life.name,
        offset=slot.offset,
        nbytes=slot.size,
        first=life.first,
        last=life.last,
        shape=value.shape,
        dtype=value.dtype,
        alias_of=life.alias_of,
        part=slot.part,
    )
