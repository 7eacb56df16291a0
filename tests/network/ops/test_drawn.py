"""Random layers of every kind without weights against TFLite Micro's kernels."""

import numpy as np
import pytest

from crtgen.network.ops import Activation, Case
from crtgen.network.ops.function import Gelu, GeluTanh
from crtgen.network.ops.lookup_softmax import LookupSoftmax
from crtgen.network.ops.rescaling import by_float
from crtgen.network.ops.resize import ResizeBytes
from tests.compiler.kernels.drawn import draw
from tests.compiler.kernels.layers import KINDS
from tests.network.ops import oracle

_KINDS = (
    "binary",
    "comparisons",
    "functions",
    "mean",
    "movement",
    "norms",
    "products",
    "quotients",
    "reduced",
    "repeated",
    "softmax",
)
_EACH = 25


def _is_of_onnx(case: Case) -> bool:
    activation = getattr(case.op, "activation", Activation.NONE)  # TFLite fuses all but RELU_0_TO_1
    return (
        isinstance(case.op, LookupSoftmax | ResizeBytes | Gelu | GeluTanh)
        or by_float(case.sig.y)
        or activation is Activation.RELU_0_1
    )


@pytest.mark.parametrize("kind", _KINDS)
def test_reference_is_tflite_micros(kind: str) -> None:
    """But for types that it does not have: most of the layers are compared."""
    compared = 0
    for seed in range(_EACH):
        case = draw(KINDS[kind].layers, seed)
        if case is None or not case.graph().inputs or _is_of_onnx(case):
            continue
        graph, inputs = case.graph(), case.inputs(seed)
        try:
            (expected,) = oracle.run(oracle.model(oracle.real(graph)), inputs, graph.inputs)
        except RuntimeError:
            continue
        if case.op.name == "div" and case.sig.x.quant is not None:
            continue  # undefined where a divisor is its zero point
        oracle.assert_same(graph.evaluate(inputs)["y"], np.asarray(expected))
        compared += 1
    assert compared > _EACH / 2
