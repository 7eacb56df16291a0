"""What a board says of itself: in QEMU, in rp2040js, and on a simulated core with its chip's registers."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from typer.testing import CliRunner

from crtgen.api import Image
from crtgen.base.errors import DoesNotFitError, ToolMissingError
from crtgen.boards import Board, find_board
from crtgen.cli.app import app
from crtgen.device.rpc.client import SIMULATOR, Client
from crtgen.device.run import Site
from crtgen.device.run.rp2040 import find_rp2040js
from crtgen.device.session import Session
from crtgen.lab.measure import selftest
from crtgen.lab.measure.keywords import keywords
from crtgen.lab.measure.probes import PROBES, expected
from crtgen.lab.measure.selftest import Check, Selftest, build_selftest, run_selftest, run_watchdog, watchdog
from tests.silicon.machine import Machine
from tests.support import absent, require_tool
from tools.boards import SEEN, seen

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(300)]

PER = ("additions of registers", "products of registers", "taken branches")
WORDS = ("words of the RAM", "words of the flash, few", "words of the flash, many")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    require_tool("arm-none-eabi-gcc")
    monkeypatch.setattr(selftest, "_SECONDS", 0.02)
    monkeypatch.setattr(selftest, "_RATES", ())


def ratios(report: dict[str, Any]) -> list[float]:
    """What each loop took, divided by what it should."""
    return [c["value"] / c["expected"] for c in report["checks"] if c["expected"]]


def by_name(checks: "tuple[Check, ...] | list[dict[str, Any]]") -> dict[str, Any]:
    found = {(c["name"] if isinstance(c, dict) else c.name): c for c in checks}
    return {name: c["value"] if isinstance(c, dict) else c.value for name, c in found.items()}


def test_qemu_counts_an_instruction_for_each_and_the_stack_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_tool("qemu-system-arm")
    monkeypatch.setattr(selftest, "_RATES", (230_400, 20_000_000))  # the second is more than the clock makes
    words = ["selftest", "--board", "mps2_an386", "--output", str(tmp_path), "--by", "a test"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "mps2_an386.json").read_text())
    assert (report["simulated"], report["seen_by"]) == ("QEMU", "a test")
    values = by_name(report["checks"])
    assert values["network keywords"] == "3 of 3"
    assert [values[name] for name in (*PER, *WORDS)] == pytest.approx(
        [66 / 64] * 3 + [1.5, 1.406, 1.376], 0.01
    )
    assert ratios(report) == pytest.approx([1.0] * 6, abs=0.01)
    assert (values["stack guard"], values["watchdog"]) == ("a fault", "a fault")
    assert values["serial port at 230400 baud"] > 0
    assert "serial port at 20000000 baud" not in values
    page = (tmp_path / "mps2_an386.md").read_text()
    assert "| network keywords | 3 of 3 | cases exact |  |  | as it should be |  |" in page
    assert "simulated by QEMU, seen by a test." in page


@pytest.mark.nightly
def test_rp2040js_has_the_cycles_of_a_cortex_m0plus(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        find_rp2040js()
    except ToolMissingError as error:
        absent(str(error), error.hint)
    monkeypatch.setattr(selftest, "_NETWORKS", ("digits",))
    words = ["selftest", "--board", "rpi_pico", "--simulate", "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    values = by_name(report["checks"])
    assert values["network digits"] == "10 of 10"
    assert ratios(report) == pytest.approx([1.0] * 6, abs=0.02)
    assert values["watchdog"] == "a reset"
    assert [round(values[name]) for name in PER] == [1, 1, 2]
    assert all(2.2 < values[name] < 2.9 for name in WORDS)
    assert 0.8 < values["network: cycles to the model's"] < 1.2
    assert values["stack guard"] is None


def sessions(board: Board, image: Image) -> Callable[[], Session]:
    """Sessions with an image on a chip's registers, each with the chip as the one before left it."""
    machine = Machine(board, image.path, None)

    def session() -> Session:
        client = Client(machine, timeouts=SIMULATOR)
        return Session(image.built, cast(Any, nullcontext(machine)), client, counting=False)

    return session


def test_the_image_of_a_real_board_on_its_chips_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    board = find_board("disco_l475_iot1")
    again = sessions(board, build_selftest(board))
    with again() as session:
        found = run_selftest(session, board, "Unicorn")
    values = by_name(found.checks)
    assert values["network keywords"] == "3 of 3"
    assert found.passed
    assert len(found.checks) == 13
    with again() as session:
        check = watchdog(session)
    assert (check.value, check.passed) == ("a reset", True)
    with again() as session:  # it started again
        assert session.client.info() is not None


@pytest.mark.parametrize("name", ["nrf52840dk", "rpi_pico", "rpi_pico2", "nrf54l15dk"])
@pytest.mark.nightly
def test_watchdogs_of_other_chips_start_them_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "_NETWORKS", ("digits",))
    board = find_board(name)
    with sessions(board, build_selftest(board))() as session:
        assert watchdog(session).value == "a reset"


def test_a_board_without_room_or_watchdog_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    board = replace(find_board("mps2_an386"), watchdog=None)
    assert run_watchdog(cast(Any, None), board, Site()).note.startswith("the board's file names none")
    found = run_watchdog(cast(Any, None), find_board("bbc_microbit"), Site(simulate=True))
    assert (found.value, found.note) == (None, "QEMU shows none of this board")
    built: list[str] = []

    def build(board: Board, network: str, say: Any) -> None:
        built.append(network)
        if network == "keywords":
            raise DoesNotFitError("too large")

    monkeypatch.setattr(selftest, "_build", build)
    build_selftest(board)
    assert built == ["keywords", "digits"]


def test_the_network_has_the_shape_of_the_benchmarks() -> None:
    graph = keywords().graph
    assert graph.macs == 2_656_768
    random = np.random.default_rng(1)
    outputs = [graph.run([[random.integers(-128, 128, (1, 49, 10, 1), np.int8)]]) for _ in range(4)]
    assert len({tuple(y.ravel()) for runs in outputs for (y,) in runs}) == 4


def test_loops_wait_for_a_flash_as_the_boards_file_has_it() -> None:
    """The L475's flash waits 4 cycles for 8 bytes, and its cache has 256."""
    board = find_board("disco_l475_iot1")
    probes = {probe.name: probe for probe in PROBES}
    near, far = (expected(probes["stream"], board, waits=waits) for waits in (False, True))
    assert near.cycles is not None
    assert far.cycles is not None
    assert near.instructions == far.instructions == pytest.approx(11 / 8, 0.01)
    assert far.cycles - near.cycles == pytest.approx(2.0, 0.05)
    assert expected(probes["add"], board, waits=True).cycles == pytest.approx(68 / 64, 0.02)


def test_waiting_for_the_flash_is_compared_with_the_boards_file() -> None:
    """The L475's flash waits 4 cycles for 8 bytes."""
    board = find_board("disco_l475_iot1")
    found = selftest._waiting(board, 4.5, 2.25, "")
    assert (found.value, found.note) == (2.25, "the board's file says 2")
    assert selftest._waiting(board, 2.5, 2.5, "QEMU").value is None


def test_a_board_that_is_wrong_says_so() -> None:
    good = Check("network", "10 of 10", "cases exact", True)
    bad = Selftest("b", "a board", "", "1", (good, replace(good, name="clock", value=1.1, passed=False)))
    assert not bad.passed
    assert "| clock | 1.1 | cases exact |  |  | **wrong** |  |" in bad.to_page()


def test_reports_that_were_sent_are_shown(tmp_path: Path) -> None:
    assert list(seen(tmp_path)) == ["Nobody has sent a report yet."]
    values: dict[str, float | str] = {
        "network digits": "10 of 10",
        "clock": 1.001,
        "network: cycles to the model's": 1.02,
        "stack guard": "a fault",
        "watchdog": "a reset",
    }
    checks = tuple(Check(name, value, "", True) for name, value in values.items())
    report = Selftest("b", "a board", "", "1", checks, "N. N.", "2026-01-02")
    (tmp_path / "b.json").write_text(json.dumps(report.to_dict()))
    assert list(seen(tmp_path))[2] == (
        "| b | N. N. | 2026-01-02 | digits, 10 of 10 | 1.001 | 1.020 | a fault | a reset |"
    )


def test_reports_of_simulators_are_not_kept() -> None:
    assert [file.name for file in SEEN.glob("*.json") if json.loads(file.read_text())["simulated"]] == []
