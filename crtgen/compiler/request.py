"""The request: target and options of a compilation, decided once and read by every later stage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from crtgen.base.errors import UsageError
from crtgen.boards import Board
from crtgen.boards.board import FlashReads
from crtgen.compiler.byoc import EthosU, Generator
from crtgen.compiler.kernels import Target
from crtgen.compiler.level import Level, find_level
from crtgen.compiler.tuned import Tuned
from crtgen.network.passes import DEFAULT_PASSES, Pass, Sliding

__all__ = ["AUTO", "EXECUTORS", "FEEDS", "PARTS", "Request", "RequestFields"]

EXECUTORS = ("aot", "graph")
"""Who calls the layers: code, or tables."""

FEEDS = ("rows",)
"""Ways in which an image may arrive instead of being in memory."""

PARTS = ("arena", "kernels", "npu", "weights")
"""Parts of a model that can be placed in a memory of the board; ``npu`` is the scratch memory of an NPU."""

AUTO = "auto"
"""The place of an arena in those RAMs of the board where it fits, and where the core waits least."""


@dataclass(frozen=True, slots=True)
class Request:
    """Target and options of a compilation.

    ``optimize`` is the name of a level: ``speed``, ``balanced`` or ``size``. ``executor`` is ``aot`` for
    straight-line calls, or ``graph`` for tables of calls of packed functions. ``keep_inputs`` keeps the
    inputs intact during a run. ``passes`` rewrite the network first, without changing its results.

    ``generators`` are external code generators, in order of precedence. Operators that none of them takes are
    refused or, with ``fallback``, computed by crtgen's own kernels. Generators also have the sources of
    libraries that imported code calls.

    ``sliding``: the networks run on overlapping windows, and a run gets only the new part of the window. At
    the level ``size``, less is kept between runs and more is computed.

    ``place`` maps ``arena``, ``weights``, ``kernels`` or ``npu`` to a memory of the board; parts without an
    entry are with the other data or code, and the scratch memory of an NPU is in the arena. ``auto`` for
    ``arena`` also spreads the arena of a library over the RAMs of the board (``spreads_library``).

    ``tuned`` are entries of tune files: if one matches the model, board and level, layers get the kernels
    that it names.

    On two ``cores``, layers are computed in halves, one per core.

    If ``feed`` is ``rows``, the image arrives by rows and is never in memory as a whole.
    """

    board: Board
    optimize: str = "balanced"
    executor: str = "aot"
    keep_inputs: bool = False
    passes: Sequence[Pass] = DEFAULT_PASSES
    generators: Sequence[Generator] = ()
    fallback: bool = False
    place: Mapping[str, str] = field(default_factory=dict)
    sliding: Sliding | None = None
    tuned: Sequence[Tuned] = ()
    cores: int = 1
    feed: str = ""
    spreads_library: bool = False

    def __post_init__(self) -> None:
        if self.place.get("arena") == AUTO:
            if not self.board.memories:
                raise UsageError(
                    f"--place arena={AUTO} needs the memories of a board, and {self.board.name} has none",
                    hint="name a board by --board, or leave --place out",
                )
            object.__setattr__(self, "place", {k: v for k, v in self.place.items() if k != "arena"})
            object.__setattr__(self, "spreads_library", True)
        find_level(self.optimize)
        if self.executor not in EXECUTORS:
            raise UsageError(f"unknown executor {self.executor}", hint=f"known: {', '.join(EXECUTORS)}")
        if self.cores not in (1, 2):
            raise UsageError(f"{self.cores} cores; supported here: 1 and 2", hint="leave --cores out for one")
        if self.feed:
            self._check_feed()
        for part, memory in self.place.items():
            self._check_place(part, memory)
        bound = tuple(generator.on_board(self.board, self.place) for generator in self.generators)
        object.__setattr__(self, "generators", bound)

    def _check_feed(self) -> None:
        if self.feed not in FEEDS:
            raise UsageError(f"inputs cannot be fed by {self.feed}", hint=f"known: {', '.join(FEEDS)}")
        others = (
            (self.executor != "aot", f"the {self.executor} executor, whose tables have whole inputs"),
            (self.sliding is not None, "sliding, which gets what is new of a window"),
            (self.cores == 2, "two cores, which compute halves of whole layers"),
        )
        for given, what in others:
            if given:
                raise UsageError(f"rows cannot be fed together with {what}", hint="leave one of them out")

    def _check_place(self, part: str, name: str) -> None:
        memories = {m.name: m for m in self.board.memories}
        if part not in PARTS:
            raise UsageError(f"{part} cannot be placed", hint=f"these can: {', '.join(PARTS)}")
        if name not in memories:
            has = f"it has {', '.join(memories)}" if memories else "leave --place out: it is for bare metal"
            raise UsageError(f"the board has no memory {name}", where=self.board.name, hint=has)
        if part in ("arena", "npu") and memories[name].kind != "ram":
            what = "the arena" if part == "arena" else "the NPU's scratch memory"
            raise UsageError(
                f"{what} is written, but {name} is flash",
                where=self.board.name,
                hint="name a memory of the kind ram",
            )
        if part == "npu" and not any(isinstance(generator, EthosU) for generator in self.generators):
            raise UsageError(
                f"--place npu={name} is for the scratch memory of an NPU, and no layer goes to one",
                hint="add --npu, for example --npu ethos-u55-128, or remove it",
            )

    @property
    def spreads(self) -> bool:
        """True if the arena may be in several memories of the board.

        Two cores, tables of the graph executor and external code generators support only one.
        """
        plain = self.executor == "aot" and self.cores == 1 and not self.generators
        is_ours = "baremetal" in self.board.platforms or self.spreads_library
        return plain and "arena" not in self.place and is_ours

    @property
    def level(self) -> Level:
        return find_level(self.optimize)

    @property
    def target(self) -> Target:
        return Target(
            self.board.core,
            self.optimize,
            code=self._reads("kernels"),
            constants=self._reads("weights"),
            cores=self.cores,
        )

    @property
    def arena_reads(self) -> FlashReads | None:
        """Read timing of the arena's memory; None if it never waits, or is unknown."""
        return self.board.reads(self.place.get("arena", self.board.data)) if self.board.memories else None

    @property
    def constants_reads(self) -> dict[str, FlashReads | None]:
        """Read timing of the memories that may hold layers' constants; empty if ``place`` names one for
        all.
        """
        if "weights" in self.place:
            return {}
        return {memory.name: self.board.reads(memory.name) for memory in self.board.memories}

    def _reads(self, part: str) -> FlashReads | None:
        # None if the memory of the part never waits.
        return self.board.reads(self.place.get(part, self.board.code))


class RequestFields(TypedDict, total=False):
    """The fields of a ``Request`` apart from the board, as keywords of ``compile``."""

    # written by tools/options.py
    optimize: str
    executor: str
    keep_inputs: bool
    passes: Sequence[Pass]
    generators: Sequence[Generator]
    fallback: bool
    place: Mapping[str, str]
    sliding: Sliding | None
    tuned: Sequence[Tuned]
    cores: int
    feed: str
    # end
