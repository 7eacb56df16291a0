"""Random layers in generated C on the host, apart and in place, under the sanitizers of GCC."""

from itertools import islice
from pathlib import Path

import pytest

from crtgen.network.ops import Case
from tests.compiler.kernels.drawn import drawn
from tests.compiler.kernels.layers import KINDS
from tests.compiler.kernels.overlays import overlays
from tests.compiler.kernels.program import Run, check_outputs, run_on_host, run_plans_on_host
from tests.support import night_seed, nightly

pytestmark = pytest.mark.cc

_KINDS = [kind for kind in KINDS.values() if not any(op.states for op in kind.operators)]
"""``test_recurrent.py`` runs those with states."""


_SOME = pytest.mark.parametrize(("first", "each"), [(0, 3), nightly(night_seed(), 15)], ids=["some", "many"])
"""The first seed, and layers of each kind."""


def _cases(first: int, each: int) -> list[Case]:
    return [layer.case for kind in _KINDS for layer in islice(drawn(kind.layers, first), each)]


@_SOME
def test_random_layers(tmp_path: Path, first: int, each: int) -> None:
    runs = [Run(f"{c.name} {c.op.attributes()}", c.graph(), c.inputs(4)) for c in _cases(first, each)]
    outputs = run_on_host(tmp_path, runs)
    wrong = [check_outputs(run, out) for run, out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))


@_SOME
def test_random_overlays(tmp_path: Path, first: int, each: int) -> None:
    runs = [pair for case in _cases(first, each) for pair in overlays(case, 5)]
    assert runs
    outputs = run_plans_on_host(tmp_path, runs)
    wrong = [check_outputs(run, out) for (run, _), out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))
