"""Drift: does a device still meet the data for which its model was made? References of ``crt/drift.h``, and a
decoder.

A window of runs is counted in bins: elements of the input, the greatest of the scores, by how much it is the
greatest, the entropy of the scores, and what layers have at the ends of their range. The distance of two
counts is the sum of the differences of their bins. An alarm is a window beyond a limit: a distance that usual
windows do not reach. So the question is how far usual windows are from their mean, and the answer depends on
how runs follow each other.

In a recording runs are not independent. A word, a person before the camera, a state of a machine lasts 16
runs, say: a window of 64 has seen four of them, not 64. Windows that are drawn run by run from the recording
are then much closer to the mean than real ones: the limits were so low that a recording, played again, was
beyond them in 75 to 100 % of its windows. Windows are therefore drawn as blocks of consecutive runs (the
circular block bootstrap of Politis and Romano, 1992), each from a random place, the end joined to the
beginning, so that every run is as likely as any other.

How long a block has to be is read from the recording: its correlation time tau = 1 + 2 (rho_1 + rho_2 + ...)
up to the first rho that is noise, where rho_k is the correlation of what runs count with what the k-th run
behind them counts. For classes that last d runs each, rho_k = 1 - k/d, so tau = d. A block is the least
divisor of the window that is 2 tau long or longer, or all of the window. Independent runs have blocks of one
run. Real windows of the recording, from each run on, count as drawn ones: played again, the recording
itself is quiet. The mean is known only as well as N runs show it: distances are taken sqrt(1 + window / N)
times as large.

Inputs in any order, of a calibration for example, are not consecutive: their runs are drawn one by one.

Wide limits find what is grossly wrong in one window, and miss what is a little wrong for ever. That is the
second horizon: ``lasting`` are the distances that 2 % of the usual windows exceed in a part, 10 % at most in
any of the five. Seven such windows of the last sixteen are an alarm, too; if windows are independent that
comes by chance once in 2,000 windows at most: sum of C(16, k) 0.1^k 0.9^(16-k) for k from 7 on is 0.0005.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from crtgen.base.errors import ProtocolError, UnsupportedError, UsageError
from crtgen.base.formats.cbor import parse_cbor
from crtgen.compiler.codegen.drift import LAYERS, PARTS, SIZES, Counted, DriftReference, WatchedLayer
from crtgen.compiler.codegen.module import ModelInfo
from crtgen.compiler.plan import Plan
from crtgen.lab.measure.cases import read_cases, read_inputs
from crtgen.network.ir import Array, DType, Graph, Quant

__all__ = [
    "DriftLayer",
    "DriftWindow",
    "UsualRuns",
    "block_of",
    "ks",
    "make_reference",
    "psi",
    "read_window",
    "run_counts",
    "usual",
    "usual_layers",
    "usual_runs",
]

Counts: TypeAlias = npt.NDArray[np.int64]
_MOST_COUNTED = 0x7FFF
_SAMPLES = 32
# Total over all layers.
_LAYER_SAMPLES = 16

_MOST_SCORES = 128
_AT_ONCE = 10_000
_LEAST_RUNS = 50
_SAFETY = 1.1
# Share of the usual windows that are beyond a part's lasting limit.
_UNUSUAL = 0.02

# Correlations of N independent runs are within this times 1/sqrt(N), mostly.
_NOISE = 2.0

_TYPES = {"int8": (0, 1), "uint8": (0, 0), "int16": (1, 1), "uint16": (1, 0)}


@dataclass(frozen=True, slots=True)
class DriftWindow:
    """Report of a device: the number of complete windows and of those beyond a limit, the last distances, the
    counts since.

    ``lasting`` of the last sixteen windows were unusual; seven are an alarm.
    """

    windows: int
    alarms: int
    distances: tuple[int, ...]
    limits: tuple[int, ...]
    lasting: int
    runs: int
    counts: dict[str, tuple[int, ...]]
    ends: int


@dataclass(frozen=True, slots=True, eq=False)
class DriftLayer:
    """A watched layer: its name, index and arena offset, and its output in each of the runs."""

    name: str
    number: int
    offset: int
    outputs: Sequence[Array]


def make_reference(
    info: ModelInfo,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    layers: Sequence[DriftLayer] = (),
    runs: int = 64,
    windows: int = 1_000_000,
    consecutive: bool = True,
) -> DriftReference:
    """Return the reference of a model, from the first inputs and first outputs of runs on usual data.

    For up to four ``layers``, elements at the ends of their type's range are counted. The limits are 1.1
    times the greatest distance of ``windows`` windows that are drawn from these runs, in blocks if they are
    ``consecutive``. Raises ``UnsupportedError`` for a model that is not quantised, ``UsageError`` for fewer
    than 50 runs.
    """
    x, y = info.inputs[0], info.outputs[0]
    counted = _counted(x.name, inputs[0], _SAMPLES)
    if len(inputs) < _LEAST_RUNS:
        hint = "record more (generate --record 64), or take the data of the calibration"
        raise UsageError(f"{len(inputs)} runs are too few, at least {_LEAST_RUNS} are needed", hint=hint)
    has_scores = y.dtype is DType.INT8 and 1 < outputs[0].size <= _MOST_SCORES
    entropy = _entropies() if has_scores and _is_probability(y.quant) else ()
    watched = [
        WatchedLayer(layer.name, layer.number, layer.offset, _counted(layer.name, layer.outputs[0], each))
        for each in [_LAYER_SAMPLES // max(1, len(layers))]
        for layer in layers
    ]
    counts = _counts(inputs, outputs, counted.step, has_scores, entropy)
    for n, (layer, seen) in enumerate(zip(layers, watched, strict=True)):
        counts["saturated"][:, n] = [_ends(array, seen.values.step) for array in layer.outputs]
    most = max(int(numbers.sum(axis=1).max()) for numbers in counts.values())
    if runs * most > _MOST_COUNTED:
        hint = f"at most {_MOST_COUNTED // most} runs"
        raise UsageError(f"a window of {runs} runs is too long to be counted in 16 bits", hint=hint)
    expected = {part: np.rint(counts[part].mean(axis=0) * runs).astype(np.int64) for part in PARTS}
    block = block_of(list(counts.values()), runs) if consecutive else 1
    found = [_distances(counts[part], expected[part], runs, windows, block, consecutive) for part in PARTS]
    unsure = np.sqrt(1 + runs / len(inputs))
    ends = np.mean([_ends(array, counted.step) for array in inputs]) * runs
    return DriftReference(
        runs=runs,
        input=counted,
        scores=outputs[0].size if has_scores else 0,
        entropy=entropy,
        layers=tuple(watched),
        expected={part: tuple(map(int, expected[part])) for part in PARTS},
        ends=round(float(ends)),
        limits=tuple(int(np.ceil(_SAFETY * unsure * max(map(np.max, d)))) for d in found),
        lasting=tuple(int(np.ceil(unsure * max(np.quantile(e, 1 - _UNUSUAL) for e in d))) for d in found),
    )


def run_counts(
    reference: DriftReference, inputs: Sequence[Array], outputs: Sequence[Array]
) -> dict[str, Counts]:
    """Return the counts that a device would have, by part, with a row for each run. Layers are left out."""
    return _counts(inputs, outputs, reference.input.step, reference.scores > 0, reference.entropy)


def _counts(
    inputs: Sequence[Array], outputs: Sequence[Array], step: int, has_scores: bool, entropy: Sequence[int]
) -> dict[str, Counts]:
    counts = {part: np.zeros((len(inputs), size), np.int64) for part, size in SIZES.items()}
    counts["inputs"] = np.stack([_bins(array, step) for array in inputs])
    return counts | (_scores(outputs, entropy) if has_scores else {})


def usual(path: Path, info: ModelInfo, plan: Plan, layers: Sequence[str] = ()) -> DriftReference:
    found = usual_runs(path, info, plan.graph)
    watched = usual_layers(info, plan, layers, found.inputs)
    return make_reference(info, found.inputs, found.outputs, watched, consecutive=found.consecutive)


@dataclass(frozen=True, slots=True, eq=False)
class UsualRuns:
    """First inputs and first outputs of runs; ``consecutive``: in the order in which they happened."""

    inputs: list[Array]
    outputs: list[Array]
    consecutive: bool


def usual_runs(path: Path, info: ModelInfo, graph: Graph) -> UsualRuns:
    """Return the runs in a file of cases, of a recording, or of inputs alone.

    For inputs alone, the numpy reference computes the outputs, each input by itself. Cases are consecutive;
    inputs alone, such as calibration data, may be in any order.
    """
    try:
        cases = read_cases(path, info.inputs, info.outputs)
    except UsageError:
        given = read_inputs(path, info.inputs)
        inputs = [run[0] for run in given.runs]
        outputs = [next(iter(graph.run([run])))[0] for run in given.runs]
        return UsualRuns(inputs, outputs, False)
    return UsualRuns([case.inputs[0] for case in cases], [case.outputs[0] for case in cases], True)


def usual_layers(
    info: ModelInfo, plan: Plan, names: Sequence[str], inputs: Sequence[Array]
) -> tuple[DriftLayer, ...]:
    """Return the layers with these names, and their values for the first inputs, by the numpy reference.

    Raises ``UsageError`` for more than four, for a name that no layer has, or for a layer whose output is
    never complete in the arena.
    """
    if len(names) > LAYERS:
        raise UsageError(
            f"{len(names)} layers; supported here: {LAYERS}", hint=f"name at most {LAYERS} layers"
        )
    if names and len(info.inputs) != 1:
        raise UnsupportedError("--watch-layers needs a network with one input", where=info.name)
    known = {layer.name: number for number, layer in enumerate(info.layers)}
    steps = {step.name: step for step in plan.steps}
    values = [plan.graph.evaluate({plan.graph.inputs[0]: array}) for array in inputs] if names else []
    found = []
    for name in names:
        if name not in known:
            raise UsageError(f"no layer is called {name}", where=info.name, hint=f"known: {', '.join(known)}")
        left = [o for o in steps[name].outputs if o in plan.slots and o not in plan.homes]
        if not left:
            raise UsageError(
                "the layer leaves nothing in the arena", where=name, hint="name the previous layer"
            )
        outputs = [each[left[-1]] for each in values]
        found.append(DriftLayer(name, known[name], plan.slots[left[-1]].offset, outputs))
    return tuple(found)


def _counted(name: str, array: Array, samples: int) -> Counted:
    # About ``samples`` elements of an array are counted.
    kind = array.dtype.name
    if kind not in _TYPES:
        raise UnsupportedError(f"only elements of 8 and 16 bits can be counted, not {kind}", where=name)
    return Counted(array.size, max(1, array.size // samples), *_TYPES[kind])


def _is_probability(quant: Quant | None) -> bool:
    # A softmax's output: 256ths from -128 on.
    return quant is not None and quant.scales == (1 / 256,) and quant.zero_points == (-128,)


def _entropies() -> tuple[int, ...]:
    # 256 times -p log2(p) of 0/256, 1/256, ... 255/256.
    p = np.arange(1, 256) / 256
    return (0, *(int(n) for n in np.rint(-256 * p * np.log2(p))))


def _bins(array: Array, step: int) -> Counts:
    # Elements in sixteenths of the range of their type.
    info = np.iinfo(array.dtype.name)
    places = (array.reshape(-1)[::step].astype(np.int64) - info.min) >> (info.bits - 4)
    return np.bincount(places, minlength=16)


def _ends(array: Array, step: int) -> int:
    info, taken = np.iinfo(array.dtype.name), array.reshape(-1)[::step]
    return int(((taken == info.min) | (taken == info.max)).sum())


def _scores(outputs: Sequence[Array], entropy: Sequence[int]) -> dict[str, Counts]:
    flat = np.stack([array.reshape(-1) for array in outputs]).astype(np.int64)
    best = np.minimum(flat.argmax(axis=1), 7)
    two = np.sort(flat, axis=1)[:, -2:]
    margins = (two[:, 1] - two[:, 0]) // 32
    rows = np.arange(8)
    return {
        "classes": (best[:, None] == rows).astype(np.int64),
        "margins": (margins[:, None] == rows).astype(np.int64),
        "entropy": np.array(entropy or [0] * 256)[flat + 128].sum(axis=1, keepdims=True) // 4,
    }


def block_of(parts: Sequence[Counts], runs: int) -> int:
    """Return the runs of a block: twice the correlation time of the counted values, as a divisor of the
    window.
    """
    wanted = 2 * max(map(_correlation_time, parts))
    return next(n for n in range(1, runs + 1) if runs % n == 0 and (n >= wanted or n == runs))


def _correlation_time(counts: Counts) -> float:
    # 0.5 for runs that tell nothing of each other, so that a block is one run; d for what lasts d runs.
    centred = counts - counts.mean(axis=0)
    whole = float((centred**2).sum())
    total, count = 1.0, len(counts)
    for lag in range(1, count // 3):
        share = float((centred[lag:] * centred[:-lag]).sum()) / whole if whole else 0.0
        if share <= _NOISE / count**0.5:
            break
        total += 2 * share
    return total if total > 1 else 0.5


def _distances(
    counts: Counts, expected: Counts, runs: int, windows: int, block: int, consecutive: bool
) -> list[npt.NDArray[np.float32]]:
    # Distances of windows that are drawn with a seed, and of the real ones if runs are consecutive.
    found = [_drawn(counts, expected, runs, windows, block)]
    if consecutive:
        real = _sums(counts, runs)
        found.append(np.abs(real - expected).sum(axis=1).astype(np.float32))
    return found


def _sums(counts: Counts, length: int) -> Counts:
    # Sum ``length`` consecutive runs from each run on; the first follows the last.
    laps = -(-length // len(counts)) + 1
    running = np.zeros((laps * len(counts) + 1, counts.shape[1]), np.int64)
    running[1:] = np.cumsum(np.tile(counts, (laps, 1)), axis=0)
    sums: Counts = running[length : length + len(counts)] - running[: len(counts)]
    return sums


def _drawn(counts: Counts, expected: Counts, runs: int, windows: int, block: int) -> npt.NDArray[np.float32]:
    # Windows of blocks from random places, summed block by block for 10,000 windows at once. Drawing from a
    # multinomial distribution how often each kind of block occurs takes up to 60 times as long.
    blocks, rng, found = _sums(counts, block).astype(np.float32), np.random.default_rng(0), []
    for start in range(0, windows, _AT_ONCE):
        distance = np.tile(-expected.astype(np.float32), (min(_AT_ONCE, windows - start), 1))
        for places in rng.integers(len(blocks), size=(runs // block, len(distance))):
            distance += blocks.take(places, axis=0)
        found.append(np.abs(distance).sum(axis=1))
    return np.concatenate(found)


def read_window(data: bytes) -> DriftWindow:
    """Read the output of ``crt_drift_cbor``. Raises ``ProtocolError`` for anything else."""
    try:
        found = parse_cbor(data)
        if not isinstance(found, dict):
            raise ValueError
        return DriftWindow(
            windows=_number(found["windows"]),
            alarms=_number(found["alarms"]),
            distances=_numbers(found["distances"]),
            limits=_numbers(found["limits"]),
            lasting=_number(found["lasting"]),
            runs=_number(found["runs"]),
            counts={part: _numbers(found[part]) for part in PARTS},
            ends=_number(found["ends"]),
        )
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ProtocolError("the counts of the device cannot be read") from error


def _numbers(item: Any) -> tuple[int, ...]:
    return tuple(map(_number, item)) if isinstance(item, list) else (_number(item),)


def _number(item: Any) -> int:
    if not isinstance(item, int):
        raise ValueError("expected an integer")
    return item


def psi(counts: Sequence[int], expected: Sequence[int]) -> float:
    """Return the population stability index: 0 for equal distributions; 0.25 is a common limit for a
    shift.
    """
    have, want = (np.asarray(numbers, np.float64) + 0.5 for numbers in (counts, expected))
    have, want = have / have.sum(), want / want.sum()
    return float(((have - want) * np.log(have / want)).sum())


def ks(counts: Sequence[int], expected: Sequence[int]) -> float:
    """Return the Kolmogorov-Smirnov statistic: the greatest difference of the cumulative distributions."""
    have, want = (np.cumsum(numbers) / max(1, sum(numbers)) for numbers in (counts, expected))
    return float(np.abs(have - want).max())
