"""A random network in the making, as tensors and operators of a `.tflite` file."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crtgen.network.ir import Array, DType, Op, Quant, Value
from crtgen.network.ops import Case
from crtgen.network.ops.case import make
from tests.network.ops import oracle
from tests.tflite_builder import Model, Operator, Options, Subgraph, Tensor

__all__ = ["MOST", "NUMBERS", "SPREAD", "Network", "Step"]

MOST = 2500
"""Elements of a tensor."""
NUMBERS = ("int8", "int16", "float32")
"""What layers compute with."""
SPREAD = 50.0
"""Standard deviation that int8 tensors are meant to have, in steps; int16 tensors in 256 steps."""
_FINER = {"int8": 1, "int16": 256, "uint8": 1}


@dataclass
class Shared:
    """What a network has in common with its subgraphs: these, and variables, by name with what they hold."""

    others: list[Subgraph] = field(default_factory=list)
    variables: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class Network:
    """A network in the making, or a subgraph of one; ``fresh`` are the tensors that nothing reads yet.

    ``rough`` are the floats that two ways of computing may round differently: what turns on their last bit
    must not be done with them. ``places`` are integers from 0 to below a number.
    """

    rng: np.random.Generator
    dtype: str
    shared: Shared = field(default_factory=Shared)
    depth: int = 0
    tensors: dict[str, Tensor] = field(default_factory=dict)
    operators: list[Operator] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)
    rough: set[str] = field(default_factory=set)
    places: dict[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The `.tflite` file."""
        parts = list(self.tensors.values()), self.operators, self.inputs, self.outputs
        return Model(*parts, others=self.shared.others).to_bytes()

    def inner(self, inputs: Sequence[Tensor], rough: Collection[str]) -> "Network":
        """A subgraph in the making, with inputs like these tensors."""
        made = Network(self.rng, self.dtype, self.shared, self.depth + 1)
        for x in inputs:
            made.input(x.dtype, x.shape, x)
            if x.name in rough:
                made.rough.add(made.inputs[-1])
        return made

    def finish(self) -> int:
        """The number of the subgraph."""
        tensors = list(self.tensors.values())
        self.shared.others.append(Subgraph(tensors, self.operators, self.inputs, self.outputs))
        return len(self.shared.others)

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high, endpoint=True))

    def activation(self) -> int:
        """NONE, RELU, RELU_N1_TO_1 or RELU6."""
        return int(self.rng.choice(4, p=[0.55, 0.2, 0.05, 0.2]))

    def name(self) -> str:
        return f"v{len(self.tensors)}"

    def keep(self, tensor: Tensor) -> Tensor:
        self.tensors[tensor.name] = tensor
        return tensor

    def input(self, dtype: str, shape: Sequence[int], like: Tensor | None = None) -> Tensor:
        x = self.like(like, shape) if like else self.tensor(dtype, shape, self.rng.uniform(0.01, 0.1))
        self.inputs.append(x.name)
        self.fresh.append(x.name)
        return x

    def tensor(self, dtype: str, shape: Sequence[int], unit: float = 0.05, zero: int | None = None) -> Tensor:
        """A new tensor; if quantised, ``unit`` is the scale of int8, the zero point random if not given."""
        if dtype not in _FINER:
            return self.keep(Tensor(self.name(), shape, dtype))
        scale = float(np.float32(min(max(unit, 1e-4), 4) / _FINER[dtype]))
        point = self.pick([-128, 0, self.integer(-40, 40)]) if zero is None else zero
        point = {"int8": point, "uint8": point + 128}.get(dtype, 0)
        return self.keep(Tensor(self.name(), shape, dtype, [scale], [point]))

    def like(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """A tensor that is quantised as ``x``."""
        return self.keep(replace(x, name=self.name(), shape=shape, data=None, is_variable=False))

    def unit(self, x: Tensor) -> float:
        """The scale of a tensor, of int8; 1.0 where there is none."""
        return x.scales[0] * _FINER[x.dtype] if x.scales else 1.0

    def constant(self, data: Any, dtype: str = "int32", **quantisation: Any) -> Tensor:
        array = np.asarray(data, dtype)
        return self.keep(Tensor(self.name(), array.shape, dtype, data=array, **quantisation))

    def values(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        """A constant of a tensor's type and quantisation."""
        bound = 127 * _FINER.get(like.dtype, 1)
        data: Array = self.rng.integers(-bound, bound + 1, shape)
        if like.dtype == "bool":
            data = self.rng.integers(0, 2, shape)
        if like.dtype == "float32":
            data = self.rng.normal(0, 1, shape)
        return self.constant(data, like.dtype, scales=like.scales, zero_points=like.zero_points)

    def add(
        self,
        code: str,
        inputs: Sequence[Tensor | None],
        outputs: Tensor | Sequence[Tensor],
        options: Options | None = None,
        exact: bool = False,
        custom: bytes = b"",
    ) -> Tensor:
        """An operator; ``exact`` says that it rounds nothing. Its first output."""
        made = [outputs] if isinstance(outputs, Tensor) else list(outputs)
        given = [t.name if t else None for t in inputs]
        self.operate(Operator(code, given, [t.name for t in made], options, custom=custom), exact)
        return made[0]

    def operate(self, operator: Operator, exact: bool = False) -> None:
        self.operators.append(operator)
        self.fresh = [n for n in self.fresh if n not in operator.inputs]
        self.fresh += [n for n in operator.outputs if self.tensors[n].dtype != "resource"]
        real = [n for n in operator.outputs if self.tensors[n].dtype == "float32"]
        if not exact or self.rough.intersection(operator.inputs):
            self.rough.update(real)

    def computed(
        self, rank: int | None = None, types: Collection[str] = NUMBERS, exact: bool = False
    ) -> list[Tensor]:
        """The tensors of these types that are neither constant nor kept; of one rank if it is given."""
        found = [t for t in self.tensors.values() if t.data is None and t.dtype in types]
        found = [t for t in found if t.scales or t.dtype not in _FINER]
        made = {*self.inputs, *(n for o in self.operators for n in o.outputs)}
        found = [t for t in found if t.name in made and not (exact and t.name in self.rough)]
        return [t for t in found if rank is None or len(t.shape) == rank]

    def source(
        self, rank: int | None = None, types: Collection[str] = NUMBERS, exact: bool = False
    ) -> Tensor | None:
        """An operand: what nothing reads yet, mostly."""
        candidates = self.computed(rank, types, exact)
        fresh = [t for t in candidates if t.name in self.fresh]
        pool = fresh if fresh and self.chance(0.75) else candidates
        return self.pick(pool) if pool else None

    def partner(self, x: Tensor, types: Collection[str] = ()) -> Tensor:
        """A tensor of the same shape, of the same type or of one of ``types``; perhaps ``x`` itself."""
        alike = [
            t for t in self.computed(len(x.shape), types or (x.dtype,)) if tuple(t.shape) == tuple(x.shape)
        ]
        found: Tensor = self.pick([t for t in alike if t is not x] or alike or [x])
        return found

    def alike(self, x: Tensor, y: Tensor) -> Tensor:
        """``x`` with the quantisation of ``y``."""
        if (x.scales, x.zero_points) == (y.scales, y.zero_points):
            return x
        return self.add("QUANTIZE", [x], self.like(y, x.shape), exact=True)

    def value(self, x: Tensor) -> Value:
        """The tensor for crtgen's operators."""
        quant = Quant.tensor(x.scales[0], x.zero_points[0]) if x.scales else None
        dtype, shape = DType(x.dtype), tuple(x.shape)
        return Value(x.name, shape, dtype, quant) if x.data is None else Value.constant(x.name, x.data, quant)

    def quant(self, dtype: str, unit: float) -> Quant | None:
        """A random quantisation of that unit."""
        if dtype not in _FINER:
            return None
        zero = self.pick([-128, 0, self.integer(-40, 40)]) if dtype == "int8" else 0
        return Quant.tensor(float(np.float32(min(max(unit, 1e-4), 4) / _FINER[dtype])), zero)

    def apply(
        self, op: Op, operands: Sequence[Tensor], quant: Quant | None = None, exact: bool = False
    ) -> Tensor | None:
        """An operator of crtgen's, as TFLite has it; None where the operands do not suit it."""
        try:
            case = make("grown", op, [self.value(x) for x in operands], quant)
            if hasattr(op, "parameters") and case.sig.x.quant is not None:
                op.parameters(case.sig)
        except ValueError:
            return None
        if max(v.elements for v in case.sig.outputs) > MOST:
            return None
        return self.graft(case, exact)[0]

    def graft(self, case: Case, exact: bool = False) -> list[Tensor]:
        """A layer whose inputs are named as tensors that are there already. Its outputs."""
        tensors, operators = oracle.parts(case.graph())
        used = {n for o in operators for n in (*o.inputs, *o.outputs) if n}
        names: dict[str | None, str | None] = {None: None}
        for tensor in tensors:
            if tensor.name in self.tensors:
                names[tensor.name] = tensor.name
            elif tensor.name in used:
                names[tensor.name] = self.keep(replace(tensor, name=self.name())).name
        for o in operators:
            inputs, outputs = ([names[n] for n in given] for given in (o.inputs, o.outputs))
            self.operate(replace(o, inputs=inputs, outputs=[n for n in outputs if n]), exact)
        return [self.tensors[n] for n in self.operators[-1].outputs]


Step = Callable[[Network], None]
"""Something that makes a network grow, or leaves it as it is where nothing fits."""
