"""Fits what blocks of C take to what was measured of kernels."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtgen.compiler.kernels import Kernel
from crtgen.compiler.kernels.engine.cost import CALL, BlockCount, BlockFigures

__all__ = ["Sample", "fitted"]

_Floats = npt.NDArray[np.float64]
_INSTRUCTIONS, _BYTES = 500.0, 50.0
"""What an error is compared with, beside the figure itself: it makes small kernels count less."""
_ROUNDS = 30


@dataclass(frozen=True, eq=False)
class Sample:
    """A kernel, and the instructions of a run and the bytes of code that were measured."""

    kernel: Kernel
    instructions: int
    code: int

    @property
    def blocks(self) -> Mapping[str, BlockCount]:
        return {CALL: BlockCount(1, 1), **self.kernel.work.blocks}

    @property
    def other_code(self) -> float:
        """Bytes that are known: those of assembly and of parts."""
        parts = sum(part.kernel.cost.code for part in self.kernel.parts)
        return sum(routine.code_bytes for routine in self.kernel.routines) + parts


def fitted(samples: Iterable[Sample]) -> dict[tuple[str, str], BlockFigures]:
    """The figures of all blocks of these kernels, by kernel and name."""
    families = defaultdict[str, list[Sample]](list)
    for sample in samples:
        families[sample.kernel.family].append(sample)
    return {(family, name): f for family in sorted(families) for name, f in _family(families[family]).items()}


def _family(samples: Sequence[Sample]) -> dict[str, BlockFigures]:
    names = list(dict.fromkeys(name for s in samples for name in s.blocks))
    table = [[s.blocks.get(name, BlockCount()) for name in names] for s in samples]
    runs = np.array([[b.runs for b in row] for row in table], float)
    copies = np.array([[b.copies for b in row] for row in table], float)
    instructions = np.array([s.instructions for s in samples], float)
    counted = np.array([s.kernel.counted for s in samples], float)
    code, known = (np.array([getattr(s, n) for s in samples], float) for n in ("code", "other_code"))
    each = _solved(runs, instructions, counted, _INSTRUCTIONS)
    size = _solved(copies, code, known, _BYTES)
    rows = zip(names, each.tolist(), size.tolist(), strict=True)
    return {name: BlockFigures(round(a, 2), round(b, 1)) for name, a, b in rows}


def _solved(counts: _Floats, measured: _Floats, known: _Floats, least: float) -> _Floats:
    """The figures, none below 0, with about the least sum of relative errors, so that outliers count little.

    Of what is measured, ``known`` is certain. Errors are relative to the greater of measured and estimated,
    and to ``least`` at least.
    """
    norms = np.sqrt(((counts / (measured + least)[:, None]) ** 2).sum(axis=0)) + 1e-12
    matrix, scale = counts / norms, 1 / (measured + least)
    weights, best, sum_of_errors = np.ones(len(measured)), np.zeros(len(norms)), np.inf
    for _ in range(_ROUNDS):
        weighted = matrix * (weights * scale)[:, None]
        right = (measured - known) * weights * scale
        found = _not_negative(weighted.T @ weighted, weighted.T @ right)
        estimated = matrix @ found + known
        errors = np.abs(estimated - measured) / (np.maximum(estimated, measured) + least)
        if errors.sum() < sum_of_errors:
            best, sum_of_errors = found, errors.sum()
        scale = 1 / (np.maximum(estimated, measured) + least)
        weights = 1 / np.sqrt(errors + 0.005)
    figures: _Floats = best / norms
    return figures


def _not_negative(normal: _Floats, right: _Floats) -> _Floats:
    """The least squares solution without negative numbers, by the active sets of Bro and de Jong (FNNLS)."""
    normal = normal + 1e-7 * np.trace(normal) / len(normal) * np.eye(len(normal))
    found, free = np.zeros(len(right)), np.zeros(len(right), bool)
    for _ in range(3 * len(right)):
        slopes = np.where(free, -np.inf, right - normal @ found)
        if slopes.max() <= 1e-9 * np.abs(right).max():
            break
        free[slopes.argmax()] = True
        while True:
            trial = np.zeros(len(right))
            trial[free] = np.linalg.solve(normal[np.ix_(free, free)], right[free])
            below = free & (trial <= 0)
            if not below.any():
                break
            step = (found[below] / (found[below] - trial[below] + 1e-300)).min()
            found = found + step * (trial - found)
            free &= found > 1e-12
        found = trial
    return found
