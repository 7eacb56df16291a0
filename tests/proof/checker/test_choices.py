"""Choices and products of symbols: what is the operator's output, and what only looks like it."""

from pathlib import Path

import numpy as np
import pytest

from crtgen.proof.checker.algebra.products import SymbolProducts
from crtgen.proof.checker.algebra.value import LinearSum, Symbol, Word, WordOp
from crtgen.proof.checker.algebra.words import add, mul, select
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.recognition.recognise import Recogniser
from tests.tflite_builder import Model, Operator, Options, Tensor


def network_of(directory: Path, kind: str) -> Network:
    inputs = [Tensor("a", (1, 3), "int8", [0.05], [3])]
    if kind == "SELECT_V2":
        inputs = [Tensor("c", (1, 3), "bool"), *inputs, Tensor("b", (1, 3), "int8", [0.05], [3])]
        outputs, axis = [Tensor("y", (1, 3), "int8", [0.05], [3])], []
        options = Options("SelectV2Options")
    else:
        outputs, axis = (
            [Tensor("y", (1,), "int32")],
            [Tensor("k", (1,), "int32", data=np.array([1], np.int32))],
        )
        options = Options("ArgMaxOptions", OutputType=2)
    names = [t.name for t in (*inputs, *axis)]
    path = directory / "choice.tflite"
    given = [t.name for t in inputs]
    operator = Operator(kind, names, ["y"], options)
    path.write_bytes(Model([*inputs, *axis, *outputs], [operator], given, ["y"]).to_bytes())
    return Network(path)


def words_of(network: Network, which: int) -> list[Word]:
    values = network.values(network.file.inputs[which])
    return [v.word for v in values if isinstance(v, Symbol)]


def output(network: Network, word: Word, bits: int) -> bool:
    recogniser = Recogniser(network, limit=10)
    for layer in network.layers:
        network.prepared(layer)
    y = network.values(network.file.outputs[0])[0]
    assert isinstance(y, Symbol)
    return recogniser.output(word, bits) is y.word


def test_a_choice(tmp_path: Path) -> None:
    network = network_of(tmp_path, "SELECT_V2")
    (c, c1, _), (a, a1, _), (b, b1, _) = (words_of(network, i) for i in range(3))
    assert output(network, select(WordOp("ne", c, 0), a, b), 8)
    assert output(network, WordOp("orr", WordOp("and", a, WordOp("sub", 0, c)), mul(b, 1)), 8) is False
    assert not output(network, select(WordOp("ne", c, 0), b, a), 8)
    assert not output(network, select(WordOp("ne", c1, 0), a, b), 8)
    assert not output(network, select(WordOp("ne", c, 0), a1, b), 8)
    assert not output(network, select(WordOp("gt", c, 1), a, b), 8)
    for x, y, right in ((a, b, True), (b, a, False), (a, b1, False)):  # y + (x - y) c, modulo 256
        product = mul(WordOp("sxtb", add(x, y, -1)), c)
        assert output(network, add(WordOp("sxtb", product), y), 8) is right
    assert not output(network, select(WordOp("ne", c, 0), add(a, 256), add(b, 1)), 8)


@pytest.mark.parametrize("later", ["gt", "ge"])
def test_the_place_of_the_greatest(tmp_path: Path, later: str) -> None:
    """The first one of several: with ``>=`` it is the last one."""
    network = network_of(tmp_path, "ARG_MAX")
    a, b, c = words_of(network, 0)
    two = select(WordOp(later, b, a), 1, 0)
    three = select(WordOp("gt", c, WordOp("max", a, b)), 2, two)
    assert output(network, three, 32) is (later == "gt")


def test_a_place_by_other_comparisons(tmp_path: Path) -> None:
    network = network_of(tmp_path, "ARG_MAX")
    a, b, c = words_of(network, 0)
    two = select(WordOp("gt", b, a), 1, 0)
    for taken in (WordOp("gt", c, a), WordOp("hi", c, WordOp("max", a, b)), WordOp("gt", a, c)):
        assert not output(network, select(taken, 2, two), 32)
    assert not output(network, select(WordOp("gt", c, WordOp("max", a, b)), 1, two), 32)
    assert not output(network, select(WordOp("gt", c, WordOp("min", a, b)), 2, two), 32)


def test_products_of_symbols() -> None:
    """The order of additions does not matter; a square is no other product, and a cube is none."""
    x, y, z = (Symbol(0, i, -128, 127) for i in range(3))
    products = SymbolProducts()
    a, b = add(x.word, 3), add(y.word, -5 & 0xFFFFFFFF)
    one = products.rewritten(add(WordOp("mul", a, b), WordOp("mul", z.word, z.word)))
    other = products.rewritten(add(WordOp("mul", z.word, z.word), WordOp("mul", b, a)))
    assert isinstance(one, LinearSum)
    assert isinstance(other, LinearSum)
    assert (one.constant, one.terms()) == (other.constant, other.terms())
    assert one.constant == -15
    assert one.terms() == {products.of(x, y): 1, x: -5, y: 3, products.of(z, z): 1}
    cube = WordOp("mul", WordOp("mul", x.word, x.word), x.word)
    assert not isinstance(products.rewritten(cube), LinearSum)


def test_bounds_of_a_product() -> None:
    products = SymbolProducts()
    x, y = Symbol(0, 0, -128, 127), Symbol(0, 1, 3, 200)
    assert (products.of(x, y).low, products.of(x, y).high) == (-128 * 200, 127 * 200)
