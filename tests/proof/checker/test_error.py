"""Bounds of the error of networks of float32: boards are within, and nothing else is taken for a layer."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtgen import api
from crtgen.proof.checker import Proof, prove
from crtgen.proof.checker.algebra.real import word_of_real
from crtgen.proof.checker.algebra.value import Symbol, Word, WordOp
from crtgen.proof.checker.binary.image import read_image
from crtgen.proof.checker.network.real_layers import RealNetwork
from crtgen.proof.checker.recognition.error import Bounds
from crtgen.proof.printed import as_dict, lines_of
from tests.proof.checker.mutations import flipped
from tests.proof.checker.networks import reals
from tests.support import model_path, nightly, require_tool
from tests.tflite_builder import Model, Operator, Options, Tensor

M4, M55 = "mps2_an386", "mps3_an547"


def layers_of(model: Path) -> list[tuple[Any, Any, tuple[float, float]]]:
    """Weights and biases in float64, and limits."""
    network = RealNetwork(model, "")
    operators, found = {o.number: o for o in network.file.operators}, []
    for layer in network.sums:
        _, w, b = (network.file.constant(t) for t in operators[layer.number].inputs)
        found.append((w.astype(np.float64), b.astype(np.float64), layer.limits))
    return found


def within(name: str, board: str, reach: float, folder: Path, runs: int) -> tuple[float, Proof]:
    """The greatest error that random inputs show on a board, and the proof of its image."""
    require_tool("arm-none-eabi-gcc")
    require_tool("qemu-system-arm")
    model = model_path(name)
    compiled = api.load(model).compile(board)
    built = compiled.generate("standalone").build()
    proof = prove(built.path, model, reach=reach)
    assert prove(built.path, model, reach=reach).error == proof.error, "another order, another sum"
    info, rng, worst = compiled.modules[0].info, np.random.default_rng(5), 0.0
    layers = layers_of(model)
    with compiled.generate().build().run() as session:
        for _ in range(runs):
            x = rng.uniform(-reach, reach, info.inputs[0].shape).astype(np.float32)
            (y,) = session.infer(x)
            exact: Any = x.astype(np.float64)
            for w, b, limits in layers:
                exact = np.clip(exact @ w.T + b, *limits)
            worst = max(worst, float(abs(y - exact).max()))
    return worst, proof


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize("board", [M4, nightly(M55)])
@pytest.mark.parametrize("runs", [25, nightly(1000)])
def test_random_inputs(board: str, runs: int, tmp_path: Path) -> None:
    worst, proof = within("hello_world_float", board, 6.3, tmp_path, runs)
    assert proof.error is not None
    assert (proof.error.outputs, proof.error.reason) == (1, "")
    assert 0 < worst < proof.error.most < 1e-4
    most = [layer[2] for layer in proof.error.layers]
    assert most == sorted(most)
    assert most[-1] == proof.error.most
    assert not proof.is_proven
    assert as_dict(proof)["error"]["most"] == proof.error.most
    said = f"bit by bit; each is within {proof.error.most:.3g} of the network's for inputs from -6.3 to 6.3"
    assert lines_of(proof)[-1].endswith(said)


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.nightly
def test_ten_layers(tmp_path: Path) -> None:
    """What weights do to an error in the worst case is far from what they do to one input."""
    worst, proof = within("ad01_float32", M4, 1.0, tmp_path, 1000)
    assert (proof.stopped, proof.reset.stopped) == ("", "")
    assert (proof.is_proven, proof.outputs_proven, proof.outputs) == (False, 0, 640)
    assert proof.first_reason == "outputs of float32 are not compared"
    least, most = proof.instructions
    assert 100_000 < least == most < 1_000_000
    assert 0 < proof.stack < 500
    assert proof.error is not None
    assert proof.error.outputs == 640
    first, last = proof.error.layers[0], proof.error.layers[-1]
    assert first[2] < 1e-3
    assert 0 < worst < last[2] == proof.error.most


@pytest.mark.qemu
@pytest.mark.models
def test_the_last_bit_of_a_weight(tmp_path: Path) -> None:
    """It is another line, and what comes after it is not followed."""
    require_tool("arm-none-eabi-gcc")
    model = model_path("hello_world_float")
    path = tmp_path / "firmware.elf"
    built = api.load(model).compile(M4).generate("standalone").build()
    path.write_bytes(built.path.read_bytes())
    image = read_image(path)
    name = next(n for n in image.symbols if "__tvm_param__" in n and n.endswith("weights"))
    proof = prove(flipped(path, image.symbols[name], 0, tmp_path), model)
    assert proof.stopped == ""
    assert proof.error is not None
    assert (proof.error.outputs, proof.error.reason) == (0, "no output was recognised")
    assert lines_of(proof)[-1].endswith("no bound of their error: no output was recognised")


@pytest.mark.qemu
@pytest.mark.models
def test_layers_without_a_bound(tmp_path: Path) -> None:
    require_tool("arm-none-eabi-gcc")
    tensors = [Tensor(name, [1, 4], "float32") for name in "xy"]
    model = tmp_path / "tanh.tflite"
    model.write_bytes(Model(tensors, [Operator("TANH", ["x"], ["y"])], ["x"], ["y"]).to_bytes())
    network = RealNetwork(model, "")
    assert network.unbounded == "of TANH none is known"


def line_network(
    folder: Path, activation: int = 1, reach: float = 2.0
) -> tuple[Bounds, tuple[Symbol, Symbol], Symbol]:
    """y = relu(3 x - 5 z + 0.25)."""
    weights, bias = np.array([[3, -5]], np.float32), np.array([0.25], np.float32)
    tensors = [
        *(Tensor("x", [1, 2], "float32"), Tensor("y", [1, 1], "float32")),
        *(Tensor("w", [1, 2], "float32", data=weights), Tensor("b", [1], "float32", data=bias)),
    ]
    options = Options("FullyConnectedOptions", FusedActivationFunction=activation)
    model = folder / "line.tflite"
    model.write_bytes(
        Model(
            tensors, [Operator("FULLY_CONNECTED", ["x", "w", "b"], ["y"], options)], ["x"], ["y"]
        ).to_bytes()
    )
    network = RealNetwork(model, "")
    x, z = network.values(network.file.inputs[0])
    assert isinstance(x, Symbol)
    assert isinstance(z, Symbol)
    (y,) = network.ends
    assert isinstance(y, Symbol)
    return Bounds(network, reach), (x, z), y


def number(value: float) -> int:
    return int(word_of_real(np.float32(value))) & 0xFFFFFFFF


Tree = Callable[[Word, Word], Word]


def product(x: Word, k: float) -> WordOp:
    return WordOp("f_mul", x, number(k))


SAME: dict[str, Tree] = {
    "plain": lambda x, z: WordOp("f_add", WordOp("f_add", product(x, 3), product(z, -5)), number(0.25)),
    "another order": lambda x, z: WordOp(
        "f_add", product(x, 3), WordOp("f_add", number(0.25), product(z, -5))
    ),
    "fused": lambda x, z: WordOp("f_fma", WordOp("f_fma", number(0.25), x, number(3)), z, number(-5)),
    "less": lambda x, z: WordOp("f_sub", WordOp("f_fma", number(0.25), number(3), x), product(z, 5)),
    "twice": lambda x, z: WordOp(
        "f_fma", WordOp("f_fma", WordOp("f_fma", number(0.25), x, number(2)), z, number(-5)), x, number(1)
    ),
}
OTHER: dict[str, Tree] = {
    "another weight": lambda x, z: WordOp(
        "f_fma", WordOp("f_fma", number(0.25), x, number(3.0000002)), z, number(-5)
    ),
    "no constant": lambda x, z: WordOp("f_add", product(x, 3), product(z, -5)),
    "a square": lambda x, z: WordOp(
        "f_add", WordOp("f_mul", x, x), WordOp("f_fma", number(0.25), z, number(-5))
    ),
    "crossed": lambda x, z: WordOp("f_add", WordOp("f_add", product(z, 3), product(x, -5)), number(0.25)),
    "bits": lambda x, z: WordOp(
        "add", WordOp("f_fma", WordOp("f_fma", number(0.25), x, number(3)), z, number(-5)), 1
    ),
}


def relu(e: Word) -> WordOp:
    return WordOp("f_max", e, 0)


@pytest.mark.parametrize("name", SAME)
def test_trees_of_a_line(name: str, tmp_path: Path) -> None:
    """At most: 6 + 10 + 0.25 in size, of which each operation loses 2^-24."""
    bounds, (x, z), y = line_network(tmp_path)
    assert bounds.output(relu(SAME[name](x.word, z.word)), 32) is y.word
    assert 16.25 * 2**-24 < bounds.error[y] < 4 * 16.25 * 2**-24
    low, high = bounds.span[y]
    assert low == 0
    assert 16.25 <= high < 16.2501


def test_a_fused_one_rounds_once(tmp_path: Path) -> None:
    bounds, (x, z), y = line_network(tmp_path)
    bounds.output(relu(SAME["fused"](x.word, z.word)), 32)
    first, last = (6 + 0.25) * 2**-24, (16.25 + (6 + 0.25) * 2**-24) * 2**-24
    assert bounds.error[y] == pytest.approx(first + last, rel=1e-6)
    assert bounds.error[y] >= float(Fraction(first) + Fraction(last))


@pytest.mark.parametrize("name", OTHER)
def test_trees_of_something_else(name: str, tmp_path: Path) -> None:
    bounds, (x, z), _ = line_network(tmp_path)
    found = bounds.output(relu(OTHER[name](x.word, z.word)), 32)
    assert isinstance(found, WordOp)
    assert found.name == "unknown"


def test_limits(tmp_path: Path) -> None:
    """A maximum of numbers, of their bits, a choice; in their order; and none but the layer's."""
    bounds, (x, z), y = line_network(tmp_path)
    plain: Word = SAME["plain"](x.word, z.word)
    six = number(6)
    forms: dict[bool, list[Word]] = {
        True: [
            WordOp("max", plain, 0),
            WordOp("sel", WordOp("f_gt", plain, 0), plain, 0),
            WordOp("sel", WordOp("f_le", plain, 0), 0, plain),
        ],
        False: [
            plain,
            WordOp("f_min", relu(plain), six),
            WordOp("f_max", plain, six),
            WordOp("sel", WordOp("f_lt", plain, 0), plain, 0),
        ],
    }
    for same, words in forms.items():
        for word in words:
            assert (bounds.output(word, 32) is y.word) == same
    bounds, (x, z), y = line_network(tmp_path, activation=3)
    plain = SAME["plain"](x.word, z.word)
    clamped: tuple[tuple[Word, bool], ...] = (
        (WordOp("f_min", relu(plain), six), True),
        (relu(WordOp("f_min", plain, six)), True),
        (WordOp("min", WordOp("max", plain, 0), six), True),
        (WordOp("min", plain, six), False),
        (WordOp("f_max", WordOp("f_min", plain, 0), six), False),
    )
    for word, same in clamped:
        assert (bounds.output(word, 32) is y.word) == same


def test_numbers_that_are_too_large(tmp_path: Path) -> None:
    bounds, (x, z), y = line_network(tmp_path, reach=1e38)
    found = bounds.output(relu(SAME["plain"](x.word, z.word)), 32)
    assert isinstance(found, WordOp)
    assert found.name == "unknown"
    assert y not in bounds.error


def exact_outputs(network: RealNetwork, x: Any) -> Any:
    """The outputs in float64, by the lines of layers."""
    values: dict[Any, float] = dict(zip(network.fed[network.file.inputs[0]], x.ravel().tolist(), strict=True))
    for layer in network.sums:
        for symbol, made in zip(layer.values or (), layer.made, strict=True):
            line = made.line()
            units = line.constant + sum(Fraction(values[s]) * k for s, k in line.terms)
            exact = float(units / (line.divisor << 149))
            values[symbol] = min(max(exact, layer.limits[0]), layer.limits[1])
    return np.array([values[s] for s in network.ends])


@pytest.mark.qemu
@pytest.mark.parametrize("board", [nightly(M4), M55])
def test_images(board: str, tmp_path: Path) -> None:
    """Convolutions, sums of tensors, means and what moves: boards are within the bound, which is near."""
    require_tool("arm-none-eabi-gcc")
    require_tool("qemu-system-arm")
    model = tmp_path / "reals.tflite"
    model.write_bytes(reals())
    compiled = api.load(model).compile(board)
    image = compiled.generate("standalone").build()
    proof = prove(image.path, model)
    assert proof.error is not None
    assert (proof.error.outputs, proof.error.reason) == (12, "")
    names = ["CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "AVERAGE_POOL_2D", "FULLY_CONNECTED", "MEAN"]
    assert [layer[1] for layer in proof.error.layers] == names
    assert all(0 < error < 1e-5 * size for _, _, error, size in proof.error.layers)
    network, rng, worst = RealNetwork(model, ""), np.random.default_rng(5), 0.0
    with compiled.generate().build().run() as session:
        for _ in range(20):
            x = rng.uniform(-1, 1, (1, 5, 5, 3)).astype(np.float32)
            outputs = np.concatenate([y.ravel() for y in session.infer(x)])
            worst = max(worst, float(abs(outputs - exact_outputs(network, x)).max()))
    assert 0 < worst < proof.error.most


def test_meaning_of_layers(tmp_path: Path) -> None:
    """What layers are here and in TFLite Micro, on the same inputs."""
    interpreter = pytest.importorskip("tflite_micro").runtime.Interpreter.from_bytes(reals())
    (tmp_path / "reals.tflite").write_bytes(reals())
    network, rng = RealNetwork(tmp_path / "reals.tflite", ""), np.random.default_rng(6)
    assert network.unbounded == ""
    for _ in range(5):
        x = rng.uniform(-1, 1, (1, 5, 5, 3)).astype(np.float32)
        interpreter.set_input(x, 0)
        interpreter.invoke()
        theirs = np.concatenate([interpreter.get_output(i).ravel() for i in range(2)])
        np.testing.assert_allclose(exact_outputs(network, x), theirs, rtol=1e-5, atol=1e-6)
