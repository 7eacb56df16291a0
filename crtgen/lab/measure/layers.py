"""Compares a device with the reference, layer by layer."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from crtgen.compiler.codegen.module import ModelInfo
from crtgen.compiler.plan import ArenaSlot, Plan, Step
from crtgen.device.session import Session
from crtgen.lab.measure.cases import FLOAT_TOLERANCE, ReferenceRun
from crtgen.network.ir import Array

__all__ = [
    "LayerVerdict",
    "Wrong",
    "compare_values",
    "states_of",
    "verify_against_host",
    "verify_layers",
]


@dataclass(frozen=True, slots=True)
class Wrong:
    """The first wrong element of a layer's output, and the number of wrong elements.

    ``steps`` is the size of the error: quantisation steps for integers, units in the last place for floats.
    """

    index: tuple[int, ...]
    expected: float
    actual: float
    steps: int
    count: int
    total: int

    def __str__(self) -> str:
        place = ", ".join(map(str, self.index))
        return (
            f"[{place}] expected {self.expected:g}, got {self.actual:g}, {self.steps:,} steps away"
            f" ({self.count:,} of {self.total:,} elements differ)"
        )


@dataclass(frozen=True, slots=True)
class LayerVerdict:
    """A value that a layer computes, and its first difference from the reference, if any."""

    layer: str
    kernel: str
    value: str
    wrong: Wrong | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def verify_layers(
    session: Session,
    plan: Plan,
    cases: Sequence[ReferenceRun],
    say: Callable[[str], None] = lambda text: None,
) -> tuple[LayerVerdict, ...]:
    """Compare each layer's output in the last of these cases with the reference; each case follows the
    previous one.

    The reference computes the rewritten graph. Only the last output of a loop over rows exists, and only the
    result of control flow.
    """
    info = session.model(plan.graph.name)
    steps = {step.name: step for step in plan.steps}
    expected = _values(plan, cases)
    places = [
        [(name, slot.offset, expected[name]) for name, slot in _outputs(plan, steps[layer.name])]
        for layer in info.layers
    ]
    return _compared(session, info, places, cases, say)


def verify_against_host(
    session: Session,
    host: Session,
    model: str,
    cases: Sequence[ReferenceRun],
    say: Callable[[str], None] = lambda text: None,
) -> tuple[LayerVerdict, ...]:
    info = session.model(model)
    runs = [case.inputs for case in cases]
    places = []
    for number, layer in enumerate(info.layers):
        say(f"watching {layer.name} on this computer")
        found = []
        for place in layer.writes:
            wanted = np.empty(place.shape, place.dtype.numpy)
            data = host.watch(runs, number, place.offset, wanted.nbytes, model)
            found.append((place.name, place.offset, np.frombuffer(data, wanted.dtype).reshape(wanted.shape)))
        places.append(found)
    return _compared(session, info, places, cases, say)


def _compared(
    session: Session,
    info: ModelInfo,
    places: Sequence[Sequence[tuple[str, int, Array]]],
    cases: Sequence[ReferenceRun],
    say: Callable[[str], None],
) -> tuple[LayerVerdict, ...]:
    # ``places`` are, for each layer, names, offsets in the arena, and what has to be there.
    runs = [case.inputs for case in cases]
    verdicts = []
    for number, (layer, written) in enumerate(zip(info.layers, places, strict=True)):
        say(f"watching {layer.name}")
        for name, offset, want in written:
            data = session.watch(runs, number, offset, want.nbytes, info.name, cases[0].state)
            have = np.frombuffer(data, want.dtype).reshape(want.shape)
            verdicts.append(LayerVerdict(layer.name, layer.kernel, name, compare_values(want, have)))
    return tuple(verdicts)


def _values(plan: Plan, cases: Sequence[ReferenceRun]) -> dict[str, Array]:
    # Every value in the last of these cases, by the reference.
    graph = plan.graph
    states = states_of(plan, cases[0].state) if cases[0].state else {}
    values: dict[str, Array] = {}
    for case in cases:
        values = graph.evaluate({**states, **dict(zip(graph.inputs, case.inputs, strict=True))})
        states = {before: values[after] for before, after in graph.states}
    return values


def states_of(plan: Plan, data: bytes) -> dict[str, Array]:
    found = {}
    for before, _ in plan.graph.states:
        value, slot = plan.graph.values[before], plan.states[before]
        raw = np.frombuffer(data[slot.offset : slot.offset + value.nbytes], value.dtype.numpy)
        found[before] = raw.reshape(value.shape)
    return found


def _outputs(plan: Plan, step: Step) -> Iterator[tuple[str, ArenaSlot]]:
    # Outputs of a step in the arena; states are elsewhere.
    for name in step.outputs:
        if name in plan.slots and name not in plan.homes:
            yield name, plan.slots[name]


def compare_values(expected: Array, actual: Array) -> Wrong | None:
    """Return the first difference. Integers must be equal; floats may differ by 1e-5 of the largest expected
    value.
    """
    differ = expected != actual
    if expected.dtype.kind == "f":
        both = np.isnan(expected) & np.isnan(actual)
        finite = np.abs(expected[np.isfinite(expected)])
        limit = FLOAT_TOLERANCE * float(finite.max(initial=0.0))
        with np.errstate(invalid="ignore"):
            differ = differ & ~both & ~(np.abs(np.subtract(expected, actual)) <= limit)
    if not differ.any():
        return None
    index = tuple(int(i) for i in np.argwhere(differ)[0])
    want, have = expected[index], actual[index]
    steps = abs(_ordinal(have) - _ordinal(want))
    return Wrong(index, float(want), float(have), steps, int(differ.sum()), expected.size)


def _ordinal(number: Any) -> int:
    # A number's place among all of its type: neighbours differ by 1.
    if number.dtype.kind != "f":
        return int(number)
    bits = int(number.view(f"i{number.dtype.itemsize}"))
    return bits if bits >= 0 else -(bits & ((1 << (8 * number.dtype.itemsize - 1)) - 1))
