"""What is wrong with an `.onnx` file is told with its place."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

from crtgen.base.errors import CorruptModelError, CrtgenError, ModelError, UnsupportedError, UsageError
from crtgen.network.frontends import load, load_onnx
from crtgen.network.ir import Array


def floats(name: str, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Mapping[str, Array] | None = None,
    opset: int = 21,
    domains: Sequence[tuple[str, int]] = (),
) -> onnx.ModelProto:
    initial = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, initial)
    imports = [helper.make_opsetid(*pair) for pair in (("", opset), *domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def relu(shape: Sequence[int | str] = (1, 4)) -> onnx.ModelProto:
    node = helper.make_node("Relu", ["x"], ["y"], name="act")
    return model([node], [floats("x", *shape)], [floats("y", *shape)])


def message(made: onnx.ModelProto, kind: type[CrtgenError], **options: Any) -> str:
    with pytest.raises(kind) as caught:
        load_onnx(made.SerializeToString(), **options)
    assert type(caught.value) is kind
    return str(caught.value)


def test_a_file_is_known_by_its_suffix(tmp_path: Path) -> None:
    path = tmp_path / "Small-Net.onnx"
    onnx.save(relu(), path)
    graph = load(path)
    assert (graph.name, graph.inputs, graph.outputs) == ("small_net", ("x",), ("y",))
    assert [node.op.name for node in graph.nodes] == ["relu"]


@pytest.mark.parametrize("length", [0, 1, 10, 40, -1, -9])
def test_a_part_of_a_file(length: int) -> None:
    with pytest.raises(ModelError):
        load_onnx(relu().SerializeToString()[:length])


def test_what_is_no_model_at_all() -> None:
    with pytest.raises(CorruptModelError, match="not an ONNX model"):
        load_onnx(b"\x89PNG\r\n\x1a\n" + bytes(range(200)))


def test_lengths_that_are_not_fixed() -> None:
    text = message(relu((1, "time", 4)), UnsupportedError)
    assert "'x' has the shape 1x?x4" in text
    graph = load_onnx(relu((1, "time", 4)).SerializeToString(), shapes={"x": (1, 7, 4)})
    assert graph.values["y"].shape == (1, 7, 4)


def test_the_hint_names_the_inputs_that_are_open() -> None:
    """And what follows from them is not refused again."""
    nodes = [helper.make_node("Relu", ["my x"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"])]
    inputs = [floats("my x", 1, "rows", "columns", 3), floats("b", "n"), floats("c", 3)]
    made = model(nodes, inputs, [floats("y", 1, "rows", "columns", 3)])
    with pytest.raises(UnsupportedError) as caught:
        load_onnx(made.SerializeToString())
    first, second = caught.value.hint.split("; ")
    assert first == "give all its lengths, as in --shape 'my x=1,96,96,3'"
    assert second == "give all its lengths, as in --shape b=96"
    assert "Relu" not in str(caught.value)
    shapes = {"my x": (1, 96, 96, 3), "b": (3,)}
    assert load_onnx(made.SerializeToString(), shapes=shapes).values["y"].shape == (1, 96, 96, 3)


def test_a_batch_that_is_not_fixed_is_1() -> None:
    graph = load_onnx(relu(("batch", 4)).SerializeToString())
    assert graph.values["y"].shape == (1, 4)


def test_a_shape_of_an_input_that_is_not_there() -> None:
    assert "there is no input z" in message(relu(), UsageError, shapes={"z": (1,)})


@pytest.mark.parametrize(("opset", "word"), [(0, "supported: 7 to"), (99, "supported: 7 to")])
def test_versions(opset: int, word: str) -> None:
    made = relu()
    made.opset_import[0].version = opset
    assert word in message(made, UnsupportedError)


def test_an_old_version_is_converted() -> None:
    """Before version 7, operands were broadcast by an attribute."""
    node = helper.make_node("Add", ["x", "b"], ["y"], name="add", broadcast=1, axis=0)
    offsets = {"b": np.array([10, 20], np.float32)}
    made = model([node], [floats("x", 2, 3), floats("b", 2)], [floats("y", 2, 3)], offsets, opset=6)
    made.ir_version = 3
    graph = load_onnx(made.SerializeToString())
    ((y,),) = graph.run([[np.zeros((2, 3), np.float32)]])
    assert y.tolist() == [[10] * 3, [20] * 3]


def test_an_operator_that_is_not_one() -> None:
    node = helper.make_node("Rlue", ["x"], ["y"], name="act")
    text = message(model([node], [floats("x", 4)], [floats("y", 4)]), CorruptModelError)
    assert "node 'act' (Rlue): ONNX has no such operator in opset 21" in text


def test_an_operator_of_another_domain() -> None:
    node = helper.make_node("FusedGelu", ["x"], ["y"], name="act", domain="com.acme")
    ends = [floats("x", 4)], [floats("y", 4)]
    assert "whose version the model does not name" in message(model([node], *ends), CorruptModelError)
    text = message(model([node], *ends, domains=[("com.acme", 1)]), UnsupportedError)
    assert "com.acme.FusedGelu: the operator is not supported (node 'act')" in text


def test_grouped_queries_come_with_a_next_step() -> None:
    inputs = ["q", "k", "v", "", "", "s", "t"]
    fields: dict[str, Any] = {"domain": "com.microsoft", "num_heads": 2, "kv_num_heads": 1}
    node = helper.make_node("GroupQueryAttention", inputs, ["y"], **fields)
    ends = [floats(name, 1, 4, 8) for name in "qkvst"], [floats("y", 1, 4, 8)]
    made = model([node], *ends, domains=[("com.microsoft", 1)])
    with pytest.raises(UnsupportedError, match="GroupQueryAttention: the operator is not") as caught:
        load_onnx(made.SerializeToString())
    assert "export by torch.onnx without a cache" in str(caught.value.hint)


def test_a_cycle() -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
    ]
    text = message(model(nodes, [floats("x", 4)], [floats("b", 4)]), CorruptModelError)
    assert "its nodes are computed from one another: 'b', 'a'" in text


def test_a_node_that_reads_itself_and_one_that_follows_a_cycle() -> None:
    nodes = [
        helper.make_node("Neg", ["b"], ["y"], name="after"),
        helper.make_node("Add", ["x", "b"], ["b"], name="loop"),
    ]
    text = message(model(nodes, [floats("x", 4)], [floats("y", 4)]), CorruptModelError)
    assert "its nodes are computed from one another: 'b'" in text


def _out_of_order() -> onnx.ModelProto:
    """Backwards; subgraphs read what is computed after their own node in the file."""
    outer = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Mul", ["a", "k"], ["b"]),
        helper.make_node("Greater", ["s", "zero"], ["positive"]),
    ]
    inner = [helper.make_node("Sub", ["b", "x"], ["c"]), helper.make_node("Mul", ["c", "c"], ["d"])]
    then = helper.make_graph(inner, "then", [], [floats("d", 4)])
    other = helper.make_graph([helper.make_node("Neg", ["a"], ["e"])], "other", [], [floats("e", 4)])
    branch = helper.make_node("If", ["positive"], ["y"], then_branch=then, else_branch=other)
    constants = {"k": np.array([1, 2, 3, 4], np.float32), "zero": np.zeros(1, np.float32)}
    ends = [floats("x", 4), floats("s", 1)], [floats("y", 4)]
    return model([*outer, branch][::-1], *ends, constants)


@pytest.mark.parametrize("sign", [-1, 1])
def test_nodes_in_any_order(sign: int) -> None:
    data = _out_of_order().SerializeToString()
    given = [np.array([-1.5, 0.25, 2, 7], np.float32), np.array([sign], np.float32)]
    session = InferenceSession(data, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, dict(zip(("x", "s"), given, strict=True)))
    ((y,),) = load_onnx(data).run([given])
    np.testing.assert_array_equal(y, wanted)


def test_nodes_in_order_stay_as_they_are() -> None:
    nodes = [helper.make_node(op, ["x"], [op], name=op) for op in ("Neg", "Relu", "Abs")]
    nodes += [helper.make_node("Sum", ["Abs", "Late", "Neg", "Relu"], ["y"], name="sum")]
    nodes += [helper.make_node("Exp", ["x"], ["Late"], name="late")]
    graph = load_onnx(model(nodes, [floats("x", 4)], [floats("y", 4)]).SerializeToString())
    assert [node.op.name for node in graph.nodes][:4] == ["neg", "relu", "abs", "exp"]


def test_a_value_that_nothing_computes() -> None:
    node = helper.make_node("Add", ["x", "b"], ["y"], name="add")
    text = message(model([node], [floats("x", 4)], [floats("y", 4)]), CorruptModelError)
    assert "node 'add' (Add) reads 'b': nothing computes it" in text


@pytest.mark.parametrize("length", [4, 1 << 16])
def test_two_constants_of_one_name(length: int) -> None:
    node = helper.make_node("Add", ["x", "b"], ["y"], name="add")
    offsets = {"b": np.zeros(length, np.float32)}
    made = model([node], [floats("x", length)], [floats("y", length)], offsets)
    made.graph.initializer.append(numpy_helper.from_array(np.ones(length, np.float32), "b"))
    assert "2 constants are called 'b'" in message(made, CorruptModelError)


def test_an_input_that_is_fixed_has_no_default() -> None:
    node = helper.make_node("Add", ["x", "b"], ["y"], name="add")
    ends = [floats("x", 2), floats("b", 2)], [floats("y", 2)]
    made = model([node], *ends, {"b": np.zeros(2, np.float32)})
    graph = load_onnx(made.SerializeToString(), fixed={"b": np.array([1, 2], np.float32)})
    ((y,),) = graph.run([[np.zeros(2, np.float32)]])
    assert y.tolist() == [1, 2]


def test_types_that_do_not_fit() -> None:
    node = helper.make_node("Add", ["x", "b"], ["y"], name="add")
    whole = {"b": np.zeros(4, np.int64)}
    text = message(model([node], [floats("x", 4)], [floats("y", 4)], whole), CorruptModelError)
    assert "add" in text
    assert "type" in text.lower()


def test_shapes_that_do_not_fit() -> None:
    node = helper.make_node("Add", ["x", "b"], ["y"], name="add")
    five = {"b": np.zeros(5, np.float32)}
    text = message(model([node], [floats("x", 4)], [floats("y", 4)], five), CorruptModelError)
    assert "add" in text


def test_a_constant_with_too_little_data() -> None:
    node = helper.make_node("Add", ["x", "b"], ["y"], name="add")
    made = model([node], [floats("x", 4)], [floats("y", 4)], {"b": np.zeros(4, np.float32)})
    made.graph.initializer[0].raw_data = b"\0" * 8
    assert "tensor name: b" in message(made, CorruptModelError)


def product(depth: int) -> onnx.ModelProto:
    """A matrix of 64 outputs: of 64 KiB with 256 inputs."""
    weights = np.random.default_rng(0).standard_normal((depth, 64)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return model([node], [floats("x", 1, depth)], [floats("y", 1, 64)], {"w": weights})


@pytest.mark.parametrize("depth", [255, 256, 1024])
def test_a_large_constant_is_read_as_a_small_one_is(depth: int) -> None:
    made = product(depth)
    graph = load_onnx(made.SerializeToString())
    (weights,) = (v for v in graph.values.values() if v.is_constant and len(v.shape) == 2)
    assert np.array_equal(weights.array(), numpy_helper.to_array(made.graph.initializer[0]).T)


def test_a_large_constant_with_too_little_data() -> None:
    made = product(1024)
    made.graph.initializer[0].raw_data = made.graph.initializer[0].raw_data[:-4]
    assert "'w' has not the data that its shape says" in message(made, CorruptModelError)


def test_a_large_constant_of_a_shape_that_does_not_fit() -> None:
    made = product(1024)
    made.graph.initializer[0].dims[:] = [512, 128]
    message(made, CorruptModelError)


def with_external(location: str, offset: int = 0, length: int = 16) -> onnx.ModelProto:
    node = helper.make_node("Add", ["x", "b"], ["y"], name="add")
    made = model([node], [floats("x", 4)], [floats("y", 4)], {"b": np.zeros(4, np.float32)})
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return made


def test_data_in_a_file_beside_the_model(tmp_path: Path) -> None:
    data = np.arange(6, dtype=np.float32)
    (tmp_path / "net.bin").write_bytes(data.tobytes())
    (tmp_path / "net.onnx").write_bytes(with_external("net.bin", 8).SerializeToString())
    graph = load(tmp_path / "net.onnx")
    (constant,) = (v for v in graph.values.values() if v.is_constant)
    assert constant.array().tolist() == data[2:].tolist()


@pytest.mark.parametrize(
    ("location", "offset", "reason"),
    [
        ("absent.bin", 0, "there is no such file"),
        ("../net.bin", 0, "leaves the folder"),
        ("/etc/hostname", 0, "leaves the folder"),
        ("link.bin", 0, "leaves the folder"),
        ("", 0, "leaves the folder"),
        ("net.bin", 16, "16 bytes at 16 of a file of 24"),
        ("net.bin", -8, "16 bytes at -8"),
    ],
)
def test_data_that_is_not_beside_the_model(tmp_path: Path, location: str, offset: int, reason: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for place in (tmp_path, folder):
        (place / "net.bin").write_bytes(bytes(24))
    (folder / "link.bin").symlink_to(tmp_path / "net.bin")
    (folder / "net.onnx").write_bytes(with_external(location, offset).SerializeToString())
    with pytest.raises(CorruptModelError, match=reason):
        load(folder / "net.onnx")


def test_random_numbers_are_refused() -> None:
    node = helper.make_node("RandomNormal", [], ["r"], name="noise", shape=[4])
    add = helper.make_node("Add", ["x", "r"], ["y"], name="add")
    text = message(model([node, add], [floats("x", 4)], [floats("y", 4)]), UnsupportedError)
    assert "RandomNormal: random numbers (node 'noise')" in text


def _sparse(indices: Array, shape: Sequence[int] = (3, 4)) -> bytes:
    values = numpy_helper.from_array(np.array([1.5, -2.0, 0.25], np.float32), "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(indices, "i"), list(shape))
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])],
        sparse_initializer=[sparse],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    "indices", [np.array([1, 4, 11], np.int64), np.array([[0, 1], [1, 0], [2, 3]], np.int64)]
)
def test_sparse_constants_are_dense(indices: Array) -> None:
    expected = np.zeros((3, 4), np.float32)
    expected[[0, 1, 2], [1, 0, 3]] = [1.5, -2.0, 0.25]
    ((y,),) = load_onnx(_sparse(indices)).run([(np.zeros((3, 4), np.float32),)])
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    "indices",
    [
        np.array([1, 4, 12], np.int64),
        np.array([-1, 4, 11], np.int64),
        np.array([[0, 1], [1, 0], [3, 0]], np.int64),
        np.array([[0], [1], [2]], np.int64),
        np.array([1, 4], np.int64),
    ],
)
def test_sparse_constants_that_do_not_fit(indices: Array) -> None:
    with pytest.raises(CorruptModelError, match="sparse"):
        load_onnx(_sparse(indices))


def test_places_that_are_not_zero_in_a_constant() -> None:
    """Exporters write masks as NonZero of a constant, and Gather at the places that it finds."""
    mask = numpy_helper.from_array(np.array([0, 3, 0, 1, 1], np.int64), "mask")
    zero = numpy_helper.from_array(np.array([0], np.int64), "zero")
    nodes = [
        helper.make_node("NonZero", ["mask"], ["places"]),
        helper.make_node("Squeeze", ["places", "zero"], ["flat"]),
        helper.make_node("Gather", ["x", "flat"], ["y"], axis=1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, None])
    graph = helper.make_graph(nodes, "net", [x], [y], [mask, zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    given = np.arange(10, dtype=np.float32).reshape(2, 5)
    ((found,),) = load_onnx(model.SerializeToString()).run([(given,)])
    np.testing.assert_array_equal(found, given[:, [1, 3, 4]])
