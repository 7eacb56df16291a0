"""Which boards a model fits, how fast it would run there, and which options would make it fit; needs no
tools.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Unpack

from crtgen import api
from crtgen.api.report import Report
from crtgen.boards import Board, all_boards, silicon_range
from crtgen.compiler.byoc import Generator
from crtgen.compiler.kernels import Target
from crtgen.compiler.plan import NPU_PART, FreeMemory, Plan, Resident, place_constants
from crtgen.compiler.request import AUTO, Request, RequestFields
from crtgen.firmware.project import Footprint

__all__ = ["Fit", "FitChoice", "Fits", "boards_for"]

_ENDLESS = 1 << 31
_SMALL_POOL = 1024
# Cycles of a read that no flash beside the core takes.
_SERIAL = 32


def boards_for(generators: Sequence[Generator]) -> tuple[Board, ...]:
    known = (board for board in all_boards() if not board.is_host)
    return tuple(board for board in known if all(each.runs_on(board) for each in generators))


@dataclass(frozen=True, slots=True)
class FitChoice:
    """Options that may make a model fit: the level, memories of its parts, the pool of the server.

    ``feed`` says how the image arrives, as in a request.
    """

    optimize: str = "balanced"
    place: Mapping[str, str] | None = None
    pool: int | None = None
    feed: str = ""

    def beside(self, other: "FitChoice") -> str:
        level = [f"--optimize {self.optimize}"] if self.optimize != other.optimize else []
        known = other.place or {}
        places = [f"--place {p}={m}" for p, m in (self.place or {}).items() if known.get(p) != m]
        pool = [f"--pool {self.pool}"] if self.pool != other.pool else []
        return " ".join([*level, *places, *pool])


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A model on a board: its figures as a library, which are the same in any firmware, and as a server.

    ``report`` has its figures by plan, ``standalone`` those of a standalone image. ``advice`` and
    ``server_advice`` are the options with which library and server fit; empty if there are none, or none are
    needed. ``resident`` are the bytes of constants that an image copies to RAM, by memory, ``in_flash`` the
    cycles without these copies. ``in_ram`` are the additional bytes of RAM that all other constants would
    need, and the cycles that this would save. ``arena`` are the bytes of the arena by memory, in a standalone
    image, or in a library that is spread over the RAMs (``is_spread``).
    """

    board: Board
    report: Report
    library: Footprint
    standalone: Footprint
    server: Footprint
    advice: str = ""
    server_advice: str = ""
    resident: Mapping[str, int] = field(default_factory=dict)
    in_flash: int | None = None
    in_ram: tuple[int, int] = 0, 0
    arena: Mapping[str, int] = field(default_factory=dict)
    is_spread: bool = False

    @property
    def is_moved(self) -> bool:
        """True if the arena or a part of it is in a different memory than the variables."""
        return bool(set(self.arena) - {self.board.data})

    @property
    def short(self) -> dict[str, int]:
        # Missing bytes by memory for the library.
        needs = dict(self.standalone.memories)
        if needs:  # what is around the model in a standalone image is no part of it
            needs[self.board.code] -= self.standalone.flash - self.library.flash
            needs[self.board.data] -= self.standalone.ram + self.standalone.stack - self.library.ram
        if self.is_spread:  # what is in other RAMs
            apart = {name: size for name, size in self.arena.items() if name != self.board.data}
            needs[self.board.data] -= sum(apart.values())
            needs |= {name: needs.get(name, 0) + size for name, size in apart.items()}
        return _short(self.board, needs)

    @property
    def server_short(self) -> dict[str, int]:
        """Missing bytes by memory for a server image, with its stack, pool and RPC packets."""
        return _short(self.board, self.server.memories)

    @property
    def fits(self) -> bool:
        return not self.short

    @property
    def seconds(self) -> float | None:
        """Seconds of a run at the core's highest clock: the middle of ``seconds_range``."""
        return sum(self.seconds_range) / 2 if self.seconds_range else None

    @property
    def seconds_range(self) -> tuple[float, float] | None:
        """Shortest and longest time of a run in seconds, by the cycle model and its error range on such
        chips.
        """
        cycles = self.report.cycles_estimated
        if cycles is None or not self.board.clock:
            return None
        least, greatest = silicon_range(self.board.core)
        return least * cycles / self.board.clock, greatest * cycles / self.board.clock

    @property
    def is_assumed(self) -> bool:
        """True if a typical flash was assumed, since the board's file does not describe its own."""
        return self.board.reads_are_assumed

    @property
    def is_rough(self) -> bool:
        """True for code in a serial flash: its waits depend on the order of reads, which is not modelled."""
        reads = self.board.reads(self.board.code) if self.board.memories else None
        return reads is not None and reads.wait_states >= _SERIAL

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.report.model,
            "board": self.board.name,
            "core": self.board.core.name,
            "optimize": self.report.optimize,
            "fits": self.fits,
            "short": self.short,
            "advice": self.advice or None,
            "cycles_estimated": self.report.cycles_estimated,
            "clock_hz": self.board.clock,
            "seconds": self.seconds,
            "seconds_range": self.seconds_range,
            "energy_uj": self.report.energy_uj,
            "npu": self.report.npu,
            "arena_in": dict(self.arena),
            "constants_in_ram": dict(self.resident),
            "cycles_in_flash": self.in_flash,
            "more_ram": {"bytes": self.in_ram[0], "cycles_saved": self.in_ram[1]},
            "flash_is_assumed": self.is_assumed,
            "flash_is_rough": self.is_rough,
            "library": self.library.to_dict(),
            "server": self._server() if self.board.memories else None,
        }

    def _server(self) -> dict[str, Any]:
        short = self.server_short
        return {
            **self.server.to_dict(),
            "fits": not short,
            "short": short,
            "advice": self.server_advice or None,
        }


def _arena_in(compiled: api.Compiled) -> dict[str, int]:
    # Bytes of the arena by memory.
    board, place, (plan,) = compiled.board, compiled.request.place, compiled.plans
    parts = {place.get("npu", name) if name == NPU_PART else name: p.size for name, p in plan.parts.items()}
    return {place.get("arena", board.data): plan.arena, **parts} if board.memories else {}


def _short(board: Board, needs: Mapping[str, int]) -> dict[str, int]:
    # Missing bytes by memory.
    lacks = {m.name: needs.get(m.name, 0) - m.size for m in board.memories}
    return {name: size for name, size in lacks.items() if size > 0}


class Fits:
    """Fits one model to boards; boards that are equal for the compiler are compiled for once."""

    def __init__(self, model: api.Model, **chosen: Unpack[RequestFields]) -> None:
        """Prepare to fit a model; ``chosen`` are the choices of ``api.compile`` that are not in
        ``FitChoice``.
        """
        self._model = model
        self._chosen = chosen
        self._known: dict[tuple[Target, str, str], api.Compiled] = {}
        self._in_ram: dict[tuple[Plan, ...], Resident] = {}

    def on(self, board: Board, choice: FitChoice = FitChoice()) -> Fit:
        found = self._fit(board, choice)
        if found.fits and not found.server_short:
            return found
        library = server = ""
        is_hopeless = {(choice.optimize, _known(choice.place)): not found.fits}
        for other in _others(board, choice):
            if (library or found.fits) and (server or not found.server_short):
                break
            way = other.optimize, _known(other.place)
            if is_hopeless.get(way):  # a server is more than a library, whatever its pool
                continue
            fit = self._fit(board, other)
            is_hopeless[way] = not fit.fits
            if fit.fits:
                library = library or other.beside(choice)
            if not fit.server_short:
                server = server or other.beside(choice)
        return replace(
            found,
            advice="" if found.fits else library,
            server_advice=server if found.server_short else "",
        )

    def _fit(self, board: Board, choice: FitChoice) -> Fit:
        compiled = self._compiled(board, choice)
        if compiled.request.spreads_library and "baremetal" not in board.platforms:
            return self._spread(board, choice, compiled)
        placed = compiled.placed("server", pool=choice.pool)
        (report,) = placed.reports
        server = placed.footprint("server", pool=choice.pool)
        in_flash = compiled.spread("server", pool=choice.pool).as_it_is
        small = compiled.spread("standalone").as_it_is
        unplaced = replace(small, request=replace(compiled.request, place={}))
        alone, library = small.footprint("standalone"), unplaced.footprint("library")
        constants = placed.resident_bytes
        return Fit(
            board,
            report,
            library,
            alone,
            server,
            resident=constants,
            in_flash=in_flash.reports[0].cycles_estimated if constants else report.cycles_estimated,
            in_ram=self._with_more(compiled, placed),
            arena=_arena_in(small),
        )

    def _spread(self, board: Board, choice: FitChoice, compiled: api.Compiled) -> Fit:
        # A library over the RAMs of a board that crtgen does not start: its server has one arena.
        found = self._fit(board, replace(choice, place={}))
        spread = compiled.spread("library", platform="baremetal")
        return replace(
            found,
            report=spread.reports[0],
            library=spread.footprint("library", platform="baremetal"),
            in_flash=spread.reports[0].cycles_estimated,
            arena=_arena_in(spread),
            is_spread=True,
        )

    def _with_more(self, compiled: api.Compiled, placed: api.Compiled) -> tuple[int, int]:
        # The bytes of RAM that are missing for all constants for which the core waits, and the cycles they
        # save.
        request = compiled.request
        if "baremetal" not in request.board.platforms or "weights" in request.place:
            return 0, 0
        if compiled.plans not in self._in_ram:
            endless = [FreeMemory("ram", _ENDLESS)]
            (self._in_ram[compiled.plans],) = place_constants(compiled.plans, request.target, endless)
        best = self._in_ram[compiled.plans]
        needs = sum(s.kernel.cost.constants for s in best.plan.steps if s.name in best.memories)
        cycles = [sum(s.kernel.cycles or 0 for s in plan.steps) for plan in (placed.plans[0], best.plan)]
        more = needs - sum(placed.resident_bytes.values())
        return (more, round(cycles[0] - cycles[1])) if more > 0 and cycles[1] < cycles[0] else (0, 0)

    def _compiled(self, board: Board, choice: FitChoice) -> api.Compiled:
        # Compiled for the board as if its memories had no end.
        varied: RequestFields = {
            "optimize": choice.optimize,
            "place": choice.place or {},
            "feed": choice.feed,
        }
        fields: RequestFields = {**self._chosen, **varied}
        request = Request(board, **fields)
        key = request.target, choice.feed, request.place.get("arena", "")
        if key not in self._known:
            endless = replace(board, memories=tuple(replace(m, size=_ENDLESS) for m in board.memories))
            self._known[key] = self._model.compile(endless, **fields)
        return replace(self._known[key], request=request)


def _known(place: Mapping[str, str] | None) -> Hashable:
    return frozenset((place or {}).items())


def _others(board: Board, choice: FitChoice) -> Iterator[FitChoice]:
    # Other choices, those that cost least first.
    levels = dict.fromkeys((choice.optimize, "size", "ram"))
    pools = [choice.pool, *([_SMALL_POOL] if choice.pool is None else [])]
    for pool, place, level in product(pools, _places(board), levels):
        other = FitChoice(level, {**place, **(choice.place or {})}, pool, choice.feed)
        if other.beside(choice):
            yield other


def _places(board: Board) -> Sequence[Mapping[str, str]]:
    # Other memories for arena and weights.
    found: list[Mapping[str, str]] = [{}]
    if "baremetal" in board.platforms:
        found += [{"arena": m.name} for m in board.memories if m.kind == "ram" and m.name != board.data]
        found += [{"weights": m.name} for m in board.memories if m.kind == "flash" and m.name != board.code]
    elif sum(memory.kind == "ram" for memory in board.memories) > 1:
        found.append({"arena": AUTO})
    return found
