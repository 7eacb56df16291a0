"""Which output a stored byte is, where layers follow each other without a step between."""

from pathlib import Path

import numpy as np

from crtgen.proof.checker.algebra.meaning import table
from crtgen.proof.checker.algebra.value import Symbol, Word, WordOp
from crtgen.proof.checker.algebra.words import add
from crtgen.proof.checker.network.elementwise import ElementLayer
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.recognition.recognise import Recogniser
from tests.tflite_builder import Model, Operator, Options, Tensor


def rescalings(directory: Path) -> Network:
    """Three, one after the other: x, a, b, y."""
    scales = {"x": 0.05, "a": 0.07, "b": 0.11, "y": 0.13}
    tensors = [Tensor(name, (1, 4), "int8", [scale], [3]) for name, scale in scales.items()]
    steps = (("x", "a"), ("a", "b"), ("b", "y"))
    operators = [Operator("QUANTIZE", [x], [y], Options("QuantizeOptions")) for x, y in steps]
    path = directory / "rescalings.tflite"
    path.write_bytes(Model(tensors, operators, ["x"], ["y"]).to_bytes())
    return Network(path)


def test_the_same_function_of_another_tensor_is_another_output(tmp_path: Path) -> None:
    """Two layers at once are recognised from where they begin, and not from a layer before."""
    network = rescalings(tmp_path)
    recogniser = Recogniser(network, limit=10)
    values = np.arange(-128, 128)
    for layer in network.layers:
        network.prepared(layer)
    _, second, third = (layer for layer in network.layers if isinstance(layer, ElementLayer))
    both = table(third.value(second.value(values)).tolist())

    def at_once(symbol: int | Symbol) -> Word:
        assert isinstance(symbol, Symbol)
        return WordOp("table", both, add(symbol.word, 128))

    y = network.values(network.file.outputs[0])[0]
    assert isinstance(y, Symbol)
    a = network.prepared(network.layers[0])[0]
    assert recogniser.output(at_once(a), 8) is y.word
    assert recogniser.output(at_once(network.values(network.file.inputs[0])[0]), 8) is None
