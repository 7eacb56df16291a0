"""What a model should meet, as C: the reference of ``crt/drift.h``."""

from dataclasses import dataclass

from crtgen.codegen.render import render

__all__ = ["PARTS", "DriftReference", "drift_file"]

PARTS = ("inputs", "classes", "margins")


@dataclass(frozen=True, slots=True)
class DriftReference:
    """What a window of ``runs`` runs should count, by part, and the greatest usual distance of each part.

    Every ``step``-th of ``elements`` elements of the first input is counted; ``scores`` are those of the
    first output, 0 if they are not. ``ends`` are elements at the ends of their range. An element has
    ``1 << shift`` bytes, with a sign if ``signed``.
    """

    runs: int
    elements: int
    step: int
    scores: int
    shift: int
    signed: int
    expected: dict[str, tuple[int, ...]]
    ends: int
    limits: tuple[int, ...]


def drift_file(name: str, reference: DriftReference) -> str:
    """``<name>_drift.c``, for a model that is compiled with ``CRT_DRIFT``."""
    return render("drift.c.j2", name=name, r=reference, parts=PARTS)
