"""What is proven of networks on cores, and how long it takes: ``python -m benchmarks.proofs MODEL...``.

Each network is built as ``crtgen prove MODEL --board B`` does, and proven. A row of the table has the CPU
seconds of the proof on each core. Where it is not a proof of all outputs, a note says why, below the table;
``safe`` is what is followed to its end while no output is compared.

``--cores M0+,M4`` takes some of the cores, ``--seconds N`` stops each proof after so much CPU time.
"""

import argparse
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import crtgen
from crtgen.base.errors import CrtgenError
from crtgen.boards import find_board
from crtgen.boards.board import Board
from crtgen.boards.core import find_core
from crtgen.proof.certificate import prove_built

CORES = {
    "M0+": ("mps2_an385", "cortex-m0plus"),
    "M3": ("mps2_an385", "cortex-m3"),
    "M4": ("mps2_an386", "cortex-m4"),
    "M7": ("mps2_an500", "cortex-m7"),
    "M23": ("mps2_an505", "cortex-m23"),
    "M33": ("mps2_an505", "cortex-m33"),
    "M55": ("mps3_an547", "cortex-m55"),
    "M85": ("mps3_an547", "cortex-m85"),
}
"""A board whose memory is large enough, and the core whose code is proven; nothing is run."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the table says of a network on a core: seconds of CPU, and why it is not proven if it is not."""

    seconds: float
    reason: str = ""

    def cell(self, notes: dict[str, int]) -> str:
        """The cell, with the number of its reason, which gets one if it is new."""
        if not self.reason:
            return f"{self.seconds:.0f}"
        return f"{self.seconds:.0f} ({notes.setdefault(self.reason, len(notes) + 1)})"


class _TooLong(Exception):
    pass


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """Raise ``_TooLong`` after so much CPU time of this process."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def board_of(core: str) -> Board:
    """A board of QEMU's with the core."""
    name, processor = CORES[core]
    return replace(find_board(name), core=find_core(processor))


def verdict(path: Path, core: str, seconds: int) -> Verdict:
    """Build the network's standalone image for the core, and prove it."""
    board = board_of(core)
    try:
        image = crtgen.load(path).compile(board).generate("standalone").build()
        start = time.process_time()
        with _at_most(seconds):
            proof = prove_built(image, path, board)
    except _TooLong:
        return Verdict(seconds, f"stopped after {seconds} seconds of CPU")
    except CrtgenError as error:
        return Verdict(0, f"refused: {error}")
    took = time.process_time() - start
    if proof.is_proven:
        return Verdict(took)
    if proof.stopped:
        return Verdict(took, proof.stopped.rpartition("': ")[2])
    if proof.network.uncompared:
        return Verdict(took, f"safe: {proof.network.uncompared}")
    count = f"{proof.outputs_proven:,} of {proof.outputs:,} outputs"
    return Verdict(took, f"{count}; {proof.first_reason}")


def main() -> None:
    """The table, and the reasons."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--cores", default=",".join(CORES))
    parser.add_argument("--seconds", default=1800, type=int)
    options = parser.parse_args()
    cores = options.cores.split(",")
    tasks = [(path, core, options.seconds) for path in options.models for core in cores]
    notes: dict[str, int] = {}
    print("\n".join((f"| network | {' | '.join(cores)} |", "|---" + "|--:" * len(cores) + "|")))
    with ProcessPoolExecutor(2) as pool:
        found = pool.map(verdict, *zip(*tasks, strict=True))
        for path in options.models:
            cells = [next(found).cell(notes) for _ in cores]
            print(f"| {path.stem} | {' | '.join(cells)} |", flush=True)
    for reason, number in notes.items():
        print(f"\n({number}) {reason}")


if __name__ == "__main__":
    main()
