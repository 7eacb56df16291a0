"""Content of a page: a model on boards, measured and verified on those that can be simulated."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Unpack

from crtgen import api
from crtgen.api.report import Report
from crtgen.base import files
from crtgen.base.errors import ToolMissingError, UsageError
from crtgen.base.version import __version__
from crtgen.boards import Board
from crtgen.compiler.level import LEVELS
from crtgen.compiler.plan import Plan
from crtgen.compiler.request import RequestFields
from crtgen.device.run import Site
from crtgen.firmware.library import export_time
from crtgen.lab.measure.benchmark import measure_model
from crtgen.lab.measure.evaluation import Evaluation, evaluate_here
from crtgen.lab.measure.fit import Fit, FitChoice, Fits, boards_for
from crtgen.lab.measure.targets import TargetOutcome, verify_on
from crtgen.network.passes import FoldedLayer, Rewrite

__all__ = ["OnBoard", "Study", "read_baseline", "study"]


@dataclass(frozen=True, slots=True, eq=False)
class OnBoard:
    """A model on a board: measured if a simulator supports the board, otherwise as planned.

    ``levels`` are the reports at each optimisation level, empty if nothing is measured; ``verified`` is the
    result of its cases on a simulator of the board or of the same core. ``fit`` is its size there.
    """

    report: Report
    fit: Fit | None
    compiled: api.Compiled
    levels: tuple[Report, ...]
    verified: TargetOutcome

    @property
    def plan(self) -> Plan:
        (plan,) = self.compiled.plans
        return plan

    def to_dict(self) -> dict[str, Any]:
        return {
            "report": self.report.to_dict(),
            "levels": [level.to_dict() for level in self.levels],
            "verified": self.verified.to_dict(),
        }


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """A model on ``boards``, how it fits every known board, and how its graph was rewritten.

    ``digest`` is the SHA-256 of its file, ``time`` the time of the study.
    """

    model: str
    digest: str
    time: datetime
    boards: tuple[OnBoard, ...]
    fits: tuple[Fit, ...]
    rewrites: tuple[Rewrite, ...]
    quality: Evaluation | None = None
    """Quality on labelled data, if there are any."""

    @property
    def folded(self) -> tuple[FoldedLayer, ...]:
        return tuple(rewrite for rewrite in self.rewrites if isinstance(rewrite, FoldedLayer))

    def to_dict(self) -> dict[str, Any]:
        return {
            "crtgen": __version__,
            "model": self.model,
            "sha256": self.digest,
            "time": self.time.isoformat(),
            "boards": [on.to_dict() for on in self.boards],
            "fits": [fit.to_dict() for fit in self.fits],
            "rewrites": [str(rewrite) for rewrite in self.rewrites],
            "folded": [rewrite.to_dict() for rewrite in self.folded],
            "quality": None if self.quality is None else self.quality.figures,
        }


def study(
    path: Path,
    boards: Sequence[Board],
    expect: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
    data: Path | None = None,
    load: Callable[[Path], api.Model] = api.load_network,
    **chosen: Unpack[RequestFields],
) -> Study:
    """Compile the model for the boards; measure and verify it on those that can be simulated.

    With labelled ``data`` it is also evaluated on this computer. ``load`` reads the file, ``chosen`` are the
    choices of ``api.compile``.
    """
    model = load(path)
    fits = Fits(model, **chosen)
    level, place = chosen.get("optimize", "balanced"), chosen.get("place")
    choice = FitChoice(level, place, feed=chosen.get("feed", ""))
    known = tuple(fits.on(board, choice) for board in boards_for(chosen.get("generators", ())))
    found: list[OnBoard] = []
    rewrites: tuple[Rewrite, ...] = ()
    for board in boards:
        say(f"{path.name} on {board.name}")
        compiled = model.compile(board, **chosen).placed()
        rewrites = compiled.rewrites
        fit = next((fit for fit in known if fit.board.name == board.name), None)
        found.append(_on_board(path, model, compiled, fit, expect, say, chosen))
    digest = sha256(files.read(path, "the model")).hexdigest()
    quality = None if data is None else evaluate_here(model, data, say)
    return Study(model.name, digest, export_time(), tuple(found), known, rewrites, quality)


def _on_board(
    path: Path,
    model: api.Model,
    compiled: api.Compiled,
    fit: Fit | None,
    expect: Path | None,
    say: Callable[[str], None],
    chosen: RequestFields,
) -> OnBoard:
    board, optimize = compiled.board, compiled.request.optimize
    levels, simulator = [], Site(simulate=True)
    for level in LEVELS if _is_simulated(board) else ():
        say(f"{path.name} on {board.name}, {level}")
        leveled: RequestFields = {**chosen, "optimize": level}
        levels.append(measure_model(model.compile(board, **leveled), site=simulator))
    say(f"verifying {path.name} on {board.name}")
    verified = verify_on(path, board.name, expect, site=simulator, load=lambda path: model, **chosen)
    if isinstance(verified.error, ToolMissingError):
        verified = replace(verified, error=None, skipped=verified.error.message)
    report = next((r for r in levels if r.optimize == optimize), compiled.reports[0])
    return OnBoard(report, fit, compiled, tuple(levels), verified)


def _is_simulated(board: Board) -> bool:
    return board.simulator == "QEMU" and "baremetal" in board.platforms


def read_baseline(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the reports of an earlier study, as ``crtgen report --json`` printed them, by board.

    Raises ``UsageError`` for any other file.
    """
    try:
        data = json.loads(files.read_text(path, "the baseline"))
        reports = [on["report"] for on in data["boards"]]
        for report in reports:
            if not isinstance(report["layers"], list) or not all(
                "name" in layer for layer in report["layers"]
            ):
                raise ValueError("the layers of the report have no names")
        return {report["board"]: report for report in reports}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        hint = "crtgen report MODEL --json > old.json writes one"
        raise UsageError(f"the file is not a report: {error}", where=str(path), hint=hint) from error
