"""The reference models on a Cortex-M55: TFLite Micro's outputs byte for byte, instructions, and the costs."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.frontends import load
from crtgen.kernels import Target, select
from crtgen.ops.case import Case
from tests.kernels.harness import MACHINES, Job, run_jobs
from tests.kernels.program import Run, build_image, check_outputs, parse_outputs, plan_runs, qemu_command
from tests.support import model_path, models_dir

pytestmark = [pytest.mark.qemu, pytest.mark.models]

_TICK = 31.25  # instructions per tick of SysTick on this board
_AT_MOST = {"kws_int8": 605_000, "vww_int8": 1_700_000, "ic01_int8": 1_775_000, "ad01_int8": 41_500}
_ARENA = {"kws_int8": 11_000, "ic01_int8": 40_000, "ad01_int8": 2_100}
_CASES = 2


@pytest.mark.parametrize("name", _AT_MOST)
def test_outputs_and_instructions(tmp_path: Path, name: str) -> None:
    graph, core = load(model_path(name)), find_core("cortex-m55")
    with np.load(models_dir() / f"{name}.npz") as data:
        arrays = dict(data)
    runs, expected = [], []
    for case in range(_CASES):
        values = {
            n: arrays[f"case{case}_input{i}"].reshape(graph.values[n].shape)
            for i, n in enumerate(graph.inputs)
        }
        runs.append(Run(f"{name} case {case}", graph, values))
        expected.append({n: arrays[f"case{case}_output{i}"] for i, n in enumerate(graph.outputs)})
    plans = plan_runs(runs, Target(core))
    assert plans[0][1].arena <= _ARENA.get(name, 1 << 20)
    image = build_image(tmp_path, plans, "mps3-an547", core)
    command = qemu_command("mps3-an547", image)
    done = subprocess.run(command, check=True, timeout=100, capture_output=True, text=True)
    text = done.stdout + done.stderr
    outputs = parse_outputs(text, len(runs))
    wrong = [check_outputs(r, o, e) for r, o, e in zip(runs, outputs, expected, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))
    ticks = [int(line.split()[1]) for line in text.splitlines() if line.startswith("ticks ")]
    assert len(ticks) == len(runs)
    assert 0 < max(ticks) * _TICK <= _AT_MOST[name]


@pytest.mark.parametrize("name", _AT_MOST)
def test_costs_are_what_is_counted(tmp_path: Path, name: str) -> None:
    """Within 5 %, for every layer of 5,000 instructions or more; each on random inputs of its own."""
    graph = load(model_path(name))
    kernels = select(graph, Target(find_core("cortex-m55")))
    layers = [n for n in graph.nodes if kernels[n.name].design.startswith("mve")]
    jobs = [Job(Case(n.name, n.op, graph.signature(n)), kernels[n.name]) for n in layers]
    results = run_jobs(jobs, tmp_path, MACHINES["cortex-m55"])
    assert [result.wrong for result in results] == [[]] * len(jobs)
    counted = [(job, r.instructions) for job, r in zip(jobs, results, strict=True) if r.instructions > 5_000]
    assert counted
    wrong = [
        f"{job.case.name} {job.kernel.design}: {instructions}, not {job.kernel.cost:.0f}"
        for job, instructions in counted
        if abs(job.kernel.cost / instructions - 1) > 0.05
    ]
    assert not wrong, "\n".join(wrong)
