"""The reference models in portable C, against the outputs of TFLite Micro's reference kernels."""

from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from tests.compiler.kernels.program import check_outputs, run_on_host, run_on_qemu
from tests.compiler.kernels.recorded import recorded_runs
from tests.support import FLOAT_MODELS, INT8_MODELS

CASES = 8


@pytest.mark.cc
@pytest.mark.models
def test_host(tmp_path: Path) -> None:
    runs = [pair for name in INT8_MODELS for pair in recorded_runs(name, CASES)]
    outputs = run_on_host(tmp_path, [run for run, _ in runs])
    wrong = [check_outputs(run, out, want) for (run, want), out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.cc
@pytest.mark.models
@pytest.mark.parametrize("name", FLOAT_MODELS)
def test_host_float(tmp_path: Path, name: str) -> None:
    """Within 1e-5 of the largest output of all cases."""
    runs = recorded_runs(name, CASES)
    outputs = run_on_host(tmp_path, [run for run, _ in runs])
    (output,) = runs[0][0].graph.outputs
    wanted = np.array([want[output].ravel() for _, want in runs])
    computed = np.array([np.frombuffer(out, np.float32) for out in outputs])
    assert np.abs(computed - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize(("machine", "core"), [("mps2-an385", "cortex-m3"), ("mps2-an386", "cortex-m4")])
def test_qemu(tmp_path: Path, machine: str, core: str) -> None:
    runs = [*recorded_runs("kws_int8", 1), *recorded_runs("hello_world_int8", 1)]
    outputs = run_on_qemu(tmp_path, [run for run, _ in runs], machine, find_core(core))
    wrong = [check_outputs(run, out, want) for (run, want), out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))
