"""The arenas of the reference models."""

from dataclasses import replace

import pytest

from crtgen.boards import find_core
from crtgen.compiler.kernels import Kernel, Target, select
from crtgen.compiler.plan import make_plan
from crtgen.network.frontends import load
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.support import FLOAT_MODELS, INT8_MODELS, model_path

pytestmark = pytest.mark.models

PEAKS = {"ad01_int8": 768, "kws_int8": 16_000, "ic01_int8": 49_152, "vww_int8": 55_296}
"""Bytes of live activations, whole tensors, nothing in place: the largest sum over the layers."""


def apart(kernel: Kernel) -> Kernel:
    """The kernel without scratch, which may not overwrite its input."""
    return replace(kernel, scratch=0, inplace=())


@pytest.mark.parametrize("name", PEAKS)
def test_whole_tensors_need_no_more_than_the_live_peak(name: str) -> None:
    graph, _ = run_passes(load(model_path(name)), DEFAULT_PASSES)
    kernels = {node: apart(kernel) for node, kernel in select(graph, Target()).items()}
    plan = make_plan(graph, kernels)
    assert plan.arena == plan.lower_bound == PEAKS[name]


@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
@pytest.mark.parametrize("name", PEAKS)
def test_the_arena_is_within_the_live_peak_and_shared_scratch(name: str, core: str) -> None:
    graph, _ = run_passes(load(model_path(name)), DEFAULT_PASSES)
    plan = make_plan(graph, select(graph, Target(find_core(core))))
    assert plan.optimal
    assert plan.arena <= PEAKS[name] + max(step.kernel.scratch for step in plan.steps)


@pytest.mark.parametrize("name", [*INT8_MODELS, *FLOAT_MODELS])
@pytest.mark.parametrize("keep", [False, True])
def test_every_model_is_planned(name: str, keep: bool) -> None:
    graph, _ = run_passes(load(model_path(name)), DEFAULT_PASSES)
    plan = make_plan(graph, select(graph, Target()), keep_inputs=keep)
    assert len(plan.steps) == len(graph.nodes)
    assert plan.kept_inputs is keep
