"""The lock: a committed file of what was generated and measured for each model on each board.

A budget is a limit that somebody sets; the lock is the last state. ``crtgen check`` compares models with
both.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from crtgen import api
from crtgen.api.image import require_trust
from crtgen.api.report import Report
from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.base.quality import QUALITY
from crtgen.device.run import Site
from crtgen.firmware.builder import find_toolchain
from crtgen.lab.measure.benchmark import build_for, measure_model
from crtgen.lab.settings import METRICS

__all__ = [
    "LOCK",
    "RESOLUTION",
    "Excess",
    "Lock",
    "LockEntry",
    "compare",
    "figures_of",
    "instructions_of_layers",
    "lock_entry",
    "over",
    "read_lock",
    "source_of",
    "write_lock",
]

LOCK = "crtgen.lock.json"
VERSION = 1
"""Counts the layouts of the file. A file without it is of version 1."""

TOLERANCE = 0.005
"""A figure may exceed its locked value by this fraction."""

RESOLUTION = 100
"""A figure may exceed its locked value by this much in any case, since timers do not count every
instruction.
"""


@dataclass(frozen=True, slots=True)
class LockEntry:
    """A model on a board: ``figures`` by metric, ``layers`` instructions by layer.

    ``digest`` is that of a server project, which contains everything generated. Equal digests and
    ``toolchain`` mean equal figures. ``proof`` is the digest of everything that a proof of its image depends
    on; empty without one. ``quality`` is the result of ``evaluate`` on the model's labelled data.
    """

    model: str
    board: str
    optimize: str
    digest: str
    toolchain: str
    figures: Mapping[str, int]
    layers: Mapping[str, int]
    proof: str = ""
    quality: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.model, self.board, self.optimize

    @property
    def source(self) -> tuple[str, str]:
        return self.digest, self.toolchain


@dataclass(frozen=True, slots=True)
class Lock:
    """All entries of a file, and the tolerance by which a figure may exceed the locked one.

    The same model has different figures with different compilers. A team with several compilers keeps an
    entry for each.
    """

    entries: tuple[LockEntry, ...] = ()
    tolerance: float = TOLERANCE

    def find(self, key: tuple[str, str, str], toolchain: str) -> LockEntry | None:
        """Return the entry of a model, board and level: this toolchain's, or else that of another."""
        found = [entry for entry in self.entries if entry.key == key]
        return next((entry for entry in found if entry.toolchain == toolchain), found[-1] if found else None)

    def updated(self, measured: Sequence[LockEntry]) -> "Lock":
        """Return the lock with the entries of these models, boards, levels and toolchains replaced."""
        table = {(*entry.key, entry.toolchain): entry for entry in (*self.entries, *measured)}
        return replace(self, entries=tuple(table[key] for key in sorted(table)))


@dataclass(frozen=True, slots=True)
class Excess:
    """A figure above its limit. ``blame`` names the layers that became slower, the worst first."""

    model: str
    board: str
    metric: str
    allowed: int
    actual: int
    blame: tuple[tuple[str, int, int], ...] = ()

    def __str__(self) -> str:
        more = f"{(self.actual - self.allowed) / max(self.allowed, 1):+.1%}"
        where = f"{self.model} on {self.board}: {self.metric}"
        lines = [f"{where} {self.actual:,}, allowed {self.allowed:,} ({more})"]
        for layer, before, after in self.blame:
            lines.append(f"  {layer}: {after:,} instructions, before {before:,} ({after - before:+,})")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        blame = [{"layer": name, "before": before, "after": after} for name, before, after in self.blame]
        return {**asdict(self), "blame": blame}


def source_of(compiled: api.Compiled) -> tuple[str, str]:
    """Return the digest and the toolchain that an entry of this model on this board would have."""
    require_trust(compiled.untrusted)
    project = compiled.generate("server").project
    name = project.manifest.toolchain
    return project.digest, find_toolchain(name).version


def lock_entry(compiled: api.Compiled) -> LockEntry:
    """Measure on a simulator, on this computer, or on a simulated board with the same core.

    For a board that is not connected, the image is built; if no simulator has its core, time is the plan's
    estimate.
    """
    digest, toolchain = source_of(compiled)
    if _is_measured(compiled):
        report = measure_model(compiled, site=Site(simulate=True))
        figures = figures_of(report)
    else:
        report, figures = _figures_elsewhere(compiled)
    layers = instructions_of_layers(report)
    name, board, level = report.model, compiled.board.name, report.optimize
    return LockEntry(name, board, level, digest, toolchain, figures, layers)


def _figures_elsewhere(compiled: api.Compiled) -> tuple[Report, dict[str, int]]:
    # Sizes of the board's own image, instructions of an emulator's with the same core and kernels.
    built = build_for(compiled)
    (report,) = built.reports
    if built.path.suffix == ".a":  # there is nothing around it, and no stack
        report = replace(report, image=None, flash_bytes=built.size.sizes.flash)
    figures = figures_of(report)
    if compiled.stand_in is None:
        return report, figures
    report = measure_model(compiled.stand_in)
    assert report.instructions is not None
    figures |= {"instructions": report.instructions}
    return report, {metric: figures[metric] for metric in METRICS if metric in figures}


def figures_of(report: Report) -> dict[str, int]:
    figures = ((metric, getattr(report, metric)) for metric in METRICS)
    return {metric: value for metric, value in figures if value is not None}


def instructions_of_layers(report: Report) -> dict[str, int]:
    counts = ((o.name, o.instructions) for layer in report.layers for o in layer.operators)
    return {name: count for name, count in counts if count is not None}


def _is_measured(compiled: api.Compiled) -> bool:
    board = compiled.board
    return board.is_host or (board.simulator in ("QEMU", "FVP") and "baremetal" in board.platforms)


def compare(before: LockEntry, after: LockEntry, tolerance: float = TOLERANCE) -> tuple[Excess, ...]:
    found = []
    for metric, allowed in before.figures.items():
        actual = after.figures.get(metric, allowed)
        if actual - allowed > max(tolerance * allowed, RESOLUTION):
            blame = _blame(before, after) if metric == "instructions" else ()
            found.append(Excess(after.model, after.board, metric, allowed, actual, blame))
    return tuple(found)


def over(budget: Mapping[str, int], entry: LockEntry, before: LockEntry | None = None) -> tuple[Excess, ...]:
    """Return the figures above a budget; layers are blamed by their share in ``before``."""
    found = []
    for metric, allowed in budget.items():
        actual = entry.figures.get(metric)
        if actual is None:
            raise UsageError(
                f"the lock has no figure {metric}",
                where=f"{entry.model} on {entry.board}",
                hint="crtgen check --update writes the lock anew",
            )
        if actual > allowed:
            blame = _blame(before or replace(entry, layers={}), entry) if metric == "instructions" else ()
            found.append(Excess(entry.model, entry.board, metric, allowed, actual, blame))
    return tuple(found)


def _blame(before: LockEntry, after: LockEntry) -> tuple[tuple[str, int, int], ...]:
    # Layers that need more than they did; one that is new, or has another name, needed nothing.
    pairs = ((name, before.layers.get(name, 0), count) for name, count in after.layers.items())
    worse = [(name, old, new) for name, old, new in pairs if new - old > RESOLUTION]
    return tuple(sorted(worse, key=lambda row: row[1] - row[2]))


def read_lock(path: Path) -> Lock:
    """Read the file. Raises ``UsageError`` naming an error in it."""
    hint = "crtgen check --update writes it anew"
    try:
        data = json.loads(files.read_text(path, "the lock"))
        if data.get("version", 1) != VERSION:
            newer = f"the lock is of version {data['version']}, this crtgen reads version {VERSION}"
            raise UsageError(newer, where=str(path), hint="pip install --upgrade crtgen")
        entries = tuple(_entry(raw) for raw in data["entries"])
        tolerance = data["tolerance"]
        if type(tolerance) not in (int, float) or not 0 <= tolerance < 1:
            raise ValueError("the tolerance is a part of one, 0.005 for example")
        return Lock(entries, float(tolerance))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"the lock cannot be read: {error}", where=str(path), hint=hint) from error


def _entry(raw: Any) -> LockEntry:
    entry = LockEntry(**raw)
    texts = (entry.model, entry.board, entry.optimize, entry.digest, entry.toolchain, entry.proof)
    numbers = {**entry.figures, **entry.layers}
    if not all(isinstance(text, str) for text in texts) or not all(type(n) is int for n in numbers.values()):
        raise ValueError("names are texts, figures are integers")
    if not all(type(n) in (int, float) for n in entry.quality.values()):
        raise ValueError("how good it is are numbers")
    if unknown := sorted((set(entry.figures) - set(METRICS)) | (set(entry.quality) - set(QUALITY))):
        raise ValueError(f"there is no figure {unknown[0]}")
    return entry


def _written(entry: LockEntry) -> dict[str, Any]:
    return {key: value for key, value in asdict(entry).items() if key not in ("proof", "quality") or value}


def write_lock(path: Path, lock: Lock) -> None:
    """Write the file; equal locks give equal bytes. Raises ``UsageError`` if it cannot be written."""
    data = {
        "version": VERSION,
        "tolerance": lock.tolerance,
        "entries": [_written(entry) for entry in lock.entries],
    }
    files.write(path, (json.dumps(data, indent=1) + "\n").encode())
