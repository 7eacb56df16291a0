"""Tests on three kinds of target (this computer, an emulator, a real board), and their results as JUnit
XML.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack
from xml.etree import ElementTree

from crtgen import api
from crtgen.api.slot import build_server, start_server
from crtgen.base.errors import CrtgenError
from crtgen.base.text import printable
from crtgen.boards import Board, find_board
from crtgen.compiler.request import RequestFields
from crtgen.device.local_boards import is_connected
from crtgen.device.run import Site
from crtgen.lab.measure.benchmark import build_for
from crtgen.lab.measure.verification import Verdict, verify

__all__ = ["TEST_TARGETS", "TargetOutcome", "junit", "target_of", "verify_on"]

TEST_TARGETS = ("host", "emulator", "board")
"""Targets on which a model is tested, the cheapest first."""


_ANYWHERE = Site()


@dataclass(frozen=True, slots=True, eq=False)
class TargetOutcome:
    """Result of a model on a board: ``verdicts``, the ``error`` that ended it, or the reason why it was
    skipped.

    ``stand_in`` is the emulated board that was used instead, if the board is not connected.
    """

    model: str
    board: str
    target: str
    verdicts: tuple[Verdict, ...] = ()
    error: CrtgenError | None = None
    skipped: str = ""
    stand_in: str = ""

    @property
    def failed(self) -> int:
        return sum(verdict.difference is not None for verdict in self.verdicts)

    @property
    def is_right(self) -> bool:
        """True if every case ran and was right; False if it was skipped."""
        return self.error is None and not self.failed

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "board": self.board,
            "target": self.target,
            "cases": len(self.verdicts),
            "failed": self.failed,
            "differences": {v.case: str(v.difference) for v in self.verdicts if v.difference},
            "error": None if self.error is None else str(self.error),
            "skipped": self.skipped or None,
            "stand_in": self.stand_in or None,
        }


def target_of(board: Board, site: Site = _ANYWHERE) -> str:
    if board.is_host:
        return "host"
    return "emulator" if site.is_simulated(board) else "board"


def verify_on(
    path: Path,
    board: str,
    expect: Path | None = None,
    cases: int = 4,
    site: Site = _ANYWHERE,
    say: Callable[[str], None] = lambda text: None,
    load: Callable[[Path], api.Model | api.Imported] = api.load,
    **chosen: Unpack[RequestFields],
) -> TargetOutcome:
    """Build a server for a board, run it there and verify it; an error is part of the outcome.

    A real board that is not connected is simulated, as is any board with ``site.simulate``. If nothing
    simulates it, its own image is built, and an emulator with the same core runs the same kernels. ``load``
    reads the file, ``chosen`` are the choices of ``api.compile``.
    """
    wanted = find_board(board)
    absent = site.port is None and not is_connected(wanted, site.hardware_map)
    away = wanted.is_real and (site.simulate or absent)
    if away:
        site = replace(site, simulate=bool(wanted.simulator))
    outcome = TargetOutcome(path.stem, board, target_of(wanted, site))
    try:
        say(f"{path.name} on {board}")
        compiled = api.compile([load(path)], wanted, **chosen)
        if away and not wanted.simulator:
            build_for(compiled, say)
            if compiled.stand_in is None:
                return replace(outcome, skipped=f"built; no {board} is connected, no emulator has its core")
            compiled = compiled.stand_in
            outcome = replace(outcome, target="emulator", stand_in=compiled.board.name)
        site = site if outcome.target == "board" else replace(site, slot="")
        image = build_server(compiled, site, say=say)
        with start_server(image, site, counting=False) as session:
            return replace(outcome, verdicts=verify(session, path, expect, cases, say, chosen.get("sliding")))
    except CrtgenError as error:
        return replace(outcome, error=error)


def junit(outcomes: Sequence[TargetOutcome]) -> bytes:
    """Return the outcomes as JUnit XML: a suite for each model on each board, a test for each case.

    Text from devices and files is made ``printable``, so the result is always valid XML.
    """
    root = ElementTree.Element("testsuites", name="crtgen")
    for outcome in outcomes:
        name = f"{outcome.model} on {outcome.board}"
        suite = _element(
            root,
            "testsuite",
            name=name,
            tests=len(outcome.verdicts) or 1,
            failures=outcome.failed,
            errors=int(outcome.error is not None),
            skipped=int(bool(outcome.skipped)),
        )
        for verdict in outcome.verdicts:
            case = _element(suite, "testcase", classname=name, name=verdict.case)
            if verdict.difference:
                _element(case, "failure", message=verdict.difference)
        if not outcome.verdicts:
            case = _element(suite, "testcase", classname=name, name="session")
            if outcome.error is not None:
                _element(case, "error", message=outcome.error).text = printable(outcome.error.hint)
            if outcome.skipped:
                _element(case, "skipped", message=outcome.skipped)
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, "utf-8", xml_declaration=True)
    return text + b"\n"


def _element(parent: ElementTree.Element, tag: str, **attributes: object) -> ElementTree.Element:
    shown = {name: printable(str(value)) for name, value in attributes.items()}
    return ElementTree.SubElement(parent, tag, shown)
