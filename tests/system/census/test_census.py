"""Networks of today's exporters: all compile, and their outputs are those of the exporter's own runtime."""

from pathlib import Path

import pytest

from crtgen.compiler.kernels import Target
from crtgen.compiler.plan import plan_model
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.compiler.kernels.program import Run, check_outputs, run_plans_on_host
from tests.system.census.measured import FILES, Census, all_files
from tests.system.census.page import PAGE, page

_FLOAT = 1e-5
_QUANTISED = 0.02
"""float32 outputs of networks that quantise inside: at run time, or before the output."""
_STEPS = 2
_LARGEST, _MOST = 33_000, 650_000

_NAMES = [file.name for file in all_files()]


def test_files_are_small() -> None:
    sizes = [file.stat().st_size for file in FILES.iterdir()]
    assert max(sizes) <= _LARGEST
    assert sum(sizes) <= _MOST


@pytest.mark.parametrize("name", _NAMES)
def test_outputs_are_the_exporters(name: str) -> None:
    census = Census.of(FILES / name)
    steps, relative = census.apart()
    is_float = not any(word in name for word in ("int8", "int16", "dynamic", "qdq", "operators"))
    assert steps <= _STEPS
    assert relative <= (_FLOAT if is_float else _QUANTISED)


@pytest.mark.parametrize("name", [name for name in _NAMES if "qdq" in name or "operators" in name])
def test_quantised_onnx_is_computed_in_integers(name: str) -> None:
    census = Census.of(FILES / name)
    assert census.integer_share >= 0.95
    assert census.apart()[1] <= 1e-5


@pytest.mark.cc
def test_the_generated_code_computes_the_same(tmp_path: Path) -> None:
    runs = []
    for file in all_files():
        census = Census.of(file)
        graph, _ = run_passes(census.graph, DEFAULT_PASSES)
        runs.append(Run(census.name, graph, dict(zip(graph.inputs, census.cases[0][0], strict=True))))
    printed = run_plans_on_host(tmp_path, [(run, plan_model(run.graph, Target())[0]) for run in runs])
    found = (check_outputs(run, data) for run, data in zip(runs, printed, strict=True))
    assert [text for text in found if text] == []


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page()
