"""The reference models in portable C, against the outputs of TFLite Micro's reference kernels."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.frontends import load
from crtgen.ir import Array, Graph
from tests.kernels.program import Run, check_outputs, run_on_host, run_on_qemu
from tests.support import FLOAT_MODELS, INT8_MODELS, model_path, models_dir

CASES = 8


def _runs(name: str, cases: int) -> list[tuple[Run, Mapping[str, Array]]]:
    graph = load(model_path(name))
    with np.load(models_dir() / f"{name}.npz") as data:
        return [
            (
                Run(f"{name} case {case}", graph, _arrays(graph, graph.inputs, data, f"case{case}_input")),
                _arrays(graph, graph.outputs, data, f"case{case}_output"),
            )
            for case in range(cases)
        ]


def _arrays(graph: Graph, names: tuple[str, ...], data: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {n: data[f"{prefix}{i}"].reshape(graph.values[n].shape) for i, n in enumerate(names)}


@pytest.mark.cc
@pytest.mark.models
def test_host(tmp_path: Path) -> None:
    runs = [pair for name in INT8_MODELS for pair in _runs(name, CASES)]
    outputs = run_on_host(tmp_path, [run for run, _ in runs])
    wrong = [check_outputs(run, out, want) for (run, want), out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.cc
@pytest.mark.models
@pytest.mark.parametrize("name", FLOAT_MODELS)
def test_host_float(tmp_path: Path, name: str) -> None:
    """Within 1e-5 of the largest output of all cases."""
    runs = _runs(name, CASES)
    outputs = run_on_host(tmp_path, [run for run, _ in runs])
    (output,) = runs[0][0].graph.outputs
    wanted = np.array([want[output].ravel() for _, want in runs])
    computed = np.array([np.frombuffer(out, np.float32) for out in outputs])
    assert np.abs(computed - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize(("machine", "core"), [("mps2-an385", "cortex-m3"), ("mps2-an386", "cortex-m4")])
def test_qemu(tmp_path: Path, machine: str, core: str) -> None:
    runs = [*_runs("kws_int8", 1), *_runs("hello_world_int8", 1)]
    outputs = run_on_qemu(tmp_path, [run for run, _ in runs], machine, find_core(core))
    wrong = [check_outputs(run, out, want) for (run, want), out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))
