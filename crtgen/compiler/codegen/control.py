"""Control flow in C: branches and loops with the layers of their subgraphs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crtgen.compiler.codegen.arena import Arena
from crtgen.compiler.codegen.module import LayerInfo, OperatorInfo, cycles_of
from crtgen.compiler.codegen.names import comment
from crtgen.compiler.codegen.render import render
from crtgen.compiler.codegen.views import LayerView
from crtgen.compiler.plan import Branch, Plan, Step, WhileLoop

__all__ = ["Subgraph", "arenas_within", "control_layer"]


@dataclass(frozen=True, slots=True)
class Subgraph:
    plan: Plan
    arena: Arena
    layers: tuple[LayerView, ...]
    infos: tuple[LayerInfo, ...]

    @property
    def copies(self) -> tuple["CopyView", ...]:
        pairs = ((home, self.plan.graph.values[name]) for home, name in self.plan.copied)
        return tuple(
            CopyView(self.arena.home(home), self.arena.value(value.name), value.nbytes)
            for home, value in pairs
        )


@dataclass(frozen=True, slots=True)
class CopyView:
    to: str
    source: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class _ControlView:
    """A branch between ``blocks`` by ``condition``; or a loop, which copies ``first`` before it begins."""

    is_loop: bool
    condition: str
    blocks: tuple[Subgraph, ...]
    first: tuple[CopyView, ...]


def arenas_within(step: Step, arena: Arena) -> Iterator[tuple[Plan, Arena]]:
    given = [arena.value(name) for name in step.inputs]
    made = [arena.value(name) for name in step.outputs]
    if isinstance(step.item, Branch):
        outputs = {f"output {i}": place for i, place in enumerate(made)}
        for plan in step.item.plans:
            inputs = dict(zip(plan.graph.inputs, given[1:], strict=True))
            yield plan, arena.within(step, plan, {**inputs, **outputs})
    elif isinstance(step.item, WhileLoop):
        for plan in step.item.plans:
            inputs = dict(zip(plan.graph.inputs, (*made, *given[len(made) :]), strict=True))
            yield plan, arena.within(step, plan, inputs)


def control_layer(
    index: int, step: Step, plan: Plan, arena: Arena, blocks: Sequence[Subgraph]
) -> tuple[LayerView, LayerInfo]:
    sig, is_loop = plan.signature(step), isinstance(step.item, WhileLoop)
    asked = blocks[0].arena.value(blocks[0].plan.graph.outputs[0]) if is_loop else arena.value(sig.x.name)
    starts = zip(step.outputs, step.inputs, strict=False) if is_loop else ()
    first = tuple(
        CopyView(arena.value(to), arena.value(source), plan.graph.values[to].nbytes) for to, source in starts
    )
    view = _ControlView(is_loop, asked, tuple(blocks), first)
    text = f"step {index + 1}: {step.item.operator} {comment(step.name)}"
    infos = [info for block in blocks for info in block.infos]
    about = LayerInfo(
        name=step.name,
        operator=step.item.operator,
        kernel=step.kernel.design,
        macs=plan.macs(step),
        cycles=cycles_of(infos),
        consts=tuple(const for info in infos for const in info.consts),
        parts=tuple(dict.fromkeys(s for info in infos for s in (info.function, *info.parts) if s)),
        operators=tuple(_operators(blocks)),
    )
    return LayerView(index, text, render("control.c.j2", c=view).rstrip()), about


def _operators(blocks: Sequence[Subgraph]) -> Iterator[OperatorInfo]:
    # Those of the subgraphs, each with its share of the time of all of them together.
    steps = [step for block in blocks for step in block.plan.steps]
    total = sum(step.kernel.cost.time for step in steps) or 1
    infos = (info for block in blocks for info in block.infos)
    for step, info in zip(steps, infos, strict=True):
        share = step.kernel.cost.time / total
        for inner in info.operators:
            yield OperatorInfo(inner.name, inner.operator, inner.kernel, inner.macs, inner.share * share)
        if not info.operators:
            yield OperatorInfo(info.name, info.operator, info.kernel, info.macs, share)
