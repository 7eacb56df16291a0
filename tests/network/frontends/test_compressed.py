"""Compressed constants of TFLite Micro against its interpreter, and what is wrong with them."""

import warnings
from typing import Any

import numpy as np
import pytest

from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.network.frontends import load_tflite
from crtgen.network.ir import Array, Graph
from tests.network.frontends.compressed import (
    SHAPE,
    by_metadata,
    clustered,
    coding,
    compressed,
    maximum,
    packed_bits,
)
from tests.network.ops import oracle
from tests.support import model_path
from tests.tflite_builder import Model, Operator, Options, Tensor

_RANDOM = np.random.default_rng(3)
_TYPES = {"int8": 1, "int16": 2}


def _numbers(shape: tuple[int, ...], dtype: str = "int8") -> Array:
    return _RANDOM.integers(-100, 100, shape).astype(dtype)


def _decoded(graph: Graph) -> Array:
    """The only constant of more than one axis."""
    (value,) = [v for v in graph.values.values() if v.is_constant and len(v.shape) > 1]
    return value.array()


def _result(data: bytes, dtype: str = "int8") -> Array:
    """The output for the least numbers, which is what was decoded."""
    graph = load_tflite(data)
    x = np.full(SHAPE, np.iinfo(dtype).min, dtype)
    return graph.evaluate({graph.inputs[0]: x})[graph.outputs[0]]


def _interpreted(data: bytes, dtype: str = "int8") -> Array:
    (y,) = oracle.run(data, {"x": np.full(SHAPE, np.iinfo(dtype).min, dtype)}, ("x",))
    return y


def _same(data: bytes, expected: Array, dtype: str = "int8") -> None:
    np.testing.assert_array_equal(_result(data, dtype), expected)
    np.testing.assert_array_equal(_interpreted(data, dtype), expected)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("bits", range(1, 8))
def test_one_table(bits: int, dtype: str) -> None:
    table, indices = _numbers((2**bits,), dtype), _RANDOM.integers(0, 2**bits, SHAPE)
    ancillary = coding(0, [1, 0xF0 | bits, 2**bits], table)
    _same(maximum(packed_bits(indices, bits), ancillary, dtype=dtype), table[indices], dtype)


def _dense(weights: list[Tensor], operators: list[Operator], scales: list[float]) -> bytes:
    """A fully connected layer of 6 inputs and 4 outputs, whose weights ``w`` others make."""
    tensors = [
        Tensor("x", (1, 6), "int8", [0.5], [3]),
        *weights,
        Tensor(
            "b", (4,), "int32", [0.5 * s for s in scales], [0] * len(scales), data=_numbers((4,), "int32")
        ),
        Tensor("y", (1, 4), "int8", [80.0], [-3]),
    ]
    layer = Operator("FULLY_CONNECTED", ["x", "w", "b"], ["y"], Options("FullyConnectedOptions"))
    return Model(tensors, [*operators, layer], ["x"], ["y"]).to_bytes()


def _depthwise(weights: list[Tensor], operators: list[Operator], scales: list[float]) -> bytes:
    """A depthwise layer of 4 taps and 6 channels."""
    tensors = [
        Tensor("x", (1, 5, 5, 6), "int8", [0.5], [3]),
        *weights,
        Tensor(
            "b", (6,), "int32", [0.5 * s for s in scales], [0] * len(scales), data=_numbers((6,), "int32")
        ),
        Tensor("y", (1, 4, 4, 6), "int8", [80.0], [-3]),
    ]
    options = Options("DepthwiseConv2DOptions", Padding=1, StrideH=1, StrideW=1, DepthMultiplier=1)
    layer = Operator("DEPTHWISE_CONV_2D", ["x", "w", "b"], ["y"], options)
    return Model(tensors, [*operators, layer], ["x"], ["y"]).to_bytes()


_DECODE = Operator("CUSTOM TFLM_DECODE", ["codes", "tables"], ["w"])
_LAYERS = {"dense": (_dense, SHAPE, 0), "depthwise": (_depthwise, (1, 2, 2, 6), 3)}


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("kind", _LAYERS)
def test_a_table_a_channel(kind: str, given: bool) -> None:
    """Whether the header has the axis, or 0 as in older files, where that of the scales counts."""
    layer, shape, axis = _LAYERS[kind]
    scales = [0.5 + 0.25 * n for n in range(shape[axis])]
    tables, indices = _numbers((shape[axis], 5)), _RANDOM.integers(0, 5, shape)
    channels = np.arange(shape[axis]).reshape([-1 if n == axis else 1 for n in range(len(shape))])
    ancillary = coding(0, [1, (axis if given else 0) << 4 | 3, 5], tables)
    codes = packed_bits(indices, 3)
    weights = [
        Tensor("codes", codes.shape, "uint8", data=codes),
        Tensor("tables", ancillary.shape, "uint8", data=ancillary),
        Tensor("w", shape, "int8", scales, [0] * len(scales), axis),
    ]
    data = layer(weights, [_DECODE], scales)
    graph = load_tflite(data)
    np.testing.assert_array_equal(_decoded(graph), tables[channels, indices])
    x = _numbers(graph.values["x"].shape)
    np.testing.assert_array_equal(
        graph.evaluate({"x": x})[graph.outputs[0]], oracle.run(data, {"x": x}, ("x",))[0]
    )


@pytest.mark.parametrize("scales", [[0.5], [0.5, 0.75, 1.0, 1.25]])
def test_the_older_form(scales: list[float]) -> None:
    tables, indices = _numbers((len(scales), 8)), _RANDOM.integers(0, 8, SHAPE)
    zeros = Tensor("w", SHAPE, "int8", scales, [0] * len(scales), data=np.zeros(SHAPE, np.int8))
    data = by_metadata(_dense([zeros], [], scales), 1, packed_bits(indices, 3), tables, 3)
    graph, x = load_tflite(data), _numbers((1, 6))
    (expected,) = oracle.run(data, {"x": x}, ("x",))
    np.testing.assert_array_equal(graph.evaluate({"x": x})[graph.outputs[0]], expected)
    rows = np.arange(4).reshape(-1, 1) if len(scales) > 1 else 0
    np.testing.assert_array_equal(_decoded(graph), tables[rows, indices])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bits": 0}, "indices of 0 bits"),
        ({"bits": 8}, "indices of 8 bits"),
        ({"bits": 2}, "9 bytes of indices instead of 6"),
        ({"tables": np.zeros((1, 4), np.int8)}, "an index of 7 into a table of 4"),
        ({"tensor": 2}, "9 bytes of indices instead of 2"),
        ({"version": 2}, "version 2 of compressed tensors"),
    ],
)
def test_what_is_wrong_with_the_older_form(change: dict[str, Any], reason: str) -> None:
    zeros = Tensor("w", SHAPE, "int8", [0.5], [0], data=np.zeros(SHAPE, np.int8))
    given: dict[str, Any] = {
        "tensor": 1,
        "indices": packed_bits(np.full(SHAPE, 7), 3),
        "tables": np.zeros((1, 8), np.int8),
        "bits": 3,
    }
    with pytest.raises((CorruptModelError, UnsupportedError), match=reason):
        load_tflite(by_metadata(_dense([zeros], [], [0.5]), **{**given, **change}))


def _huffman(wide: bool) -> tuple[Array, Array, Array]:
    """Codes 0, 10, 110 and 111 by a table of four entries and another one; their numbers."""
    codes = {5: "0", -7: "10", 100: "110", 3: "111"}
    shift = 27 if wide else 11
    entries = [(16 + length << shift) | number % 256 for number, length in ((5, 1), (5, 1), (-7, 2))]
    entries += [1, 17 << shift | 100, 17 << shift | 3]
    if wide:  # of 27 bits, of which a number takes what it has
        entries[2] = 18 << shift | -7 & (1 << 27) - 1
    numbers = _RANDOM.choice([5, 5, 5, -7, 100, 3], SHAPE)
    bits = "".join(codes[number] for number in numbers.ravel().tolist())
    words = -(-len(bits) // 32)
    encoded = np.frombuffer(int(bits.ljust(32 * words, "0"), 2).to_bytes(4 * words, "big"), np.uint8)
    return encoded, np.array(entries, np.uint32 if wide else np.uint16), numbers


@pytest.mark.parametrize(("dtype", "wide"), [("int8", False), ("int8", True), ("int16", True)])
def test_huffman(dtype: str, wide: bool) -> None:
    encoded, table, numbers = _huffman(wide)
    _same(maximum(encoded, coding(1, [1, 0x10 | wide], table), dtype=dtype), numbers, dtype)


@pytest.mark.parametrize(("dtype", "zero"), [("int8", 0), ("int8", 9), ("int16", 0)])
def test_pruning(dtype: str, zero: int) -> None:
    where = _RANDOM.integers(0, 2, SHAPE)
    values = _numbers((int(where.sum()),), dtype)
    expected = np.full(SHAPE, zero, dtype)
    expected[where == 1] = values
    data = maximum(packed_bits(where, 1), coding(2, [1], values), dtype=dtype, zero=zero)
    np.testing.assert_array_equal(_decoded(load_tflite(data)), expected)
    _same(data, expected, dtype) if zero == 0 else np.testing.assert_array_equal(_interpreted(data), expected)


_CODES = packed_bits(np.full(SHAPE, 3), 2)
_TABLE = np.arange(4, dtype=np.int8)
_MASK = packed_bits(np.ones(SHAPE), 1)
_TREE = np.array([0x8801, 0x0001, 0x8802, 0x8803], np.uint16)


@pytest.mark.parametrize(
    ("encoded", "ancillary", "reason"),
    [
        (_CODES, coding(0, [1, 0xF2, 4], _TABLE)[:15], "have 15 bytes; the header alone has 16"),
        (_CODES, coding(0, [1, 0xF2, 4], _TABLE[:3]), "have 3 bytes instead of 4"),
        (_CODES, coding(0, [1, 0xF2, 3], _TABLE[:3]), "an index of 3 into a table of 3 numbers"),
        (_CODES, coding(0, [1, 0xF2, 0], _TABLE[:0]), "an index of 3 into a table of 0 numbers"),
        (_CODES, coding(0, [1, 0xF0, 4], _TABLE), "indices of 0 bits; possible are 1 to 7"),
        (_CODES, coding(0, [1, 0xF3, 4], _TABLE), "6 bytes of indices instead of 9"),
        (_CODES[:5], coding(0, [1, 0xF2, 4], _TABLE), "5 bytes of indices instead of 6"),
        (_CODES, coding(0, [1, 0x22, 4], _TABLE), "parameters 0x22 of tables"),
        (_CODES, coding(0, [1, 0xFA, 4], _TABLE), "parameters 0xfa of tables"),
        (_CODES, coding(0, [2, 0xF2, 4], _TABLE), "version 1.2 of the coding; supported: 1.1"),
        (_CODES, coding(0, [1, 0xF2, 4], _TABLE, 2), "version 2.1 of the coding; supported: 1.1"),
        (_CODES, coding(3, [1], _TABLE), "a coding of kind 3; supported: 0"),
        (_CODES, coding(128, [1], _TABLE), "a coding of kind 128; supported: 0"),
        (_MASK[:2], coding(2, [1], np.zeros(24, np.int8)), "2 bytes say where 24 numbers"),
        (_MASK, coding(2, [1], np.zeros(23, np.int8)), "23 bytes of values instead of 24"),
        (_MASK, coding(1, [1, 0x00], _TREE[:1]), "leads to entry 1 of 1"),
        (_MASK, coding(1, [1, 0x00], _TREE), "the codes end after"),
        (_MASK, coding(1, [1, 0x00], np.array([1, 0x7FFF], np.uint16)), "leads to entry"),
        (
            _MASK,
            coding(1, [1, 0x00], np.array([0x8000] * 2, np.uint16)),
            "entry 1 of its tables is of 0 of 1",
        ),
        (
            _MASK,
            coding(1, [1, 0x00], np.array([0x9000] * 2, np.uint16)),
            "entry 1 of its tables is of 2 of 1",
        ),
        (_MASK, coding(1, [1, 0x00], np.zeros(99, np.uint16)), "longer than 32 bits"),
        (_MASK, coding(1, [1, 0x00], np.zeros(3, np.uint8)), "a table of 3 bytes, in entries of 2"),
    ],
)
def test_what_is_wrong(encoded: Array, ancillary: Array, reason: str) -> None:
    with pytest.raises((CorruptModelError, UnsupportedError), match=reason) as error:
        load_tflite(maximum(encoded, ancillary))
    assert "TFLM_DECODE" in str(error.value)
    assert "operator 0, tensor 3" in str(error.value)


def test_codes_have_to_be_constants() -> None:
    data = maximum(_CODES, coding(0, [1, 0xF2, 4], _TABLE), constant=False)
    with pytest.raises(UnsupportedError, match="codes 'codes' that are no constant"):
        load_tflite(data)


def test_tables_of_one_axis_beside_scales_of_another_are_refused() -> None:
    """Where there are as many of both, an older file may mean either."""
    tables, indices = _numbers((6, 5)), packed_bits(_RANDOM.integers(0, 5, (6, 6)), 3)
    data = maximum(indices, coding(0, [1, 3, 5], tables), shape=(6, 6), scales=[0.5] * 6, axis=1)
    with pytest.raises(UnsupportedError, match="axis 0 beside scales of axis 1, as many of both"):
        load_tflite(data)


@pytest.mark.models
@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize(("name", "bits"), [("kws_int8", 4), ("ad01_int8", 3)])
def test_networks_that_the_package_compresses(name: str, bits: int, by_channel: bool) -> None:
    """The interpreter knows one table for tensors with one scale, and a table a channel for others."""
    plain, layers = clustered(model_path(name).read_bytes(), 2**bits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = compressed(plain, layers, bits, by_channel)
    graph, same = load_tflite(data), load_tflite(plain)
    for key, value in same.values.items():
        if value.is_constant:
            np.testing.assert_array_equal(graph.values[key].data, value.data)
    x = _numbers(graph.values[graph.inputs[0]].shape)
    made = graph.evaluate({graph.inputs[0]: x})[graph.outputs[0]]
    if by_channel:
        (expected,) = oracle.run(data, {"x": x}, ("x",))
        np.testing.assert_array_equal(made, expected)
    (expected,) = oracle.run(plain, {"x": x}, ("x",))
    np.testing.assert_array_equal(made, expected)


def test_random_bytes_in_a_compressed_model() -> None:
    """Whatever is damaged, the answer is a graph or a model error."""
    encoded, table, _ = _huffman(False)
    seeds = [
        maximum(_CODES, coding(0, [1, 0xF2, 4], _TABLE)),
        maximum(encoded, coding(1, [1, 0x10], table)),
        maximum(_MASK, coding(2, [1], np.zeros(24, np.int8))),
    ]
    for seed in seeds:
        for _ in range(150):
            data = bytearray(seed)
            for place in _RANDOM.integers(0, len(data), 3):
                data[place] = _RANDOM.integers(0, 256)
            try:
                load_tflite(bytes(data))
            except (CorruptModelError, UnsupportedError):
                continue
