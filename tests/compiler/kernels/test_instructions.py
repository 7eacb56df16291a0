"""The reference models by the designs of a core: outputs byte for byte, instructions, and costs."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target, select
from crtgen.network.frontends import load
from crtgen.network.ops.case import Case
from tests.compiler.kernels.harness import MACHINES, Job, run_jobs
from tests.compiler.kernels.program import build_image, check_outputs, parse_outputs, plan_runs, qemu_command
from tests.compiler.kernels.recorded import recorded_runs
from tests.support import model_path, nightly

pytestmark = [pytest.mark.qemu, pytest.mark.models]

_ARENA = {"kws_int8": 11_000, "ic01_int8": 40_000, "ad01_int8": 2_100}
_CASES = 2


@dataclass(frozen=True)
class Figures:
    """``at_most`` so many instructions each model takes on a machine, with ``tick`` of them per SysTick.

    Kernels whose names begin with ``prefix`` have costs for layers of ``counted`` instructions or more.
    """

    core: str
    machine: str
    optimize: str
    tick: float
    at_most: Mapping[str, int]
    prefix: str
    counted: int


_FIGURES = {
    "m4 speed": Figures(
        core="cortex-m4",
        machine="mps2-an386",
        optimize="speed",
        tick=40,
        at_most={"kws_int8": 2_450_000, "vww_int8": 7_250_000, "ic01_int8": 10_900_000, "ad01_int8": 250_000},
        prefix="dsp_",
        counted=20_000,
    ),
    "m4 floats": Figures(
        core="cortex-m4",
        machine="mps2-an386",
        optimize="speed",
        tick=40,
        at_most={"ad01_float32": 565_000, "ic01_float32": 28_700_000},
        prefix="vfp",
        counted=20_000,
    ),
    "m7 floats": Figures(
        core="cortex-m7",
        machine="mps2-an500",
        optimize="speed",
        tick=40,
        at_most={"ad01_float32": 295_000, "ic01_float32": 16_000_000},
        prefix="vfp",
        counted=20_000,
    ),
    "m55 floats": Figures(
        core="cortex-m55",
        machine="mps3-an547",
        optimize="speed",
        tick=31.25,
        at_most={"ad01_float32": 146_000, "ic01_float32": 6_000_000},
        prefix="mve float",
        counted=20_000,
    ),
    "m55 speed": Figures(
        core="cortex-m55",
        machine="mps3-an547",
        optimize="speed",
        tick=31.25,
        at_most={"kws_int8": 605_000, "vww_int8": 1_700_000, "ic01_int8": 1_775_000, "ad01_int8": 41_500},
        prefix="mve",
        counted=5_000,
    ),
    "m55 size": Figures(
        core="cortex-m55",
        machine="mps3-an547",
        optimize="size",
        tick=31.25,
        at_most={"kws_int8": 1_030_000, "vww_int8": 3_900_000, "ic01_int8": 2_650_000, "ad01_int8": 52_000},
        prefix="mve",
        counted=5_000,
    ),
}
_COUNTED_IN_CI = (
    *(("m4 speed", "vww_int8"), ("m4 speed", "kws_int8"), ("m4 floats", "ic01_float32")),
    *(("m55 floats", "ad01_float32"), ("m55 speed", "kws_int8"), ("m55 size", "ic01_int8")),
)
_EACH = [(kind, model) for kind, figures in _FIGURES.items() for model in figures.at_most]


@pytest.mark.parametrize(("kind", "name"), _EACH)
def test_outputs_and_instructions(tmp_path: Path, kind: str, name: str) -> None:
    figures, runs = _FIGURES[kind], recorded_runs(name, _CASES)
    core = find_core(figures.core)
    plans = plan_runs([run for run, _ in runs], Target(core, figures.optimize))
    assert plans[0][1].arena <= _ARENA.get(name, 1 << 20)
    command = qemu_command(figures.machine, build_image(tmp_path, plans, figures.machine, core))
    done = subprocess.run(command, check=True, timeout=240, capture_output=True, text=True)
    text = done.stdout + done.stderr
    outputs = parse_outputs(text, len(runs))
    wrong = [check_outputs(run, out, want) for (run, want), out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))
    ticks = [int(line.split()[1]) for line in text.splitlines() if line.startswith("ticks ")]
    assert len(ticks) == len(runs)
    assert 0 < max(ticks) * figures.tick <= figures.at_most[name]


@pytest.mark.parametrize(("kind", "name"), [c if c in _COUNTED_IN_CI else nightly(*c) for c in _EACH])
def test_costs_are_what_is_counted(tmp_path: Path, kind: str, name: str) -> None:
    """Within 5 %, for every layer of some size; each on random inputs of its own."""
    figures, graph = _FIGURES[kind], load(model_path(name))
    kernels = select(graph, Target(find_core(figures.core), figures.optimize))
    layers = [n for n in graph.nodes if kernels[n.name].design.startswith(figures.prefix)]
    jobs = [Job(Case(n.name, n.op, graph.signature(n)), kernels[n.name]) for n in layers]
    results = run_jobs(jobs, tmp_path, MACHINES[figures.core])
    assert [result.wrong for result in results] == [[]] * len(jobs)
    pairs = zip(jobs, results, strict=True)
    counted = [(job, r.instructions) for job, r in pairs if r.instructions > figures.counted]
    assert counted
    wrong = [
        f"{job.case.name} {job.kernel.design}: {instructions}, not {job.kernel.cost.instructions:.0f}"
        for job, instructions in counted
        if abs(job.kernel.cost.instructions / instructions - 1) > 0.05
    ]
    assert not wrong, "\n".join(wrong)
