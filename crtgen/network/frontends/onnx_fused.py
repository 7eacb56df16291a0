"""A node that ONNX Runtime's optimiser wrote, and helpers for the nodes that replace it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import TensorProto, helper

__all__ = ["DOMAIN", "Fused"]

DOMAIN = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Fused:
    """A node of the optimiser: its inputs (empty if absent), outputs and attributes.

    ``ranks`` are the numbers of dimensions of tensors that the file states; ``opset`` is the version of
    ONNX's own operators.
    """

    graph: Any
    code: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    options: Mapping[str, Any]
    ranks: Mapping[str, int]
    opset: int

    def given(self, position: int) -> str:
        return self.inputs[position] if position < len(self.inputs) else ""

    def made(self, role: str) -> str:
        """Return the name of an inner value; without a ``role``, that of the output itself."""
        return f"{self.outputs[0]}.{role}" if role else self.outputs[0]

    def node(self, code: str, inputs: list[str], role: str, domain: str = "", **attributes: Any) -> Any:
        name = f"{self.name}.{role or 'end'}" if self.name else ""
        return helper.make_node(code, inputs, [self.made(role)], name=name, domain=domain, **attributes)

    def number(self, role: str, value: float) -> str:
        self.graph.initializer.append(
            helper.make_tensor(self.made(role), TensorProto.FLOAT, [], [float(value)])
        )
        return self.made(role)

    def kept(self, *names: str) -> dict[str, Any]:
        return {name: self.options[name] for name in names if name in self.options}

    def list_of(self, role: str, values: Sequence[int]) -> str:
        data = [int(v) for v in values]
        self.graph.initializer.append(
            helper.make_tensor(self.made(role), TensorProto.INT64, [len(data)], data)
        )
        return self.made(role)

    def flag(self, name: str) -> bool:
        return bool(self.options.get(name, 0))

    def step(self, role: str, value: int) -> str:
        self.graph.initializer.append(helper.make_tensor(self.made(role), TensorProto.INT64, [], [value]))
        return self.made(role)

    def reduced(
        self, code: str, x: str, role: str, axis: int, as_input: int, keepdims: int = 0
    ) -> Iterator[Any]:
        if self.opset >= as_input:
            axes = self.list_of(f"{role}.axes", [axis])
            yield self.node(code, [x, axes], role, keepdims=keepdims)
        else:
            yield self.node(code, [x], role, axes=[axis], keepdims=keepdims)
