"""The arena of a model in C: its symbol, the constants for its offsets, and its map."""

from collections.abc import Iterable
from dataclasses import dataclass

from crtgen.codegen.names import arena_macro, arena_symbol, comment, unique_identifiers
from crtgen.ir import shape_text
from crtgen.plan import Bar, Lifetime, Plan, Step, chart, lifetimes

__all__ = ["Arena", "ArenaView", "PlaceView"]

_CHART = 40
"""Columns of the map: its lines stand in a comment."""


@dataclass(frozen=True, slots=True)
class PlaceView:
    """A constant of C: the ``offset`` in bytes of what ``text`` names."""

    constant: str
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class ArenaView:
    """An arena of ``size`` bytes: the array ``symbol``, and the ``macro`` for where it begins.

    ``places`` are the constants for its offsets, ``chart`` the lines of its map.
    """

    symbol: str
    macro: str
    size: int
    places: tuple[PlaceView, ...] = ()
    chart: tuple[str, ...] = ()


class Arena:
    """The names of what lies in a model's arena."""

    def __init__(self, model: str, plan: Plan) -> None:
        self.model = model
        self._plan = plan
        self._macro = arena_macro(model)
        steps = (step.name for step in plan.steps if step.scratch is not None)
        self._values = _constants(f"{model}_AT", plan.slots)
        self._scratch = _constants(f"{model}_SCRATCH", steps)

    def value(self, name: str) -> str:
        """The address of a value, in C: in the arena, or among the states."""
        if name in self._plan.states:
            return f"{self.model}_state + {self._plan.states[name].offset}"
        return f"{self._macro} + {self._values[name]}"

    def scratch(self, step: Step) -> str:
        """The address of a step's scratch memory, in C; empty if it has none."""
        return f"{self._macro} + {self._scratch[step.name]}" if step.scratch is not None else ""

    def view(self) -> ArenaView:
        """The arena with all its places."""
        lives = sorted(lifetimes(self._plan), key=lambda life: (life.slot.offset, life.first))
        bars = (
            Bar(life.slot.offset, life.first, life.last, self._constant(life), life.slot.size)
            for life in lives
            if not life.alias_of
        )
        return ArenaView(
            symbol=arena_symbol(self.model),
            macro=self._macro,
            size=self._plan.arena,
            places=tuple(map(self._place, lives)),
            chart=tuple(line.rstrip() for line in chart(bars, _CHART)),
        )

    def _constant(self, life: Lifetime) -> str:
        return (self._scratch if life.is_scratch else self._values)[life.name]

    def _place(self, life: Lifetime) -> PlaceView:
        value = self._plan.graph.values.get(life.name)
        what = f"{life.slot.size} bytes of scratch of {life.name}"
        if value is not None and not life.is_scratch:
            what = f"{life.name}, {shape_text(value.shape)} {value.dtype.value}"
        return PlaceView(self._constant(life), life.slot.offset, comment(what))


def _constants(prefix: str, names: Iterable[str]) -> dict[str, str]:
    identifiers = unique_identifiers(names, upper=True)
    return {name: f"{prefix.upper()}_{identifier}" for name, identifier in identifiers.items()}
