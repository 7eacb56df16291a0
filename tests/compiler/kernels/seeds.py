"""What the random layers of a push are to reach, and the seeds of layers that do.

``seeds.csv`` has seeds of two layers for each target and kind, and of those that hit what is seldom hit
among many. The search for them takes longer than to run the layers, so a push draws no others. Where
``test_random.py`` says that a design or a kind has no layer, they are searched anew, in a minute:

    python -m tests.compiler.kernels.seeds
"""

import csv
import zlib
from collections import defaultdict
from itertools import islice
from pathlib import Path

from crtgen.boards.core import find_core
from crtgen.compiler.kernels.engine.registry import RegisteredDesign, registered
from crtgen.network.ir import DType, Op
from tests.compiler.kernels.drawn import Trial, covering, drawn, name, package
from tests.compiler.kernels.layers import KINDS, Kind

__all__ = ["PACKAGES", "designs", "read", "targets", "wanted"]

_SEEDS = Path(__file__).with_name("seeds.csv")
_FEW = 2
_MOST, _MOST_FOR_SIZE = 160, 60
"""Layers of a kind that are drawn in search of some for each design."""

PACKAGES = {
    "cortex-m0plus": ("crtgen.compiler.kernels.portable", "crtgen.compiler.kernels.base"),
    "cortex-m23": ("crtgen.compiler.kernels.portable", "crtgen.compiler.kernels.base"),
    "cortex-m3": ("crtgen.compiler.kernels.portable", "crtgen.compiler.kernels.base"),
    "cortex-m4": ("crtgen.compiler.kernels.dsp", "crtgen.compiler.kernels.vfp"),
    "cortex-m7": ("crtgen.compiler.kernels.dsp", "crtgen.compiler.kernels.vfp"),
    "cortex-m33": ("crtgen.compiler.kernels.dsp", "crtgen.compiler.kernels.vfp"),
    "cortex-m55": ("crtgen.compiler.kernels.mve",),
}
"""Where the designs of a core are: all of these run, of the others what is chosen."""

_WAITING = (
    "crtgen.compiler.kernels.dsp.conv.with_near_weights",
    "crtgen.compiler.kernels.portable.gemm.product_by_channels",
)
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


def designs(kind: str, core: str) -> list[str]:
    """Those of the core's package that layers of the kind are for."""
    entries = [e for op in KINDS[kind].operators for e in _drawn(op, KINDS[kind])]
    elsewhere = "dsp.winograd" if kind == "few" else "portable.coded"  # what other kinds of layers are for
    entries = [e for e in entries if e.function.__module__ != f"crtgen.compiler.kernels.{elsewhere}"]
    there = [e for e in entries if e.needs is None or getattr(find_core(core), e.needs)]
    return [name(e) for e in there if package(e) in PACKAGES[core] and name(e) not in _WAITING]


def wanted(kind: str, core: str, optimize: str) -> list[str]:
    """Designs and forms of kernels that layers of the kind have to reach.

    Where size matters, some designs never apply.
    """
    own = designs(kind, core) if optimize == "speed" else []
    return [*own, *_FORMS.get((core, optimize), {}).get(kind, [])]


def _drawn(op: type[Op], kind: Kind) -> list[RegisteredDesign]:
    """The designs that layers of a kind are for: of its type, or of those that no other kind is for."""
    entries = [e for e in registered(op) if not kind.int4 or (e.narrow_weights and DType.INT8 in e.types)]
    if kind.only is not None:
        return [e for e in entries if not e.types or kind.only in e.types]
    elsewhere = {k.only for k in KINDS.values() if op in k.operators}
    return [e for e in entries if not e.types or not elsewhere.issuperset(e.types)]


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


def targets() -> dict[tuple[str, str], list[str]]:
    """By target, the kinds of layers that run there on a push."""
    found = defaultdict[tuple[str, str], list[str]](list)
    for number, kind in enumerate(KINDS):
        for target in (*_ALWAYS, *_MORE_CORES.get(kind, ()), _IN_TURN[number % len(_IN_TURN)]):
            found[target].append(kind)
    return found


def _search(kinds: list[str], core: str, optimize: str) -> dict[str, list[int]]:
    """For each kind, seeds of its first layers, and of others that hit what few have hit."""
    trial, found = Trial(core, optimize, PACKAGES[core], Path()), dict[str, list[int]]()
    most = _MOST if optimize == "speed" else _MOST_FOR_SIZE
    for kind in kinds:
        sought = wanted(kind, core, optimize)
        layers = islice(drawn(KINDS[kind].layers, zlib.crc32(f"{kind} {core} {optimize}".encode())), most)
        found[kind] = [layer.seed for layer in covering(layers, _FEW, {*sought, *designs(kind, core)}, trial)]
        rare = [n for n in sought if not trial.hits[n]]
        assert not rare, f"no layer of {most} gets these: {rare}"
    return found


def read() -> dict[tuple[str, str, str], list[int]]:
    """The seeds of a kind's layers for a core and a level."""
    with _SEEDS.open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    return {(kind, core, optimize): [int(s) for s in seeds.split()] for kind, core, optimize, seeds in rows}


def _main() -> None:
    with _SEEDS.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("kind", "core", "optimize", "seeds"))
        for (core, optimize), names in targets().items():
            for kind, seeds in _search(names, core, optimize).items():
                out.writerow((kind, core, optimize, " ".join(map(str, seeds))))


if __name__ == "__main__":
    _main()
