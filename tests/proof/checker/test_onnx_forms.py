"""Forms of quantised ONNX: what the checker reads, proofs, and files that differ from images."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from crtgen import api
from crtgen.proof.checker import prove
from crtgen.proof.checker.binary.image import read_image
from crtgen.proof.checker.network.elementwise import ElementLayer
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.network.numbers import OnNumbers
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.printed import lines_of
from crtgen.proof.refute.inputs import _missing
from tests.proof.checker.changed import built_with
from tests.proof.checker.mutations import flipped, outcomes
from tests.proof.checker.test_network import run
from tests.support import nightly, require_tool


@dataclass
class Quantised:
    """A file that is written operator by operator; ``last`` is the newest tensor of integers."""

    nodes: list[Any] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    scales: dict[str, list[str]] = field(default_factory=dict)
    last: str = "x"
    kind: Any = np.int8

    def constant(self, name: str, data: Any) -> str:
        self.kept.append(numpy_helper.from_array(np.asarray(data), name))
        return name

    def scaled(self, name: str, scale: Any, zero: int) -> list[str]:
        scale = np.asarray(scale, np.float32)
        zeros = np.full(scale.shape, zero, self.kind)
        self.scales[name] = [self.constant(f"{name}.scale", scale), self.constant(f"{name}.zero", zeros)]
        return [name, *self.scales[name]]

    def weights(self, name: str, shape: tuple[int, ...], scale: Any = 0.01, zero: int = 0) -> str:
        data = np.random.default_rng(len(self.kept)).integers(-127, 128, shape)
        self.constant(name, (data - np.iinfo(self.kind).min - 128).astype(self.kind))
        self.scaled(name, scale, zero)
        return name

    def operator(self, code: str, name: str, scale: float, zero: int, *operands: str, **more: Any) -> str:
        """Add a quantised operator on the last tensor and others; the last of the others may be a bias."""
        bias = [operands[-1]] if operands and operands[-1] not in self.scales else []
        names = [self.last, *operands[: len(operands) - len(bias)]]
        given = [text for n in names for text in (n, *self.scales[n])]
        result = self.scaled(name, scale, zero)[1:]
        given += [*bias, *result] if code == "QGemm" else [*result, *bias]
        domain = "" if code in ("QLinearConv", "QLinearMatMul") else "com.microsoft"
        self.nodes.append(helper.make_node(code, given, [name], domain=domain, **more))
        self.last = name
        return name

    def real(self, codes: str, name: str, scale: float, zero: int, *operands: str, **more: Any) -> str:
        """Add float operators between DequantizeLinear and QuantizeLinear."""
        names = []
        for i, each in enumerate((self.last, *operands)):
            if each in self.scales:
                y = f"{name}.{i}"
                self.nodes.append(helper.make_node("DequantizeLinear", [each, *self.scales[each]], [y]))
                each = y
            names.append(each)
        for n, code in enumerate(codes.split()):
            self.nodes.append(helper.make_node(code, names, [f"{name}.{code}"], **(more if not n else {})))
            names = [f"{name}.{code}"]
        self.nodes.append(
            helper.make_node("QuantizeLinear", [*names, *self.scaled(name, scale, zero)[1:]], [name])
        )
        self.last = name
        return name

    def model(self, inputs: list[int], outputs: list[int]) -> onnx.ModelProto:
        ends = [
            helper.make_tensor_value_info(name, TensorProto.INT8, shape)
            for name, shape in (("x", inputs), (self.last, outputs))
        ]
        graph = helper.make_graph(self.nodes, "net", ends[:1], ends[1:], self.kept)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def operators() -> onnx.ModelProto:
    """Quantised operators (QOperator), each of them once."""
    net = Quantised()
    net.scaled("x", 0.02, 3)
    net.weights("w", (3, 2, 3, 3))
    net.constant("wb", np.array([150, -2000, 900], np.int32))
    conv = net.operator("QLinearConv", "conv", 0.05, -7, "w", "wb", pads=[1] * 4)
    net.operator("QLinearLeakyRelu", "leaky", 0.043, -60, alpha=0.1)
    net.weights("a", (3, 1, 1), 0.011, 5)
    net.operator("QLinearAdd", "sum", 0.047, 11, "a")
    net.operator("QLinearMul", "product", 0.11, 2, conv)
    net.operator("QLinearSigmoid", "sigmoid", 1 / 256, -128)
    net.operator("QLinearAveragePool", "pool", 1 / 300, -120, kernel_shape=[2, 2], strides=[2, 2])
    net.operator("QLinearGlobalAveragePool", "mean", 1 / 310, -100, channels_last=0)
    net.nodes.append(helper.make_node("Flatten", ["mean"], ["flat"]))
    net.scales["flat"], net.last = net.scales["mean"], "flat"
    net.weights("m", (3, 4), 0.012)
    net.constant("mb", np.array([90, -100, 70, 1000], np.int32))
    net.operator("QGemm", "dense", 0.013, 9, "m", "mb")
    net.weights("n", (4, 2), 0.009)
    net.operator("QLinearMatMul", "last", 0.02, -5, "n")
    return net.model([1, 2, 4, 4], [1, 2])


def functions() -> onnx.ModelProto:
    """Chains of float operators of one tensor, products, and constants (QDQ)."""
    net = Quantised()
    net.scaled("x", 0.03, -4)
    net.kind = np.uint8
    start = net.real("LeakyRelu", "leaky", 0.02, 40, alpha=0.1)
    net.weights("c", (6,), 0.017, 125)
    net.real("Mul", "product", 0.041, 134, "c")
    net.real("HardSigmoid", "hard", 1 / 255, 0, alpha=0.3, beta=0.4)
    net.real("Mul", "gated", 0.016, 40, start)
    net.constant("root", np.float32(math.sqrt(2)))
    net.real("Div Erf", "erf", 1 / 128, 128, "root")
    net.weights("one", (), 1 / 127)
    net.real("Add", "sum", 1 / 64, 60, "one")
    net.constant("three", np.float32(3))
    net.kind = np.int8
    net.real("Pow Tanh", "power", 1 / 127, 0, "three")
    return net.model([1, 6], [1, 6])


def moves() -> onnx.ModelProto:
    """Operators that move integers, and a Concat of other scales, one of them a constant's."""
    net = Quantised()
    net.scaled("x", 0.03, -4)

    def moved(code: str, *operands: Any, outputs: int = 1, **more: Any) -> list[str]:
        kept = [net.constant(f"{net.last}.{code}.{i}", np.array(v, np.int64)) for i, v in enumerate(operands)]
        made = [f"{net.last}.{code}{i}" for i in range(outputs)]
        net.nodes.append(helper.make_node(code, [net.last, *kept], made, **more))
        net.scales |= dict.fromkeys(made, net.scales[net.last])
        net.last = made[0]
        return made

    net.operator("QLinearLeakyRelu", "start", 0.03, -4, alpha=0.5)
    _, second = moved("Split", outputs=2, axis=1)
    net.real("SpaceToDepth", "deep", 0.03, -4, blocksize=2)
    net.real(
        "Resize",
        "large",
        0.03,
        -4,
        "",
        net.constant("twice", np.array([1, 1, 2, 2], np.float32)),
        **_REPEATED,
    )
    (first,) = moved("Gather", [7, 0, 3], axis=1)
    net.last = second
    moved("Slice", [-1, 1], [-9, 5], [2, 3], [-1, 2])
    net.constant("filled", np.array(-4, np.int8))
    net.nodes.append(
        helper.make_node(
            "Pad", [net.last, net.constant("pads", np.array([0, 0, 0, 1, 0, 0, 0, 3])), "filled"], ["padded"]
        )
    )
    net.scales["padded"], net.last = net.scales[net.last], "padded"
    net.weights("w", (4, 2, 1, 1))
    net.operator("QLinearConv", "conv", 0.05, -7, "w")
    net.real("DepthToSpace", "wide", 0.05, -7, blocksize=2, mode="CRD")
    (cut,) = moved("Slice", [0, 3], [6, 9], [2, 3])
    net.weights("c", (1, 1, 6, 6), 0.02, 9)
    given = [text for n in (first, cut, "c") for text in (n, *net.scales[n])]
    result = net.scaled("joined", 0.04, 3)[1:]
    net.nodes.append(
        helper.make_node("QLinearConcat", [*result, *given], ["joined"], domain="com.microsoft", axis=1)
    )
    net.last = "joined"
    moved("Transpose", perm=[0, 2, 3, 1])
    return net.model([1, 4, 6, 6], [1, 6, 6, 5])


_REPEATED = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def lines() -> onnx.ModelProto:
    """A convolution of lines, and pools."""
    net = Quantised()
    net.scaled("x", 0.03, -4)
    net.weights("w", (4, 3, 3), np.array([0.01, 0.02, 0.03, 0.005], np.float32))
    net.constant("wb", np.array([15, -200, 90, 0], np.int32))
    net.operator("QLinearConv", "conv", 0.05, -7, "w", "wb", pads=[2, 1], strides=[2], dilations=[2])
    net.real("MaxPool", "greatest", 0.05, -7, kernel_shape=[3], strides=[1], pads=[1, 1])
    net.real("AveragePool", "mean", 0.043, -9, kernel_shape=[2], strides=[2])
    return net.model([1, 3, 17], [1, 4, 4])


def matrices() -> onnx.ModelProto:
    """Products of tensors that are both computed, as an attention has them."""
    net = Quantised()
    net.scaled("x", 0.03, -4)
    rows = net.operator("QLinearLeakyRelu", "rows", 0.025, 9, alpha=0.2)
    net.nodes.append(helper.make_node("Transpose", [rows], ["columns"], perm=[0, 2, 1]))
    net.scales["columns"] = net.scales[rows]
    net.operator("QLinearMatMul", "scores", 0.11, -30, "columns")
    net.operator("QLinearMatMul", "mixed", 0.9, 3, rows)
    return net.model([1, 4, 6], [1, 4, 6])


MODELS = {
    "operators": operators,
    "functions": functions,
    "moves": moves,
    "lines": lines,
    "matrices": matrices,
}


def changed(model: onnx.ModelProto, name: str, by: Callable[[Any], Any]) -> onnx.ModelProto:
    """The file with another constant."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    (tensor,) = (t for t in made.graph.initializer if t.name == name)
    data = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(by(data), data.dtype), name))
    return made


@pytest.mark.parametrize("name", MODELS)
def test_meaning(name: str, tmp_path: Path) -> None:
    """Outputs equal ONNX Runtime's bit for bit."""
    data, file = MODELS[name]().SerializeToString(), tmp_path / "net.onnx"
    file.write_bytes(data)
    network, session = Network(file), onnxruntime.InferenceSession(data)
    (x,) = session.get_inputs()
    for values in np.random.default_rng(8).integers(-128, 128, (10, *x.shape)).astype(np.int8):
        (found,) = run(network, values)
        np.testing.assert_array_equal(found, session.run(None, {"x": values})[0].ravel())


Built = Callable[[str, str], tuple[Path, Path]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The file of a model and an image for a board, which is proven."""
    folder = tmp_path_factory.mktemp("forms")

    @cache
    def build(name: str, board: str) -> tuple[Path, Path]:
        require_tool("arm-none-eabi-gcc")
        file, image = folder / f"{name}.onnx", folder / f"{name}_{board}.elf"
        file.write_bytes(MODELS[name]().SerializeToString())
        made = api.load(file).compile(board).generate("standalone").build()
        image.write_bytes(made.path.read_bytes())
        proof = prove(image, file)
        assert proof.is_proven, proof.stopped or proof.first_reason
        return file, image

    return build


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("name", "board"),
    [
        nightly("operators", "mps2_an385"),
        nightly("operators", "rpi_pico"),
        nightly("lines", "mps2_an385"),
        nightly("lines", "rpi_pico"),
    ],
)
def test_proven(built: Built, name: str, board: str) -> None:
    """On cores without an FPU; those of M4 and M55 are proven for the attacks."""
    built(name, board)


def following(v: Any) -> Any:
    """Scales that differ in their last bits."""
    return np.nextafter(v, np.float32(np.inf))


def larger(v: Any) -> Any:
    return v * np.float32(1.001)


def far(v: Any) -> Any:
    return v + 60


def backwards(v: Any) -> Any:
    return v[::-1]


def above(v: Any) -> Any:
    return v + 1


WRONG: dict[str, list[tuple[str, Callable[[Any], Any]]]] = {
    "operators": [
        *((f"{name}.scale", following) for name in ("conv", "product", "dense")),
        *((f"{name}.zero", above) for name in ("conv", "leaky", "sum", "sigmoid", "pool", "mean", "last")),
        *((name, above) for name in ("w", "wb", "a", "m", "mb", "n")),
    ],
    "functions": [
        *((f"{name}.scale", larger) for name in ("gated", "sum")),
        *((f"{name}.zero", above) for name in ("leaky", "c", "hard", "one", "power")),
        *((name, above) for name in ("c", "root", "one")),
    ],
    "moves": [
        *((f"{name}.zero", above) for name in ("conv", "joined", "c")),
        *((f"{name}.scale", larger) for name in ("conv", "joined", "c")),
        *((name, above) for name in ("w", "c")),
        ("filled", far),
        ("large.Gather.0", backwards),
        ("pads", backwards),
    ],
    "matrices": [
        *((f"{name}.scale", following) for name in ("scores", "rows")),
        *((f"{name}.zero", above) for name in ("rows", "scores", "mixed")),
    ],
    "lines": [
        *((f"{name}.scale", following) for name in ("conv", "w")),
        *((f"{name}.zero", above) for name in ("conv", "greatest", "mean")),
        *((name, above) for name in ("w", "wb")),
    ],
}
IN_CI = {"operators": ("conv.scale", "leaky.zero", "product.scale", "a")}


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2_an386", nightly("mps3_an547")])
@pytest.mark.parametrize(
    ("name", "constant", "by"),
    [
        (name, *wrong) if wrong[0] in IN_CI.get(name, ()) else nightly(name, *wrong)
        for name, of in WRONG.items()
        for wrong in of
    ],
)
def test_another_constant(
    built: Built, name: str, board: str, constant: str, by: Callable[[Any], Any], tmp_path: Path
) -> None:
    """An image is not that of a file with another scale, zero point, weight or bias."""
    _, image = built(name, board)
    file = tmp_path / f"{name}.onnx"
    file.write_bytes(changed(MODELS[name](), constant, by).SerializeToString())
    assert not prove(image, file).is_proven


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("name", "operator", "board"),
    [
        ("operators", "LeakyRelu", "mps2_an386"),
        nightly("operators", "Sigmoid", "mps3_an547"),
        nightly("functions", "Erf", "mps2_an386"),
        nightly("functions", "Tanh", "mps3_an547"),
    ],
)
def test_another_entry(built: Built, name: str, operator: str, board: str, tmp_path: Path) -> None:
    """A table of 256 results, one of which differs by 1."""
    file, path = built(name, board)
    network = Network(file)
    layer = next(layer for layer in network.layers if layer.name == operator)
    network.prepared(layer)
    assert isinstance(layer, ElementLayer)
    entries = layer.value(np.arange(-128, 128)).astype(np.int8)
    number = 178 + layer.zeros[0]  # an entry that the layer before leads to
    (at,) = {
        first + place + (number + k) % 256
        for k in (0, 128)  # by the value as int8, or as a byte
        for first, data in read_image(path).constant
        if (place := data.find(np.roll(entries, k).tobytes())) >= 0
    }
    wrong = flipped(path, at, 0, tmp_path)
    assert not prove(wrong, file).is_proven


@pytest.mark.qemu
@pytest.mark.parametrize("code", ["QLinearAdd", "QLinearMul"])
def test_another_operand(built: Built, code: str, tmp_path: Path) -> None:
    """An operator that reads another tensor of the same shape, with that tensor's scale."""
    _, image = built("operators", "mps2_an386")
    model = MODELS["operators"]()
    node = next(n for n in model.graph.node if n.op_type == code)
    other = "conv" if code == "QLinearAdd" else "leaky"
    place = 0 if code == "QLinearAdd" else 3
    node.input[place : place + 3] = [other, f"{other}.scale", f"{other}.zero"]
    file = tmp_path / "operators.onnx"
    file.write_bytes(model.SerializeToString())
    assert not prove(image, file).is_proven


def real_ends() -> bytes:
    """Two outputs of float32: sums, and a function of the C library."""
    net = Quantised()
    net.scaled("x", 0.02, 3)
    net.weights("w", (4, 6), np.array([0.01, 0.02, 0.015, 0.03], np.float32))
    net.constant("b", np.array([100, -200, 3000, 7], np.int32))
    net.constant("b.scale", np.float32(0.02) * np.array([0.01, 0.02, 0.015, 0.03], np.float32))
    net.constant("b.zero", np.zeros(4, np.int32))
    read = [
        helper.make_node("DequantizeLinear", [n, f"{n}.scale", f"{n}.zero"], [f"{n}.real"], axis=0)
        for n in "xwb"
    ]
    sums = helper.make_node("Gemm", ["x.real", "w.real", "b.real"], ["sums"], transB=1)
    tanh = helper.make_node("Tanh", ["x.real"], ["tanh"])
    x = helper.make_tensor_value_info("x", TensorProto.INT8, [1, 6])
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, k]) for n, k in (("sums", 4), ("tanh", 6))
    ]
    graph = helper.make_graph([*read, sums, tanh], "net", [x], ends, net.kept)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(made.SerializeToString())


@pytest.mark.qemu
@pytest.mark.nightly
def test_real_ends_of_onnx(tmp_path: Path) -> None:
    """Exact sums rounded once, and tanh up to two steps of float32: no further."""
    require_tool("arm-none-eabi-gcc")
    file = tmp_path / "ends.onnx"
    file.write_bytes(real_ends())
    generated = api.load(file).compile("mps2_an386").generate("standalone")
    image = generated.build()
    proof = prove(image.path, file)
    assert proof.is_proven, proof.stopped or proof.first_reason
    text = lines_of(proof)[-1]
    assert "Tanh at the end within 2 steps of float32" in text
    assert "Gemm at the end as the product of its exact sum, which is rounded to float32" in text
    for name, by in (("w.scale", following), ("b", above), ("x.zero", above)):
        file.write_bytes(changed(onnx.load_model_from_string(real_ends()), name, by).SerializeToString())
        assert not prove(image.path, file).is_proven, name
    file.write_bytes(real_ends())
    (source,) = (
        n for n, text in generated.project.sources.items() if b"crt_tanhf(" in text and n.endswith(".c")
    )
    wrong = built_with(generated, source, ("crt_tanhf(", "1.0000005f * crt_tanhf("))
    assert not prove(wrong.path, file).is_proven


def test_steps_of_float32(tmp_path: Path) -> None:
    (tmp_path / "ends.onnx").write_bytes(real_ends())
    network = Network(tmp_path / "ends.onnx")
    layer = next(layer for layer in network.layers if layer.name == "Tanh")
    network.prepared(layer)
    assert isinstance(layer, ElementLayer)
    exact = layer.value(np.arange(-128, 128))
    assert not layer.differs(exact + 2, exact).any()
    assert not layer.differs(exact - 2, exact)[exact != 0].any()
    assert layer.differs(exact + 3, exact).all()
    assert layer.differs(np.full(256, 0x7FC00000), np.full(256, 0x7F7FFFFF)).all()
    zeros = np.array([0, -(1 << 31)])
    assert not layer.differs(zeros, zeros[::-1]).any()


@pytest.mark.qemu
@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("name", "board"), [("operators", "mps2_an386"), ("functions", "mps2_an386"), ("moves", "mps3_an547")]
)
def test_changes(name: str, board: str, tmp_path: Path) -> None:
    """Changed bits: each image that is accepted gives the network's outputs for all inputs tried."""
    require_tool("qemu-system-arm")
    file = tmp_path / f"{name}.onnx"
    file.write_bytes(MODELS[name]().SerializeToString())
    outcome = outcomes(file, board, 30, 0, 2026, tmp_path)
    assert outcome.wrong == []
    assert outcome.rejected >= outcome.tried // 2


@pytest.mark.parametrize(
    ("kind", "message"),
    [(TensorProto.UINT8, "an input of UINT8"), (TensorProto.FLOAT, "'x' is not quantised")],
)
def test_other_inputs(kind: int, message: str, tmp_path: Path) -> None:
    model = operators()
    model.graph.input[0].type.tensor_type.elem_type = kind
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(Refusal, match=message):
        Network(tmp_path / "net.onnx")


def test_goals_leave_ranges_as_they_are(tmp_path: Path) -> None:
    """The search for a counterexample asks for some sums of a layer with a constant operand only."""
    (tmp_path / "net.onnx").write_bytes(operators().SerializeToString())
    network = Network(tmp_path / "net.onnx")
    on = OnNumbers(network)
    layer = next(layer for layer in network.layers if layer.name == "Add")
    assert isinstance(layer, ElementLayer)
    before = dict(layer.ranges)
    layer.proven.clear()
    assert next(_missing(on, layer))
    assert layer.ranges == before


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("board", "kept", "lost"),
    [
        ("mps3_an547", "(float)nearest) * 2.0f", "(float)nearest) * 1.0f"),
        nightly("mps2_an386", "(float)nearest) * 2.0f", "(float)nearest) * 1.0f"),
        nightly("mps2_an385", "multiplier, right, 1U)", "multiplier, right, 0U)"),
        nightly("rpi_pico", "whole ^ odd", "whole | odd"),
    ],
)
def test_ties_of_averages(board: str, kept: str, lost: str, tmp_path: Path) -> None:
    """Halves go to even results where a step is 16/5 of the sum's and the zero point odd."""
    require_tool("arm-none-eabi-gcc")
    net = Quantised()
    net.scaled("x", 0.05, -4)
    net.real("LeakyRelu", "a", 0.05, 3, alpha=0.5)
    net.real("AveragePool", "mean", 0.04, -9, kernel_shape=[2, 2], strides=[2, 2])
    file = tmp_path / "ties.onnx"
    file.write_bytes(net.model([1, 4, 4, 4], [1, 4, 2, 2]).SerializeToString())
    generated = api.load(file).compile(board).generate("standalone")
    image = generated.build()
    proof = prove(image.path, file)
    assert proof.is_proven, proof.stopped or proof.first_reason
    (header,) = (name for name in generated.project.sources if name.endswith("crt/kernel.h"))
    wrong = built_with(generated, header, (kept, lost))
    assert not prove(wrong.path, file).is_proven
