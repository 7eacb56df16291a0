"""Operators of TFLite that become other ones, or several, against TFLite Micro."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from crtgen.network.frontends import load_tflite
from crtgen.network.ir import Array
from tests.network.ops import oracle
from tests.tflite_builder import Model, Operator, Options, Tensor

_QUANT: dict[str, dict[str, Any]] = {
    "int8": {"scales": [0.5], "zero_points": [3]},
    "int16": {"scales": [0.001], "zero_points": [0]},
}


def _tensor(name: str, shape: tuple[int, ...], dtype: str) -> Tensor:
    return Tensor(name, shape, dtype, **_QUANT.get(dtype, {}))


def _constant(name: str, data: ArrayLike, dtype: str = "int32") -> Tensor:
    array = np.array(data, dtype)
    return Tensor(name, array.shape, dtype, data=array, **_QUANT.get(dtype, {}))


def _draw(tensor: Tensor) -> Array:
    random = np.random.default_rng(len(tensor.name))
    if tensor.dtype == "float32":
        return random.uniform(-4, 4, tensor.shape).astype(np.float32)
    if tensor.dtype == "bool":
        return random.integers(0, 2, tensor.shape).astype(np.bool_)
    return random.integers(-100, 100, tensor.shape).astype(tensor.dtype)


def _check(
    code: str,
    inputs: list[Tensor],
    outputs: list[tuple[int, ...]],
    options: Options | None = None,
    dtype: str = "",
    given: dict[str, Array] | None = None,
) -> None:
    """The same outputs as TFLite Micro's, of a model of one operator."""
    dtype = dtype or inputs[0].dtype
    results = [_tensor(f"y{i}", shape, dtype) for i, shape in enumerate(outputs)]
    operator = Operator(code, [t.name for t in inputs], [t.name for t in results], options)
    variable = [t for t in inputs if t.data is None]
    model = Model([*inputs, *results], [operator], [t.name for t in variable], [t.name for t in results])
    data = model.to_bytes()
    values = {t.name: (given or {}).get(t.name, _draw(t)) for t in variable}
    graph = load_tflite(data)
    found = graph.evaluate(values)
    expected = oracle.run(data, values, tuple(values), len(results))
    for name, shape, array in zip(graph.outputs, outputs, expected, strict=True):
        oracle.assert_same(found[name].reshape(shape), np.asarray(array).reshape(shape))


_TYPES = ["int8", "float32"]


@pytest.mark.parametrize("dtype", [*_TYPES, "int16", "int32", "int64"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_pack(dtype: str, axis: int) -> None:
    parts = [_tensor(n, (3, 4), dtype) for n in ("a", "bb", "ccc")]
    shape = np.stack([np.zeros((3, 4))] * 3, axis).shape
    _check("PACK", parts, [shape], Options("PackOptions", Axis=axis, ValuesCount=3))


@pytest.mark.parametrize("dtype", [*_TYPES, "int16", "int32"])
@pytest.mark.parametrize("axis", [0, 2, -2])
def test_unpack(dtype: str, axis: int) -> None:
    shape = (2, 3, 4)
    rest = tuple(np.delete(shape, axis).tolist())
    options = Options("UnpackOptions", Axis=axis, Num=shape[axis])
    _check("UNPACK", [_tensor("x", shape, dtype)], [rest] * shape[axis], options)


@pytest.mark.parametrize("dtype", [*_TYPES, "int16", "int32"])
@pytest.mark.parametrize("axis", [1, -1])
def test_split(dtype: str, axis: int) -> None:
    shape = (2, 6, 3, 6)
    parts = np.array_split(np.zeros(shape), 3, axis)
    inputs = [_constant("axis", axis), _tensor("x", shape, dtype)]
    _check("SPLIT", inputs, [p.shape for p in parts], Options("SplitOptions", NumSplits=3), dtype)


@pytest.mark.parametrize("dtype", [*_TYPES, "int16", "int32"])
@pytest.mark.parametrize("lengths", [[1, 3, 2], [2, -1, 1]])
def test_split_v(dtype: str, lengths: list[int]) -> None:
    inputs = [_tensor("x", (2, 6), dtype), _constant("lengths", lengths), _constant("axis", 1)]
    known = [n if n >= 0 else 6 - sum(m for m in lengths if m > 0) for n in lengths]
    _check("SPLIT_V", inputs, [(2, n) for n in known], Options("SplitVOptions", NumSplits=3))


@pytest.mark.parametrize("dtype", _TYPES)
def test_space_and_depth(dtype: str) -> None:
    deep, wide = _tensor("x", (2, 3, 2, 12), dtype), _tensor("x", (2, 4, 6, 3), dtype)
    _check("DEPTH_TO_SPACE", [deep], [(2, 6, 4, 3)], Options("DepthToSpaceOptions", BlockSize=2))
    _check("SPACE_TO_DEPTH", [wide], [(2, 2, 3, 12)], Options("SpaceToDepthOptions", BlockSize=2))


@pytest.mark.parametrize("dtype", _TYPES)
def test_space_and_batch(dtype: str) -> None:
    """What TFLite Micro pads with is undefined, so nothing is padded."""
    batch = _tensor("x", (6, 2, 2, 3), dtype)
    blocks, around = _constant("b", [2, 3]), _constant("p", [[0, 1], [1, 0]])
    whole = [_tensor("x", (1, 4, 6, 2), dtype), blocks, _constant("p", [[0, 0], [0, 0]])]
    _check("SPACE_TO_BATCH_ND", whole, [(6, 2, 2, 2)], Options("SpaceToBatchNDOptions"))
    _check("BATCH_TO_SPACE_ND", [batch, blocks, around], [(1, 3, 5, 3)], Options("BatchToSpaceNDOptions"))


@pytest.mark.parametrize("dtype", _TYPES)
def test_space_and_batch_of_rows(dtype: str) -> None:
    rows, batch = _tensor("x", (2, 6, 3), dtype), _tensor("x", (4, 3, 2), dtype)
    blocks, around = _constant("b", [2]), _constant("p", [[1, 1]])
    whole = [rows, blocks, _constant("p", [[0, 0]])]
    _check("SPACE_TO_BATCH_ND", whole, [(4, 3, 3)], Options("SpaceToBatchNDOptions"))
    _check("BATCH_TO_SPACE_ND", [batch, blocks, around], [(2, 4, 2)], Options("BatchToSpaceNDOptions"))


@pytest.mark.parametrize("dtype", [*_TYPES, "int16", "int32", "bool"])
@pytest.mark.parametrize("sizes", [[1, 2, 2], [-1, 1, -1]])
def test_slice(dtype: str, sizes: list[int]) -> None:
    shape, begin = (2, 3, 4), (1, 1, 2)
    known = tuple(d - b if n == -1 else n for d, b, n in zip(shape, begin, sizes, strict=True))
    inputs = [_tensor("x", shape, dtype), _constant("begin", begin), _constant("size", sizes)]
    _check("SLICE", inputs, [known], Options("SliceOptions"))


def test_a_slice_at_a_place_computed_at_run_time() -> None:
    inputs = [_tensor("x", (5, 4), "int8"), _tensor("begin", (2,), "int32"), _constant("size", [2, 3])]
    for begin in ([0, 0], [3, 1], [2, 1]):
        given: dict[str, Array] = {"begin": np.array(begin, np.int32)}
        _check("SLICE", inputs, [(2, 3)], Options("SliceOptions"), given=given)


@pytest.mark.parametrize("dtype", [*_TYPES, "int16", "int32", "int64", "bool", "uint8"])
def test_reverse(dtype: str) -> None:
    inputs = [_tensor("x", (2, 3, 4), dtype), _constant("axis", [1])]
    _check("REVERSE_V2", inputs, [(2, 3, 4)], Options("ReverseV2Options"))


@pytest.mark.parametrize("dtype", [*_TYPES, "int16", "int32", "bool"])
def test_strided_slice(dtype: str) -> None:
    x = _tensor("x", (3, 5, 4), dtype)
    options = Options("StridedSliceOptions", BeginMask=2, EndMask=4, ShrinkAxisMask=1)
    parts = [_constant("b", [-1, 9, 1]), _constant("e", [0, 0, 9]), _constant("s", [1, -2, 2])]
    _check("STRIDED_SLICE", [x, *parts], [(2, 2)], options)


@pytest.mark.parametrize("dtype", ["float32", "int8", "int32", "int64"])
def test_zeros_like_and_shape(dtype: str) -> None:
    _check("ZEROS_LIKE", [_tensor("x", (2, 3), dtype)], [(2, 3)], Options("ZerosLikeOptions"))
    _check("SHAPE", [_tensor("x", (2, 3, 5), dtype)], [(3,)], Options("ShapeOptions", OutType=2), "int32")


@pytest.mark.parametrize("dtype", ["float32", "int8", "int32"])
def test_fill(dtype: str) -> None:
    inputs = [_constant("dims", [2, 3]), _tensor("value", (), dtype)]
    _check("FILL", inputs, [(2, 3)], Options("FillOptions"), dtype)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_broadcast_args(dtype: str) -> None:
    inputs = [_tensor("a", (3,), dtype), _tensor("bb", (2,), dtype)]
    given: dict[str, Array] = {"a": np.array([4, 1, 7], dtype), "bb": np.array([5, 1], dtype)}
    _check("BROADCAST_ARGS", inputs, [(3,)], given=given)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_embedding_lookup(dtype: str) -> None:
    data = _draw(_tensor("t", (4, 5), dtype))
    quant: dict[str, Any] = {"scales": [0.5], "zero_points": [0]} if dtype == "int8" else {}
    table = Tensor("t", (4, 5), dtype, data=data, **quant)
    given: dict[str, Array] = {"i": np.array([3, 0, 2], np.int32)}
    _check("EMBEDDING_LOOKUP", [_tensor("i", (3,), "int32"), table], [(3, 5)], None, "float32", given)


@pytest.mark.parametrize("dtype", [*_TYPES, "int16", "int32", "int64", "bool"])
def test_concatenation(dtype: str) -> None:
    fixed = _constant("ccc", np.ones((2, 1, 3)), dtype)
    parts = [_tensor("a", (2, 4, 3), dtype), _tensor("bb", (2, 2, 3), dtype), fixed]
    _check("CONCATENATION", parts, [(2, 7, 3)], Options("ConcatenationOptions", Axis=-2))


@pytest.mark.parametrize("dtype", [*_TYPES, "int16", "int32"])
def test_pad(dtype: str) -> None:
    inputs = [_tensor("x", (2, 3, 4), dtype), _constant("p", [[0, 1], [2, 0], [1, 1]])]
    _check("PAD", inputs, [(3, 5, 6)], Options("PadOptions"))
    _check("PADV2", [*inputs, _constant("v", [5], dtype)], [(3, 5, 6)], Options("PadV2Options"))


@pytest.mark.parametrize("dtype", [*_TYPES, "int16"])
def test_transpose(dtype: str) -> None:
    inputs = [_tensor("x", (2, 3, 4, 5, 2), dtype), _constant("p", [4, 0, 3, 1, 2])]
    _check("TRANSPOSE", inputs, [(2, 2, 5, 3, 4)], Options("TransposeOptions"))


@pytest.mark.parametrize("dtype", [*_TYPES, "int16"])
def test_reshape_squeeze_expand_dims(dtype: str) -> None:
    x = _tensor("x", (2, 1, 3, 1), dtype)
    _check("RESHAPE", [x, _constant("s", [3, -1])], [(3, 2)], Options("ReshapeOptions", NewShape=[3, -1]))
    _check("SQUEEZE", [x], [(2, 3, 1)], Options("SqueezeOptions", SqueezeDims=[1]))
    _check("SQUEEZE", [x], [(2, 3)], Options("SqueezeOptions"))
    _check("EXPAND_DIMS", [x, _constant("axis", [-2])], [(2, 1, 3, 1, 1)], Options("ExpandDimsOptions"))


@pytest.mark.parametrize("dtype", [*_TYPES, "int16"])
def test_resize_nearest(dtype: str) -> None:
    inputs = [_tensor("x", (1, 3, 4, 2), dtype), _constant("size", [5, 6])]
    _check("RESIZE_NEAREST_NEIGHBOR", inputs, [(1, 5, 6, 2)], Options("ResizeNearestNeighborOptions"))
