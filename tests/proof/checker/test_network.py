"""What the checker takes operators to compute, against recorded outputs of TensorFlow Lite Micro."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtgen.base.errors import UnsupportedError
from crtgen.proof.checker.algebra.value import Symbol
from crtgen.proof.checker.network.arithmetic import high_mul
from crtgen.proof.checker.network.choices import ChoiceLayer, ExtremePlace
from crtgen.proof.checker.network.elementwise import ElementLayer
from crtgen.proof.checker.network.file import REAL, ElementType, ModelFile
from crtgen.proof.checker.network.layer import Layer, Value
from crtgen.proof.checker.network.lstm import LstmLayer
from crtgen.proof.checker.network.matrices import MatrixProducts
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.network.others import MaxPool, SoftmaxLayer
from crtgen.proof.checker.network.sums import SumLayer
from crtgen.proof.checker.network.svdf import SvdfLayer
from tests.network.ops.oracle import run_all
from tests.proof.checker.networks import elements
from tests.support import ROOT, model_path

DIGITS = ROOT / "demo" / "digits.tflite"


def run(network: Network, *inputs: Any) -> list[Any]:
    """The network on numbers: each symbol gets the value that its layer says. Gives its results."""
    values: dict[Symbol, int] = {}
    for tensor, x in zip(network.file.inputs, inputs, strict=True):
        for symbol, number in zip(network.values(tensor), x.ravel(), strict=True):
            assert isinstance(symbol, Symbol)
            values[symbol] = int(number)
    for layer in network.layers:
        outputs = network.prepared(layer)
        for i, number in _numbers(layer, values):
            _set(values, outputs[i], number)
    return [
        np.array([values[v] if isinstance(v, Symbol) else v for v in network.values(t)])
        for t in network.results
    ]


def _numbers(layer: Layer, values: dict[Symbol, int]) -> Iterator[tuple[int, int]]:
    """The outputs of a layer; nothing of one that moves bytes."""

    def number(v: Value) -> Any:
        return np.array([values[v] if isinstance(v, Symbol) else v], np.int64)

    _set_inner(layer, values)
    if isinstance(layer, SumLayer):
        for i, channel, base, terms in layer.sums():
            total = np.array([base + sum(k * values[s] for s, k in terms.items())], np.int64)
            yield i, int(layer.function(channel, total)[0])
    if isinstance(layer, ElementLayer):
        for i, operands in enumerate(layer.operands):
            yield i, int(layer.value(*map(number, operands))[0])
    elif isinstance(layer, ChoiceLayer | ExtremePlace):
        yield from enumerate(_choices(layer, number))
    elif isinstance(layer, MaxPool):
        yield from _extremes(layer, values)
    elif isinstance(layer, SoftmaxLayer):
        rows = np.concatenate([number(v) for v in layer.inputs]).reshape(-1, layer.depth)
        yield from enumerate(int(v) for row in rows for v in layer.reference(row))
    elif isinstance(layer, LstmLayer):
        arrays = [np.concatenate([number(v) for v in of]) for of in layer.operands()]
        yield from ((i, int(v)) for i, v in enumerate(layer.reference(*arrays)))


def _extremes(layer: MaxPool, values: dict[Symbol, int]) -> Iterator[tuple[int, int]]:
    (low, high), pick = layer.limits, min if layer.takes_least else max
    for i, cells in enumerate(layer.sets):
        if cells:
            yield i, min(high, max(low, pick(values[s] for s in cells)))


def _choices(layer: ChoiceLayer | ExtremePlace, number: Callable[[Value], Any]) -> Iterator[int]:
    if isinstance(layer, ChoiceLayer):
        yield from (int(layer.value(*map(number, operands))[0]) for operands in layer.operands)
    else:
        yield from (int(layer.reference(np.concatenate([number(v) for v in row]))) for row in layer.rows)


def _set_inner(layer: Layer, values: dict[Symbol, int]) -> None:
    """Values within a layer that its outputs are made of."""
    if isinstance(layer, SvdfLayer):
        outputs = layer.network.prepared(layer.newest)
        for i, newest in _numbers(layer.newest, values):
            _set(values, outputs[i], newest)
    if isinstance(layer, MatrixProducts):
        layer.network.prepared(layer)
        factors = layer.products.factors.items()  # also those of layers that are prepared already
        values |= {p: values[x] * values[y] for p, (x, y) in factors if x in values and y in values}


def _set(values: dict[Symbol, int], value: int | Symbol, number: int) -> None:
    if isinstance(value, Symbol):
        assert value.low <= number <= value.high, "beyond what its layer can give"
        assert values.setdefault(value, number) == number, "two outputs that are not the same"
    else:
        assert value == number, "an output that is no constant"


@pytest.mark.models
@pytest.mark.parametrize("name", ["ad01_int8", pytest.param("kws_int8", marks=pytest.mark.nightly)])
def test_recorded_outputs(name: str) -> None:
    path = model_path(name)
    cases = np.load(path.with_suffix(".npz"))
    first = sorted(k.removesuffix("_input0") for k in cases.files if k.endswith("_input0"))[:2]
    network = Network(path)
    for case in first:
        (found,) = run(network, cases[f"{case}_input0"])
        np.testing.assert_array_equal(found, cases[f"{case}_output0"].ravel())


def test_digits() -> None:
    """Convolutions, max pools, a fully connected layer and softmax; recorded with the demonstration."""
    cases = np.load(ROOT / "demo" / "digits.npz")
    network = Network(DIGITS)
    names = sorted(k.removesuffix("_input0") for k in cases.files if k.endswith("_input0"))[:3]
    for case in names:
        (found,) = run(network, cases[f"{case}_input0"])
        np.testing.assert_array_equal(found, cases[f"{case}_output0"].ravel())
    assert names


def test_elements(tmp_path: Path) -> None:
    """Against TFLite Micro, for all 256 values of each channel."""
    path = tmp_path / "elements.tflite"
    path.write_bytes(elements())
    network = Network(path)
    values = np.arange(-128, 128, dtype=np.int8)[:, None].repeat(32, 1).reshape(256, 1, 2, 2, 8)
    for x, (wanted,) in zip(values, run_all(path.read_bytes(), [(x,) for x in values]), strict=True):
        np.testing.assert_array_equal(run(network, x)[0], wanted.ravel())


def test_high_mul() -> None:
    """SaturatingRoundingDoublingHighMul: halves are rounded up."""
    a = np.array([1 << 30, -(1 << 30), 3 << 29, -(3 << 29), 5], np.int64)
    np.testing.assert_array_equal(high_mul(a, 1), [1, 0, 1, -1, 0])


@pytest.mark.parametrize("kind", [REAL, *(ModelFile(ROOT / "demo/digits.tflite").kind(t) for t in (0, 1))])
def test_a_type_has_as_many_numbers_as_its_bits(kind: ElementType) -> None:
    assert kind.high - kind.low + 1 == 1 << kind.bits
    assert kind.of(kind.high + 1) == kind.low
    assert kind.of(kind.low - 1) == kind.high


def test_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="FULLY_CONNECTED of float32 has no proof"):
        Network(model_path("ad01_float32"))


MOBILE = ROOT / "tests/system/census/files/keras_mobile_int8.tflite"


def test_an_output_that_equals_its_input_keeps_the_symbol() -> None:
    """MUL by a constant maps 121 to 127 to themselves, and code for it may be simplified to nothing."""
    network = Network(MOBILE)
    multiplied, following = network.layers[6:8]
    source = multiplied.operator.inputs[0]
    assert all(isinstance(v, Symbol) and v.tensor == source for v in network.prepared(multiplied))
    assert multiplied.proven_outputs() == set(range(8))
    assert following in network.readers[source]


def test_scales_of_channels_are_multiplied_in_double() -> None:
    """As in TFLite's fully connected layers: a product in float32 gives the sum -58,921 another output."""
    network = Network(MOBILE)
    dense = network.layers[9]
    network.prepared(dense)
    assert isinstance(dense, SumLayer)
    assert dense.function(2, np.array([-58922, -58921, -58920])).tolist() == [-109, -109, -108]
