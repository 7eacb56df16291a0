"""Random layers on QEMU by every design: each byte of output, apart, in place, and at the ends of memories.

``CRTGEN_RANDOM_LAYERS`` is how many shapes of a kind each core gets in the nightly run,
``CRTGEN_RANDOM_SEED`` the seed of the first; the next ones count on. What is wrong is told with its seed.
"""

import os
import zlib
from pathlib import Path

import pytest

from crtgen.ir import DType, Op
from crtgen.kernels.registry import Entry, registered
from crtgen.ops import all_cases
from tests.kernels.drawn import Trial, check, name, package
from tests.kernels.layers import KINDS, Kind
from tests.ops.oracle.signal import WRITERS as SIGNAL

pytestmark = pytest.mark.qemu

_SEED = os.environ.get("CRTGEN_RANDOM_SEED")
_NIGHTLY = int(os.environ.get("CRTGEN_RANDOM_LAYERS", "1000"))
_FEW = 45
_MORE = {"comparisons": 90, "unary": 90, "int16": 90, "int4": 160, "reals": 60}
"""Of kinds that have many designs."""

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


def _run(folder: Path, kind: str, core: str, optimize: str, count: int) -> None:
    """Each design of the core's package and each form runs at least once in 200 layers.

    Where size matters, some designs never apply.
    """
    trial, drawn = Trial(core, optimize, _PACKAGES[core], folder), KINDS[kind]
    seed = zlib.crc32(f"{kind} {core} {optimize}".encode()) if _SEED is None else int(_SEED)
    check(drawn.layers, count, seed, trial)
    entries = [e for op in drawn.operators for e in _drawn(op, drawn) if package(e) in trial.packages]
    designs = [name(e) for e in entries if name(e) not in _WAITING] if optimize == "speed" else []
    forms = _FORMS.get((core, optimize), {}).get(kind, [])
    rare = {n: trial.hits[n] for n in [*designs, *forms] if trial.hits[n] < max(1, count // 200)}
    assert not rare, f"hardly any layer of {count} gets these"


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


@pytest.mark.parametrize(
    ("kind", "core", "optimize"),
    [
        (kind, *target)
        for number, kind in enumerate(KINDS)
        for target in (*_ALWAYS, *_MORE_CORES.get(kind, ()), _IN_TURN[number % len(_IN_TURN)])
    ],
)
def test_some_layers(tmp_path: Path, kind: str, core: str, optimize: str) -> None:
    _run(tmp_path, kind, core, optimize, _MORE.get(kind, _FEW))


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
    _run(tmp_path, kind, core, optimize, -(-_NIGHTLY // share))
