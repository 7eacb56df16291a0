"""The proof of a plan, from the definition: simulates a run and checks that no byte is lost.

Every byte of the arena has an owner, which is the value that it currently belongs to. Setting the inputs and
running a step transfer bytes to new owners; whenever a value is read, it must still own all of its bytes.
This shares no code and no notion of lifetime with the allocator.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from crtgen.base.errors import CrtgenError
from crtgen.compiler.plan.plan import Plan, Step
from crtgen.compiler.plan.slot import ArenaSlot

__all__ = ["check_plan"]

_NOBODY = -1
_WORD = 4


# A memory: ``arena`` with the name of a part (none for the arena itself), or ``home`` with a name.
_Memory = tuple[str, str]


class _Paper:
    """Simulated memory: the owner of each byte of the arena, of its parts and of each home; and each value's
    index.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.owner: dict[_Memory, npt.NDArray[np.int32]] = {}
        for part, size in (("", plan.arena), *((name, part.size) for name, part in plan.parts.items())):
            self.owner["arena", part] = np.full(size, _NOBODY, np.int32)
        for name, home in plan.homes.items():
            nbytes = plan.graph.values[name].nbytes
            memory = "home", home
            if memory in self.owner and len(self.owner[memory]) != nbytes:
                raise self.fail(f"{name} has {nbytes} bytes, its home {len(self.owner[memory])}")
            self.owner[memory] = np.full(nbytes, _NOBODY, np.int32)
        self.number: dict[str, int] = {}
        self.joined: dict[str, tuple[str, ...]] = {}
        """Values without bytes of their own, and those of which they consist."""
        self.parts = frozenset(_parts(plan))

    def fail(self, what: str) -> CrtgenError:
        return CrtgenError(
            f"the memory plan is wrong: {what}",
            where=self.plan.graph.name,
            hint="this is a defect of crtgen: please report it with the model",
        )

    def slot(self, value: str) -> tuple[_Memory, ArenaSlot]:
        # In which memory a value is, and where.
        nbytes = self.plan.graph.values[value].nbytes
        if value in self.plan.homes:
            return ("home", self.plan.homes[value]), ArenaSlot(0, nbytes)
        if value not in self.plan.slots:
            raise self.fail(f"{value} has no place")
        slot = self.plan.slots[value]
        if slot.size != nbytes:
            raise self.fail(f"{value} has {slot.size} bytes")
        # A part of a value begins anywhere; kernels rely on words, and on whole elements.
        least = max(_WORD, self.plan.graph.values[value].dtype.itemsize)
        return self.inside(value, slot, least if value in self.parts else self.plan.align), slot

    def inside(self, what: str, slot: ArenaSlot, align: int) -> _Memory:
        # The memory of a slot, which is aligned and inside of it.
        memory = "arena", slot.part
        if memory not in self.owner:
            raise self.fail(f"{what} is in {slot.part}, of which the plan has no part")
        size = len(self.owner[memory])
        if slot.offset % align:
            raise self.fail(f"{what} at {slot.offset} is not aligned to {align}")
        if slot.offset < 0 or slot.offset + slot.size > size:
            place = f"the part {slot.part}" if slot.part else "the arena"
            raise self.fail(f"{what} leaves {place} of {size} bytes")
        return memory

    def owners(self, value: str) -> npt.NDArray[np.int32]:
        # The owners of the bytes where a value is.
        memory, slot = self.slot(value)
        return self.owner[memory][slot.offset : slot.offset + slot.size]

    def write(self, value: str) -> None:
        self.number[value] = len(self.number)
        self.owners(value)[:] = self.number[value]

    def read(self, value: str, reader: str) -> None:
        if value in self.joined:
            for part in self.joined[value]:
                self.read(part, reader)
            return
        if value not in self.number:
            raise self.fail(f"{reader} reads {value} before it is computed")
        if (self.owners(value) != self.number[value]).any():
            raise self.fail(f"{value} is overwritten before {reader} reads it")

    def variables(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if not self.plan.graph.values[name].is_constant]


def check_plan(plan: Plan) -> None:
    """Raise ``CrtgenError`` unless every read finds what was written, aligned and inside the arena."""
    paper = _Paper(plan)
    _bounds(paper)
    computed = [node.name for step in plan.steps for node in step.item.nodes]
    if sorted(computed) != sorted(node.name for node in plan.graph.nodes):
        raise paper.fail("the steps of the plan are not the nodes of the graph")
    given = tuple(dict.fromkeys((*plan.graph.inputs, *plan.outside.values)))
    for name in given:
        paper.write(name)
    for name in given:
        paper.read(name, "the run")
    for step in plan.steps:
        _step(paper, step)
    for step in plan.steps[1:]:
        if step.kernel.fed:
            raise paper.fail(f"{step.name} is fed by rows, but runs after {plan.steps[0].name}")
    kept = plan.graph.inputs if plan.kept_inputs else ()
    after = (name for _, name in plan.outside.pairs)
    for name in (*paper.variables((*plan.graph.lasting, *after)), *kept):
        paper.read(name, "the end of the run")
    for home, name in plan.copied:
        paper.read(name, f"the copy to {home}")
        paper.owner.get(("home", home), np.empty(0, np.int32))[:] = _NOBODY


def _bounds(paper: _Paper) -> None:
    plan = paper.plan
    if not plan.lower_bound <= plan.arena:
        raise paper.fail(f"the arena of {plan.arena} is below the bound of {plan.lower_bound}")
    for name, part in plan.parts.items():
        if not part.lower_bound <= part.size:
            raise paper.fail(f"the part {name} of {part.size} is below the bound of {part.lower_bound}")


def _step(paper: _Paper, step: Step) -> None:
    inputs = paper.variables(step.inputs)
    for name in inputs:
        paper.read(name, step.name)
    if step.kernel.joins:
        _joins(paper, step)
        return
    if step.kernel.is_alias:
        (output,) = step.outputs
        if paper.slot(output) != paper.slot(step.inputs[0]):
            raise paper.fail(f"{step.name} is an alias, but its output lies elsewhere")
        if step.inputs[0] in paper.joined:
            paper.joined[output] = paper.joined[step.inputs[0]]
        else:
            paper.number[output] = paper.number[step.inputs[0]]
        return
    _overlaps(paper, step)
    _shares(paper, step)
    _scratch(paper, step, inputs, step.scratch, step.kernel.scratch)
    _scratch(paper, step, inputs, step.apart, step.kernel.apart)
    if step.scratch and step.apart and _meet(_of(step.scratch), _of(step.apart)):
        raise paper.fail(f"the two scratch buffers of {step.name} meet")
    for name in step.outputs:
        paper.write(name)


def _parts(plan: Plan) -> Iterable[str]:
    # What is joined, what that is a view of, and other views of it.
    found = set[str]()
    for step in reversed(plan.steps):
        if step.kernel.joins:
            found.update(step.inputs)
        elif step.kernel.is_alias and step.outputs[0] in found:
            found.add(step.inputs[0])
    for step in plan.steps:
        if step.kernel.is_alias and not step.kernel.joins and step.inputs[0] in found:
            found.add(step.outputs[0])
    return found


def _joins(paper: _Paper, step: Step) -> None:
    # The inputs are one after another where the output is, and there is nothing else in it.
    (output,) = step.outputs
    memory, slot = paper.slot(output)
    at = slot.offset
    for name in step.inputs:
        if paper.slot(name) != (memory, ArenaSlot(at, paper.plan.graph.values[name].nbytes, slot.part)):
            raise paper.fail(f"{step.name} joins {name}, which is not at {at}")
        at += paper.plan.graph.values[name].nbytes
    if at != slot.offset + slot.size or len(set(step.inputs)) < len(step.inputs):
        raise paper.fail(f"{step.name} joins {at - slot.offset} bytes, its output has {slot.size}")
    paper.joined[output] = step.inputs


def _shares(paper: _Paper, step: Step) -> None:
    # Halves on two cores: neither writes what the other one reads or writes, and both write all.
    if not step.kernel.shares:
        return
    (name,), (first, second) = step.outputs, step.kernel.shares
    memory, output = paper.slot(name)
    written = np.zeros(output.size, np.int8)
    for half, other in ((first, second), (second, first)):
        written[half.writes[0] : half.writes[1]] += 1
        for read, span in zip(step.inputs, other.reads, strict=True):
            if read not in paper.number or paper.slot(read)[0] != memory:
                continue
            if _cross(_moved(paper.slot(read)[1], span), _moved(output, half.writes)):
                raise paper.fail(f"one core overwrites what the other one reads of {read} in {step.name}")
    if (written != 1).any():
        raise paper.fail(f"the cores do not write each byte of {name} once")
    ends = max(first.scratch[1], second.scratch[1])
    if _cross(first.scratch, second.scratch) or ends > step.kernel.scratch:
        raise paper.fail(f"the cores share scratch memory in {step.name}")


def _moved(slot: ArenaSlot, span: tuple[int, int]) -> tuple[int, int]:
    return slot.offset + span[0], slot.offset + span[1]


def _cross(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return max(a[0], b[0]) < min(a[1], b[1])


def _scratch(paper: _Paper, step: Step, inputs: list[str], slot: ArenaSlot | None, needed: int) -> None:
    if (slot.size if slot else 0) != needed:
        raise paper.fail(f"{step.name} has not the scratch memory that it needs")
    if slot is None:
        return
    memory = paper.inside(f"the scratch of {step.name}", slot, paper.plan.align)
    for name in (*inputs, *step.outputs):
        if _meet(paper.slot(name), (memory, slot)):
            raise paper.fail(f"{name} meets the scratch of {step.name}")
    paper.owner[memory][slot.offset : slot.offset + slot.size] = _NOBODY


def _of(slot: ArenaSlot) -> tuple[_Memory, ArenaSlot]:
    return ("arena", slot.part), slot


def _overlaps(paper: _Paper, step: Step) -> None:
    # Outputs do not overlap, and overwrite an input only where the kernel may do so.
    outputs = [paper.slot(name) for name in step.outputs]
    for i, output in enumerate(outputs):
        if any(_meet(output, other) for other in outputs[:i]):
            raise paper.fail(f"two outputs of {step.name} meet")
        for j, name in enumerate(step.inputs):
            if name not in paper.number or not _meet(output, paper.slot(name)):
                continue
            lead = paper.slot(name)[1].offset - output[1].offset
            permits = [p for p in step.kernel.inplace if (p.input, p.output) == (j, i)]
            if not any(p.lead == lead if p.exact else p.lead <= lead for p in permits):
                raise paper.fail(f"{step.name} may not overwrite {name}")


def _meet(a: tuple[_Memory, ArenaSlot], b: tuple[_Memory, ArenaSlot]) -> bool:
    (one, first), (other, second) = a, b
    beside = first.offset + first.size <= second.offset or second.offset + second.size <= first.offset
    return one == other and not beside
