"""Control flow of a `.tflite` file: variables, subgraphs that run once, branches and loops."""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

from crtgen.base.errors import UnsupportedError
from crtgen.network.frontends.builder import Converted, GraphBuilder, RefusedOperator
from crtgen.network.frontends.tflite_convert import TfliteLayer
from crtgen.network.frontends.tflite_file import FileOperator, FileTensor, TfliteFileGraph
from crtgen.network.ir import Graph, Value
from crtgen.network.ops.control import ControlFlow, If, While

__all__ = ["FLOW", "TfliteFlow", "flow_fields", "needed"]

T = TypeVar("T")

_MOST_OPERATORS = 1 << 16
_MOST_DEPTH = 16

_FIELDS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "ASSIGN_VARIABLE": ("AssignVariableOptions", ()),
        "CALL_ONCE": ("CallOnceOptions", ("InitSubgraphIndex",)),
        "IF": ("IfOptions", ("ThenSubgraphIndex", "ElseSubgraphIndex")),
        "READ_VARIABLE": ("ReadVariableOptions", ()),
        "VAR_HANDLE": ("VarHandleOptions", ("Container", "SharedName")),
        "WHILE": ("WhileOptions", ("CondSubgraphIndex", "BodySubgraphIndex")),
    }
)
FLOW = tuple(_FIELDS)


def flow_fields() -> Mapping[str, tuple[str, ...]]:
    return dict(_FIELDS.values())


def needed(file: TfliteFileGraph) -> Sequence[FileOperator]:
    wanted, kept = set(file.outputs), list[FileOperator]()
    for operator in reversed(file.operators):
        keeps = any(i is not None and file.tensors[i].is_variable for i in operator.inputs)
        flows = operator.code in FLOW and operator.code not in ("READ_VARIABLE", "VAR_HANDLE")
        if keeps or flows or not operator.outputs or wanted.intersection(operator.outputs):
            kept.append(operator)
            wanted.update(i for i in operator.inputs if i is not None)
    return kept[::-1]


@dataclass(frozen=True, slots=True)
class _Inner:
    # A subgraph that is being read: its builder, and the names of its inputs and outputs.

    builder: GraphBuilder
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def graph(self, name: str, keys: Sequence[Hashable], changed: Sequence[Hashable]) -> Graph:
        # With the states ``keys`` as inputs after its own, and what ``changed`` are as outputs.
        inputs = (*self.inputs, *(self.builder.states[key].name for key in keys))
        return self.builder.graph(name, inputs, (*self.outputs, *map(self.builder.latest, changed)))


class TfliteFlow:
    """Variables and subgraphs of a file; ``operators`` adds the operators of a subgraph."""

    def __init__(self, graphs: Sequence[TfliteFileGraph], where: str) -> None:
        self.graphs = graphs
        self.where = where
        self._handles: dict[tuple[int, Hashable], Hashable] = {}
        self._running: list[int] = [0]
        self._count = 0

    @abstractmethod
    def operators(self, number: int, builder: GraphBuilder) -> None: ...

    def count(self) -> None:
        """Count another operator against the limit: files may call a subgraph many times."""
        self._count += 1
        if self._count > _MOST_OPERATORS:
            text = f"its subgraphs have more than {_MOST_OPERATORS:,} operators in all"
            raise UnsupportedError(text, where=self.where)

    def flow(self, number: int, layer: TfliteLayer, builder: GraphBuilder) -> None:
        table, _ = _FIELDS[layer.operator.code]
        if layer.operator.table not in ("NONE", table):
            raise ValueError(f"the operator has {layer.operator.table} instead of {table}")
        add: Mapping[str, Callable[[int, TfliteLayer, GraphBuilder], None]] = {
            "ASSIGN_VARIABLE": self._assign,
            "CALL_ONCE": self._call_once,
            "IF": self._if,
            "READ_VARIABLE": self._read,
            "VAR_HANDLE": self._var_handle,
            "WHILE": self._while,
        }
        add[layer.operator.code](number, layer, builder)

    def _var_handle(self, number: int, layer: TfliteLayer, builder: GraphBuilder) -> None:
        if not layer.outputs:
            raise ValueError("the operator has no output")
        name = (layer.option("SharedName") or b"").decode(errors="replace")
        self._handles[number, layer.y.key] = ("variable", name)

    def _variable(self, number: int, layer: TfliteLayer, like: FileTensor, builder: GraphBuilder) -> Hashable:
        # The variable of the first input, which holds what ``like`` does.
        key = self._handles.get((number, layer.x.key))
        if key is None or not isinstance(key, tuple):
            raise RefusedOperator(
                "a variable that is chosen at run time; supported: one that VAR_HANDLE names"
            )
        builder.state(key, builder.variable(like, str(key[1])))
        return key

    def _read(self, number: int, layer: TfliteLayer, builder: GraphBuilder) -> None:
        if not layer.outputs:
            raise ValueError("the operator has no output")
        key = self._variable(number, layer, layer.y, builder)
        value = builder.named(builder.latest(key))
        if (value.shape, value.dtype) != (layer.y.shape, layer.y.dtype):
            raise ValueError(f"the variable is {value}, not what is read")
        builder.stand_for(layer.y, value)

    def _assign(self, number: int, layer: TfliteLayer, builder: GraphBuilder) -> None:
        given = layer.tensor(1)
        key = self._variable(number, layer, given, builder)
        value, held = builder.value(given, "assigned"), builder.named(builder.latest(key))
        if (value.shape, value.dtype) != (held.shape, held.dtype):
            raise ValueError(f"the variable is {held}, and is assigned {value}")
        builder.become(key, value)

    def _call_once(self, number: int, layer: TfliteLayer, builder: GraphBuilder) -> None:
        # A subgraph that is called once has no inputs, so the initial values that it sets are known.
        if builder.is_inner:
            raise RefusedOperator("within a subgraph; supported: in the model itself")
        inner = self._inner(int(layer.option("InitSubgraphIndex")), builder, (), number)
        if builder.refusals:
            return
        keys = list(inner.builder.states)
        changed = [key for key in keys if inner.builder.changed(key)]
        graph = inner.graph("once", keys, changed)
        given = {inner.builder.states[key].name: builder.initial_value(key) for key in keys}
        values = graph.evaluate(given)
        for key, name in zip(changed, graph.outputs[len(inner.outputs) :], strict=True):
            builder.initial[key] = values[name]

    def _inner(
        self,
        number: int,
        builder: GraphBuilder,
        args: Sequence[FileTensor],
        caller: int,
        is_once: bool = True,
    ) -> _Inner:
        # A subgraph that is run with these tensors of the subgraph ``caller``. One that runs ``is_once`` gets
        # what is constant as constants, which are no inputs.
        if not 0 < number < len(self.graphs):
            raise ValueError(f"the operator runs subgraph {number} of {len(self.graphs)}")
        if number in self._running or len(self._running) > _MOST_DEPTH:
            raise ValueError(f"subgraph {number} runs itself, or is nested too deep")
        file, inner = self.graphs[number], builder.inner()
        if len(args) != len(file.inputs):
            raise ValueError(f"subgraph {number} has {len(file.inputs)} inputs, and is given {len(args)}")
        inputs = []
        for n, (index, given) in enumerate(zip(file.inputs, args, strict=True)):
            tensor = file.tensors[index]
            if self._is_handle(caller, given):
                self._handles[number, tensor.key] = self._handles[caller, given.key]
            elif is_once and given.data is not None:
                inner.value(_same(tensor, given), f"in{n}")
            else:
                shape = builder.value(given, f"given{n}").shape
                inputs.append(inner.input(tensor, f"in{n}", shape))
        self._running.append(number)
        try:
            self.operators(number, inner)
        finally:
            self._running.pop()
        results = self._tensors(number, [file.tensors[i] for i in file.outputs])
        outputs = [inner.output(tensor, f"out{n}") for n, tensor in enumerate(results)]
        return _Inner(inner, tuple(inputs), tuple(outputs))

    def _is_handle(self, number: int, tensor: FileTensor) -> bool:
        return (number, tensor.key) in self._handles

    def _tensors(self, number: int, tensors: Iterable[FileTensor]) -> list[FileTensor]:
        return [tensor for tensor in tensors if not self._is_handle(number, tensor)]

    def _if(self, number: int, layer: TfliteLayer, builder: GraphBuilder) -> None:
        condition, args = layer.x, [layer.tensor(i) for i in range(1, len(layer.inputs))]
        chosen = [int(layer.option(f"{which}SubgraphIndex")) for which in ("Then", "Else")]
        branches = [self._inner(n, builder, args, number) for n in chosen]
        if builder.refusals:
            builder.lose(layer.outputs)
            return
        keys = _captured(branches, builder)
        changed = [k for k in keys if any(branch.builder.changed(k) for branch in branches)]
        names = ("then", "otherwise")
        then, otherwise = (b.graph(n, keys, changed) for n, b in zip(names, branches, strict=True))
        states = (builder.named(builder.latest(key)) for key in keys)
        given = [tensor for tensor in self._tensors(number, args) if tensor.data is None]
        operands: list[FileTensor | Value] = [condition, *given, *states]
        _add(layer, builder, If(then, otherwise), operands, layer.outputs, changed)

    def _while(self, number: int, layer: TfliteLayer, builder: GraphBuilder) -> None:
        args = [layer.tensor(i) for i in range(len(layer.inputs))]
        if len(layer.outputs) != len(args):
            raise ValueError(f"the operator has {len(args)} inputs and {len(layer.outputs)} outputs")
        chosen = [int(layer.option(f"{which}SubgraphIndex")) for which in ("Cond", "Body")]
        condition, body = (self._inner(n, builder, args, number, is_once=False) for n in chosen)
        if builder.refusals:
            builder.lose(layer.outputs)
            return
        for given, made in zip(args, layer.outputs, strict=True):
            if self._is_handle(number, given):
                self._handles[number, made.key] = self._handles[number, given.key]
        pairs = zip(self._tensors(number, args), self._tensors(number, layer.outputs), strict=True)
        _add_loop(layer, builder, condition, body, tuple(pairs))


def _same(tensor: FileTensor, given: FileTensor) -> FileTensor:
    # The tensor of a subgraph that is a constant of the graph around it.
    if tensor.dtype is not given.dtype:
        raise ValueError(f"{tensor.name!r} is {tensor.type_name}, and is given {given.type_name}")
    return replace(tensor, shape=given.shape, data=given.data)


def _captured(inners: Sequence[_Inner], builder: GraphBuilder) -> list[Hashable]:
    # The states that any of the subgraphs has: now all of them have all, and so has the graph around.
    keys = list(dict.fromkeys(key for inner in inners for key in inner.builder.states))
    for key in keys:
        for graph in (builder, *(inner.builder for inner in inners)):
            graph.state(key, builder.templates[key])
    return keys


def _add_loop(
    layer: TfliteLayer,
    builder: GraphBuilder,
    condition: _Inner,
    body: _Inner,
    pairs: tuple[tuple[FileTensor, FileTensor], ...],
) -> None:
    # Values that a round does not change are inputs of the loop, and are not carried.
    if len(body.outputs) != len(pairs):
        raise ValueError(f"the body of the loop has {len(body.outputs)} outputs instead of {len(pairs)}")
    keys = _captured((condition, body), builder)
    if any(condition.builder.changed(key) for key in keys):
        raise RefusedOperator("a condition that assigns a variable")
    carried = [n for n in range(len(pairs)) if body.inputs[n] != body.outputs[n]]
    fixed = [n for n in range(len(pairs)) if n not in carried]
    changed = [key for key in keys if body.builder.changed(key)]
    unchanged = [key for key in keys if key not in changed]

    def inputs(of: Sequence[T], states: Callable[[Hashable], T]) -> list[T]:
        numbers = ([of[n] for n in chosen] for chosen in (carried, fixed))
        return [
            v for ns, ks in zip(numbers, (changed, unchanged), strict=True) for v in (*ns, *map(states, ks))
        ]

    def graph(inner: _Inner, name: str, outputs: Sequence[str]) -> Graph:
        return inner.builder.graph(
            name, inputs(inner.inputs, lambda k: inner.builder.states[k].name), outputs
        )

    ends = (*(body.outputs[n] for n in carried), *map(body.builder.latest, changed))
    loop = While(graph(condition, "condition", condition.outputs), graph(body, "body", ends))
    given: list[FileTensor | Value] = [tensor for tensor, _ in pairs]
    operands = inputs(given, lambda key: builder.named(builder.latest(key)))
    for n in fixed:
        builder.stand_for(pairs[n][1], builder.value(pairs[n][0], f"given{n}"))
    if carried or changed:
        outputs = [pairs[n][1] for n in carried]
        _add(layer, builder, loop, operands, outputs, changed)


def _add(
    layer: TfliteLayer,
    builder: GraphBuilder,
    op: ControlFlow,
    operands: Sequence[FileTensor | Value],
    outputs: Sequence[FileTensor],
    changed: Sequence[Hashable],
) -> None:
    values = (o if isinstance(o, Value) else builder.value(o, "given") for o in operands)
    made = Converted(op, tuple(map(builder.stored, values)), updates=tuple(changed))
    place, subject = f"operator {layer.operator.index}", layer.operator.code
    builder.node(place, subject, (op.name,), (), outputs, lambda: made)
