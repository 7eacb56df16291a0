"""The TFLite front end on models written for one purpose each."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtgen.base.errors import CorruptModelError, UnsupportedError, UsageError
from crtgen.network.frontends import load, load_tflite
from crtgen.network.ops import (
    Activation,
    Case,
    Conv2d,
    FullyConnected,
    Pad,
    Padding,
    Relu,
    Reshape,
    StridedSlice,
    all_cases,
)
from tests.network.ops import oracle
from tests.support import exporter_file
from tests.tflite_builder import Model, Operator, Options, Sparsity, Tensor


def _single(
    code: str,
    tensors: list[Tensor],
    options: Options | None = None,
    inputs: list[str | None] | None = None,
) -> bytes:
    """A model of one operator; the last tensor is its output, those without data are its inputs."""
    names = inputs or [t.name for t in tensors[:-1]]
    operator = Operator(code, names, [tensors[-1].name], options)
    variable = [t.name for t in tensors[:-1] if t.data is None]
    return Model(tensors, [operator], variable, [tensors[-1].name]).to_bytes()


def _int8(name: str, shape: list[int], data: npt.NDArray[np.int8] | None = None) -> Tensor:
    return Tensor(name, shape, "int8", [0.5], [3], data=data)


def _int32(name: str, *values: int) -> Tensor:
    return Tensor(name, [len(values)], "int32", data=np.array(values, np.int32))


def _in_files(case: Case) -> bool:
    """RELU6 does not requantise in files: its output takes the numbers of the input. What only ONNX has is
    in none; what Larq has is tested by itself."""
    op, sig = case.op, case.sig
    if case.name.endswith(("_onnx", "_larq", "_features", "_uint8")):
        return False
    return not (isinstance(op, Relu) and op.kind is Activation.RELU6 and sig.x.quant != sig.y.quant)


@pytest.mark.parametrize("case", [c for c in all_cases() if _in_files(c)], ids=lambda c: c.name)
def test_every_case_survives_the_way_through_a_file(case: Case) -> None:
    original = case.graph()
    loaded = load_tflite(oracle.model(original), "case")
    inputs = {name: array for name, array in case.inputs(7).items() if name in original.inputs}
    expected = original.evaluate(inputs)["y"]
    assert loaded.inputs == original.inputs
    actual = loaded.evaluate(inputs)[loaded.outputs[0]]
    np.testing.assert_array_equal(actual, expected)
    assert loaded.values[loaded.outputs[0]].quant == case.sig.y.quant


def test_an_operator_without_padding_of_its_own_is_the_same_operator() -> None:
    case = next(c for c in all_cases() if c.name == "conv2d_same_s2_relu")
    (node,) = load_tflite(oracle.model(case.graph())).nodes
    assert node.op == case.op == Conv2d((2, 2), Padding(1, 1, 1, 1), activation=Activation.RELU)


@pytest.mark.parametrize(("code", "dtype"), [("FULLY_CONNECTED", "float32"), ("FULLY_CONNECTED", "int8")])
@pytest.mark.parametrize("absent", [[], [None]])
def test_an_absent_bias_is_zero(code: str, dtype: str, absent: list[None]) -> None:
    quant: dict[str, Any] = {"scales": [0.5], "zero_points": [0]} if dtype == "int8" else {}
    tensors = [
        Tensor("x", [1, 2], dtype, **quant),
        Tensor("w", [3, 2], dtype, data=np.ones((3, 2), dtype), **quant),
        Tensor("y", [1, 3], dtype, **quant),
    ]
    graph = load_tflite(_single(code, tensors, inputs=["x", "w", *absent]))
    (node,) = graph.nodes
    assert node.op == FullyConnected()
    bias = graph.values[node.inputs[2]].array()
    assert bias.dtype == (np.int32 if dtype == "int8" else np.float32)
    assert bias.tolist() == [0, 0, 0]


@pytest.mark.parametrize("code", ["RESHAPE", "SQUEEZE"])
def test_squeeze_is_a_reshape(code: str) -> None:
    graph = load_tflite(_single(code, [Tensor("x", [1, 6, 1], "float32"), Tensor("y", [6], "float32")]))
    assert graph.nodes[0].op == Reshape((6,))


def test_a_batch_that_is_not_fixed_is_one() -> None:
    tensors = [Tensor("x", [-1, 4], "float32"), Tensor("y", [1, 4], "float32", signature=[-1, 4])]
    graph = load_tflite(_single("TANH", tensors))
    assert graph.values["x"].shape == (1, 4)
    assert graph.values["y"].shape == (1, 4)


def test_strided_slice_resolves_masks_and_negative_indices() -> None:
    tensors = [
        Tensor("x", [4, 5, 6], "float32"),
        _int32("begin", -1, 99, -2),
        _int32("end", 0, -3, -99),
        _int32("stride", 1, 2, -2),
        Tensor("y", [1, 3], "float32"),
    ]
    options = Options("StridedSliceOptions", BeginMask=0b10, EndMask=0, ShrinkAxisMask=0b1)
    (node,) = load_tflite(_single("STRIDED_SLICE", tensors, options)).nodes
    assert node.op == StridedSlice((3, 0, 4), (4, 2, -1), (1, 2, -2), (0,))


def test_padv2_keeps_the_quantised_value() -> None:
    value = _int8("v", [1], np.array([-7], np.int8))
    by = Tensor("by", [1, 2], "int32", data=np.array([[1, 2]], np.int32))
    graph = load_tflite(_single("PADV2", [_int8("x", [2]), by, value, _int8("y", [5])]))
    assert graph.nodes[0].op == Pad((1,), (2,), -7)


def test_layers_and_values_have_readable_unique_names() -> None:
    names = ["serving_default_x:0", "net/re_lu_3/Relu;net/conv2d/Conv2D", "net/out/Relu", "Identity:0"]
    tensors = [Tensor(n, [1], "float32") for n in names]
    operators = [Operator("RELU", [a], [b]) for a, b in pairwise(names)]
    graph = load_tflite(Model(tensors, operators, names[:1], names[3:]).to_bytes())
    assert [n.name for n in graph.nodes] == ["re_lu_3", "relu", "relu_1"]
    assert [n.outputs for n in graph.nodes] == [("re_lu_3",), ("relu",), ("identity",)]
    assert graph.inputs == ("x",)


def test_refusals_are_grouped_by_cause_in_one_error() -> None:
    tensors = [Tensor(n, [1, 4], "float32") for n in "abcde"]
    tensors += [_int8("f", [1, 4])]
    operators = [
        Operator("UNIQUE", ["a"], ["b"]),
        Operator("UNIQUE", ["b"], ["c"]),
        Operator("ADD", ["b", "c"], ["d"], Options("AddOptions", FusedActivationFunction=4)),
        Operator("RELU", ["d"], ["e"]),
        Operator("TANH", ["e"], ["f"]),
    ]
    with pytest.raises(UnsupportedError) as caught:
        load_tflite(Model(tensors, operators, ["a"], ["f"]).to_bytes(), "many")
    assert str(caught.value).splitlines() == [
        "many: 3 things are not supported:",
        "  UNIQUE: the operator is not supported"
        " (operator 0, output 'b', tensor 1; operator 1, output 'c', tensor 2)",
        "  ADD: fused activation TANH; supported: NONE, RELU, RELU6, RELU_N1_TO_1"
        " (operator 2, output 'd', tensor 3)",
        "  TANH: FLOAT32 to INT8; supported: FLOAT32 to FLOAT32, INT16 to INT16, INT8 to INT8"
        " (operator 4, output 'f', tensor 5)",
    ]
    assert caught.value.hint == "docs/operators.md lists those that are"


def test_what_follows_from_a_refusal_is_not_told_and_many_are_cut_short() -> None:
    """Weights that a refused operator computes are no cause of their own."""
    tensors = [Tensor("x", [1, 2], "float32"), Tensor("y29", [1, 2], "float32")]
    tensors += [Tensor(f"{kind}{i}", [2, 2], "float32") for kind in "ab" for i in range(30)]
    tensors += [Tensor(f"y{i}", [1, 2], "float32") for i in range(29)]
    operators = [Operator("UNIQUE", [f"a{i}"], [f"b{i}"]) for i in range(30)]
    operators += [
        Operator("FULLY_CONNECTED", [f"y{i - 1}" if i else "x", f"b{i}"], [f"y{i}"]) for i in range(30)
    ]
    inputs = ["x", *(f"a{i}" for i in range(30))]
    with pytest.raises(UnsupportedError) as caught:
        load_tflite(Model(tensors, operators, inputs, ["y29"]).to_bytes(), "many")
    assert str(caught.value) == (
        "many: UNIQUE: the operator is not supported (operator 0, output 'b0', tensor 32; "
        "operator 1, output 'b1', tensor 33; operator 2, output 'b2', tensor 34; and 27 more)"
    )


_X4 = Tensor("x", [1, 4, 4, 2], "float32")
_W4 = Tensor("w", [1, 1, 1, 1], "float32", data=np.ones((1, 1, 1, 1), np.float32))
_VALID = {"StrideH": 1, "StrideW": 1, "Padding": 1, "DilationHFactor": 1, "DilationWFactor": 1}
_ONES = np.ones((1, 2), np.float32)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (
            _single(
                "CONV_2D",
                [Tensor(n, [1, 1, 1, 1], "float32") for n in "xwy"],
                Options(
                    "Conv2DOptions",
                    **dict.fromkeys(("StrideH", "StrideW", "DilationHFactor", "DilationWFactor"), 1),
                ),
            ),
            "weights that are computed at run time",
        ),
        (
            _single(
                "FULLY_CONNECTED",
                [
                    _int8("x", [1, 2]),
                    _int8("w", [1, 2], np.full((1, 2), -126, np.int8)),
                    _int8("y", [1, 1]),
                ],
            ),
            "weights that reach",
        ),
        (
            _single("DEQUANTIZE", [Tensor("x", [1], "float16"), Tensor("y", [1], "float32")]),
            "a tensor of FLOAT16 that is computed at run time",
        ),
        (_single("RELU", [Tensor("x", [1], "int8"), Tensor("y", [1], "int8")]), "int8 without quantisation"),
        (_single("RELU", [Tensor("x", [0], "float32"), Tensor("y", [1], "float32")]), "'x' is empty"),
        (
            _single("RELU", [Tensor("x", [2, -1], "float32"), Tensor("y", [1], "float32")]),
            "has the shape 2x\\?",
        ),
        (
            _single(
                "CONCATENATION",
                [Tensor("x", [1], "float32"), Tensor("y", [1], "float32")],
                Options("ConcatenationOptions", FusedActivationFunction=1),
            ),
            "a fused activation in a concatenation",
        ),
        (
            _single(
                "STRIDED_SLICE",
                [Tensor("x", [4], "float32"), *(_int32(n, 1) for n in "abc"), Tensor("y", [1], "float32")],
                Options("StridedSliceOptions", NewAxisMask=1),
            ),
            "NewAxisMask",
        ),
        (
            _single("SOFTMAX", [Tensor("x", [4], "float32"), Tensor("y", [4], "float32")]),
            "beta 0.0",
        ),
        (
            _single("RELU", [Tensor("x", [2**26, 4], "int8"), Tensor("y", [1], "int8")]),
            "'x' has shape 67108864x4; supported: at most 50,331,648 elements",
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_unsupported(data: bytes, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        load_tflite(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "identifier TFL3 is missing"),
        (b"\0\0\0\0ONNX" + bytes(100), "identifier TFL3 is missing"),
        (b"\xff\xff\xff\x7fTFL3" + bytes(100), "the file is damaged"),
        (
            _single("FULLY_CONNECTED", [Tensor("x", [1, 2], "float32"), Tensor("y", [1, 2], "float32")]),
            "input 1 is missing",
        ),
        (
            _single(
                "FULLY_CONNECTED",
                [
                    Tensor("x", [1, 2], "float32"),
                    Tensor("w", [1, 3], "float32", data=_ONES),
                    Tensor("y", [1], "float32"),
                ],
            ),
            "has 8 bytes of data instead of 12",
        ),
        (_single("RELU", [Tensor("x", [-2], "float32"), Tensor("y", [1], "float32")]), "has shape -2"),
        (_single("RELU", [Tensor("x", [1] * 9, "int8"), Tensor("y", [1], "int8")]), "Shape has 9 numbers"),
        (_single("RELU", [Tensor("x", [1], "int8", [-1.0], [0]), Tensor("y", [1], "int8")]), "not positive"),
        (
            _single("RELU", [Tensor("x", [1], "int8", [1.0], [128]), Tensor("y", [1], "int8")]),
            "outside of int8",
        ),
        (
            _single("RELU", [Tensor("x", [3], "int8", [1, 2], [0, 0]), Tensor("y", [1], "int8")]),
            "2 scales on axis 0",
        ),
        (
            _single(
                "TANH", [Tensor("x", [1], "float32"), Tensor("y", [1], "float32")], Options("AddOptions")
            ),
            None,
        ),
        (
            _single("MUL", [Tensor(n, [1], "float32") for n in "abc"], Options("AddOptions")),
            "AddOptions instead of MulOptions",
        ),
        (
            _single("AVERAGE_POOL_2D", [_X4, Tensor("y", [1, 1, 1, 1], "float32")]),
            "must be positive",
        ),
    ],
)
def test_corrupt(data: bytes, reason: str | None) -> None:
    if reason is None:
        load_tflite(data)
        return
    with pytest.raises(CorruptModelError, match=reason):
        load_tflite(data)


def test_a_cycle_is_corrupt() -> None:
    tensors = [Tensor(n, [1], "float32") for n in "abc"]
    operators = [Operator("RELU", ["c"], ["b"]), Operator("RELU", ["b"], ["c"])]
    with pytest.raises(CorruptModelError, match="which was read or computed before"):
        load_tflite(Model(tensors, operators, ["a"], ["c"]).to_bytes())


def test_load_names_the_graph_after_the_file(tmp_path: Path) -> None:
    file = tmp_path / "my-model.v2.tflite"
    file.write_bytes(_single("RELU", [Tensor("x", [1], "float32"), Tensor("y", [1], "float32")]))
    assert load(file).name == "my_model_v2"
    assert load(file, "other").name == "other"
    assert load(file.rename(tmp_path / "download")).name == "download"


def test_load_refuses_what_is_no_model_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the model cannot be read: No such file"):
        load(tmp_path / "absent.tflite")
    with pytest.raises(UsageError, match="the model cannot be read: No such file"):
        load(tmp_path / "absent")
    with pytest.raises(UsageError, match="the model is not a regular file"):
        load_tflite(tmp_path)
    other = tmp_path / "model.dat"
    other.write_bytes(b"HDF")
    with pytest.raises(UsageError, match="no model format") as caught:
        load(other)
    assert caught.value.hint.startswith(
        "known: .tflite, .onnx, C arrays and .zip or .task with one, archives (.tar)"
    )


@pytest.mark.parametrize(
    ("name", "what", "line"),
    [
        ("net.keras", "a Keras model has to be exported", "from_keras_model"),
        ("net.H5", "a Keras model has to be exported", "from_keras_model"),
        ("net.pt", "a PyTorch model or its weights has to be exported", "torch.onnx.export"),
        ("net.pte", "a program of ExecuTorch has to be exported", "torch.onnx.export"),
        ("net.pkl", "a pickled object has to be exported", "skl2onnx.to_onnx"),
    ],
)
def test_files_of_frameworks_are_refused_with_the_line_that_exports(
    name: str, what: str, line: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(bytes(64))
    with pytest.raises(UsageError, match=what) as caught:
        load(tmp_path / name)
    assert line in caught.value.hint


def test_a_custom_code_beside_a_builtin_is_the_custom_operator() -> None:
    """As compilers for NPUs write it: the builtin stays at 0, which is ADD."""
    tensors = [Tensor("x", [1, 4], "float32"), Tensor("y", [1, 4], "float32")]
    with pytest.raises(UnsupportedError, match="CUSTOM DISPATCH_OP"):
        load_tflite(_single("ADD DISPATCH_OP", tensors, inputs=["x", "x"]))
    load_tflite(_single("ADD", tensors, inputs=["x", "x"]))


def test_a_recorded_shape_of_another_size_is_computed_anew() -> None:
    """TensorFlow records such shapes; its interpreter computes them, and so do we."""
    graph = load_tflite(_single("RELU", [Tensor("x", [2, 3], "float32"), Tensor("y", [1], "float32")]))
    assert graph.values[graph.outputs[0]].shape == (2, 3)


@pytest.mark.parametrize("recorded", [1, 4])
def test_a_length_that_only_the_signature_leaves_open(recorded: int) -> None:
    """A recorded 1 is no length; another one was fixed by whoever wrote the file."""
    x = Tensor("x", [1, recorded, 2], "float32", signature=[-1, -1, 2])
    data = _single("RELU", [x, Tensor("y", [1, recorded, 2], "float32", signature=[-1, -1, 2])])
    if recorded == 4:
        graph = load_tflite(data)
    else:
        with pytest.raises(UnsupportedError, match=r"'x' has the shape 1x\?x2") as caught:
            load_tflite(data)
        assert caught.value.hint == "give all its lengths, as in --shape x=1,96,2"
        graph = load_tflite(data, shapes={"x": (1, 4, 2)})
    assert graph.values[graph.outputs[0]].shape == (1, 4, 2)


@pytest.mark.parametrize(
    ("sparsity", "message"),
    [
        (Sparsity((0,), (), (2,)), "2 axes has 1 levels"),
        (Sparsity((0, 0), (), (2, 4)), "2 axes has 2 levels"),
        (Sparsity((0, 1), (), (2, 4)), "3 numbers of a sparse tensor instead of 8"),
        (Sparsity((0, 1), (), (2, 1 << 30)), "nodes in a tensor of 8 numbers"),
        (Sparsity((0, 1), (), (2, ([0, 2], [0, 1]))), "2 ends of segments for 2 nodes"),
        (Sparsity((0, 1), (), (2, ([0, 2, 5], [0, 1, 2]))), "ends beyond the indices"),
        (Sparsity((0, 1), (), (2, ([0, 2, 1], [0, 1, 2]))), "do not rise"),
        (Sparsity((0, 1), (), (2, ([0, 2, 3], [0, 1, 4]))), "a number beyond 2x4"),
        (Sparsity((0, 1), (), (2, ([0, 2, 3], [0, -1, 2]))), "an index below 0"),
        (Sparsity((0, 1, 2), (5,), (2, 2, 2)), "blocks along the axes"),
        (Sparsity((0, 1), (), (0, 4)), "a dense level of 0"),
    ],
)
def test_damaged_sparse_weights(sparsity: Sparsity, message: str) -> None:
    weights = Tensor("w", [2, 4], "int8", [0.5], [0], data=np.ones(3, np.int8), sparsity=sparsity)
    data = _single("FULLY_CONNECTED", [_int8("x", [1, 4]), weights, _int8("y", [1, 2])])
    with pytest.raises(CorruptModelError, match=message):
        load_tflite(data)


def test_sparse_weights_of_a_layer() -> None:
    """Without a DENSIFY, as TensorFlow Lite's own sparse kernels read them."""
    sparsity = Sparsity((0, 1), (), (2, ([0, 2, 3], [0, 3, 1])))
    weights = Tensor("w", [2, 4], "int8", [0.5], [0], data=np.array([5, 7, 9], np.int8), sparsity=sparsity)
    graph = load_tflite(_single("FULLY_CONNECTED", [_int8("x", [1, 4]), weights, _int8("y", [1, 2])]))
    (node,) = graph.nodes
    assert graph.values[node.inputs[1]].array().tolist() == [[5, 0, 0, 7], [0, 9, 0, 0]]


@pytest.mark.models
def test_open_lengths_of_a_dilated_convolution() -> None:
    """Its SPACE_TO_BATCH_ND records shapes of an image of one pixel."""
    graph = load_tflite(exporter_file("truth/dilated_conv.tflite"), shapes={"input_1": (1, 16, 16, 3)})
    assert graph.values[graph.outputs[0]].shape == (1, 16, 16, 16)


@pytest.mark.parametrize("absent", [(), (None,)], ids=["two inputs", "no third input"])
@pytest.mark.parametrize("code", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_a_layer_without_bias_is_one_with_zeros(code: str, absent: tuple[None, ...]) -> None:
    shape = {"CONV_2D": [4, 1, 1, 4], "DEPTHWISE_CONV_2D": [1, 1, 1, 4], "FULLY_CONNECTED": [4, 4]}[code]
    random = np.random.default_rng(1)
    weights = _int8("w", shape, random.integers(-9, 9, shape).astype(np.int8))
    end = [1, 4] if code == "FULLY_CONNECTED" else [1, 1, 1, 4]
    table = {"DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions", "CONV_2D": "Conv2DOptions"}.get(code)
    more = {"DepthMultiplier": 1} if code == "DEPTHWISE_CONV_2D" else {}
    fields = {"StrideW": 1, "StrideH": 1, "DilationWFactor": 1, "DilationHFactor": 1, **more}
    options = Options(table, **fields) if table else Options("FullyConnectedOptions")
    plain = _single(code, [_int8("x", end), weights, _int8("y", end)], options, ["x", "w", *absent])
    zeros = Tensor("b", [4], "int32", [0.25], [0], data=np.zeros(4, np.int32))
    biased = _single(code, [_int8("x", end), weights, zeros, _int8("y", end)], options, ["x", "w", "b"])
    x = random.integers(-100, 100, end).astype(np.int8)
    ((one,),), ((other,),) = (load_tflite(data).run([[x]]) for data in (plain, biased))
    assert one.tolist() == other.tolist()


@pytest.mark.parametrize(
    ("code", "inputs", "named", "hint"),
    [
        ("ATAN2", "yx", "ATAN2", "call atan2f in the application"),
        ("CUSTOM FlexMaxPool3D", "x", "FlexMaxPool3D", "two MaxPooling2D, the second over depth"),
    ],
)
def test_what_is_not_supported_comes_with_a_next_step(code: str, inputs: str, named: str, hint: str) -> None:
    tensors = [Tensor(name, (1, 4), "float32") for name in (*inputs, "a")]
    with pytest.raises(UnsupportedError, match=f"{named}: the operator is not supported") as caught:
        load_tflite(Model(tensors, [Operator(code, list(inputs), ["a"])], list(inputs), ["a"]).to_bytes())
    assert hint in str(caught.value.hint)
