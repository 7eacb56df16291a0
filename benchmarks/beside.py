"""Whole networks by crtgen's kernels and by CMSIS-NN's, in one run: ``python -m benchmarks.beside MODEL...``.

Each model is built twice for each board, with the same project, level and compiler: once with crtgen's
kernels alone, once with CMSIS-NN's for all layers that it has, and crtgen's for the others
(``--fallback``). Both must give the same bytes. A row has instructions in QEMU, their ratio, crtgen's
modelled cycles, flash and RAM of both; the last lines have the geometric mean of the ratios, and those
below the least one that is wanted. ``CMSIS_NN_PATH`` says where CMSIS-NN is; ``BESIDE_BOARDS`` names
other boards than those of M4 and M55, with commas.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import exp, fsum, log
from pathlib import Path

import numpy as np

import crtgen
from crtgen.base.errors import CrtgenError
from crtgen.compiler.byoc import CmsisNn
from crtgen.lab.measure.benchmark import measure_model
from crtgen.lab.measure.cases import random_inputs

BOARDS = ("mps2_an386", "mps3_an547")
LEVEL = "balanced"
LEAST = 2.2


@dataclass(frozen=True, slots=True)
class Measured:
    """Instructions of a run, the model's cycles if there is a model, bytes, and the outputs."""

    instructions: int
    cycles: int | None
    flash: int
    ram: int
    outputs: tuple[bytes, ...]


def measured(path: Path, board: str, cmsis_nn: bool) -> Measured:
    """Measure a network. Raises ``CrtgenError`` if it cannot be built."""
    model = crtgen.load(path)
    assert isinstance(model, crtgen.Model)
    generators = [CmsisNn()] if cmsis_nn else []
    compiled = model.compile(board, optimize=LEVEL, generators=generators, fallback=cmsis_nn)
    outputs: list[bytes] = []

    def check(session: crtgen.Session) -> None:
        given = session.infer(*random_inputs(session.model().inputs, seed=0))
        outputs.extend(np.asarray(y).tobytes() for y in given)

    report = measure_model(compiled, check=check, layers=False)
    assert report.instructions is not None
    assert report.flash_bytes is not None
    assert report.ram_bytes is not None
    return Measured(
        report.instructions,
        report.cycles_estimated,
        report.flash_bytes,
        report.ram_bytes,
        tuple(outputs),
    )


def pair(job: tuple[Path, str]) -> tuple[float, str]:
    """Return the ratio of instructions and the row of a network on a board; 0 if one of both fails."""
    path, board = job
    try:
        ours, theirs = (measured(path, board, other) for other in (False, True))
    except CrtgenError as error:
        return 0.0, f"{path.stem} on {board}: {str(error).splitlines()[0]}"
    ratio = theirs.instructions / ours.instructions
    if ours.flash == theirs.flash and 0.99 < ratio < 1.01:
        return 0.0, f"{path.stem} on {board}: CMSIS-NN has no kernel for any of its layers"
    note = "" if ours.outputs == theirs.outputs else " (other outputs)"
    figures = [ours.instructions, theirs.instructions, f"{ratio:.2f}", ours.cycles or "-"]
    sizes = [ours.flash, theirs.flash, ours.ram, theirs.ram]
    cells = [f"{n:,}" if isinstance(n, int) else n for n in (*figures, *sizes)]
    return ratio, f"| {path.stem}{note} | {board} | {' | '.join(cells)} |"


def lines(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the table as it is measured, then its summary."""
    boards = os.environ.get("BESIDE_BOARDS", ",".join(BOARDS)).split(",")
    yield "| network | board | instructions | CMSIS-NN | ratio | cycles | flash | CMSIS-NN | RAM | CMSIS-NN |"
    yield "|" + "---|" * 2 + "--:|" * 8
    found: dict[tuple[str, str], float] = {}
    jobs = [(path, board) for path in paths for board in boards]
    with ProcessPoolExecutor(2) as pool:
        for (path, board), (ratio, line) in zip(jobs, pool.map(pair, jobs), strict=True):
            if ratio:
                found[path.stem, board] = ratio
            yield line
    for board in (*boards, ""):
        some = [ratio for (_, where), ratio in found.items() if where == board or not board]
        mean = exp(fsum(map(log, some)) / len(some)) if some else 0.0
        yield f"{board or 'all'}: {len(some)} pairs, geometric mean {mean:.2f}"
    for (name, board), ratio in found.items():
        if ratio < LEAST:
            yield f"below {LEAST}: {name} on {board}, {ratio:.2f}"


if __name__ == "__main__":
    for text in lines([Path(argument) for argument in sys.argv[1:]]):
        print(text, flush=True)
