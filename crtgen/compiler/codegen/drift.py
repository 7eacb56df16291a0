"""C code of a drift reference for ``crt/drift.h``: the expected counts of a model's inputs."""

from dataclasses import dataclass

from crtgen.compiler.codegen.render import render

__all__ = ["LAYERS", "PARTS", "SIZES", "Counted", "DriftReference", "WatchedLayer", "drift_file"]

LAYERS = 4  # CRT_DRIFT_LAYERS
SIZES = {"inputs": 16, "classes": 8, "margins": 8, "saturated": LAYERS, "entropy": 1}
PARTS = tuple(SIZES)


@dataclass(frozen=True, slots=True)
class Counted:
    """Integers to count: every ``step``-th of ``elements`` integers of ``1 << shift`` bytes, signed or
    unsigned.
    """

    elements: int
    step: int
    shift: int
    signed: int


@dataclass(frozen=True, slots=True)
class WatchedLayer:
    name: str
    number: int
    offset: int
    values: Counted


@dataclass(frozen=True, slots=True)
class DriftReference:
    """Reference counts of a window of ``runs`` runs, by part, and the largest usual distance of each part.

    ``lasting`` are the distances that one usual window in ten exceeds in a part: if seven of 16 windows
    exceed it, an alarm is raised. ``input`` describes the counts of the first input; ``scores`` is the number
    of scores in the first output, 0 if they are not counted. ``entropy`` has 256 times ``-p log2(p)`` for
    each score from -128 on, if scores are probabilities. ``ends`` are elements at the ends of their range.
    """

    runs: int
    input: Counted
    scores: int
    entropy: tuple[int, ...]
    layers: tuple[WatchedLayer, ...]
    expected: dict[str, tuple[int, ...]]
    ends: int
    limits: tuple[int, ...]
    lasting: tuple[int, ...]

    @property
    def watched(self) -> int:
        return sum({1 << layer.number % 32 for layer in self.layers})


def drift_file(name: str, reference: DriftReference) -> str:
    """Return ``<name>_drift.c``, for a model compiled with ``CRT_DRIFT``."""
    return render("drift.c.j2", name=name, r=reference, parts=PARTS)
