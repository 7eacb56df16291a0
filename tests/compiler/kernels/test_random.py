"""Random layers on QEMU by every design: each byte of output, apart, in place, and at the ends of memories.

A push runs some layers of each kind, and for each design some that it computes: ``seeds.py``. By night there
are many: ``CRTGEN_RANDOM_LAYERS`` is how many of a kind each core gets, ``CRTGEN_RANDOM_SEED`` the seed of
the first, another each day if it is not given; the next ones count on. What is wrong is told with its seed.
"""

import os
from itertools import islice
from pathlib import Path

import pytest

from crtgen.network.ops import all_cases
from tests.compiler.kernels.drawn import Layer, Trial, check, drawn
from tests.compiler.kernels.layers import KINDS
from tests.compiler.kernels.seeds import PACKAGES, read, targets, wanted
from tests.network.ops.oracle.signal import WRITERS as SIGNAL
from tests.support import night_seed, nightly

pytestmark = pytest.mark.qemu

_NIGHTLY = int(os.environ.get("CRTGEN_RANDOM_LAYERS", "1000"))


def test_every_operator_is_drawn() -> None:
    """But what moves nothing, what another code generator computes, and what its own cases suffice for."""
    drawn = {op for kind in KINDS.values() for op in kind.operators} | {*SIGNAL}
    assert {type(case.op).name for case in all_cases()} - {op.name for op in drawn} == {
        "reshape",
        "pad_with",
        "running_sum",
    }


def test_every_kind_has_seeds() -> None:
    kinds = {(kind, *target) for target, names in targets().items() for kind in names}
    assert read().keys() == kinds, "python -m tests.compiler.kernels.seeds"


_SECOND = ("cortex-m23", "cortex-m7")
"""Cores whose kernels another one has, too."""


@pytest.mark.parametrize(("core", "optimize"), [nightly(*t) if t[0] in _SECOND else t for t in targets()])
def test_some_layers(tmp_path: Path, core: str, optimize: str) -> None:
    seeds, trial, layers = read(), Trial(core, optimize, PACKAGES[core], tmp_path), list[Layer]()
    for kind in targets()[core, optimize]:
        for number in seeds[kind, core, optimize]:
            layers += islice(drawn(KINDS[kind].layers, number), 1)
    check(layers, trial)
    rare = [n for k in targets()[core, optimize] for n in wanted(k, core, optimize) if not trial.hits[n]]
    assert not rare, "no layer gets these: python -m tests.compiler.kernels.seeds"


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("core", "optimize", "share"),
    [
        ("cortex-m3", "speed", 2),
        ("cortex-m0plus", "size", 2),
        ("cortex-m23", "speed", 5),
        ("cortex-m4", "speed", 2),
        ("cortex-m4", "size", 2),
        ("cortex-m7", "speed", 5),
        ("cortex-m33", "size", 5),
        ("cortex-m55", "speed", 2),
        ("cortex-m55", "size", 2),
    ],
)
def test_many_layers(tmp_path: Path, kind: str, core: str, optimize: str, share: int) -> None:
    """Each design of the core's package and each form runs at least once in 200 layers."""
    count, trial = -(-_NIGHTLY // share), Trial(core, optimize, PACKAGES[core], tmp_path)
    check(list(islice(drawn(KINDS[kind].layers, night_seed()), count)), trial)
    rare = [n for n in wanted(kind, core, optimize) if trial.hits[n] < max(1, count // 200)]
    assert not rare, f"hardly any layer of {count} gets these"
