"""Random layers in generated C on the host, apart and in place, under the sanitizers of GCC."""

from pathlib import Path

import pytest

from crtgen.ops import Case
from tests.kernels.drawn import draw
from tests.kernels.layers import KINDS
from tests.kernels.overlays import overlays
from tests.kernels.program import Run, check_outputs, run_on_host, run_plans_on_host

pytestmark = pytest.mark.cc

_EACH = 15
_KINDS = [kind for kind in KINDS.values() if not any(op.states for op in kind.operators)]
"""``test_recurrent.py`` runs those with states."""


def _cases() -> list[Case]:
    cases = [draw(kind.layers, seed) for kind in _KINDS for seed in range(_EACH)]
    return [case for case in cases if case is not None]


def test_random_layers(tmp_path: Path) -> None:
    runs = [Run(f"{c.name} {c.op.attributes()}", c.graph(), c.inputs(4)) for c in _cases()]
    assert len(runs) > _EACH * len(_KINDS) * 0.9
    outputs = run_on_host(tmp_path, runs)
    wrong = [check_outputs(run, out) for run, out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))


def test_random_overlays(tmp_path: Path) -> None:
    runs = [pair for case in _cases() for pair in overlays(case, 5)]
    assert runs
    outputs = run_plans_on_host(tmp_path, runs)
    wrong = [check_outputs(run, out) for (run, _), out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))
