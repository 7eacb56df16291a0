"""Random layers on QEMU by every design: each byte of output, apart, in place, and at the ends of memories.

A push runs some layers of each kind, and for each design some that it computes. By night there are many:
``CRTGEN_RANDOM_LAYERS`` is how many of a kind each core gets, ``CRTGEN_RANDOM_SEED`` the seed of the first,
another each day if it is not given; the next ones count on. What is wrong is told with its seed.
"""

import os
import zlib
from collections import defaultdict
from itertools import islice
from pathlib import Path

import pytest

from crtgen.boards.core import find_core
from crtgen.ir import DType, Op
from crtgen.kernels.registry import Entry, registered
from crtgen.ops import all_cases
from tests.kernels.drawn import Layer, Trial, check, covering, drawn, name, package
from tests.kernels.layers import KINDS, Kind
from tests.ops.oracle.signal import WRITERS as SIGNAL
from tests.support import night_seed

pytestmark = pytest.mark.qemu

_NIGHTLY = int(os.environ.get("CRTGEN_RANDOM_LAYERS", "1000"))
_FEW = 8
_MOST, _MOST_FOR_SIZE = 160, 60
"""Layers of a kind that are drawn on a push in search of some for each design."""

_PACKAGES = {
    "cortex-m0plus": ("crtgen.kernels", "crtgen.kernels.base"),
    "cortex-m23": ("crtgen.kernels", "crtgen.kernels.base"),
    "cortex-m3": ("crtgen.kernels", "crtgen.kernels.base"),
    "cortex-m4": ("crtgen.kernels.dsp", "crtgen.kernels.vfp"),
    "cortex-m7": ("crtgen.kernels.dsp", "crtgen.kernels.vfp"),
    "cortex-m33": ("crtgen.kernels.dsp", "crtgen.kernels.vfp"),
    "cortex-m55": ("crtgen.kernels.mve",),
}
"""Where the designs of a core are: all of these run, of the others what is chosen."""

_WAITING = ("crtgen.kernels.dsp.conv.with_near_weights",)
"""Designs for flash that waits, which test_waiting.py runs."""

_FORMS = {
    ("cortex-m3", "speed"): {
        "convolution": ["gemm 1x4", "gemm 2x4", "gemm 1x4 gathered", "gemm 2x4 gathered"],
        "dense": ["gemm 1x4", "gemm 2x4"],
        "pool": ["average", "maximum"],
    },
    ("cortex-m4", "speed"): {
        "convolution": ["dsp_matrix"],
        "dense": ["dsp_dense", "dsp_matrix"],
        "int16": ["dsp_dense", "dsp_matrix"],
    },
    ("cortex-m33", "size"): {"convolution": ["dsp_matrix_shared"]},
    ("cortex-m55", "speed"): {
        "convolution": ["mve rows", "mve gathered", "mve pixels"],
        "depthwise": ["mve patches", "mve gathered"],
        "dense": ["mve row 4", "mve row 8", "mve pixels"],
    },
    ("cortex-m55", "size"): {
        "convolution": ["mve matrix shared"],
        "depthwise": ["mve patches", "mve patches shared"],
        "dense": ["mve row shared", "mve matrix shared"],
    },
}
"""The names of kernels that have to run where one function gives several."""


def _designs(kind: str, core: str) -> list[str]:
    """Those of the core's package that layers of the kind are for."""
    entries = [e for op in KINDS[kind].operators for e in _drawn(op, KINDS[kind])]
    there = [e for e in entries if e.needs is None or getattr(find_core(core), e.needs)]
    return [name(e) for e in there if package(e) in _PACKAGES[core] and name(e) not in _WAITING]


def _wanted(kind: str, core: str, optimize: str) -> list[str]:
    """Designs and forms of kernels that layers of the kind have to reach.

    Where size matters, some designs never apply.
    """
    own = _designs(kind, core) if optimize == "speed" else []
    return [*own, *_FORMS.get((core, optimize), {}).get(kind, [])]


def _drawn(op: type[Op], kind: Kind) -> list[Entry]:
    """The designs that layers of a kind are for: of its type, or of those that no other kind is for."""
    entries = [e for e in registered(op) if not kind.packed or (e.packed and DType.INT8 in e.types)]
    if kind.only is not None:
        return [e for e in entries if not e.types or kind.only in e.types]
    elsewhere = {k.only for k in KINDS.values() if op in k.operators}
    return [e for e in entries if not e.types or not elsewhere.issuperset(e.types)]


def test_every_operator_is_drawn() -> None:
    """But what moves nothing, what another code generator computes, and what its own cases suffice for."""
    drawn = {op for kind in KINDS.values() for op in kind.operators} | {*SIGNAL}
    assert {type(case.op).name for case in all_cases()} - {op.name for op in drawn} == {"reshape", "pad_with"}


_ALWAYS = (("cortex-m4", "speed"), ("cortex-m55", "speed"))
_IN_TURN = (
    ("cortex-m3", "speed"),
    ("cortex-m0plus", "size"),
    ("cortex-m7", "speed"),
    ("cortex-m33", "size"),
    ("cortex-m55", "size"),
)
"""Each kind of layer runs on one of these in CI."""
_MORE_CORES = {"reals": (("cortex-m4", "size"), ("cortex-m7", "speed"), ("cortex-m33", "speed"))}


def _kinds() -> dict[tuple[str, str], list[str]]:
    """By target, the kinds of layers that run there on a push."""
    found = defaultdict[tuple[str, str], list[str]](list)
    for number, kind in enumerate(KINDS):
        for target in (*_ALWAYS, *_MORE_CORES.get(kind, ()), _IN_TURN[number % len(_IN_TURN)]):
            found[target].append(kind)
    return found


@pytest.mark.parametrize(("core", "optimize"), _kinds())
def test_some_layers(tmp_path: Path, core: str, optimize: str) -> None:
    trial, layers, rare = Trial(core, optimize, _PACKAGES[core], tmp_path), list[Layer](), list[str]()
    for kind in _kinds()[core, optimize]:
        seed, wanted = zlib.crc32(f"{kind} {core} {optimize}".encode()), _wanted(kind, core, optimize)
        most = islice(drawn(KINDS[kind].layers, seed), _MOST if optimize == "speed" else _MOST_FOR_SIZE)
        layers += covering(most, _FEW, {*wanted, *_designs(kind, core)}, trial)
        rare += [n for n in wanted if not trial.hits[n]]
    assert not rare, f"no layer of {_MOST} gets these"
    check(layers, trial)


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
    count, trial = -(-_NIGHTLY // share), Trial(core, optimize, _PACKAGES[core], tmp_path)
    check(list(islice(drawn(KINDS[kind].layers, night_seed()), count)), trial)
    rare = [n for n in _wanted(kind, core, optimize) if trial.hits[n] < max(1, count // 200)]
    assert not rare, f"hardly any layer of {count} gets these"
