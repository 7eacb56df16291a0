"""Digests of every kernel of every case, so that a change of the generator shows what it changes.

``golden.csv`` has a line for each design and the cores that get the same of it: how many kernels there are at
``speed`` and ``size`` together, and digests of their assembly as it is written, of their C and comments, of
their figures (work, lead, scratch) and of their constants. Nothing is compiled, so it takes seconds:

    python -m tests.compiler.kernels.golden  # write it anew, after a change that is meant
    python -m tests.compiler.kernels.golden --layers 200 -o before.csv  # with random layers, to compare later
    python -m tests.compiler.kernels.golden --show dsp_matrix,cortex-m4  # the texts themselves
"""

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from crtgen.boards.core import find_core
from crtgen.compiler.codegen.render import render
from crtgen.compiler.codegen.tidy import tidy
from crtgen.compiler.kernels import Kernel, Target
from crtgen.compiler.kernels.asm import Routine
from crtgen.compiler.kernels.asm.routine import Label
from crtgen.compiler.kernels.engine.registry import registered
from crtgen.network.ops import Case, all_cases

__all__ = ["CORES", "GOLDEN", "digests", "read"]

GOLDEN = Path(__file__).with_name("golden.csv")
CORES = ("host", "cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55")
_LEVELS = ("speed", "size")
_PARTS = ("assembly", "source", "figures", "constants")
_BYTES = 5  # of a digest


@dataclass
class Digest:
    """Of all kernels of a design on a core."""

    kernels: int = 0
    parts: Mapping[str, Any] = field(default_factory=lambda: {p: blake2b(digest_size=_BYTES) for p in _PARTS})

    def add(self, kernel: Kernel) -> None:
        self.kernels += 1
        assert all(const.data.nbytes == const.nbytes for const in kernel.consts), kernel.design
        for name, text in texts(kernel).items():
            self.parts[name].update(text if isinstance(text, bytes) else text.encode())

    @property
    def row(self) -> tuple[str, ...]:
        return str(self.kernels), *(part.hexdigest() for part in self.parts.values())


def texts(kernel: Kernel) -> Mapping[str, str | bytes]:
    """What is digested of a kernel, by the name of its column."""
    source = (
        _source(kernel.template, kernel.view, len(kernel.parts), len(kernel.routines))
        if kernel.template
        else ""
    )
    routines = kernel.routines
    return {
        "assembly": "\n".join(map(_code, routines)),
        "source": "\n".join((source, kernel.support, *map(_comments, routines))),
        "figures": repr(
            (kernel.work.blocks, kernel.work.constants, _runs(kernel), kernel.inplace, kernel.scratch)
        ),
        "constants": b"".join(
            f"{c.name} {c.dtype} {c.shape} {c.align} {c.note}".encode() + c.data.tobytes()
            for c in kernel.consts
        ),
    }


@cache
def _source(template: str, view: Any, parts: int, routines: int) -> str:
    names = tuple(f"part_{n}" for n in range(parts)), tuple(f"routine_{n}" for n in range(routines))
    return tidy(
        render(f"kernels/{template}", k=view, name="kernel", prototype="", parts=names[0], routines=names[1])
    )


@cache
def _code(routine: Routine) -> str:
    lines = [
        f"{line.name}:" if isinstance(line, Label) else f"{line.mnemonic} {', '.join(line.operands)}"
        for line in (*routine.frame.begin, *routine.body, *routine.frame.end)
    ]
    return "\n".join((routine.prototype("routine"), *lines, repr(routine.tables)))


def _comments(routine: Routine) -> str:
    notes = (line.note for line in routine.body if not isinstance(line, Label) and line.note)
    return "\n".join((routine.name, routine.purpose, repr(routine.roles), *notes))


def _runs(kernel: Kernel) -> str:
    calls = kernel.work.assembly.calls
    return repr([(call.times, call.routine.name, sorted(call.rounds.items()), call.in_ram) for call in calls])


def _kernels(cases: Iterable[Case]) -> Iterator[tuple[str, Kernel]]:
    targets = [Target(find_core(core), level) for core in CORES for level in _LEVELS]
    for case in cases:
        for target in targets:
            for entry in registered(type(case.op)):
                kernel = entry.kernel(case.op, case.sig, target)
                if kernel is not None:
                    yield target.core.name, kernel


def digests(cases: Iterable[Case]) -> dict[tuple[str, str], tuple[str, ...]]:
    """The rows of ``golden.csv`` by design and cores; cores whose kernels are equal share a row."""
    found: dict[tuple[str, str], Digest] = {}
    for core, kernel in _kernels(cases):
        found.setdefault((kernel.design, core), Digest()).add(kernel)
    cores: dict[tuple[str, ...], list[str]] = {}
    for (design, core), digest in found.items():
        cores.setdefault((design, *digest.row), []).append(core)
    return {(row[0], " ".join(cores[row])): row[1:] for row in sorted(cores)}


def read(path: Path = GOLDEN) -> dict[tuple[str, str], tuple[str, ...]]:
    """The rows of a file that this program wrote."""
    with path.open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    return {(row[0], row[1]): tuple(row[2:]) for row in rows}


def _write(path: Path, rows: Mapping[tuple[str, str], tuple[str, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("design", "cores", "kernels", *_PARTS))
        out.writerows((*key, *row) for key, row in rows.items())


def _random(number: int) -> Iterator[Case]:
    from tests.compiler.kernels.drawn import drawn
    from tests.compiler.kernels.layers import KINDS

    for kind in KINDS.values():
        yield from (layer.case for layer in islice(drawn(kind.layers, 1), number))


def _main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layers", type=int, default=0, help="random layers of each kind, beside the cases")
    parser.add_argument("-o", "--output", type=Path, default=GOLDEN)
    parser.add_argument(
        "--show", metavar="DESIGN,CORE", help="print the texts of one line, and write nothing"
    )
    options = parser.parse_args(arguments)
    cases = [*all_cases(), *_random(options.layers)]
    if options.show:
        design, _, core = options.show.partition(",")
        for name, kernel in _kernels(cases):
            if (kernel.design, name) == (design, core):
                print(*(text for text in texts(kernel).values() if isinstance(text, str)), sep="\n")
        return
    _write(options.output, digests(cases))


if __name__ == "__main__":
    _main(sys.argv[1:])
