"""The reference models on a Cortex-M4: TFLite Micro's outputs byte for byte, and the instructions."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.frontends import load
from crtgen.kernels import Target, select
from crtgen.ops.case import Case
from tests.kernels.harness import MACHINES, Job, run_jobs
from tests.kernels.program import (
    HERE,
    WARNINGS,
    Run,
    check_outputs,
    include_flags,
    one_unit,
    parse_outputs,
    plan_runs,
    qemu_command,
    write_program,
)
from tests.support import model_path, models_dir, require_tool

pytestmark = [pytest.mark.qemu, pytest.mark.models]

_TICK = 40  # instructions per tick of SysTick on this board
_AT_MOST = {"kws_int8": 2_450_000, "vww_int8": 7_250_000, "ic01_int8": 10_900_000, "ad01_int8": 250_000}
_ARENA = {"kws_int8": 11_000, "ic01_int8": 40_000, "ad01_int8": 2_100}
_CASES = 2


@pytest.mark.parametrize("name", _AT_MOST)
def test_outputs_and_instructions(tmp_path: Path, name: str) -> None:
    graph = load(model_path(name))
    core = find_core("cortex-m4")
    with np.load(models_dir() / f"{name}.npz") as data:
        inputs = [
            {
                n: data[f"case{case}_input{i}"].reshape(graph.values[n].shape)
                for i, n in enumerate(graph.inputs)
            }
            for case in range(_CASES)
        ]
        expected = [
            {n: data[f"case{case}_output{i}"] for i, n in enumerate(graph.outputs)} for case in range(_CASES)
        ]
    runs = [Run(f"{name} case {case}", graph, x) for case, x in enumerate(inputs)]
    plans = plan_runs(runs, Target(core, "speed"))
    assert plans[0][1].arena <= _ARENA.get(name, 1 << 20)
    sources = one_unit(tmp_path, write_program(tmp_path, plans))
    image = tmp_path / "image.elf"
    command = [require_tool("arm-none-eabi-gcc"), *core.gcc_flags, "-O2", *WARNINGS, *include_flags(tmp_path)]
    command += ["-ffunction-sections", "-fdata-sections", "-nostartfiles", "-specs=nano.specs"]
    command += ["-Wl,--gc-sections", f"-T{HERE / 'baremetal' / 'an385.ld'}"]
    command += [str(HERE / "baremetal" / "start.c"), *map(str, sources), "-o", str(image)]
    subprocess.run(command, check=True, timeout=240)
    done = subprocess.run(
        qemu_command("mps2-an386", image), check=True, timeout=240, capture_output=True, text=True
    )
    text = done.stdout + done.stderr
    outputs = parse_outputs(text, len(runs))
    wrong = [check_outputs(r, o, e) for r, o, e in zip(runs, outputs, expected, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))
    ticks = [int(line.split()[1]) for line in text.splitlines() if line.startswith("ticks ")]
    assert len(ticks) == len(runs)
    assert 0 < max(ticks) * _TICK <= _AT_MOST[name]


@pytest.mark.parametrize("name", _AT_MOST)
def test_costs_are_what_is_counted(tmp_path: Path, name: str) -> None:
    """Within 5 %, for every layer of 20,000 instructions or more; each on random inputs of its own."""
    graph = load(model_path(name))
    kernels = select(graph, Target(find_core("cortex-m4"), "speed"))
    layers = [n for n in graph.nodes if kernels[n.name].design.startswith("dsp_")]
    jobs = [Job(Case(n.name, n.op, graph.signature(n)), kernels[n.name]) for n in layers]
    results = run_jobs(jobs, tmp_path, MACHINES["cortex-m4"])
    assert [result.wrong for result in results] == [[]] * len(jobs)
    counted = [(job, r.instructions) for job, r in zip(jobs, results, strict=True) if r.instructions > 20_000]
    assert counted
    for job, instructions in counted:
        assert abs(job.kernel.cost / instructions - 1) <= 0.05, f"{job.case.name}: {instructions}"
