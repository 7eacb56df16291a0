"""LayerNormalization in models with an older opset, as ONNX Runtime and its optimiser write it."""

from collections.abc import Iterator, Mapping
from typing import Any

import onnx
from onnx import helper

from crtgen.network.frontends.onnx_checks import MAX_RANK
from crtgen.network.frontends.onnx_functions import DOMAINS

__all__ = ["spell_older"]

_CODE = "LayerNormalization"


def spell_older(model: Any) -> None:
    """Replace these nodes by operators of the model's opset; they are kept if the axes are unknown.

    ``y = (x - mean) / sqrt(mean((x - mean)**2) + epsilon) * scale + bias``, with means over the last axes.
    """
    opset = next((i.version for i in model.opset_import if i.domain in DOMAINS), 0)
    graph = model.graph
    if opset >= onnx.defs.get_schema(_CODE).since_version or all(n.op_type != _CODE for n in graph.node):
        return
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        options = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        own = node.op_type == _CODE and node.domain in DOMAINS
        is_plain = len(node.input) in (2, 3) and all(node.input[:2]) and len(node.output) == 1
        if not (own and is_plain and -MAX_RANK <= options.get("axis", -1) < 0):
            nodes.append(node)
            continue
        kind = types.get(node.input[1], onnx.TensorProto.FLOAT)
        epsilon = options.get("epsilon", 1e-5)
        graph.initializer.append(helper.make_tensor(f"{node.output[0]}.epsilon", kind, [], [epsilon]))
        nodes += _spelled(node, options)
    graph.ClearField("node")
    graph.node.extend(nodes)


def _spelled(node: Any, options: Mapping[str, Any]) -> Iterator[Any]:
    # The nodes that compute the output of ``node``; its epsilon is a constant.
    x, scale, *bias = (name for name in node.input if name)
    y = node.output[0]
    axes = list(range(options.get("axis", -1), 0))

    def made(code: str, inputs: list[str], role: str, **attributes: Any) -> Any:
        output = f"{y}.{role}" if role else y
        name = f"{node.name}.{role or 'end'}" if node.name else ""
        return helper.make_node(code, inputs, [output], name=name, **attributes)

    yield made("ReduceMean", [x], "mean", axes=axes)
    yield made("Sub", [x, f"{y}.mean"], "distance")
    yield made("Mul", [f"{y}.distance"] * 2, "square")
    yield made("ReduceMean", [f"{y}.square"], "variance", axes=axes)
    yield made("Add", [f"{y}.variance", f"{y}.epsilon"], "sum")
    yield made("Sqrt", [f"{y}.sum"], "deviation")
    yield made("Div", [f"{y}.distance", f"{y}.deviation"], "normal")
    yield made("Mul", [f"{y}.normal", scale], "scaled" if bias else "")
    if bias:
        yield made("Add", [f"{y}.scaled", bias[0]], "")
