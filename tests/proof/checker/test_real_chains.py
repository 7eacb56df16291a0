"""Float operators between two tensors of int8: their function, and images whose tables differ."""

from pathlib import Path

import numpy as np
import pytest

from crtgen.base.errors import UnsupportedError
from crtgen.network.frontends import load_tflite
from crtgen.proof.checker import prove
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.network.real_chains import ChainLayer
from tests.proof.checker.mutations import flipped
from tests.proof.checker.test_prove import M4, image_of, states, symbol
from tests.tflite_builder import Model, Operator, Options, Tensor

CHAINS: dict[str, list[tuple[str, str, list[str]]]] = {
    "neg": [("NEG", "r", [])],
    "square": [("SQUARE", "r", []), ("MUL", "r", ["k"])],
    "difference": [("SUB", "k", ["r"]), ("ABS", "r", []), ("SQRT", "r", [])],
    "exp": [("NEG", "r", []), ("EXP", "r", []), ("ADD", "r", ["k"]), ("DIV", "k", ["r"])],
    "wave": [("SIN", "r", []), ("MAXIMUM", "r", ["k"]), ("RELU6", "r", []), ("FLOOR", "r", [])],
}
"""Operators; "r" is the last result, and "k" a constant."""


def file_of(name: str, length: int = 256, also_read: bool = False) -> bytes:
    tensors = [
        Tensor("x", (length,), "int8", [0.031], [-5]),
        Tensor("d", (length,), "float32"),
        Tensor("k", (1,), "float32", data=np.array([0.75], np.float32)),
    ]
    operators, last = [Operator("DEQUANTIZE", ["x"], ["d"])], "d"
    for number, (code, first, others) in enumerate(CHAINS[name]):
        given = [last if operand == "r" else operand for operand in (first, *others)]
        kind = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions"}.get(code)
        last = f"t{number}"
        tensors.append(Tensor(last, (length,), "float32"))
        operators.append(Operator(code, given, [last], Options(kind) if kind else None))
    tensors.append(Tensor("y", (length,), "int8", [0.0137], [-40]))
    operators.append(Operator("QUANTIZE", [last], ["y"]))
    outputs = ["y"]
    if also_read:
        tensors.append(Tensor("s", (length,), "float32"))
        operators.append(Operator("SIN", ["t0"], ["s"]))
        outputs.append("s")
    return Model(tensors, operators, ["x"], outputs).to_bytes()


@pytest.mark.parametrize("name", CHAINS)
def test_the_function_is_that_of_the_operators(name: str, tmp_path: Path) -> None:
    model, data = tmp_path / "net.tflite", file_of(name)
    model.write_bytes(data)
    network = Network(model)
    (layer,) = network.layers
    assert isinstance(layer, ChainLayer)
    network.prepared(layer)
    numbers = np.arange(-128, 128)
    graph = load_tflite(data)
    wanted = graph.evaluate({"x": numbers.astype(np.int8)})[graph.outputs[0]]
    np.testing.assert_array_equal(layer.function((None,), numbers), wanted)


def test_what_something_else_reads_is_no_part_of_it(tmp_path: Path) -> None:
    model = tmp_path / "net.tflite"
    model.write_bytes(file_of("neg", also_read=True))
    with pytest.raises(UnsupportedError, match="NEG of float32 has no proof"):
        Network(model)


@pytest.mark.qemu
@pytest.mark.parametrize("name", ["square", "exp"])
def test_each_entry_of_the_table_counts(name: str, tmp_path: Path) -> None:
    model = tmp_path / "net.tflite"
    model.write_bytes(file_of(name, 8))
    image = image_of(model, M4, tmp_path)
    assert prove(image, model).is_proven
    table = symbol(image, "__tvm_param__net_quantize_table")
    for at in (0, 130, 255):
        assert states(prove(flipped(image, table + at, 0, tmp_path), model)) == [("QUANTIZE", 8)]
