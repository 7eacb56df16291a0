"""Mutated models that are accepted: their C under the sanitizers, its outputs against the reference."""

import subprocess
import time
from hashlib import sha256
from math import prod
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TypeAlias

import numpy as np

from crtgen.base.errors import CrtgenError
from crtgen.compiler.kernels import Target
from crtgen.compiler.plan import Plan
from crtgen.network.frontends import load_tflite
from crtgen.network.ir import Array, DType, Graph, Value
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.compiler.kernels.program import Run, check_outputs, plan_runs, run_plans_on_host
from tests.fuzz.engine import Outcome
from tests.fuzz.mutate import mutate_bytes
from tests.fuzz.targets import model_seeds

__all__ = ["compare_mutants"]

Planned: TypeAlias = tuple[Run, Plan]

_BATCH = 80
_MOST_BYTES, _MOST_MACS, _LARGEST = 20_000, 300_000, 1e4
_FLAGS = ("-Wno-error", "-w")


def compare_mutants(*, seed: int, inputs: int = 0, seconds: float = 0.0, batch: int = _BATCH) -> Outcome:
    """Until ``inputs`` accepted mutants have been compared, or for so long; ``accepted`` counts those."""
    outcome = Outcome()
    random = Random(f"compared {seed}")
    seen: set[bytes] = set()
    end = time.monotonic() + seconds
    while outcome.accepted < inputs or (not inputs and time.monotonic() < end):
        runs: list[tuple[bytes, Planned]] = []
        while len(runs) < batch:
            outcome.inputs += 1
            data = mutate_bytes(random, random.choice(model_seeds()[:-1]), random.choice(model_seeds()[:-1]))
            run = _run(data, len(runs), random, seen)
            if run is not None:
                runs.append((data, run))
        _compare(runs, outcome)
        outcome.accepted += len(runs)
    return outcome


def _run(data: bytes, number: int, random: Random, seen: set[bytes]) -> Planned | None:
    """An inference of the mutant; None if it is refused, too large to be quick, or was there before."""
    try:
        graph = load_tflite(data, f"n{number}")
    except CrtgenError:
        return None
    if not _is_small(graph):
        return None
    digest = sha256(str(graph).encode())
    for value in graph.values.values():
        digest.update(value.data.tobytes() if value.data is not None else b"")
    if digest.digest() in seen:
        return None
    seen.add(digest.digest())
    folded, _ = run_passes(graph, DEFAULT_PASSES)
    run = Run(f"n{number}", folded, {n: _random(random, graph.values[n]) for n in graph.inputs})
    try:
        return plan_runs([run], Target())[0]
    except CrtgenError:
        return None


def _is_small(graph: Graph) -> bool:
    macs = sum(node.op.macs(graph.signature(node)) for node in graph.nodes)
    macs += sum(prod(getattr(node.op, "window", ())) for node in graph.nodes) * 1000
    sane = all(
        v.data is None or not v.dtype.name.startswith("FLOAT") or bool((np.abs(v.data) < _LARGEST).all())
        for v in graph.values.values()
    )
    return sane and macs <= _MOST_MACS and sum(v.nbytes for v in graph.values.values()) <= _MOST_BYTES


def _random(random: Random, value: Value) -> Array:
    rng = np.random.default_rng(random.randrange(1 << 32))
    if value.dtype is DType.FLOAT32:
        return rng.uniform(-2, 2, value.shape).astype(np.float32)
    if value.dtype is DType.BOOL:
        return rng.integers(0, 2, value.shape).astype(np.bool_)
    info = np.iinfo(value.dtype.value)
    return rng.integers(info.min, info.max, value.shape, dtype=value.dtype.value, endpoint=True)


def _compare(runs: list[tuple[bytes, Planned]], outcome: Outcome) -> None:
    """All in one program; where that fails, its halves."""
    try:
        with TemporaryDirectory(prefix="fuzz-") as folder:
            printed = run_plans_on_host(Path(folder), [run for _, run in runs], _FLAGS)
    except (subprocess.SubprocessError, CrtgenError, AssertionError) as error:
        if len(runs) > 1:
            half = len(runs) // 2
            _compare(runs[:half], outcome)
            _compare(runs[half:], outcome)
        else:
            wrong = f"{error}\n{getattr(error, 'stderr', '') or ''}\n{runs[0][1][0].graph}"
            outcome.found.setdefault(f"{sha256(runs[0][0]).hexdigest()[:12]} stopped", (runs[0][0], wrong))
        return
    for (data, (run, _)), out in zip(runs, printed, strict=True):
        wrong = check_outputs(run, out)
        if wrong:
            outcome.found.setdefault(
                f"{sha256(data).hexdigest()[:12]} differs", (data, f"{wrong}\n{run.graph}")
            )
