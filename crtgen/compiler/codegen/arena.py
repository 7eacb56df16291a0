"""The arena of a model in C: its symbol, the constants for its offsets, and its map.

A part of the arena in another memory is a separate array, whose name ends with the part's name.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from crtgen.compiler.codegen.names import arena_macro, arena_symbol, c_identifier, comment, unique_identifiers
from crtgen.compiler.plan import ArenaSlot, Bar, Lifetime, Plan, Step, chart, lifetimes
from crtgen.network.ir import shape_text

__all__ = ["Arena", "ArenaPartView", "ArenaView", "PlaceView"]

# Columns of the map: its lines stand in a comment.
_CHART = 40


@dataclass(frozen=True, slots=True)
class PlaceView:
    """A C constant: the ``offset`` in bytes of the value that ``text`` names."""

    constant: str
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class ArenaPartView:
    """A part of the arena in another memory, of ``size`` bytes: the array ``symbol``, the ``macro`` for its
    start, and the lines of its map.
    """

    name: str
    symbol: str
    macro: str
    size: int
    chart: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArenaView:
    """An arena of ``size`` bytes: the array ``symbol``, and the ``macro`` for its start.

    ``places`` are the constants for its offsets, ``chart`` the lines of its map; ``parts`` are in other
    memories.
    """

    symbol: str
    macro: str
    size: int
    places: tuple[PlaceView, ...] = ()
    chart: tuple[str, ...] = ()
    parts: tuple[ArenaPartView, ...] = ()


class Arena:
    """Names of the places in a model's arena, in C.

    ``outside`` has the C addresses of values elsewhere. The arena of a subgraph begins at ``base`` in the
    model's arena, or in its part ``part``, and its names begin with ``prefix``.
    """

    def __init__(
        self,
        model: str,
        plan: Plan,
        outside: Mapping[str, str],
        base: int = 0,
        prefix: str = "",
        part: str = "",
    ) -> None:
        self.model = model
        self.inner: list[Arena] = []
        self.states: list[PlaceView] = []
        self._plan, self._outside, self._base = plan, outside, base
        self._part = part
        self._prefix = prefix or model
        self._values = _constants(f"{self._prefix}_AT", plan.slots)
        self._scratch = _constants(
            f"{self._prefix}_SCRATCH", (step.name for step in plan.steps if step.scratch is not None)
        )
        self._apart = _constants(
            f"{self._prefix}_APART", (step.name for step in plan.steps if step.apart is not None)
        )

    @classmethod
    def of(cls, model: str, plan: Plan) -> "Arena":
        """Return the arena of a model. Its states are outside of the arena, and so is an input that arrives
        by rows.
        """
        names = _constants(f"{model}_STATE_AT", plan.states)
        outside = {name: f"{model}_state + {constant}" for name, constant in names.items()}
        made = cls(model, plan, {name: f"{model}_image" for name in plan.fed} | outside)
        for name, constant in names.items():
            value = plan.graph.values[name]
            text = comment(f"the state {name}, {shape_text(value.shape)} {value.dtype.value}")
            made.states.append(PlaceView(constant, plan.states[name].offset, text))
        return made

    def within(self, step: Step, plan: Plan, outside: Mapping[str, str]) -> "Arena":
        slot = step.scratch or ArenaSlot(0, 0)
        base, part = self._base + slot.offset, slot.part or self._part
        prefix = f"{self._prefix}_{c_identifier(plan.graph.name)}{len(self.inner)}"
        self.inner.append(Arena(self.model, plan, outside, base, prefix, part))
        return self.inner[-1]

    def value(self, name: str) -> str:
        if name in self._plan.homes:
            return self._outside[self._plan.homes[name]]
        return self._address(self._plan.slots[name], self._values[name])

    def home(self, name: str) -> str:
        return self._outside[name]

    def scratch(self, step: Step) -> str:
        """Return the C address of a step's scratch memory; empty if it has none."""
        return self._address(step.scratch, self._scratch[step.name]) if step.scratch is not None else ""

    def apart(self, step: Step) -> str:
        """Return the C address of a step's memory in the NPU's part; empty if it has none."""
        return self._address(step.apart, self._apart[step.name]) if step.apart is not None else ""

    def view(self) -> ArenaView:
        return ArenaView(
            symbol=arena_symbol(self.model),
            macro=arena_macro(self.model),
            size=self._plan.arena,
            places=tuple(self._places()),
            chart=self._chart(""),
            parts=tuple(
                ArenaPartView(
                    name,
                    arena_symbol(self.model, name),
                    arena_macro(self.model, name),
                    part.size,
                    self._chart(name),
                )
                for name, part in self._plan.parts.items()
            ),
        )

    def _chart(self, part: str) -> tuple[str, ...]:
        bars = (
            Bar(life.slot.offset, life.first, life.last, self._constant(life), life.slot.size)
            for life in self._lives()
            if not life.alias_of and life.slot.part == part
        )
        return tuple(line.rstrip() for line in chart(bars, _CHART, len(self._plan.steps)))

    def _address(self, slot: ArenaSlot, constant: str) -> str:
        return f"{arena_macro(self.model, slot.part or self._part)} + {constant}"

    def _lives(self) -> list[Lifetime]:
        lives = lifetimes(self._plan)
        return sorted(lives, key=lambda life: (life.slot.part, life.slot.offset, life.first))

    def _constant(self, life: Lifetime) -> str:
        if not life.is_scratch:
            return self._values[life.name]
        return (self._apart if life.is_apart else self._scratch)[life.name]

    def _places(self) -> Iterator[PlaceView]:
        for life in self._lives():
            yield self._place(life)
        for arena in self.inner:
            yield from arena._places()
        yield from self.states

    def _place(self, life: Lifetime) -> PlaceView:
        value = self._plan.graph.values.get(life.name)
        what = f"{life.slot.size} bytes of scratch of {life.name}"
        if value is not None and not life.is_scratch:
            what = f"{life.name}, {shape_text(value.shape)} {value.dtype.value}"
        what += f", in the part {life.slot.part}" if life.slot.part else ""
        return PlaceView(self._constant(life), self._base + life.slot.offset, comment(what))


def _constants(prefix: str, names: Iterable[str]) -> dict[str, str]:
    identifiers = unique_identifiers(names, upper=True)
    return {name: f"{prefix.upper()}_{identifier}" for name, identifier in identifiers.items()}
