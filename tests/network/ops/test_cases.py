"""Every case of every operator against TFLite Micro's reference kernels."""

import numpy as np
import pytest

from crtgen.network.ir import DType, Signature, Value
from crtgen.network.ops import Activation, Add, Case, Mul, Relu, ReluParams, Sub, all_cases
from tests.network.ops import oracle

_CASES = list(all_cases())
# TFLite Micro has no RELU_N1_TO_1 and no RELU_0_TO_1, and its RELU6 ignores the output's quantisation.
_NOT_IN_TFLM = {
    c.name
    for c in _CASES
    if isinstance(c.op, Relu)
    and (
        c.op.kind in (Activation.RELU_N1_1, Activation.RELU_0_1)
        or (c.op.kind is Activation.RELU6 and c.sig.x.quant != c.sig.y.quant)
    )
}


# It reads outside of a tensor where an index is, or refuses to run; it lacks some types.
_COMPARED = [
    c
    for c in _CASES
    if c.name not in _NOT_IN_TFLM
    and not c.name.endswith(("_outside", "_own", "_onnx", "_larq", "_features", "_uint8"))
]


def _id(case: Case) -> str:
    return case.name


def test_case_names_are_unique() -> None:
    assert len({c.name for c in _CASES}) == len(_CASES)


@pytest.mark.parametrize("case", _COMPARED, ids=_id)
def test_reference_is_tflite_micros(case: Case) -> None:
    graph = case.graph()
    data = oracle.model(oracle.real(graph))
    given = [case.inputs(seed) for seed in range(3)]
    runs = [tuple(inputs[name] for name in graph.inputs) for inputs in given]
    wanted = oracle.run_all(data, runs, len(graph.outputs))
    for answers, outputs in zip(graph.run(runs), wanted, strict=True):
        for actual, expected in zip(answers, outputs, strict=True):
            oracle.assert_same(actual, expected)


@pytest.mark.parametrize("case", [c for c in _CASES if c.name in _NOT_IN_TFLM], ids=_id)
def test_reference_is_within_one_step_of_the_real_clamp(case: Case) -> None:
    (x,) = case.inputs(1).values()
    (y,) = case.op.reference(case.sig, [x])
    assert isinstance(case.op, Relu)
    low, high = case.op.kind.float_range()
    if case.sig.y.quant is None or case.sig.x.quant is None:
        np.testing.assert_array_equal(y, np.clip(x.astype(np.float32), low, high))
        return
    source, target = case.sig.x.quant, case.sig.y.quant
    real = np.clip((x.astype(float) - source.zero_point) * source.scale, low, high)
    expected = np.clip(real / target.scale + target.zero_point, -128, 127)
    assert np.abs(y.astype(float) - expected).max() <= 0.5 + 1e-6


def test_equal_scales_make_a_relu_that_only_clamps() -> None:
    case = next(c for c in _CASES if c.name == "relu_relu6")
    assert isinstance(case.op, Relu)
    assert case.op.parameters(case.sig) == ReluParams(9, -9, 1 << 30, 1, -9, 91)


def test_inputs_depend_on_the_seed_alone() -> None:
    case = next(c for c in _CASES if c.name == "add_same_shape")
    first, again, other = case.inputs(1), case.inputs(1), case.inputs(2)
    for name in ("a", "b"):
        np.testing.assert_array_equal(first[name], again[name])
        assert (first[name] != other[name]).any()


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16, DType.INT32, DType.INT64])
def test_integers_without_quantisation_wrap(dtype: DType) -> None:
    info = np.iinfo(dtype.value)
    a = np.array([info.max, info.min, 5, -7], dtype.numpy)
    b = np.array([1, -1, -9, info.max], dtype.numpy)
    values = [Value(name, (4,), dtype) for name in ("a", "b")]
    for op, expected in ((Add(), a + b), (Sub(), a - b), (Mul(), a * b)):
        sig = Signature(tuple(values), (Value("y", (4,), dtype),))
        assert op.infer(values) == (((4,), dtype),)
        (y,) = op.reference(sig, [a, b])
        assert y.dtype == dtype.numpy
        np.testing.assert_array_equal(y, expected)
