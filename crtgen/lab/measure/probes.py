"""Assembly loops that a selftest measures, and their cost by the model of the core and its flash."""

from dataclasses import asdict, dataclass

from crtgen.boards import Board
from crtgen.compiler.codegen.module import CModule, Interface, LayerInfo, ModelInfo
from crtgen.compiler.codegen.render import render
from crtgen.compiler.kernels.asm.fetching import waiting
from crtgen.compiler.kernels.asm.function import Function
from crtgen.compiler.kernels.asm.pipelines import pipeline_of
from crtgen.compiler.kernels.asm.routine import Routine
from crtgen.compiler.kernels.asm.schedule import cycles
from crtgen.compiler.kernels.asm.text import assembly_file
from crtgen.network.ir import DType

__all__ = ["ENDING", "PROBES", "Expected", "Probe", "expected", "modules"]

_REPEATED, _ROUNDS, _WORDS = 64, 2000, 160_000
"""Instructions of a kind in a loop, how often it runs, and words that a loop reads in all."""

_SMALL, _LARGE, _RAM = 128, 4096, 32
"""Number of words that fit into most caches of a flash, that fit into none, and that fit into the RAM."""

# Words that a round of the inner loop reads.
_LOADS = 8


@dataclass(frozen=True, slots=True)
class Probe:
    """A loop of ``rounds`` over ``words`` that are read, or over a repeated instruction.

    ``constant`` words are in flash. Without rounds it is straight-line code.
    """

    name: str
    what: str
    words: int = 0
    constant: bool = False
    rounds: int = 0

    @property
    def is_loop(self) -> bool:
        return self.rounds > 0

    @property
    def count(self) -> int:
        return self.rounds * (self.words or _REPEATED)


PROBES = (
    Probe("add", "additions of registers", rounds=_ROUNDS),
    Probe("multiply", "products of registers", rounds=_ROUNDS),
    Probe("branch", "taken branches", rounds=_ROUNDS),
    Probe("ram", "words of the RAM", _RAM, rounds=_WORDS // _RAM),
    Probe("flash", "words of the flash, few", _SMALL, constant=True, rounds=_WORDS // _SMALL),
    Probe("stream", "words of the flash, many", _LARGE, constant=True, rounds=_WORDS // _LARGE),
)
ENDING = Probe("ending", "a stack without end, or a loop")
"""An input of zeros uses up the stack; any other hangs, and the watchdog runs."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected cost of one operation of a probe: instructions, and cycles if the core has a model."""

    instructions: float
    cycles: float | None


def _routine(probe: Probe) -> Routine:
    # The loop as a function of assembly: where the words are, and how often it goes round.
    f = Function(symbol(probe), "const uint32_t *words", "uint32_t rounds", narrow=True)
    words, rounds = f.arguments
    place, value, left = f.core("constants"), f.core("value"), f.core("left")
    with f.loop("rounds", probe.rounds) as again:
        if probe.words:
            f("mov", place, words)
            with f.counted_loop("reads", left, probe.words // _LOADS):
                for n in range(_LOADS):
                    f("ldr", value, f"[{place}, #{4 * n}]")
                f("adds", place, f"#{4 * _LOADS}")
        else:
            for _ in range(_REPEATED):
                _repeat(f, probe.name, value, place)
        f("subs", rounds, rounds, "#1")
        f("bne", again)
    return f.done()


def _repeat(f: Function, name: str, value: str, other: str) -> None:
    # Body of a loop without text.
    if name == "add":
        f("adds", value, value, "#1")
    elif name == "multiply":
        f("muls", value, other, value)
    else:
        label = f.label("next")
        f("b", label)
        f.place(label)


def symbol(probe: Probe) -> str:
    return f"crt_selftest_{probe.name}"


def expected(probe: Probe, board: Board, *, waits: bool) -> Expected:
    """Return the expected cost of one operation of a probe; with ``waits``, including those of the board's
    flash.
    """
    routine, pipeline = _routine(probe), pipeline_of(board.core)
    runs = routine.runs()
    instructions = runs.instructions / probe.count
    if pipeline is None:
        return Expected(instructions, None)
    total = cycles(runs, pipeline)
    reads = board.reads(board.code) if waits else None
    if reads is not None:
        constants = reads if probe.constant else None
        total += waiting(runs, pipeline, reads, constants, routine.code_bytes, 4 * probe.words)
    return Expected(instructions, total / probe.count)


def modules(board: Board) -> tuple[CModule, ...]:
    return tuple(_module(probe, board) for probe in (*PROBES, ENDING))


def _module(probe: Probe, board: Board) -> CModule:
    name = f"selftest_{probe.name}"
    view = {**asdict(probe), "name": name, "symbol": symbol(probe), "is_loop": probe.is_loop}
    view["watchdog"] = board.watchdog
    files = {f"{name}{end}": render(f"selftest/probe{end}.j2", v=view) for end in (".c", ".h")}
    if probe.is_loop:
        files[f"{name}_loop.S"] = assembly_file(f"{name}: {probe.what}", [(symbol(probe), _routine(probe))])
    x, y = (Interface(n, n, (1, 4), DType.INT8, None, 4) for n in "xy")
    layers = (LayerInfo(probe.name, "Probe", name),)
    return CModule(ModelInfo(name, (x,), (y,), 16, 16, True, True, 0, 0, layers), files, (), ())
