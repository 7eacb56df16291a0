"""Every output over every input that it may overwrite, as close as the lead allows."""

from pathlib import Path

import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target, applicable
from crtgen.compiler.plan import Plan
from crtgen.network.ir import DType, Op
from crtgen.network.ops import all_cases
from crtgen.network.ops.arithmetic import Prelu
from crtgen.network.ops.case import floats, int8s, int16s, make
from crtgen.network.ops.normalize import CumSum
from tests.compiler.kernels.overlays import overlays
from tests.compiler.kernels.program import Run, check_outputs, run_plans_on_host
from tests.support import few, nightly


def _kind(pair: tuple[Run, Plan]) -> list[tuple[type[Op], str, DType]]:
    """The operator, the template and the type of its only layer."""
    (step,), (node,) = pair[1].steps, pair[0].graph.nodes
    return [(type(node.op), step.kernel.template, pair[0].graph.signature(node).y.dtype)]


@pytest.mark.cc
@pytest.mark.parametrize("each", [2, nightly(10_000)], ids=["some", "all"])
def test_every_leave(tmp_path: Path, each: int) -> None:
    """Of so many runs of each operator and type."""
    runs = few((pair for case in all_cases() for pair in overlays(case, 2)), _kind, each)
    assert len(runs) > 100
    outputs = run_plans_on_host(tmp_path, runs)
    wrong = [check_outputs(run, out) for (run, _), out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.parametrize("core", ["cortex-m3", "cortex-m4", "cortex-m55"])
def test_an_output_begins_before_a_narrower_operand(core: str) -> None:
    """int16 over a slope of int8: each element is written over two."""
    case = make("wider", Prelu(), [int16s("x", (3, 10)), int8s("slope", (3, 10))])
    for kernel in applicable(case.op, case.sig, Target(find_core(core))):
        leads = {place.input: place.lead for place in kernel.inplace}
        assert leads[0] == 0
        assert leads[1] >= 24


@pytest.mark.parametrize(
    ("op", "exact"), [(CumSum(1), False), (CumSum(1, reverse=True), True), (CumSum(0), True)]
)
def test_sums_that_do_not_go_through_memory_in_order_stay_in_their_place(op: CumSum, exact: bool) -> None:
    """Further to the front, an output would meet numbers that are still to be read."""
    case = make("order", op, [floats("x", (3, 4))])
    assert [p.exact for k in applicable(case.op, case.sig, Target()) for p in k.inplace] == [exact]
