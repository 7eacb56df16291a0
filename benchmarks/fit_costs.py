"""Measure kernels of random layers in QEMU and write ``crtgen/compiler/kernels/engine/costs.csv``.

``python -m benchmarks.fit_costs [KERNEL...]`` from the root of the repository; a kernel is a template without
its endings: ``map``, ``dsp/conv``. Other kernels keep their figures; without any, all are measured, which
takes half an hour. It needs arm-none-eabi-gcc and qemu-system-arm.
"""

import argparse
import csv
import sys
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor

from crtgen.base.resources import costs_file
from crtgen.compiler.kernels.engine.cost import BlockFigures, figures
from tests.compiler.kernels.fit import fitted
from tests.compiler.kernels.measured import TARGETS, chains, layers, measured, operators_of

_Known = dict[tuple[str, str], BlockFigures]
_LAYERS, _CHAINS = 200, 50  # layers of each kind
_LOOPS = {"row_loop", "row_stream"}
"""The kernels that call others: their figures are what the others' costs leave."""


def measure(core: str, flag: str, families: Collection[str]) -> _Known:
    """The figures of a column."""
    operators = operators_of(families, core, flag) if families else None
    cases = chains(_CHAINS) if _LOOPS & set(families) else layers(_LAYERS, "fit", operators)
    samples = [sample for _, sample in measured(list(cases), core, flag, families)]
    print(f"{core} {flag}: {len(samples)} kernels", file=sys.stderr, flush=True)
    return fitted(samples)


def renew(families: Collection[str]) -> None:
    """Measure these kernels, or all, and write the file; processes that start afterwards read it."""
    with ProcessPoolExecutor() as pool:
        found = [pool.submit(measure, core, flag, families) for core, flag in TARGETS]
    columns = {}
    for target, made in zip(TARGETS, found, strict=True):
        kept = {k: v for k, v in figures(*target).items() if families and k[0] not in families}
        columns[target] = {**kept, **made.result()}
    figures.cache_clear()
    write(columns)


def write(columns: dict[tuple[str, str], _Known]) -> None:
    """A row for each block, a column for each core and option: instructions, bytes."""
    blocks = sorted({block for known in columns.values() for block in known})
    with costs_file().open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["kernel", "block", *(f"{core} {flag}" for core, flag in columns)])
        for block in blocks:
            cells = (known.get(block) for known in columns.values())
            rows.writerow([*block, *(f"{c.instructions:g} {c.code:g}" if c else "" for c in cells)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="a template without its endings")
    families = set(parser.parse_args().kernels)
    if not families or families - _LOOPS:
        renew(families - _LOOPS)
    if not families or families & _LOOPS:
        renew(families & _LOOPS or _LOOPS)


if __name__ == "__main__":
    main()
