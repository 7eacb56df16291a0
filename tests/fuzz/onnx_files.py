"""Damaged and strange `.onnx` files: bytes that are changed, and models whose parts are."""

import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import onnx
from google.protobuf.message import DecodeError, EncodeError

from crtgen.network.frontends import load_onnx
from tests.fuzz.engine import Target
from tests.fuzz.mutate import mutate_bytes
from tests.support import ROOT

__all__ = ["onnx_target"]

_NUMBERS = (-(1 << 63), -(1 << 31), -2, -1, 0, 1, 2, 3, 7, 255, 1 << 20, 1 << 31, (1 << 63) - 1)
_REALS = (0.0, -1.0, 1e-45, 1e38, float("inf"), float("nan"))
_CODES = ("Add", "Concat", "Conv", "DequantizeLinear", "LSTM", "MatMul", "QuantizeLinear", "Split", "Where")
_LARGE = 20_000


@cache
def _seeds() -> tuple[bytes, ...]:
    """The smallest node test of each operator, networks, and quantised ones."""
    from tests.network.frontends.onnx.nodes import node_tests
    from tests.network.frontends.onnx.quantised import FORMS, quantised
    from tests.network.frontends.onnx.test_networks import branches, residual

    smallest: dict[str, bytes] = {}
    for test in node_tests():
        data = _with_constants(test.model, test.fixed)
        if len(data) < min(len(smallest.get(test.operator, b"")) or _LARGE, _LARGE):
            smallest[test.operator] = data
    networks = (made().model().SerializeToString() for made in (branches, residual))
    forms = ("qdq_uint8", "qoperator_int8", "qdq_uint8_weights")
    integers = (quantised(name, FORMS[form]) for name in ("functions", "pieces") for form in forms)
    demo = (ROOT / "demo" / "digits.onnx").read_bytes()
    return (demo, *networks, *integers, *smallest.values())


def _with_constants(model: bytes, fixed: Any) -> bytes:
    """The model with constants in place of inputs."""
    proto = onnx.load_model_from_string(model)
    for name, array in fixed.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    kept = [value for value in proto.graph.input if value.name not in fixed]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    return bytes(proto.SerializeToString())


def _mutated(random: Random, seeds: Sequence[bytes]) -> bytes:
    data = random.choice(seeds)
    if random.random() < 0.4:
        return mutate_bytes(random, data, random.choice(seeds))
    model = onnx.load_model_from_string(data)
    for _ in range(random.choice((1, 1, 2, 3))):
        random.choice(_CHANGES)(random, model)
    try:
        return bytes(model.SerializeToString())
    except (EncodeError, DecodeError, ValueError):
        return data


def _attribute(random: Random, model: Any) -> None:
    nodes = [node for node in model.graph.node if node.attribute]
    if not nodes:
        return
    attribute = random.choice(random.choice(nodes).attribute)
    if attribute.type == onnx.AttributeProto.INTS and attribute.ints:
        place = random.randrange(len(attribute.ints))
        if random.random() < 0.3:
            del attribute.ints[place]
        else:
            attribute.ints[place] = random.choice(_NUMBERS)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = random.choice(_REALS)
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = random.choice((b"", b"SAME_UPPER", b"NOTSET", b"linear", b"\xff"))
    else:
        attribute.i = random.choice(_NUMBERS)


def _operator(random: Random, model: Any) -> None:
    if model.graph.node:
        random.choice(model.graph.node).op_type = random.choice(_CODES)


def _edges(random: Random, model: Any) -> None:
    if not model.graph.node:
        return
    node = random.choice(model.graph.node)
    names = [name for other in model.graph.node for name in (*other.input, *other.output)]
    side = random.choice((node.input, node.output))
    if not side:
        return
    place = random.randrange(len(side))
    if random.random() < 0.2:
        del side[place]
    else:
        side[place] = random.choice([*names, "", "nothing"])


def _constant(random: Random, model: Any) -> None:
    if not model.graph.initializer:
        return
    tensor = random.choice(model.graph.initializer)
    kind = random.randrange(4)
    if kind == 0 and tensor.dims:
        tensor.dims[random.randrange(len(tensor.dims))] = random.choice(_NUMBERS)
    elif kind == 1:
        tensor.data_type = random.choice((0, 1, 2, 3, 5, 6, 7, 9, 10, 11, 16, 21, 22, 99))
    elif kind == 2 and tensor.raw_data:
        tensor.raw_data = mutate_bytes(random, tensor.raw_data)
    else:
        del tensor.dims[:]


def _value(random: Random, model: Any) -> None:
    values = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    if not values:
        return
    kind = random.choice(values).type.tensor_type
    if random.random() < 0.4:
        kind.elem_type = random.choice((0, 1, 2, 3, 5, 6, 7, 9, 10, 11, 16, 22, 99))
    elif kind.shape.dim:
        kind.shape.dim[random.randrange(len(kind.shape.dim))].dim_value = random.choice(_NUMBERS)


def _version(random: Random, model: Any) -> None:
    if model.opset_import:
        random.choice(model.opset_import).version = random.choice((*_NUMBERS, *range(6, 27)))


_CHANGES: tuple[Callable[[Random, Any], None], ...] = (
    *(_attribute, _attribute, _constant, _constant, _value, _edges, _edges, _operator, _version),
)


def onnx_target(compile_: Callable[[Any, str], None]) -> Target:
    """The front end; every eighth of the accepted is compiled by ``compile_``, for one of three boards."""

    def run(data: bytes, folder: Path) -> bool:
        graph = load_onnx(data)
        number = zlib.crc32(data) % 24
        if number < 3:
            compile_(graph, ("host", "mps2_an386", "mps3_an547")[number])
        return True

    return Target("onnx", _seeds, _mutated, run)
