"""Operators that ONNX Runtime's optimiser writes for several of ONNX's, as these again.

A file that a session saved with ``optimized_model_filepath`` has ``FusedConv`` for Conv and Relu, or
``DynamicQuantizeMatMul`` for five operators. What crtgen does with the ones that were there before, it does
with these, too, once they are back: integer layers, fused activations, tables. Functions of one element and
``FusedMatMul`` have converters of their own.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onnx import TensorProto, helper

__all__ = ["spell_optimised"]

_DOMAIN = "com.microsoft"


@dataclass(frozen=True, slots=True)
class _Fused:
    """A node of the optimiser: its inputs, empty where they are absent, outputs and attributes."""

    graph: Any
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    options: Mapping[str, Any]

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


def _activation(fused: _Fused, x: str) -> Iterator[Any]:
    # The activation behind a layer; its parameters are one list.
    kind = fused.options.get("activation", b"")
    code = kind.decode(errors="replace") if isinstance(kind, bytes) else str(kind)
    numbers = [float(n) for n in fused.options.get("activation_params", [])]
    if code == "Clip" and len(numbers) == 2:
        ends = [fused.number("low", numbers[0]), fused.number("high", numbers[1])]
        yield fused.node("Clip", [x, *ends], "")
        return
    given: Mapping[str, tuple[str, ...]] = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}
    named: dict[str, Any] = dict(zip(given.get(code, ()), numbers, strict=False))
    yield fused.node(code or "Identity", [x], "", **named)


def _conv(fused: _Fused) -> Iterator[Any]:
    # Convolution, sum with a fourth input, activation.
    own = fused.kept("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    yield fused.node("Conv", [name for name in fused.inputs[:3] if name], "conv", **own)
    before = "conv"
    if fused.given(3):
        yield fused.node("Add", [fused.made("conv"), fused.given(3)], "sum")
        before = "sum"
    yield from _activation(fused, fused.made(before))


def _gemm(fused: _Fused) -> Iterator[Any]:
    own = fused.kept("alpha", "beta", "transA", "transB")
    yield fused.node("Gemm", [name for name in fused.inputs if name], "gemm", **own)
    named = {"alpha": "activation_alpha", "beta": "activation_beta"}
    options = {a: fused.options[b] for a, b in named.items() if b in fused.options}
    kind = fused.options.get("activation", b"")
    code = kind.decode(errors="replace") if isinstance(kind, bytes) else str(kind)
    kept = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Elu": ("alpha",)}.get(code, ())
    chosen = {name: options[name] for name in kept if name in options}
    yield fused.node(code or "Identity", [fused.made("gemm")], "", **chosen)


def _dynamic_matmul(fused: _Fused) -> Iterator[Any]:
    # Quantises its input at run time.
    names = [fused.made(role) for role in ("numbers", "scale", "zero")]
    yield helper.make_node("DynamicQuantizeLinear", [fused.given(0)], names)
    inputs = [names[0], fused.given(1), names[2], fused.given(3)]
    yield from _rescaled(fused, inputs, names[1], fused.given(2), fused.given(4))


def _matmul_to_float(fused: _Fused) -> Iterator[Any]:
    inputs = [fused.given(0), fused.given(1), fused.given(4), fused.given(5)]
    yield from _rescaled(fused, inputs, fused.given(2), fused.given(3), fused.given(6))


def _rescaled(fused: _Fused, inputs: list[str], a_scale: str, b_scale: str, bias: str) -> Iterator[Any]:
    # The integer product of matrices with both zero points, times both scales, and a bias.
    while inputs and not inputs[-1]:
        inputs = inputs[:-1]
    yield fused.node("MatMulInteger", inputs, "sums")
    yield fused.node("Cast", [fused.made("sums")], "real", to=TensorProto.FLOAT)
    yield fused.node("Mul", [a_scale, b_scale], "factor")
    yield fused.node("Mul", [fused.made("real"), fused.made("factor")], "product" if bias else "")
    if bias:
        yield fused.node("Add", [fused.made("product"), bias], "")


def _skip_norm(fused: _Fused) -> Iterator[Any]:
    # A sum, of three where there is a bias, and its normalisation; the sum may be an output, too.
    total = fused.outputs[3] if len(fused.outputs) > 3 and fused.outputs[3] else fused.made("sum")
    first = fused.made("both") if fused.given(4) else total
    yield helper.make_node("Add", list(fused.inputs[:2]), [first])
    if fused.given(4):
        yield helper.make_node("Add", [first, fused.given(4)], [total])
    own = {"axis": -1, "epsilon": fused.options.get("epsilon", 1e-12)}
    inputs = [total, *(name for name in fused.inputs[2:4] if name)]
    yield fused.node("LayerNormalization", inputs, "", **own)


def _biased(code: str) -> Callable[[_Fused], Iterator[Any]]:
    def spelled(fused: _Fused) -> Iterator[Any]:
        x = fused.given(0)
        if fused.given(1):
            yield fused.node("Add", [x, fused.given(1)], "sum")
            x = fused.made("sum")
        yield fused.node(code, [x], "", _DOMAIN)

    return spelled


_SPELLED: Mapping[str, Callable[[_Fused], Iterator[Any]]] = {
    "BiasGelu": _biased("Gelu"),
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "FastGelu": _biased("FastGelu"),
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "MatMulIntegerToFloat": _matmul_to_float,
    "SkipLayerNormalization": _skip_norm,
}


# ONNX's operators, which the quantiser writes in its own domain for types that the file's version lacks.
_OWN = frozenset(("DequantizeLinear", "QuantizeLinear"))

# Operators with converters, whose results are float32. ONNX's type inference does not know them.
_REAL = frozenset(("FastGelu", "FusedMatMul", "Gelu", "QuickGelu"))


def spell_optimised(model: Any) -> None:
    """Replace operators of ONNX Runtime's optimiser by ONNX's, and give types to those that stay."""
    graph, nodes, is_new = model.graph, [], False
    for node in graph.node:
        if node.domain == _DOMAIN and node.op_type in _OWN:
            node.domain = ""
        spell = _SPELLED.get(node.op_type) if node.domain == _DOMAIN else None
        single = node.op_type == "FastGelu" and not any(node.input[1:])
        if spell is None or single or not node.output:
            nodes.append(node)
            continue
        options = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        nodes += spell(_Fused(graph, node.name, tuple(node.input), tuple(node.output), options))
        is_new = True
    if is_new:
        graph.ClearField("node")
        graph.node.extend(nodes)
    typed = {value.name for value in (*graph.value_info, *graph.output)}
    for node in graph.node:
        if node.domain == _DOMAIN and node.op_type in _REAL and node.output[0] not in typed:
            value = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)
            graph.value_info.append(value)
