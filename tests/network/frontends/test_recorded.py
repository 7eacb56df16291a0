"""Operators that TFLite Micro lacks, against recorded outputs of TensorFlow Lite's reference kernels."""

from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.network.frontends import load_tflite
from crtgen.network.ir import Array
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.compiler.kernels.program import Run, check_outputs, run_on_host, run_on_qemu
from tests.network.frontends.recorded import MODELS, RECORDED, drawn
from tests.network.ops.oracle import assert_same
from tests.support import nightly


def expected(name: str) -> Array:
    with np.load(RECORDED) as found:
        recorded: Array = found[name]
    return recorded


def runs() -> list[Run]:
    """Every model with its inputs."""
    made = []
    for name, model in MODELS.items():
        graph, _ = run_passes(load_tflite(model.to_bytes(), name), DEFAULT_PASSES)
        made.append(Run(name, graph, dict(zip(graph.inputs, drawn(model), strict=True))))
    return made


def differences(made: list[Run], printed: list[bytes]) -> list[str]:
    found = (
        check_outputs(run, data, {run.graph.outputs[0]: expected(run.name)})
        for run, data in zip(made, printed, strict=True)
    )
    return [text for text in found if text]


def test_every_model_has_recorded_outputs_that_differ() -> None:
    with np.load(RECORDED) as found:
        assert set(found.files) == set(MODELS)
        assert not [name for name in MODELS if len(np.unique(found[name])) < 2]


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_is_tensorflow_lites(name: str) -> None:
    graph = load_tflite(MODELS[name].to_bytes(), name)
    ((y,),) = graph.run([tuple(drawn(MODELS[name]))])
    assert_same(y, expected(name))


@pytest.mark.cc
def test_the_generated_code_computes_the_same(tmp_path: Path) -> None:
    made = runs()
    assert differences(made, run_on_host(tmp_path, made)) == []


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("machine", "core"),
    [
        nightly("mps2-an385", "cortex-m0plus"),
        nightly("mps2-an386", "cortex-m4"),
        ("mps3-an547", "cortex-m55"),
    ],
)
def test_the_generated_code_computes_the_same_on(machine: str, core: str, tmp_path: Path) -> None:
    made = runs()
    assert differences(made, run_on_qemu(tmp_path, made, machine, find_core(core))) == []
