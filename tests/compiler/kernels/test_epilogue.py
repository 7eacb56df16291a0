"""The form of requantisation that a layer gets, and that both are right at the ends of their ranges."""

from pathlib import Path

import numpy as np
import pytest

from crtgen.compiler.kernels import Target, applicable
from crtgen.network.ir import Quant, Value
from crtgen.network.ops import Case, FullyConnected
from crtgen.network.ops.case import int8s, make
from tests.compiler.kernels.program import Run, check_outputs, run_on_host


def _case(name: str, bias: int, output_scale: float, outputs: int = 6, depth: int = 4) -> Case:
    weights = np.resize(np.array([127, -127, 3], np.int8), (outputs, depth))
    w = Value.constant("w", weights, Quant.tensor(0.01))
    b = Value.constant("b", np.resize(np.array([bias, -bias], np.int32), outputs))
    quant = Quant.tensor(output_scale, 7)
    return make(name, FullyConnected(), [int8s("x", (1, depth), 0.02, -128), w, b], quant)


CASES = {
    "cheap": _case("cheap", 2000, 0.1),
    "wide layer": _case("wide_layer", 2000, 9.0, outputs=256, depth=301),
    "at the limit": _case("at_the_limit", 2**30 - 300000, 5e3),
    "large bias": _case("large_bias", 2**30, 5e3),
    "largest bias": _case("largest_bias", 2**31 - 200000, 5e3),
    "fine output": _case("fine_output", 5, 0.0003),
}


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("cheap", "crt_scale_down"),
        ("wide layer", "crt_scale_down"),
        ("at the limit", "crt_scale_down"),
        ("large bias", "crt_scale"),
        ("largest bias", "crt_scale"),
        ("fine output", "crt_scale"),
    ],
)
def test_form(name: str, function: str) -> None:
    case = CASES[name]
    assert applicable(case.op, case.sig, Target())[0].view.epilogue.scale == function


@pytest.mark.cc
def test_values(tmp_path: Path) -> None:
    runs = [Run(name, case.graph(), case.inputs(3)) for name, case in CASES.items()]
    outputs = run_on_host(tmp_path, runs)
    wrong = [check_outputs(run, out) for run, out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))
    assert all(len(set(out)) > 1 for out in outputs)
