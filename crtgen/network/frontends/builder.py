"""The common part of all front ends: tensors become values, operators become nodes, and every error names its
place.

A front end reads its format into ``NamedTensor`` objects and has a converter per operator. The builder
handles names, constant folding, states, multiple outputs, subgraphs, refusals and errors.
"""

import math
import shlex
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from crtgen.base import budget
from crtgen.base.errors import CorruptModelError
from crtgen.network.frontends.layers import (
    Converted,
    KeptState,
    KnownOutput,
    NamedTensor,
    Result,
    check_tensor,
    collect,
    counts,
    typed,
)
from crtgen.network.frontends.naming import Names, identifier, layer_name
from crtgen.network.frontends.refusals import NotConstant, NotFixed, Refusals, RefusedOperator
from crtgen.network.ir import Array, DType, Graph, Node, Op, Quant, Rescaling, Signature, Value, shape_text
from crtgen.network.ops.cost import ask_for
from crtgen.network.ops.scheme import SCHEMES, has_narrow_weights
from crtgen.network.ops.shape import Identity, Reshape

__all__ = [
    "Converted",
    "GraphBuilder",
    "KeptState",
    "KnownOutput",
    "NamedTensor",
    "RefusedOperator",
    "Result",
]


# Memory of a converter's intermediate constants, as a multiple of the constant.
_CHANGED = 3

_QUANTISED = {scheme.activations for scheme in SCHEMES if not scheme.is_real}


T = TypeVar("T", bound=NamedTensor)


@dataclass(slots=True)
class GraphBuilder:
    """Collects values and nodes, one operator after another.

    An operator whose operands are all constant is computed at once: its outputs are constants.

    ``where`` names the file in errors, and ``refusals`` collects what is unsupported. With ``has_plain``,
    integers without quantisation are plain integers, whatever their type. ``shapes`` sets the shapes of
    inputs by name. Three dicts describe states by their keys: ``templates`` has the states before they get an
    initial value, ``initial`` their values before the first run, and ``states`` their values at the start of
    this graph, which are inputs in a subgraph.
    """

    where: str
    refusals: Refusals
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    is_inner: bool = False
    has_plain: bool = False
    value_names: Names = field(default_factory=Names)
    node_names: Names = field(default_factory=Names)
    templates: dict[Hashable, Value] = field(default_factory=dict)
    initial: dict[Hashable, Array] = field(default_factory=dict)
    states: dict[Hashable, Value] = field(default_factory=dict)
    _tensors: dict[Hashable, Value] = field(default_factory=dict)
    _latest: dict[Hashable, Value] = field(default_factory=dict)
    _values: dict[str, Value] = field(default_factory=dict)
    _nodes: list[Node] = field(default_factory=list)
    _lost: set[Hashable] = field(default_factory=set)
    _steps: dict[int, Value] = field(default_factory=dict)
    _stem: str = ""
    _bears_name: bool = True

    def inner(self) -> "GraphBuilder":
        shared = (self.value_names, self.node_names, self.templates, self.initial)
        return GraphBuilder(self.where, self.refusals, self.shapes, True, self.has_plain, *shared)

    def input(self, tensor: NamedTensor, default: str, shape: tuple[int, ...] | None = None) -> str:
        name = identifier(tensor.name, default)
        asked = self.shapes.get(name) or self.shapes.get(tensor.name) if not self.is_inner else shape
        try:
            if asked is not None:
                self.check_shape(tensor, asked)
            elif -1 in tensor.shape and tensor.dtype is not None and not self.is_inner:
                hint = f"give all its lengths, as in --shape {_example(tensor)}"
                raise NotFixed(tensor.name, tensor.shape, hint)
            return self._value(replace(tensor, shape=asked or tensor.shape), name).name
        except RefusedOperator as refusal:
            self.refusals.add(f"{tensor.name!r}, tensor {tensor.key}", default, refusal)
            self.lose((tensor,))
            return default

    def output(self, tensor: NamedTensor, default: str) -> str:
        try:
            value = self.value(tensor, identifier(tensor.name, default))
            check_tensor(replace(tensor, shape=value.shape, dtype=value.dtype))
            return value.name
        except RefusedOperator as refusal:
            if tensor.key not in self._lost:
                self.refusals.add(f"{tensor.name!r}, tensor {tensor.key}", default, refusal)
            return default

    def known(self, tensor: T) -> T:
        value = self._tensors.get(tensor.key)
        if value is None:
            return tensor
        data = value.data if value.is_constant else None
        return replace(tensor, shape=value.shape, dtype=value.dtype, data=data)

    def node(
        self,
        place: str,
        subject: str,
        stems: tuple[str, ...],
        inputs: Iterable[NamedTensor | None],
        outputs: Sequence[NamedTensor],
        convert: Callable[[], Result],
        named: Iterable[NamedTensor] = (),
        name: str = "",
    ) -> None:
        """Add an operator. Errors call it ``subject`` at ``place``; its name begins with a name from
        ``stems``.

        ``named`` are outputs of the model, whose names are kept. ``name`` is the operator's name in the file,
        if it has one. If an operator depends on a refused one, it is not reported again.
        """
        kept = {tensor.key for tensor in named}

        def add() -> None:
            self._steps.clear()
            made = convert()
            if isinstance(made, Converted):
                self._add(made, stems, outputs, kept, name)
                return
            several = made if isinstance(made, tuple) else (made,)
            if len(several) != len(outputs):
                raise ValueError(f"the operator has {len(outputs)} outputs instead of {len(several)}")
            for single, output in zip(several, outputs, strict=True):
                if isinstance(single, KnownOutput):
                    self._keep(output, single.data)
                else:
                    self._add(single, stems, (output,), kept, name)

        self.guarded(place, subject, inputs, outputs, add)

    def guarded(
        self,
        place: str,
        subject: str,
        inputs: Iterable[NamedTensor | None],
        outputs: Iterable[NamedTensor],
        add: Callable[[], None],
    ) -> None:
        """Call ``add`` for an operator. A refusal is collected for later; an invalid operator raises an
        error.
        """
        there = [t for t in inputs if t is not None]
        follows = any(t.key in self._lost for t in there)
        spending = budget.current()
        spending.place = f"{subject} ({place})"
        spending.check()
        held = sum(t.data.nbytes for t in there if t.data is not None)
        spending.hold(_CHANGED * held, "changing its constants")
        try:
            add()
        except RefusedOperator as refusal:
            self.lose(outputs)
            if not (follows and isinstance(refusal, NotConstant | NotFixed)):
                self.refusals.add(place, subject, refusal)
        except RecursionError:
            self.lose(outputs)
            self.refusals.add(
                place, subject, RefusedOperator("more operators in a row than can be taken apart")
            )
        except ValueError as error:
            self.lose(outputs)
            if not follows:
                raise CorruptModelError(f"{subject} ({place}): {error}", where=self.where) from error

    def lose(self, tensors: Iterable[NamedTensor]) -> None:
        """Mark tensors as not computed, for a reason that was reported elsewhere."""
        self._lost |= {tensor.key for tensor in tensors}

    def state(self, key: Hashable, template: Value) -> Value:
        """Return the current value of a state. The first is ``template``; in a subgraph it is an input."""
        if key not in self._latest:
            template = self.templates.setdefault(key, template)
            named = replace(template, name=self.value_names.unique(template.name))
            first = replace(named, data=None, is_state=False) if self.is_inner else named
            self.states[key] = first
            self._latest[key] = self._register(first)
        return self._latest[key]

    def variable(self, tensor: NamedTensor, suggestion: str) -> Value:
        """Add a state with the tensor's shape and type. It begins with zeros; int8, as in TFLite Micro,
        begins with its zero point.
        """
        check_tensor(tensor)
        assert tensor.dtype is not None
        quant = tensor.quant
        zero = quant.zero_point if quant and quant.axis is None and tensor.dtype is DType.INT8 else 0
        initial = np.full(tensor.shape, zero, tensor.dtype.numpy)
        return Value.state(identifier(tensor.name, suggestion), initial, tensor.quant)

    def initial_value(self, key: Hashable) -> Array:
        return self.initial[key] if key in self.initial else self.templates[key].array()

    def become(self, key: Hashable, value: Value) -> None:
        self._latest[key] = value

    def changed(self, key: Hashable) -> bool:
        return self._latest[key] is not self.states[key]

    def latest(self, key: Hashable) -> str:
        return self._latest[key].name

    def value(self, tensor: NamedTensor, suggestion: str) -> Value:
        if tensor.is_variable or tensor.key in self._latest:
            return self.state(tensor.key, self.variable(tensor, suggestion))
        return self._value(tensor, suggestion)

    def stand_for(self, tensor: NamedTensor, value: Value) -> None:
        self._tensors[tensor.key] = value

    def named(self, name: str) -> Value:
        return self._values[name]

    def stored(self, value: Value) -> Value:
        """Return the value, or a copy in memory if it is a constant."""
        return self.named(self._copy(value.name)) if value.is_constant else value

    def graph(self, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        """Return the verified graph; each of its outputs is a distinct, computed value.

        Raises ``UnsupportedError`` that names everything that was refused.
        """
        self.refusals.raise_any()
        given = set(inputs)
        ends: list[str] = []
        for output in outputs:
            shared = output in given or output in ends or self._values[output].data is not None
            ends.append(self._copy(output) if shared else output)
        pairs = [] if self.is_inner else [self._pair(key) for key in self.states]
        try:
            return Graph.build(name, list(self._values.values()), self._nodes, inputs, ends, pairs)
        except CorruptModelError as error:
            raise CorruptModelError(str(error), where=self.where) from error

    def _pair(self, key: Hashable) -> tuple[str, str]:
        # A state and what becomes of it; with its initial value, which may have been set later.
        first, last = self.states[key].name, self._latest[key].name
        self._values[first] = Value.state(first, self.initial_value(key), self.states[key].quant)
        elsewhere = last != first and self._values[last].data is not None
        return first, self._copy(last) if elsewhere else last

    def _copy(self, name: str) -> str:
        source = self._values[name]
        node = self.node_names.unique("copy")
        result = self._register(
            Value(self.value_names.unique(f"{name}_copy"), source.shape, source.dtype, source.quant)
        )
        self._nodes.append(Node(node, Identity(), (name,), (result.name,)))
        return result.name

    def _register(self, value: Value) -> Value:
        if value.data is not None:
            budget.current().take(value.nbytes, f"the constant {value.name}")
        self._values[value.name] = value
        return value

    def _value(self, tensor: NamedTensor, suggestion: str) -> Value:
        if tensor.key not in self._tensors:
            check_tensor(tensor)
            assert tensor.dtype is not None
            name = self.value_names.unique(suggestion)
            if tensor.data is None:
                value = Value(name, tensor.shape, tensor.dtype, tensor.quant)
            else:
                with np.errstate(over="ignore"):
                    data = tensor.data.astype(tensor.dtype.numpy, copy=False)
                value = Value.constant(name, data, tensor.quant, tensor.dtype)
            self._tensors[tensor.key] = self._register(value)
        return self._tensors[tensor.key]

    def _keep(self, tensor: NamedTensor, data: Array) -> None:
        # The output of an operator as a constant.
        name = self.value_names.unique(identifier(tensor.name, "constant"))
        made = Value.constant(name, data.astype(data.dtype.newbyteorder("=")), tensor.quant)
        self._tensors[tensor.key] = self._register(made)

    def _add(
        self,
        made: Converted,
        stems: tuple[str, ...],
        outputs: Sequence[NamedTensor],
        named: set[Hashable],
        called: str,
    ) -> None:
        for tensor in outputs:
            if tensor.key in made.updates:
                self.state(tensor.key, self.variable(tensor, stems[0]))
        outputs = [tensor for tensor in outputs if tensor.key not in made.updates]
        self._stem = layer_name(outputs[0].name, stems, called) if outputs else stems[0]
        steps = dict[int, Converted]()
        collect(made, steps)
        self._bears_name = counts(made) or not any(map(counts, steps.values()))
        operands = self._operands(made)
        if made.op.unscaled:
            quant = outputs[0].quant if outputs else self.states[made.updates[0]].quant
            operands = tuple(self._taken_as(v, quant) for v in operands)
        inferred = made.op.infer(operands)
        if len(inferred) != len(outputs) + len(made.updates):
            expected = len(inferred) - len(made.updates)
            count = "one" if expected == 1 else str(expected)
            raise ValueError(f"the operator has {len(outputs)} outputs instead of {count}")
        shapes = [shape for shape, _ in inferred]
        outputs = [typed(t, dtype) for t, (_, dtype) in zip(outputs, inferred, strict=False)]
        if outputs and not made.updates and all(v.is_constant for v in operands):
            self._compute(made.op, operands, outputs, inferred)
            return
        name = self.node_names.unique(self._name(made, last=True))
        results = [self._result(t, s, name, named) for t, s in zip(outputs, shapes, strict=False)]
        for key, (shape, dtype) in zip(made.updates, inferred[len(outputs) :], strict=True):
            state = self.value_names.unique(f"{self.states[key].name}_next")
            results.append(self._register(Value(state, shape, dtype, self.states[key].quant)))
        self._check(made.op, Signature(operands, tuple(results)))
        read, written = (tuple(v.name for v in values) for values in (operands, results))
        self._nodes.append(Node(name, made.op, read, written))
        for key, value in zip(made.updates, results[len(outputs) :], strict=True):
            self.become(key, value)
        for tensor, value in zip(outputs, results, strict=False):
            self._finish(tensor, value, name, named)

    def _compute(
        self,
        op: Op,
        operands: tuple[Value, ...],
        outputs: Sequence[NamedTensor],
        inferred: Sequence[tuple[tuple[int, ...], DType]],
    ) -> None:
        # The outputs of an operator of constants, as constants.
        values = tuple(Value(t.name, s, d, t.quant) for t, (s, d) in zip(outputs, inferred, strict=True))
        sig = Signature(operands, values)
        self._check(op, sig)
        ask_for(op, sig)
        for tensor, data in zip(outputs, op.reference(sig, [v.array() for v in operands]), strict=True):
            self._keep(tensor, data if self._is_resized(tensor, data.shape) else data.reshape(tensor.shape))

    def _is_resized(self, tensor: NamedTensor, shape: tuple[int, ...]) -> bool:
        """Return whether the tensor has the computed ``shape`` rather than the file's.

        Files may record another shape with as many elements, such as 4 dimensions for an operator of 5; that
        is kept. A recorded shape of another size is wrong: TensorFlow writes those where a length was open at
        conversion, and after SSD's post-processing. TensorFlow's interpreter, too, computes every shape anew.
        """
        is_wrong = -1 in tensor.shape or math.prod(shape) != math.prod(tensor.shape)
        return bool(self.shapes) or is_wrong

    def _result(self, tensor: NamedTensor, shape: tuple[int, ...], node: str, named: set[Hashable]) -> Value:
        # The value of an output, with the shape that the operator gives it.
        check_tensor(replace(tensor, shape=shape))
        assert tensor.dtype is not None
        if tensor.key in self._tensors:
            raise ValueError(f"the operator computes {tensor.name!r}, which was read or computed before")
        same = shape == tensor.shape or self._is_resized(tensor, shape)
        suggestion = _output_name(tensor, node, tensor.key in named) if same else f"{node}_flat"
        return self._register(Value(self.value_names.unique(suggestion), shape, tensor.dtype, tensor.quant))

    def _finish(self, tensor: NamedTensor, value: Value, node: str, named: set[Hashable]) -> None:
        # The tensor is the value, in the shape that the file gives it.
        if value.shape != tensor.shape and not self._is_resized(tensor, value.shape):
            name = self.value_names.unique(_output_name(tensor, node, tensor.key in named))
            shaped = self._register(replace(value, name=name, shape=tensor.shape))
            reshape = self.node_names.unique("reshape")
            self._nodes.append(Node(reshape, Reshape(tensor.shape), (value.name,), (name,)))
            value = shaped
        self._tensors[tensor.key] = value

    def _operand(self, operand: NamedTensor | Array | Value | Converted | KeptState, name: str) -> Value:
        # A tensor's value, a value, what an operator gives, a state, or a new constant.
        if isinstance(operand, KeptState):
            return self.state(operand.key, Value.state(name, operand.initial))
        if isinstance(operand, Value):
            made = operand.is_constant and operand.name not in self._values
            return self._register(replace(operand, name=self.value_names.unique(name))) if made else operand
        if isinstance(operand, Converted):
            return self._shared_step(operand)
        if isinstance(operand, NamedTensor):
            return self.value(operand, name)
        return self._register(Value.constant(self.value_names.unique(name), operand))

    def _taken_as(self, value: Value, quant: Quant | None) -> Value:
        # Same integers, another quantisation: TFLite Micro's moving operators ignore it.
        own = quant is not None and quant.rescaling is not Rescaling.FIXED_POINT
        if value.quant == quant or own or value.dtype not in _QUANTISED:
            return value
        name = self.value_names.unique(f"{value.name}_taken")
        if value.is_constant:
            return self._register(Value.constant(name, value.array(), quant))
        node = self.node_names.unique(name)
        self._nodes.append(Node(node, Reshape(value.shape), (value.name,), (name,)))
        return self._register(Value(name, value.shape, value.dtype, quant))

    def _operands(self, made: Converted) -> tuple[Value, ...]:
        # The values of its operands, of which constants are named after their roles.
        roles = [f"{self._stem}_{role}" for role in ("input", *made.roles)]
        roles += [f"{self._stem}_input{i}" for i in range(len(roles), len(made.operands))]
        return tuple(self._operand(*pair) for pair in zip(made.operands, roles, strict=False))

    def _name(self, made: Converted, last: bool = False) -> str:
        # If a layer becomes several operators, one with products or windows gets its name, otherwise the
        # last.
        bears = self._bears_name if last else not self._bears_name and counts(made)
        return self._stem if bears else f"{self._stem}_{made.op.name}"

    def _shared_step(self, made: Converted) -> Value:
        # Result of an operator that several operands share.
        if id(made) not in self._steps:
            self._steps[id(made)] = self._step(made)
        return self._steps[id(made)]

    def _step(self, made: Converted) -> Value:
        # Result of an operator that precedes another one.
        operands = self._operands(made)
        ((shape, dtype),) = made.op.infer(operands)
        node = self.node_names.unique(self._name(made))
        kept = operands[0].quant if dtype is operands[0].dtype else None
        own = self.value_names.unique(f"{self._stem}_{made.op.name}")  # the layer's name is its output's
        value = Value(own, shape, dtype, made.quant or kept)
        sig = Signature(operands, (value,))
        self._check(made.op, sig)
        if all(v.is_constant for v in operands):
            ask_for(made.op, sig)
            (data,) = made.op.reference(sig, [v.array() for v in operands])
            return self._register(Value.constant(value.name, data, value.quant))
        self._nodes.append(Node(node, made.op, tuple(v.name for v in operands), (value.name,)))
        return self._register(value)

    def _check(self, op: Op, sig: Signature) -> None:
        # ``RefusedOperator`` if the quantisation is none that the operator has.
        weights = [v for v in sig.inputs[1:] if has_narrow_weights(sig.x, v)]
        values = [v for v in (*sig.inputs, *sig.outputs) if v not in weights]
        if self.has_plain and not any(v.quant for v in values):
            return
        if any(v.dtype in _QUANTISED for v in values):
            _check_quantised(op, sig)

    def check_shape(self, tensor: NamedTensor, asked: tuple[int, ...]) -> None:
        """Raise ``RefusedOperator`` if the requested shape is impossible for an input."""
        if len(asked) != len(tensor.shape) or min(asked, default=1) < 1:
            text = f"{shape_text(asked)} was asked for, the file has {shape_text(tensor.shape)}"
            raise RefusedOperator(text, "give every length of it with --shape")


def _example(tensor: NamedTensor) -> str:
    # An argument of ``--shape`` for an input with open lengths.
    lengths = ",".join("96" if length == -1 else str(length) for length in tensor.shape)
    return shlex.quote(f"{tensor.name}={lengths}")


def _output_name(tensor: NamedTensor, node: str, is_output: bool) -> str:
    return identifier(tensor.name, "output") if is_output and ";" not in tensor.name else node


def _check_quantised(op: Op, sig: Signature) -> None:
    parameters = getattr(op, "parameters", None)
    if parameters is not None:
        try:
            parameters(sig)
        except ValueError as error:
            raise RefusedOperator(str(error)) from error
