"""Expands operators that ONNX Runtime's optimiser fused back into ONNX's own.

A file that a session saved with ``optimized_model_filepath`` has ``FusedConv`` for Conv and Relu, or
``DynamicQuantizeMatMul`` for five operators. After the expansion they are treated like the original
operators: integer layers, fused activations, tables. Functions of one element and ``FusedMatMul`` have
converters of their own.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from onnx import TensorProto, helper

from crtgen.network.frontends.onnx_attention import ATTENTION, can_be_spelled
from crtgen.network.frontends.onnx_functions import DOMAINS
from crtgen.network.frontends.onnx_fused import DOMAIN, Fused

__all__ = ["spell_optimised"]


def _activation(fused: Fused, x: str) -> Iterator[Any]:
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


def _conv(fused: Fused) -> Iterator[Any]:
    # Convolution, sum with a fourth input, activation.
    own = fused.kept("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    yield fused.node("Conv", [name for name in fused.inputs[:3] if name], "conv", **own)
    before = "conv"
    if fused.given(3):
        yield fused.node("Add", [fused.made("conv"), fused.given(3)], "sum")
        before = "sum"
    yield from _activation(fused, fused.made(before))


def _gemm(fused: Fused) -> Iterator[Any]:
    own = fused.kept("alpha", "beta", "transA", "transB")
    yield fused.node("Gemm", [name for name in fused.inputs if name], "gemm", **own)
    named = {"alpha": "activation_alpha", "beta": "activation_beta"}
    options = {a: fused.options[b] for a, b in named.items() if b in fused.options}
    kind = fused.options.get("activation", b"")
    code = kind.decode(errors="replace") if isinstance(kind, bytes) else str(kind)
    kept = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Elu": ("alpha",)}.get(code, ())
    chosen = {name: options[name] for name in kept if name in options}
    yield fused.node(code or "Identity", [fused.made("gemm")], "", **chosen)


def _dynamic_matmul(fused: Fused) -> Iterator[Any]:
    # Quantises its input at run time.
    names = [fused.made(role) for role in ("numbers", "scale", "zero")]
    yield helper.make_node("DynamicQuantizeLinear", [fused.given(0)], names)
    inputs = [names[0], fused.given(1), names[2], fused.given(3)]
    yield from _rescaled(fused, inputs, names[1], fused.given(2), fused.given(4))


def _matmul_to_float(fused: Fused) -> Iterator[Any]:
    inputs = [fused.given(0), fused.given(1), fused.given(4), fused.given(5)]
    yield from _rescaled(fused, inputs, fused.given(2), fused.given(3), fused.given(6))


def _rescaled(fused: Fused, inputs: list[str], a_scale: str, b_scale: str, bias: str) -> Iterator[Any]:
    # The integer product of matrices with both zero points, times both scales, and a bias.
    while inputs and not inputs[-1]:
        inputs = inputs[:-1]
    yield fused.node("MatMulInteger", inputs, "sums")
    yield fused.node("Cast", [fused.made("sums")], "real", to=TensorProto.FLOAT)
    yield fused.node("Mul", [a_scale, b_scale], "factor")
    yield fused.node("Mul", [fused.made("real"), fused.made("factor")], "product" if bias else "")
    if bias:
        yield fused.node("Add", [fused.made("product"), bias], "")


def _dynamic_lstm(fused: Fused) -> Iterator[Any]:
    # An LSTM by the floats that its weights stand for, which have their rows and columns the other way round.
    for place, scale, zero, role in ((1, 8, 9, "w"), (2, 10, 11, "r")):
        for name, source in (("numbers", fused.given(place)), ("zero", fused.given(zero))):
            if source:
                yield fused.node("Cast", [source], f"{role}.{name}", to=TensorProto.FLOAT)
        moved = fused.made(f"{role}.numbers")
        each = fused.ranks.get(fused.given(scale), 1) > 1
        shape = fused.list_of(f"{role}.shape", [0, 1, -1] if each else [-1, 1, 1])
        if fused.given(zero):
            yield fused.node("Reshape", [fused.made(f"{role}.zero"), shape], f"{role}.zeros")
            yield fused.node("Sub", [moved, fused.made(f"{role}.zeros")], f"{role}.moved")
            moved = fused.made(f"{role}.moved")
        yield fused.node("Reshape", [fused.given(scale), shape], f"{role}.scales")
        yield fused.node("Mul", [moved, fused.made(f"{role}.scales")], f"{role}.real")
        yield fused.node("Transpose", [fused.made(f"{role}.real")], role, perm=[0, 2, 1])
    inputs = [fused.given(0), fused.made("w"), fused.made("r"), *(fused.given(n) for n in range(3, 8))]
    while not inputs[-1]:
        inputs.pop()
    yield helper.make_node("LSTM", inputs, list(fused.outputs), name=fused.name, **fused.options)


def _real_gemm(fused: Fused) -> Iterator[Any]:
    # QGemm whose sums stay real.
    operands = list[str]()
    for place, role, flag in ((0, "a", "transA"), (3, "b", "transB")):
        if fused.flag(flag):
            yield fused.node("Transpose", [fused.given(place)], role, perm=[1, 0])
        operands.append(fused.made(role) if fused.flag(flag) else fused.given(place))
    yield fused.node("MatMulInteger", [*operands, fused.given(2), fused.given(5)], "sums")
    sums = fused.made("sums")
    if fused.given(6):
        yield fused.node("Add", [sums, fused.given(6)], "biased")
        sums = fused.made("biased")
    yield fused.node("Cast", [sums], "real", to=TensorProto.FLOAT)
    yield fused.node("Mul", [fused.given(1), fused.given(4)], "steps")
    alpha = fused.number("alpha", fused.options.get("alpha", 1.0))
    yield fused.node("Mul", [fused.made("steps"), alpha], "factor")
    yield fused.node("Mul", [fused.made("real"), fused.made("factor")], "")


def _skip_norm(fused: Fused) -> Iterator[Any]:
    # A sum, of three where there is a bias, and its normalisation; the sum may be an output, too.
    total = fused.outputs[3] if len(fused.outputs) > 3 and fused.outputs[3] else fused.made("sum")
    first = fused.made("both") if fused.given(4) else total
    yield helper.make_node("Add", list(fused.inputs[:2]), [first])
    if fused.given(4):
        yield helper.make_node("Add", [first, fused.given(4)], [total])
    own = {"axis": -1, "epsilon": fused.options.get("epsilon", 1e-12)}
    inputs = [total, *(name for name in fused.inputs[2:4] if name)]
    yield fused.node("LayerNormalization", inputs, "", **own)


def _biased(code: str) -> Callable[[Fused], Iterator[Any]]:
    def spelled(fused: Fused) -> Iterator[Any]:
        x = fused.given(0)
        if fused.given(1):
            yield fused.node("Add", [x, fused.given(1)], "sum")
            x = fused.made("sum")
        yield fused.node(code, [x], "", DOMAIN)

    return spelled


_SPELLED: Mapping[str, Callable[[Fused], Iterator[Any]]] = {
    "BiasGelu": _biased("Gelu"),
    "DynamicQuantizeLSTM": _dynamic_lstm,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "FastGelu": _biased("FastGelu"),
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "MatMulIntegerToFloat": _matmul_to_float,
    "QGemm": _real_gemm,
    "SkipLayerNormalization": _skip_norm,
    **ATTENTION,
}


# ONNX's operators, which the quantiser writes in its own domain for types that the file's version lacks.
_OWN = frozenset(("DequantizeLinear", "QuantizeLinear"))

# Operators with converters, whose results are float32. ONNX's type inference does not know them.
_REAL = frozenset(("FastGelu", "FusedMatMul", "Gelu", "QuickGelu"))


def spell_optimised(model: Any) -> None:
    """Replace fused operators of ONNX Runtime's optimiser by ONNX's own, and add types to those that stay."""
    graph, nodes, is_new = model.graph, [], False
    opset = next((i.version for i in model.opset_import if i.domain in DOMAINS), 0)
    ranks = _ranks(graph) if any(_spells(node) for node in graph.node) else {}
    for node in graph.node:
        if node.domain == DOMAIN and node.op_type in _OWN:
            node.domain = ""
        spell = _spells(node)
        if spell is None or not node.output:
            nodes.append(node)
            continue
        options = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        code, ends = node.op_type, (tuple(node.input), tuple(node.output))
        fused = Fused(graph, code, node.name, *ends, options, ranks, opset)
        if code in ATTENTION and not can_be_spelled(code, fused):
            nodes.append(node)
            continue
        nodes += spell(fused)
        is_new = True
    if is_new:
        graph.ClearField("node")
        graph.node.extend(nodes)
    typed = {value.name for value in (*graph.value_info, *graph.output)}
    for node in graph.node:
        if node.domain == DOMAIN and node.op_type in _REAL and node.output[0] not in typed:
            value = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)
            graph.value_info.append(value)


def _spells(node: Any) -> Callable[[Fused], Iterator[Any]] | None:
    # What spells a node out; None for a node that stays.
    if node.domain in DOMAINS and node.op_type == "SimplifiedLayerNormalization":
        return ATTENTION[node.op_type]  # the optimiser forgets its own domain
    stays = (node.op_type == "FastGelu" and not any(node.input[1:])) or (
        node.op_type == "QGemm" and len(node.input) > 7 and node.input[7]
    )
    return None if node.domain != DOMAIN or stays else _SPELLED.get(node.op_type)


def _ranks(graph: Any) -> dict[str, int]:
    # Numbers of dimensions that the file states.
    given = [v for v in (*graph.input, *graph.value_info) if v.type.tensor_type.HasField("shape")]
    found = {value.name: len(value.type.tensor_type.shape.dim) for value in given}
    return found | {tensor.name: len(tensor.dims) for tensor in graph.initializer}
