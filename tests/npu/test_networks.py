"""Layers and networks that Vela compiled, on the model: equal to the reference, which is TFLite Micro's."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from crtgen.base.errors import BuildError
from crtgen.compiler.byoc.ethos_u.layers import why_not
from crtgen.network.frontends import load
from crtgen.network.ir import Array, Graph, Value
from crtgen.network.ops import Case, all_cases
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from crtgen.npu.config import CONFIGS, Config
from tests.npu.grown import grown
from tests.npu.networks import beside, on_npu
from tests.support import INT8_MODELS, model_path, night_seed, nightly

pytest.importorskip("ethosu")

_NAMES = tuple(CONFIGS)
_OTHER_RESULT = ("logistic_huge", "tanh_huge")
"""Vela's tables are right here: TFLite Micro shifts by more than 31 bits."""

_FAILS = ("resize_bilinear_twice", "resize_nearest_twice")
"""Vela ends with an error."""

_CASES = [c for c in all_cases() if c.graph().inputs and not why_not(c.op, c.sig)]
_TAKEN = [c for c in _CASES if c.name not in (*_OTHER_RESULT, *_FAILS)]
_SOME = (
    *(
        "conv2d_3x3_even",
        "conv2d_1x1_s2",
        "conv2d_column_of_padding",
        "conv2d_int16",
        "depthwise_conv2d_3x3_same",
    ),
    *("depthwise_conv2d_multiplier3", "fully_connected_relu", "average_pool2d_same", "max_pool2d_same"),
    *("add_same_shape", "sub_outer", "mul_relu", "softmax_plain", "average_pool2d_int16", "mean_wide"),
    *("hard_swish_scale_0.05", "abs_int16", "maximum_int16", "concat_axis3", "batch_matmul_int8_2"),
)


def _check(case: Case, config: Config) -> None:
    _compare([case.graph()], config, [case.inputs(1)])


def _compare(graphs: Sequence[Graph], config: Config, inputs: Sequence[Mapping[str, Array]]) -> None:
    """Run graphs by one stream, and hold each output against the reference."""
    given = {f"{i} {name}": x for i, each in enumerate(inputs) for name, x in each.items()}
    graph = beside(graphs)
    values = [graph.evaluate(each) for graph, each in zip(graphs, inputs, strict=True)]
    wanted = {f"{i} {name}": y for i, each in enumerate(values) for name, y in each.items()}
    for name, output in zip(graph.outputs, on_npu(graph, config, given), strict=True):
        np.testing.assert_array_equal(output, wanted[name], name)


@pytest.mark.parametrize("first", range(0, len(_SOME), 2))
def test_some_layers(first: int) -> None:
    """Two in a stream, since Vela takes a second to start; each pair on another configuration."""
    found = {case.name: case for case in _TAKEN}
    cases = [found[name] for name in _SOME[first : first + 2]]
    config = CONFIGS[_NAMES[first // 2 % len(_NAMES)]]
    _compare([case.graph() for case in cases], config, [case.inputs(1) for case in cases])


@pytest.mark.nightly
def test_every_layer() -> None:
    """All cases of operators that crtgen hands to Vela, if it takes them; other configurations each day."""
    checked = 0
    for number, case in enumerate(_TAKEN, night_seed()):
        try:
            _check(case, CONFIGS[_NAMES[number % len(_NAMES)]])
        except BuildError:
            continue  # Vela leaves it to the core
        checked += 1
    assert checked > 150


_ON = {
    "ethos-u55-32": "kws_int8",
    "ethos-u55-64": "ad01_int8",
    "ethos-u55-128": "vww_int8",
    "ethos-u55-256": "ic01_int8",
    "ethos-u65-256": "kws_int8",
    "ethos-u65-512": "kws_int8",
}
"""A network for each configuration on a push; the nightly run has every pair."""


@pytest.mark.models
@pytest.mark.parametrize(
    ("model", "name"),
    [
        (m, n) if _ON[n] == m else pytest.param(m, n, marks=pytest.mark.nightly)
        for m in INT8_MODELS
        for n in _NAMES
    ],
)
def test_networks(model: str, name: str) -> None:
    _network(model, name, 2)


def _network(model: str, config: str, count: int) -> None:
    path = model_path(model)
    graph, _ = run_passes(load(path), DEFAULT_PASSES)
    recorded = np.load(path.with_suffix(".npz"))
    for case in range(count):
        inputs = {name: recorded[f"case{case}_input{n}"] for n, name in enumerate(graph.inputs)}
        for n, output in enumerate(on_npu(graph, CONFIGS[config], inputs)):
            np.testing.assert_array_equal(output, recorded[f"case{case}_output{n}"].reshape(output.shape))


@pytest.mark.parametrize("first", [*range(0, 12, 2), *(nightly(seed) for seed in range(12, 300, 2))])
def test_random_networks(first: int) -> None:
    """Two by one stream, each configuration in turn; a layer that the NPU does not do is not drawn."""
    drawn = [(seed, graph) for seed in (first, first + 1) if (graph := grown(seed)) is not None]
    graphs = [(seed, g) for seed, g in drawn if not any(why_not(n.op, g.signature(n)) for n in g.nodes)]
    if not graphs:
        pytest.skip("TFLite's arithmetic or the NPU does not have it")
    inputs = [{"x": _drawn(seed, graph.values["x"])} for seed, graph in graphs]
    _compare([graph for _, graph in graphs], CONFIGS[_NAMES[first // 2 % len(_NAMES)]], inputs)


def _drawn(seed: int, value: Value) -> Array:
    info = np.iinfo(value.dtype.value)
    random = np.random.default_rng(seed)
    return random.integers(info.min, info.max, value.shape, info.dtype, endpoint=True)
