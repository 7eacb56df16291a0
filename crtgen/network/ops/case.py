"""A test case of an operator: attributes, shapes, types and constants, and inputs drawn from a seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from crtgen.network.ir import Array, DType, Graph, Node, Op, Quant, Rescaling, Signature, Value
from crtgen.network.ops.scheme import SCHEMES, scheme_of

__all__ = [
    "Case",
    "by_float32",
    "floats",
    "in_eight_bits",
    "in_four_bits",
    "int8s",
    "int16s",
    "make",
    "of_few_values",
    "of_few_values_each",
    "plain",
    "weights_and_bias",
]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One application of one operator; ``name`` is unique among all cases.

    ``limits`` narrow the range of inputs by name: the smallest and the largest value.
    """

    name: str
    op: Op
    sig: Signature
    limits: Mapping[str, tuple[float, float]] = field(default_factory=lambda: MappingProxyType({}))

    def graph(self) -> Graph:
        """Return a network with this single node. Its inputs are the values that are not constant; states
        begin with zeros.
        """
        states = {self.sig.inputs[i]: self.sig.outputs[o] for i, o in self.op.states}
        names = [v.name for v in self.sig.inputs]
        outputs = [v.name for v in self.sig.outputs]
        node = Node(self.op.name, self.op, tuple(names), tuple(outputs))
        values = {v.name: v for v in (*self.sig.inputs, *self.sig.outputs)}
        values |= {v.name: Value.state(v.name, _zeros(v), v.quant) for v in states}
        variable = dict.fromkeys(v.name for v in self.sig.inputs if not v.is_constant and v not in states)
        results = [v.name for v in self.sig.outputs if v not in states.values()]
        pairs = [(before.name, after.name) for before, after in states.items()]
        return Graph.build(self.name, list(values.values()), [node], list(variable), results, pairs)

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        """Draw values for the non-constant inputs, from their whole range."""
        random = np.random.default_rng(seed)
        return {v.name: self._draw(random, v) for v in self.sig.inputs if not v.is_constant}

    def range_of(self, value: Value) -> tuple[float, float]:
        """Return the smallest and the largest value of an input: all values of its type, or -4 to 4 for
        float32.
        """
        if value.dtype is DType.BOOL:
            return 0, 1
        if value.dtype is DType.FLOAT32:
            return self.limits.get(value.name, (-4, 4))
        info = np.iinfo(value.dtype.value)
        return self.limits.get(value.name, (info.min, info.max))

    def _draw(self, random: np.random.Generator, value: Value) -> Array:
        low, high = self.range_of(value)
        if value.dtype is DType.FLOAT32:
            return random.uniform(low, high, value.shape).astype(np.float32)
        if value.dtype is DType.BOOL:
            return random.integers(0, 2, value.shape).astype(np.bool_)
        return random.integers(int(low), int(high), value.shape, value.dtype.value, endpoint=True)


def _zeros(value: Value) -> Array:
    # Real zeros of int8, zeros of other types, as TFLite Micro fills its variables.
    zero = value.quant.zero_point if value.quant is not None and value.dtype is DType.INT8 else 0
    return np.full(value.shape, zero, value.dtype.numpy)


def int8s(name: str, shape: tuple[int, ...], scale: float = 0.05, zero_point: int = 0) -> Value:
    return Value(name, shape, DType.INT8, Quant.tensor(scale, zero_point))


def int16s(name: str, shape: tuple[int, ...], scale: float = 0.0005) -> Value:
    """Return an int16 tensor with per-tensor quantisation and zero point 0."""
    return Value(name, shape, DType.INT16, Quant.tensor(scale, 0))


def floats(name: str, shape: tuple[int, ...]) -> Value:
    return Value(name, shape, DType.FLOAT32)


def plain(name: str, shape: tuple[int, ...], dtype: DType = DType.INT32) -> Value:
    return Value(name, shape, dtype)


_QUANTISED = {scheme.activations for scheme in SCHEMES if not scheme.is_real}


def make(
    name: str,
    op: Op,
    inputs: Sequence[Value],
    quant: Quant | None = None,
    limits: Mapping[str, tuple[float, float]] = MappingProxyType({}),
) -> Case:
    """Return a case; its output has the inferred shape and type, and the quantisation ``quant`` or else the
    first input's.
    """
    ((shape, dtype),) = op.infer(inputs)
    default = inputs[0].quant if dtype in _QUANTISED else None
    output = Value("y", shape, dtype, None if dtype is DType.FLOAT32 else quant or default)
    return Case(f"{op.name}_{name}", op, Signature(tuple(inputs), (output,)), limits)


def weights_and_bias(
    seed: str, x: Value, shape: tuple[int, ...], axis: int, per_axis: bool, bias: DType | None = None
) -> list[Value]:
    """Return random constants for a layer on ``x``: weights with output channels on ``axis``, and the bias.

    int8 weights are quantised per channel or as a whole; the bias has the product of the scales, and the type
    of the scheme unless another one is given.
    """
    random = np.random.default_rng(sum(map(ord, seed)))
    channels = shape[axis]
    if x.quant is None:
        real = random.uniform(-1, 1, shape), random.uniform(-1, 1, channels)
        return [Value.constant(n, r.astype(np.float32)) for n, r in zip("wb", real, strict=True)]
    scales = random.uniform(0.002, 0.03, channels if per_axis else 1).astype(np.float32).tolist()
    products = (np.float32(x.quant.scale) * np.array(scales, np.float32)).tolist()
    zeros = (0,) * len(scales)
    return [
        Value.constant(
            "w",
            random.integers(-127, 128, shape, np.int8),
            Quant(tuple(scales), zeros, axis if per_axis else None),
        ),
        Value.constant(
            "b",
            random.integers(-2000, 2000, channels, np.int32).astype((bias or scheme_of(x).biases).numpy),
            Quant(tuple(products), zeros, 0 if per_axis else None),
        ),
    ]


def in_eight_bits(case: Case, scales: int = 0) -> Case:
    """Return a float32 layer with int8 weights and ``scales`` scales; 0 means one for each output channel."""
    x, w, b = case.sig.inputs
    real, axis = w.array(), getattr(case.op, "channel_axis", 0)
    others = tuple(a for a in range(real.ndim) if a != axis or scales == 1)
    steps = (np.abs(real).max(axis=others, keepdims=True) / 127).astype(np.float32)
    numbers = np.rint(real / steps).astype(np.int8)
    quant = Quant(tuple(steps.ravel().tolist()), (0,) * steps.size, None if scales == 1 else axis)
    inputs = (x, Value.constant(w.name, numbers, quant), b)
    return Case(f"{case.name}_int8", case.op, Signature(inputs, case.sig.outputs), case.limits)


def by_float32(case: Case) -> Case:
    (y,) = case.sig.outputs
    assert y.quant is not None
    other = replace(y, quant=replace(y.quant, rescaling=Rescaling.FLOAT32))
    return Case(f"{case.name}_onnx", case.op, Signature(case.sig.inputs, (other,)), case.limits)


def in_powers_of_two(case: Case) -> Case:
    """Return a layer whose weights have power-of-two scales, so that many results are ties in rounding."""
    x, w, b = case.sig.inputs
    assert w.quant is not None
    scales = tuple(2.0 ** -(i % 3) for i in range(len(w.quant.scales)))
    other = replace(w, quant=replace(w.quant, scales=scales))
    return Case(case.name, case.op, Signature((x, other, b), case.sig.outputs), case.limits)


def of_few_values(case: Case, bits: int = 4) -> Case:
    """Return a layer whose weights vary in the upper ``bits`` bits only; the lower ones are constant."""
    x, w, b = case.sig.inputs
    numbers = (w.array().astype(np.int8) >> (8 - bits) << (8 - bits)) + (1 << (7 - bits))
    inputs = (x, Value.constant(w.name, numbers.astype(np.int8), w.quant), b)
    return Case(f"{case.name}_few", case.op, Signature(inputs, case.sig.outputs), case.limits)


def of_few_values_each(case: Case) -> Case:
    """Return a layer whose output channels have at most 15 different weight values each, multiples of 5 to
    8.
    """
    x, w, b = case.sig.inputs
    steps = 5 + np.arange(w.shape[0]) % 4
    lengths = [-1 if axis == 0 else 1 for axis in range(len(w.shape))]
    numbers = np.clip(w.array().astype(np.int64) // 16, -7, 7) * steps.reshape(lengths)
    inputs = (x, Value.constant(w.name, numbers.astype(np.int8), w.quant), b)
    return Case(f"{case.name}_few_each", case.op, Signature(inputs, case.sig.outputs), case.limits)


def in_four_bits(case: Case) -> Case:
    """Return a layer with the upper four bits of its weights, with scales 16 times as large, and a smaller
    bias.
    """
    x, w, b = case.sig.inputs
    scaled = [v.quant and replace(v.quant, scales=tuple(16 * s for s in v.quant.scales)) for v in (w, b)]
    packed = Value.constant(w.name, w.array().astype(np.int8) >> 4, scaled[0], DType.INT4)
    inputs = (x, packed, Value.constant(b.name, b.array().astype(np.int32) >> 4, scaled[1]))
    return Case(f"{case.name}_int4", case.op, Signature(inputs, case.sig.outputs), case.limits)
