"""Loop and Scan: a body, the values carried between iterations, and the collected outputs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crtgen.base import budget
from crtgen.network.frontends.builder import Converted, GraphBuilder, NamedTensor, RefusedOperator
from crtgen.network.frontends.onnx_convert import OnnxLayer
from crtgen.network.frontends.onnx_convert.layer import Operand, number, reshaped
from crtgen.network.frontends.onnx_file import OnnxFileGraph, constant
from crtgen.network.ir import DType, shape_text
from crtgen.network.ops import Add, Concat, Sub
from crtgen.network.ops.compare import Less, LogicalAnd
from crtgen.network.ops.control import While
from crtgen.network.ops.gather import DynamicSlice, DynamicUpdateSlice

__all__ = ["LoopBody", "Rounds", "ScanAxis"]

_UNKNOWN = (-1,)


@dataclass(frozen=True, slots=True)
class ScanAxis:
    axis: int
    back: bool


@dataclass(frozen=True, slots=True)
class Rounds:
    """Common parts of Loop and Scan.

    There are at most ``limit`` iterations, as long as ``condition`` holds; ``states`` are carried over.
    ``sources`` give a slice to each iteration, ``lines`` describe the collected outputs. The first states are
    at ``first_input`` and ``first_output`` of the body; in a Loop's body they are preceded by the iteration
    number and the condition.
    """

    body: OnnxFileGraph
    limit: NamedTensor | None
    condition: NamedTensor | None
    states: tuple[NamedTensor, ...]
    sources: tuple[tuple[NamedTensor, ScanAxis], ...]
    lines: tuple[ScanAxis, ...]
    first_input: int
    first_output: int

    def count(self) -> int | None:
        """Return the number of iterations if no condition ends them early; None if it is only known at run
        time.
        """
        lengths = {tensor.shape[line.axis] for tensor, line in self.sources}
        if len(lengths) > 1:
            raise ValueError(f"inputs of {sorted(lengths)} slices are scanned together")
        if lengths:
            return lengths.pop()
        known = self.limit is not None and self.limit.data is not None
        return int(self.limit.data.reshape(-1)[0].item()) if known else None  # type: ignore[union-attr]


@dataclass(slots=True)
class LoopBody:
    """A body that becomes a ``While``.

    ``carried`` describes each carried value: the tensor in the body, its first value, its next value, and the
    node's output that gets the last one. ``fixed`` values are the same in every iteration.
    """

    layer: OnnxLayer
    rounds: Rounds
    scope: dict[str, NamedTensor]
    outer: GraphBuilder
    number: int
    inner: GraphBuilder = field(init=False)
    counter: NamedTensor = field(init=False)
    carried: list[tuple[NamedTensor, NamedTensor, NamedTensor, NamedTensor]] = field(default_factory=list)
    fixed: list[NamedTensor] = field(default_factory=list)
    _asked: NamedTensor | None = None
    _made: int = 0

    def __post_init__(self) -> None:
        self.inner = self.outer.inner()
        self.counter = self._tensor("round", (), DType.INT64)

    def begin(self, captured: Sequence[NamedTensor]) -> None:
        if self.rounds.count() == 0:
            raise RefusedOperator("no round; supported: one or more")
        r, names = self.rounds, self.rounds.body.inputs
        self.inner.input(self.counter, "round", ())
        if r.first_input:
            shape = (1,) if r.body.tensors[names[0]].shape == (1,) else ()
            self.scope[names[0]] = self._node(self.inner, reshaped(self.counter, shape))
            self.scope[names[1]] = constant(names[1], np.array(True))
        for name, state in zip(names[r.first_input :], r.states, strict=False):
            known = self.outer.known(state)
            self.scope[name] = replace(known, key=self.scope[name].key, name=name, data=None)
            self.inner.input(self.scope[name], "state", known.shape)
        for tensor in dict.fromkeys((*captured, *(t for t, _ in r.sources if t.data is None))):
            if tensor.key not in {t.key for t in self.fixed}:
                self.fixed.append(tensor)
                self.inner.input(tensor, "given", tensor.shape)
        for name, (tensor, line) in zip(names[r.first_input + len(r.states) :], r.sources, strict=True):
            self.scope[name] = self._slice(tensor, line)

    def end(self) -> None:
        """Add the outputs of an iteration: states, iteration number, collected outputs."""
        r, outputs = self.rounds, self.rounds.body.outputs
        if r.limit is not None and r.limit.data is None:
            self.fixed.append(r.limit)
            self.inner.input(r.limit, "limit", r.limit.shape)
        following = self._node(self.inner, Converted(Add(), (self.counter, number(1, DType.INT64))))
        self._carry(self.counter, constant("round", np.array(0, np.int64)), following, None)
        self._end_condition()
        given = self.layer.outputs
        for n, state in enumerate(r.states):
            before = self.scope[r.body.inputs[r.first_input + n]]
            after = self.inner.known(self.scope[outputs[r.first_output + n]])
            if (after.shape, after.dtype) != (before.shape, before.dtype):
                shapes = f"{shape_text(before.shape)} and {shape_text(after.shape)}"
                raise RefusedOperator(f"a state of the shapes {shapes} in rounds; supported: one shape")
            self._carry(before, state, after, given[n] if n < len(given) else None)
        for n, line in enumerate(r.lines, len(r.states)):
            output = given[n] if n < len(given) else None
            if output is not None:
                self._collect(self.scope[outputs[r.first_output + n]], line, output)

    def _end_condition(self) -> None:
        # The condition is carried where it is not known; a body that never goes on runs once.
        r = self.rounds
        if not r.first_input:
            return
        after = self.inner.known(self.scope[r.body.outputs[0]])
        before = self.outer.known(r.condition) if r.condition is not None else None
        holds = before is None or (before.data is not None and bool(before.data.reshape(-1)[0]))
        goes_on = after.data is not None and bool(after.data.reshape(-1)[0])
        if holds and goes_on:
            return
        if self.rounds.lines:
            raise RefusedOperator(
                "outputs collected by a condition; supported: by a constant number of rounds"
            )
        self._asked = self._tensor("goes_on", (), DType.BOOL)
        self.inner.input(self._asked, "goes_on", ())
        first = constant("goes_on", np.array(True)) if before is None else before
        self._carry(
            self._asked,
            self._node(self.outer, reshaped(first, ())),
            self._node(self.inner, reshaped(after, ())),
            None,
        )

    def loop(self) -> tuple[While, list[NamedTensor], list[NamedTensor]]:
        inside = [before for before, _, _, _ in self.carried] + self.fixed
        names = [self.inner.value(tensor, "in").name for tensor in inside]
        ends = [self.inner.output(after, "out") for _, _, after, _ in self.carried]
        body = self.inner.graph("body", names, ends)
        asking = self.outer.inner()
        given = [asking.input(tensor, "in", tensor.shape) for tensor in inside]
        condition = asking.graph("condition", given, [asking.output(self._goes_on(asking), "goes_on")])
        operands = [first for _, first, _, _ in self.carried] + self.fixed
        return While(condition, body), operands, [output for *_, output in self.carried]

    def _goes_on(self, asking: GraphBuilder) -> NamedTensor:
        # True if there is another round.
        limit, count = self.rounds.limit, self.rounds.count()
        made: NamedTensor | Converted | None = None
        if count is not None:
            made = Converted(Less(), (self.counter, number(count, DType.INT64)), ("count",))
        elif limit is not None:
            made = Converted(Less(), (self.counter, reshaped(limit, ())))
        if self._asked is not None:
            made = self._asked if made is None else Converted(LogicalAnd(), (made, self._asked))
        if made is None:
            raise RefusedOperator("a loop that never ends")
        return made if isinstance(made, NamedTensor) else self._node(asking, made)

    def _slice(self, source: NamedTensor, line: ScanAxis) -> NamedTensor:
        # The slice that a round gets of a tensor, without the axis.
        shape = source.shape
        size = tuple(1 if a == line.axis else d for a, d in enumerate(shape))
        cut = Converted(DynamicSlice(size), (source, self._place(line, len(shape), shape[line.axis])))
        return self._node(self.inner, reshaped(cut, shape[: line.axis] + shape[line.axis + 1 :]))

    def _collect(self, made: NamedTensor, line: ScanAxis, output: NamedTensor) -> None:
        # All that a round gives, put together along a new axis.
        count = self.rounds.count()
        if count is None or count < 1:
            raise RefusedOperator(
                "outputs collected in a number of rounds that is not fixed; supported: 1 or more"
            )
        one = self.inner.known(made)
        value = self.inner.value(one, "collected")
        axis = self.layer.axis(line.axis, len(value.shape) + 1)
        size = (*value.shape[:axis], 1, *value.shape[axis:])
        shape = (*value.shape[:axis], count, *value.shape[axis:])
        before = self._tensor("collected", shape, value.dtype)
        self.inner.input(before, "collected", shape)
        place = self._place(replace(line, axis=axis), len(shape), count)
        made_so_far = Converted(DynamicUpdateSlice(), (before, reshaped(one, size), place))
        budget.current().take(
            math.prod(shape) * value.dtype.itemsize, f"what is collected in {count:,} rounds"
        )
        first = constant(output.name, np.zeros(shape, value.dtype.numpy))
        self._carry(
            before,
            replace(first, key=(self.number, "first", output.key)),
            self._node(self.inner, made_so_far),
            output,
        )

    def _place(self, line: ScanAxis, rank: int, count: int) -> Converted:
        # Index at which this round's slice begins.
        at: Operand = self.counter
        if line.back:
            at = Converted(Sub(), (number(count - 1, DType.INT64), at), ("round",))
        parts = (np.zeros(line.axis, np.int64), reshaped(at, (1,)), np.zeros(rank - 1 - line.axis, np.int64))
        return Converted(Concat(0), tuple(p for p in parts if not isinstance(p, np.ndarray) or p.size))

    def _carry(
        self, before: NamedTensor, first: NamedTensor, after: NamedTensor, output: NamedTensor | None
    ) -> None:
        self.carried.append(
            (before, first, after, output or self._tensor("last", before.shape, before.dtype))
        )

    def _node(self, builder: GraphBuilder, made: Converted) -> NamedTensor:
        # Adds an operator to a graph and returns its output.
        tensor = self._tensor("value", _UNKNOWN, None)
        node = self.layer.node
        builder.node(node.place, node.code, (node.code.lower(),), (), (tensor,), lambda: made)
        return builder.known(tensor)

    def _tensor(self, name: str, shape: tuple[int, ...], dtype: DType | None) -> NamedTensor:
        # A new one, which the file does not have.
        self._made += 1
        key: Any = (self.number, self._made)
        return NamedTensor(key, name, shape, dtype.name if dtype else "", dtype, None, None)
