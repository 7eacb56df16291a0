"""A random network in the making, as tensors and operators of a `.tflite` file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.tflite_builder import Model, Operator, Options, Tensor

__all__ = ["Network"]


@dataclass
class Network:
    """A network in the making; ``fresh`` are the tensors that nothing reads yet."""

    rng: np.random.Generator
    dtype: str
    tensors: dict[str, Tensor] = field(default_factory=dict)
    operators: list[Operator] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        """The `.tflite` file."""
        return Model(list(self.tensors.values()), self.operators, self.inputs, self.outputs).to_bytes()

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high, endpoint=True))

    def tensor(self, shape: Sequence[int], scale: float = 0.05, zero: int | None = None) -> Tensor:
        """A new tensor of the network's type, with a random zero point if none is given."""
        name = f"t{len(self.tensors)}"
        if self.dtype == "float32":
            made = Tensor(name, shape, "float32")
        else:
            point = self.pick([-128, 0, self.integer(-40, 40)]) if zero is None else zero
            made = Tensor(name, shape, "int8", [float(np.float32(min(max(scale, 1e-4), 4)))], [point])
        self.tensors[name] = made
        return made

    def like(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """A tensor that is quantised as ``x``."""
        return self.tensor(shape, *((x.scales[0], x.zero_points[0]) if x.scales else ()))

    def constant(self, data: Any, dtype: str = "int32", **quantisation: Any) -> str:
        array = np.asarray(data, dtype)
        name = f"t{len(self.tensors)}"
        self.tensors[name] = Tensor(name, array.shape, dtype, data=array, **quantisation)
        return name

    def values(self, like: Tensor, shape: Sequence[int]) -> str:
        """A constant operand of the network's type, quantised as ``like``."""
        if self.dtype == "float32":
            return self.constant(self.rng.normal(0, 1, shape), "float32")
        data = self.rng.integers(-128, 128, shape)
        return self.constant(data, "int8", scales=like.scales, zero_points=like.zero_points)

    def add(
        self, code: str, inputs: Sequence[str | None], y: Tensor, options: Options | None = None
    ) -> Tensor:
        self.operators.append(Operator(code, inputs, [y.name], options))
        self.fresh = [n for n in self.fresh if n not in inputs] + [y.name]
        return y

    def computed(self, rank: int | None = None) -> list[Tensor]:
        """The tensors of the network's type that are not constant, of one rank if it is given."""
        variable = [t for t in self.tensors.values() if t.data is None and t.dtype == self.dtype]
        return [t for t in variable if rank is None or len(t.shape) == rank]

    def source(self, rank: int | None = None) -> Tensor | None:
        """An operand: what nothing reads yet, mostly."""
        candidates = self.computed(rank)
        fresh = [t for t in candidates if t.name in self.fresh]
        pool = fresh if fresh and self.chance(0.75) else candidates
        return self.pick(pool) if pool else None

    def activation(self) -> int:
        """NONE, RELU, RELU_N1_TO_1 or RELU6."""
        return int(self.rng.choice(4, p=[0.55, 0.2, 0.05, 0.2]))
