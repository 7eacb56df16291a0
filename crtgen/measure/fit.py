"""Whether models fit boards, how fast they would be there, and what would make them fit: no tools needed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from crtgen import api
from crtgen.boards import Board
from crtgen.kernels import Target
from crtgen.project import Footprint
from crtgen.project.options import receive_buffer_of, stack_of
from crtgen.report import Report
from crtgen.request import Request

__all__ = ["Choice", "Fit", "Fits"]

_ENDLESS = 1 << 31
_SMALL_POOL = 1024


@dataclass(frozen=True, slots=True)
class Choice:
    """What can be chosen to make a model fit: a level, places of its parts, the pool of the server."""

    optimize: str = "balanced"
    place: Mapping[str, str] | None = None
    pool: int | None = None

    def __str__(self) -> str:
        places = [f"--place {part}={memory}" for part, memory in (self.place or {}).items()]
        pool = [] if self.pool is None else [f"--pool {self.pool}"]
        return " ".join([f"--optimize {self.optimize}", *places, *pool])


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A model on a board: what a library and a server image of it take.

    ``report`` has its figures by plan. ``short`` are the bytes that memories of the board lack for the
    server, ``advice`` the first choice with which that fits; None if there is none, or none is needed.
    """

    board: Board
    report: Report
    library: Footprint
    server: Footprint
    advice: Choice | None = None

    @property
    def short(self) -> dict[str, int]:
        """Bytes that are missing, by memory."""
        lacks = {m.name: self.server.memories.get(m.name, 0) - m.size for m in self.board.memories}
        return {name: size for name, size in lacks.items() if size > 0}

    @property
    def fits(self) -> bool:
        """Whether the server image fits."""
        return not self.short

    @property
    def seconds(self) -> float | None:
        """Of a run at the core's highest clock, by the model of its cycles."""
        cycles = self.report.cycles_estimated
        return cycles / self.board.clock if cycles is not None and self.board.clock else None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "model": self.report.model,
            "board": self.board.name,
            "core": self.board.core.name,
            "optimize": self.report.optimize,
            "fits": self.fits,
            "short": self.short,
            "advice": None if self.advice is None else str(self.advice),
            "cycles_estimated": self.report.cycles_estimated,
            "clock_hz": self.board.clock,
            "seconds": self.seconds,
            "library": self.library.to_dict(),
            "server": self.server.to_dict() if self.board.memories else None,
        }


class Fits:
    """Fits one model to boards; boards that are the same to the compiler share its work."""

    def __init__(self, model: api.Model) -> None:
        self._model = model
        self._known: dict[Target, api.Compiled] = {}

    def on(self, board: Board, choice: Choice = Choice()) -> Fit:
        """The model on a board; where it does not fit, with advice."""
        found = self._fit(board, choice)
        if found.fits:
            return found
        others = (other for other in _others(board, choice) if self._fit(board, other).fits)
        return replace(found, advice=next(others, None))

    def _fit(self, board: Board, choice: Choice) -> Fit:
        compiled = self._compiled(board, choice)
        (report,) = compiled.reports
        server = compiled.footprint(
            "server",
            pool=choice.pool,
            stack=stack_of(board.ram),
            receive_buffer=receive_buffer_of(board.ram),
        )
        unplaced = replace(compiled, request=replace(compiled.request, place={}))
        return Fit(board, report, unplaced.footprint("library"), server)

    def _compiled(self, board: Board, choice: Choice) -> api.Compiled:
        """Compiled for the board as if its memories had no end."""
        endless = replace(board, memories=tuple(replace(m, size=_ENDLESS) for m in board.memories))
        request = Request(endless, choice.optimize, place=choice.place or {})
        if request.target not in self._known:
            compiled = self._model.compile(endless, optimize=choice.optimize, place=request.place)
            self._known[request.target] = compiled
        return replace(self._known[request.target], request=request)


def _others(board: Board, choice: Choice) -> Iterator[Choice]:
    """Other choices, those that cost least first."""
    levels = [choice.optimize, *(["size"] if choice.optimize != "size" else [])]
    for pool, place, level in product((choice.pool, _SMALL_POOL), _places(board), levels):
        yield Choice(level, {**place, **(choice.place or {})}, pool)


def _places(board: Board) -> Sequence[Mapping[str, str]]:
    """Where the arena and the weights can lie, beside where they do."""
    found: list[Mapping[str, str]] = [{}]
    if "baremetal" in board.platforms:
        found += [{"arena": m.name} for m in board.memories if m.kind == "ram" and m.name != board.data]
        found += [{"weights": m.name} for m in board.memories if m.kind == "flash" and m.name != board.code]
    return found
