"""Operators of ONNX Runtime's optimiser of transformers, compared with the runtime's own."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from crtgen.base.errors import UnsupportedError
from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Array

_SEQUENCE, _DEPTH, _HEADS = 5, 8, 2


def _floats(seed: int, *shape: int) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) * 0.5).astype(np.float32)


def _bytes(seed: int, dtype: Any, *shape: int) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


_X, _W, _B = (
    _floats(1, 1, _SEQUENCE, _DEPTH),
    _floats(2, _DEPTH, 3 * _DEPTH),
    _floats(3, 3 * _DEPTH),
)
_ROW, _THIRD = _floats(4, _DEPTH), _floats(5, 1, _SEQUENCE, _DEPTH)
_ANGLES = _floats(6, 7, 4)
_BYTES = {
    "w": _bytes(1, np.int8, _DEPTH, 3 * _DEPTH),
    "xs": np.array(0.02, np.float32),
    "ws": np.array(0.01, np.float32),
    "xz": np.array(120, np.uint8),
    "wz": np.array(0, np.int8),
}
_ATTENTION = {"w": _W, "b": _B}


def _file(
    code: str,
    names: Sequence[str],
    given: Mapping[str, Array],
    constants: Mapping[str, Array],
    opset: int = 17,
    outputs: Sequence[str] = ("y",),
    **attributes: Any,
) -> tuple[bytes, Mapping[str, Array]]:
    own = "" if code == "SimplifiedLayerNormalization" else "com.microsoft"
    node = helper.make_node(code, list(names), list(outputs), domain=own, name="node", **attributes)
    ins = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in given.items()
    ]
    rank = 3 if code == "EmbedLayerNormalization" else next(iter(given.values())).ndim
    stated = {"count": (TensorProto.INT32, 1)}
    ends = [
        helper.make_tensor_value_info(name, kind, [None] * axes)
        for name, (kind, axes) in ((n, stated.get(n, (TensorProto.FLOAT, rank))) for n in outputs if n)
    ]
    kept = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph([node], "net", ins, ends, kept)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return bytes(model.SerializeToString()), given


_MASK = np.array([[1, 1, 1, 0, 0]], np.int32)
_IDS = np.array([[3, 1, 4, 1, 5]], np.int32)
_EMBEDDED = ["i", "s", "we", "pe", "se", "g", "b"]
_TABLES = {
    "we": _floats(1, 9, _DEPTH),
    "pe": _floats(2, 6, _DEPTH),
    "se": _floats(3, 2, _DEPTH),
    "g": _ROW,
    "b": _floats(7, _DEPTH),
}
_OPERATORS = {
    "attention": _file("Attention", "xwb", {"x": _X}, _ATTENTION, num_heads=_HEADS),
    "attention_mask": _file("Attention", "xwbm", {"x": _X, "m": _MASK}, _ATTENTION, num_heads=_HEADS),
    "attention_count": _file(
        "Attention", "xwbm", {"x": _X, "m": np.array([3], np.int32)}, _ATTENTION, num_heads=_HEADS
    ),
    "attention_bias": _file(
        "Attention",
        ["x", "w", "b", "", "", "a"],
        {"x": _X, "a": _floats(8, 1, _HEADS, _SEQUENCE, _SEQUENCE)},
        _ATTENTION,
        num_heads=_HEADS,
        scale=0.3,
    ),
    "attention_causal": _file(
        "Attention", "xwb", {"x": _X}, _ATTENTION, num_heads=_HEADS, unidirectional=1, opset=21
    ),
    "attention_sizes": _file(
        "Attention",
        "xwb",
        {"x": _X},
        {"w": _floats(2, _DEPTH, 20), "b": _floats(3, 20)},
        num_heads=_HEADS,
        qkv_hidden_sizes=[8, 8, 4],
    ),
    "heads": _file(
        "MultiHeadAttention",
        "qkvb",
        {"q": _X, "k": _floats(8, 1, 6, _DEPTH), "v": _floats(9, 1, 6, _DEPTH)},
        {"b": _B},
        num_heads=_HEADS,
    ),
    "heads_mask": _file(
        "MultiHeadAttention",
        ["q", "k", "v", "", "m"],
        {"q": _X, "k": _THIRD, "v": _X, "m": _MASK},
        {},
        num_heads=_HEADS,
    ),
    "integers": _file(
        "QAttention",
        ["x", "w", "b", "xs", "ws", "m", "xz", "wz"],
        {"x": _bytes(3, np.uint8, 1, _SEQUENCE, _DEPTH), "m": _MASK},
        {**_BYTES, "b": _B},
        num_heads=_HEADS,
    ),
    "embedding": _file(
        "EmbedLayerNormalization",
        [*_EMBEDDED, "m"],
        {"i": _IDS, "s": _IDS % 2, "m": _MASK},
        _TABLES,
        outputs=("y", "count"),
    ),
    "embedding_places": _file(
        "EmbedLayerNormalization",
        ["i", "", "we", "pe", "", "g", "b", "", "p"],
        {"i": _IDS, "p": _IDS[:, ::-1].copy()},
        _TABLES,
        outputs=("y", "", "sum"),
    ),
    "rotary": _file(
        "RotaryEmbedding",
        "xpcs",
        {"x": _floats(1, 1, _HEADS, _SEQUENCE, _DEPTH), "p": np.array([[2, 3, 4, 5, 6]])},
        {"c": np.cos(_ANGLES), "s": np.sin(_ANGLES)},
    ),
    "rotary_pairs": _file(
        "RotaryEmbedding",
        "xpcs",
        {"x": _floats(1, 1, _HEADS, _SEQUENCE, _DEPTH), "p": np.array([[2, 3, 4, 5, 6]])},
        {"c": np.cos(_ANGLES), "s": np.sin(_ANGLES)},
        interleaved=1,
    ),
    "norm": _file("SimplifiedLayerNormalization", "xg", {"x": _X}, {"g": _ROW}, axis=-1, epsilon=1e-3),
    "skip": _file(
        "SkipSimplifiedLayerNormalization",
        "xsgb",
        {"x": _X, "s": _THIRD},
        {"g": _ROW, "b": _ROW},
        opset=18,
        outputs=("y", "", "", "sum"),
    ),
    "gemm": _file(
        "QGemm",
        ["x", "xs", "xz", "w", "ws", "wz", "c"],
        {"x": _bytes(3, np.uint8, _DEPTH, 3)},
        {**_BYTES, "c": np.arange(24, dtype=np.int32) * 100},
        transA=1,
        alpha=0.5,
    ),
}


@pytest.mark.parametrize("name", _OPERATORS)
def test_operators(name: str) -> None:
    data, given = _OPERATORS[name]
    options = ort.SessionOptions()
    options.log_severity_level = 4
    expected = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, dict(given))
    (made,) = load_onnx(data).run([tuple(given.values())])
    for y, want in zip(made, expected, strict=True):
        found, wanted = y.astype(np.float64), np.asarray(want, np.float64)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    "data",
    [
        _file("Attention", "xwb", {"x": _X}, _ATTENTION, num_heads=_HEADS, do_rotary=1)[0],
        _file(
            "Attention",
            "xwb",
            {"x": _X},
            _ATTENTION,
            num_heads=_HEADS,
            outputs=("y", "present"),
        )[0],
        _file("GatherND", "xi", {"x": _X}, {"i": np.zeros((1, 1), np.int64)})[0],
    ],
)
def test_others_are_refused(data: bytes) -> None:
    with pytest.raises(UnsupportedError, match="not supported") as error:
        load_onnx(data)
    assert "ORT_ENABLE_BASIC" in error.value.hint
