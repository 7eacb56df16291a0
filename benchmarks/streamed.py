"""What weights fetched ahead of the core would save: ``python -m benchmarks.streamed MODEL...``.

Nothing of it is generated. By the model of cycles, on boards whose flash waits: a run as it is, one whose
weights never wait, and two whose weights a DMA brings into a buffer ahead of the core: all of them, or the
best share of them while the core reads the others itself. The last three are bounds: no transfer has to be
begun or waited for, and nobody else wants the bus. An LSTM of ten steps stands beside the networks.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import crtgen
from crtgen.boards import find_board
from crtgen.boards.board import FlashReads
from crtgen.compiler.kernels import Kernel, Target, applicable
from crtgen.network.ir import Quant
from crtgen.network.ops.case import Case, int8s
from crtgen.network.ops.lstm import Lstm, lstm_case

__all__ = ["Chip", "Time", "lstm_of_ten_steps", "on_memory", "streamed"]

WORD = 7
"""Cycles of a DMA for a word: four to read, three to write (ST AN4031, 3.1)."""


@dataclass(frozen=True, slots=True)
class Chip:
    """A board; what its DMA needs for a line of the flash; how that is read, if not as its file says."""

    board: str
    line: float
    reads: FlashReads | None = None
    note: str = ""

    @property
    def target(self) -> Target:
        """Code and weights in flash, for speed."""
        board = find_board(self.board)
        reads = self.reads or board.reads(board.code)
        return Target(board.core, "speed", code=reads, constants=reads)


_ONE_BANK = FlashReads(wait_states=5, width=16, code_cache=1024, data_cache=256, ahead=True)
_RA8_WORD = 2 * 4  # four cycles of its bus, which has half the clock of the core
CHIPS = (
    Chip("nucleo_l4r5zi", 2 * WORD + 5, note="by words"),
    Chip("nucleo_l4r5zi", 4 * WORD + 5, _ONE_BANK, "one bank, by words"),
    Chip("nucleo_f446re", 3 + 4 + 5 + 2 + 4, note="by four words"),
    Chip("rpi_pico", 48, note="as its flash"),
    Chip("rpi_pico2", 240, note="as its flash"),
    Chip("mimxrt1050_evk", 100, note="as its flash"),
    Chip("ek_ra8m1", 8 * _RA8_WORD, note="by words"),
)
"""What DMAs need at least; of memories at a serial bus as much as the core, since that bus decides."""


@dataclass(frozen=True, slots=True)
class Time:
    """Cycles of a run: the core's own, what it waits for weights, what a DMA needs for all of these."""

    core: float
    waits: float
    fetching: float

    @property
    def now(self) -> float:
        """Nothing is fetched."""
        return self.core + self.waits

    @property
    def all_fetched(self) -> float:
        """What takes longer: the core, or the DMA."""
        return max(self.core, self.fetching)

    @property
    def best(self) -> float:
        """With the share fetched that lets both end together; one flash gives all, whoever reads it."""
        share = min(1.0, self.now / (self.fetching + self.waits)) if self.waits else 0.0
        return min(self.now, max(self.core + self.waits * (1 - share), self.waits))


def streamed(kernel: Kernel, chip: Chip) -> Time:
    """Cycles of a layer on the chip."""
    reads = chip.target.constants
    assert reads is not None
    now = on_memory(kernel, chip.target).cycles or 0.0
    core = on_memory(kernel, replace(chip.target, constants=None)).cycles or 0.0
    return Time(core, now - core, (now - core) / reads.wait_states * chip.line)


def on_memory(kernel: Kernel, target: Target) -> Kernel:
    """The same kernel where memory is read so."""
    parts = tuple(replace(part, kernel=on_memory(part.kernel, target)) for part in kernel.parts)
    return replace(kernel, parts=parts, target=target)


def lstm_of_ten_steps() -> Case:
    """One with 10 KB of weights, which parts for gates read in each step."""
    return lstm_case("int8", Lstm(), int8s("x", (1, 10, 32), 0.03, -9), 32, hidden=Quant.tensor(0.0075, 5))


def _networks(models: Iterable[Path], chip: Chip) -> Iterator[tuple[str, list[Kernel]]]:
    """The kernels of each network, and that of an LSTM of ten steps."""
    for path in models:
        (plan,) = crtgen.load(path).compile(chip.board, optimize="speed").plans
        yield path.stem, [step.kernel for step in plan.steps]
    case = lstm_of_ten_steps()
    yield "LSTM 10x32", applicable(case.op, case.sig, chip.target)[:1]


def main() -> None:
    """The table, in thousands of cycles."""
    print("| board, its DMA | network | now | never waits | all by DMA | best share | saves |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for chip in CHIPS:
        for name, kernels in _networks(map(Path, sys.argv[1:]), chip):
            times = [streamed(kernel, chip) for kernel in kernels]
            now, best = (sum(getattr(t, part) for t in times) for part in ("now", "best"))
            core, fetched = (sum(getattr(t, part) for t in times) for part in ("core", "all_fetched"))
            cells = " | ".join(f"{n / 1000:,.0f}" for n in (now, core, fetched, best))
            print(f"| `{chip.board}`, {chip.note} | {name} | {cells} | {1 - best / now:.1%} |")


if __name__ == "__main__":
    main()
