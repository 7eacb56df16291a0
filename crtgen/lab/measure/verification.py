"""Comparison of a device's outputs with the expected ones."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from crtgen.api import Imported, Model, load
from crtgen.base.errors import UsageError
from crtgen.compiler.codegen.module import Interface, ModelInfo
from crtgen.device.session import Session
from crtgen.lab.measure.cases import (
    Difference,
    ReferenceRun,
    case_name,
    compare,
    largest_outputs,
    random_inputs,
    read_cases,
)
from crtgen.network import frontends
from crtgen.network.ir import Graph
from crtgen.network.passes import Sliding, channels_last, start_of_signal, turned_shape, with_io

__all__ = ["Verdict", "cases_of", "verify", "verify_cases"]

_STEPS = 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """A case, and the first difference in the device's output, if any."""

    case: str
    difference: Difference | None
    model: str = ""


def cases_of(
    models: Sequence[ModelInfo],
    source: Path,
    expect: Path | None = None,
    count: int = 4,
    sliding: Sliding | None = None,
) -> dict[str, tuple[ReferenceRun, ...]]:
    """Return cases for each model of an image, by its name.

    They come from the file ``expect``, in which cases of several models are called ``<model>.case0_...``.
    Without that file, they are ``count`` random inputs, whose outputs the numpy reference computes from the
    model ``source``: sequences of four runs for a model with states; for a ``sliding`` one, windows over a
    random signal from its start until four of them are full.
    """
    found = {}
    for info in models:
        prefix = f"{info.name}." if len(models) > 1 else ""
        found[info.name] = (
            _reference_cases(source, info, count, sliding)
            if expect is None
            else read_cases(expect, info.inputs, info.outputs, prefix)
        )
    return found


def verify(
    session: Session,
    source: Path,
    expect: Path | None = None,
    cases: int = 4,
    say: Callable[[str], None] = lambda text: None,
    sliding: Sliding | None = None,
) -> tuple[Verdict, ...]:
    """Run cases of every model of an image on a device and compare the outputs; see ``cases_of``."""
    return verify_cases(session, cases_of(session.models, source, expect, cases, sliding), say)


def verify_cases(
    session: Session,
    cases: Mapping[str, Sequence[ReferenceRun]],
    say: Callable[[str], None] = lambda text: None,
) -> tuple[Verdict, ...]:
    verdicts = []
    for info in session.models:
        chosen = cases[info.name]
        largest = largest_outputs(chosen)
        for case in chosen:
            say(f"verifying {info.name} {case.name}")
            if not case.follows:
                session.reset(model=info.name)
            if case.state:
                session.set_state(case.state, model=info.name)
            outputs = session.infer(*case.inputs, model=info.name)
            difference = compare(info.outputs, case.outputs, outputs, largest)
            verdicts.append(Verdict(case.name, difference, info.name))
    return tuple(verdicts)


def _reference_cases(
    source: Path, info: ModelInfo, count: int, sliding: Sliding | None
) -> tuple[ReferenceRun, ...]:
    loaded = None if source.is_dir() else load(source)
    if isinstance(loaded, Imported):
        loaded = next((network for network in loaded.networks() if network.name == info.name), None)
    if loaded is None:
        raise UsageError("code has no reference to compare with", where=str(source), hint="give --expect")
    interfaces = info.inputs
    model = _with_ends_of(info, loaded)
    shapes = {i.name: i.shape for i in interfaces}
    if sliding is not None:
        (x,) = model.inputs
        shapes = {x.name: _with_length(shapes[x.name], sliding.axis, x.shape[sliding.axis])}
    if [v.shape for v in model.inputs] != list(shapes.values()):
        model = Model(frontends.load(source, shapes=shapes))
    if sliding is not None:
        windows = partial(_windows, model.graph, interfaces, sliding)
        return tuple(case for seed in range(count) for case in windows(seed))
    return tuple(case for seed in range(count) for case in _reference_runs(model.graph, interfaces, seed))


def _with_ends_of(info: ModelInfo, model: Model) -> Model:
    # The model with inputs and outputs of the types and the order of axes that those of the image have.
    ends, graph = (*info.inputs, *info.outputs), model.graph
    if len(ends) != len(model.inputs) + len(model.outputs):
        return model
    pairs = list(zip(ends, (*model.inputs, *model.outputs), strict=True))
    if any(end.shape != value.shape and end.shape == turned_shape(value.shape) for end, value in pairs):
        graph = channels_last(graph)
    other = next((end.dtype for end, value in pairs if end.dtype is not value.dtype), None)
    return Model(graph if other is None else with_io(graph, other))


def _with_length(shape: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    return (*shape[:axis], length, *shape[axis + 1 :])


def _windows(
    graph: Graph, interfaces: Sequence[Interface], sliding: Sliding, seed: int
) -> Iterator[ReferenceRun]:
    # Runs that get a step of a random signal each; the whole network computes each window of it.
    value, axis = graph.values[graph.inputs[0]], sliding.axis
    window = np.full(value.shape, start_of_signal(value), value.dtype.numpy)
    count = -(-value.shape[axis] // sliding.step) + _STEPS
    for step in range(count):
        given = random_inputs(interfaces, seed * count + step)
        both = np.concatenate([window, *given], axis)
        window = np.take(both, range(sliding.step, both.shape[axis]), axis)
        (outputs,) = graph.run([(window,)])
        yield ReferenceRun(case_name(f"random{seed}", step), given, outputs, step > 0)


def _reference_runs(graph: Graph, interfaces: Sequence[Interface], seed: int) -> Iterator[ReferenceRun]:
    # A run on random inputs; several, where anything is kept from run to run.
    steps = _STEPS if graph.states else 1
    inputs = [random_inputs(interfaces, seed * steps + step) for step in range(steps)]
    for step, (given, outputs) in enumerate(zip(inputs, graph.run(inputs), strict=True)):
        yield ReferenceRun(
            case_name(f"random{seed}", step if graph.states else None), given, outputs, step > 0
        )
