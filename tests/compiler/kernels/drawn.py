"""Draws layers with hypothesis, runs them many at a time, and shrinks the first that is wrong."""

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure, Unsatisfiable

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Kernel, Target, applicable
from crtgen.compiler.kernels.engine.registry import RegisteredDesign, registered
from crtgen.compiler.level import find_level
from crtgen.network.ops import Case
from tests.compiler.kernels.harness import MACHINES, Job, batches, describe, guarded, run_jobs

__all__ = ["Layer", "Trial", "check", "covering", "draw", "drawn", "name", "package"]

_LAYERS = 50  # that run together
_CHOSEN = "chosen:"
_EACH = 2  # layers of a design

_log = logging.getLogger(__name__)


@dataclass
class Trial:
    """Runs layers on a core's machine, generated for a level of optimisation.

    ``packages`` are those of the designs that always run; of others, only what is chosen does. ``hits``
    counts how often each function of a design of it gave a kernel, and each kernel by its name; behind
    ``_CHOSEN``, kernels of other packages that were chosen.
    """

    core: str
    optimize: str
    packages: tuple[str, ...]
    folder: Path
    hits: Counter[str] = field(default_factory=Counter)

    def jobs(self, case: Case) -> list[Job]:
        """The kernels of the layer that are to run."""
        target = Target(find_core(self.core), self.optimize)
        own: list[Kernel] = []
        for entry in registered(type(case.op)):
            kernel = entry.kernel(case.op, case.sig, target)
            if kernel is not None and package(entry) in self.packages:
                own.append(kernel)
                self.hits[name(entry)] += 1
                self.hits[kernel.design] += 1
        chosen = applicable(case.op, case.sig, target)[0]
        same = any((k.template, k.view) == (chosen.template, chosen.view) for k in own)
        if not same:
            self.hits[f"{_CHOSEN} {chosen.design}"] += 1
        kernels = [k for k in (own if same else [*own, chosen]) if not k.is_alias]
        return [Job(case, k, seed) for seed, k in enumerate(kernels)]

    def run(self, cases: Sequence[Case]) -> list[str]:
        """What is wrong with each layer; empty where it is right."""
        texts, flag = [""] * len(cases), find_level(self.optimize).flag
        walled, spacious = guarded(self.core), MACHINES[self.core]
        jobs = {job: i for i, case in enumerate(cases) for job in self.jobs(case)}
        for machine in dict.fromkeys([walled, spacious]):
            fit = [job for job in jobs if (job.arena <= walled.room) == (machine is walled)]
            for batch in batches(fit):
                for job, result in zip(batch, run_jobs(batch, self.folder, machine, flag), strict=True):
                    if result.wrong:
                        texts[jobs[job]] += f"{job.kernel.design}: {'; '.join(result.wrong)}\n"
        return [f"{describe(c)}\n{text}" if text else "" for c, text in zip(cases, texts, strict=True)]


def package(entry: RegisteredDesign) -> str:
    """The package of a design's function: ``crtgen.compiler.kernels.mve``."""
    return entry.function.__module__.rpartition(".")[0]


def name(entry: RegisteredDesign) -> str:
    """The function of a design: ``crtgen.compiler.kernels.portable.gemm.conv2d``."""
    return f"{entry.function.__module__}.{entry.function.__name__}"


@dataclass(frozen=True, eq=False)
class Layer:
    """What a seed draws from ``layers``."""

    layers: st.SearchStrategy[Case]
    seed: int
    case: Case


def drawn(layers: st.SearchStrategy[Case], number: int) -> Iterator[Layer]:
    """The layers of the seeds from ``number`` on, without end."""
    for seed_ in count(number):
        case = draw(layers, seed_)
        if case is not None:
            yield Layer(layers, seed_, case)


def covering(layers: Iterable[Layer], least: int, wanted: Collection[str], trial: Trial) -> list[Layer]:
    """The first ``least`` of the layers, and of the others those that hit what is wanted and was seldom hit.

    So do designs of other packages that are chosen for a layer, as those of DSP for a core with Helium.

    Ends with the layers where some of it is never hit.
    """
    found, before = [], Counter({name: -trial.hits[name] for name in wanted})
    for number, layer in enumerate(layers):
        seldom = [name for name in wanted if trial.hits[name] + before[name] < _EACH]
        if number >= least and not seldom:
            break
        known = trial.hits.copy()
        trial.jobs(layer.case)
        chosen = [name for name in trial.hits if name.startswith(_CHOSEN) and not known[name]]
        if number < least or any(trial.hits[name] > known[name] for name in (*seldom, *chosen)):
            found.append(layer)
    return found


def check(layers: Sequence[Layer], trial: Trial) -> None:
    """Fail unless all layers are right; shrinks the first wrong one."""
    wrong: list[tuple[Layer, str]] = []
    for start in range(0, len(layers), _LAYERS):
        part = layers[start : start + _LAYERS]
        texts = trial.run([layer.case for layer in part])
        wrong += [(layer, text) for layer, text in zip(part, texts, strict=True) if text]
        _log.info("%s %s: %d layers, %d wrong", trial.core, trial.optimize, start + len(part), len(wrong))
    if wrong:
        found = "\n".join(f"seed {layer.seed}: {text}" for layer, text in wrong[:10])
        first = wrong[0][0]
        small = _smallest(first.layers, first.seed, trial)
        pytest.fail(f"{len(wrong)} of {len(layers)} layers are wrong\n{found}\nthe first one shrunk: {small}")


def draw(layers: st.SearchStrategy[Case], number: int) -> Case | None:
    """The layer of a seed, if there is one: hypothesis draws the simplest there is, then any."""
    drawn: list[Case] = []
    with contextlib.suppress(Unsatisfiable):
        _examples(layers, number, drawn.append, Phase.generate)
    return drawn[1] if len(drawn) > 1 else None


def _smallest(layers: st.SearchStrategy[Case], number: int, trial: Trial) -> str:
    """What is wrong with the smallest kin of a seed's layer; each runs in an image of its own."""
    smallest = "it is right in an image of its own"

    def single(case: Case) -> None:
        nonlocal smallest
        (text,) = trial.run([case])
        smallest = text or smallest
        assert not text

    with contextlib.suppress(AssertionError, FlakyFailure):
        _examples(layers, number, single, Phase.generate, Phase.shrink)
    return smallest


def _examples(
    layers: st.SearchStrategy[Case], number: int, each: Callable[[Case], None], *phases: Phase
) -> None:
    """``each`` of two layers, which the seed determines.

    The second one departs from the first at its first choice, which therefore is one that means nothing.
    """

    @seed(number)
    @settings(
        max_examples=2,
        phases=phases,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 1 << 60), layers)
    def once(_: int, case: Case) -> None:
        each(case)

    once()
