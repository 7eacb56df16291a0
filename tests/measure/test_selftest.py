"""What a board says of itself: in QEMU, in rp2040js, and on a simulated core with its chip's registers."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from ci.boards import SEEN, seen
from crtgen.boards import find_board
from crtgen.cli.app import app
from crtgen.errors import ToolMissingError
from crtgen.measure import selftest
from crtgen.measure.selftest import Check, Selftest, build_selftest, run_selftest
from crtgen.rpc.client import SIMULATOR, Client
from crtgen.run.rp2040 import find_rp2040js
from crtgen.session import Session
from tests.silicon.machine import Machine
from tests.support import absent, require_tool

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(300)]

PER = ("additions of registers", "products of registers", "taken branches")
WORDS = ("words of the RAM", "words of the flash, few", "words of the flash, many")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    require_tool("arm-none-eabi-gcc")
    monkeypatch.setattr(selftest, "_SECONDS", 0.02)
    monkeypatch.setattr(selftest, "_RATES", ())


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
    assert values["network"] == "10 of 10"
    assert all(1.0 < values[name] < 1.1 for name in PER)  # and a branch back for each 64
    assert all(1.2 < values[name] < 1.6 for name in WORDS)
    assert values["stack guard"] == "a fault"
    assert values["serial port at 230400 baud"] > 0
    assert "serial port at 20000000 baud" not in values
    page = (tmp_path / "mps2_an386.md").read_text()
    assert "| network | 10 of 10 | cases exact | as it should be |  |" in page
    assert "simulated by QEMU, seen by a test." in page


def test_rp2040js_has_the_cycles_of_a_cortex_m0plus(tmp_path: Path) -> None:
    try:
        find_rp2040js()
    except ToolMissingError as error:
        absent(str(error), error.hint)
    words = ["selftest", "--board", "rpi_pico", "--simulate", "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    values = by_name(json.loads(result.stdout)["checks"])
    assert values["network"] == "10 of 10"
    assert [round(values[name]) for name in PER] == [1, 1, 2]
    assert all(2.2 < values[name] < 2.9 for name in WORDS)
    assert 0.8 < values["network: cycles to the model's"] < 1.2
    assert values["stack guard"] is None


def test_the_image_of_a_real_board_on_its_chips_registers() -> None:
    board = find_board("disco_l475_iot1")
    image = build_selftest(board)
    machine = Machine(board, image.path, None)
    with Session(
        image.built,
        cast(Any, nullcontext(machine)),
        Client(machine, timeouts=SIMULATOR),
        counting=False,
    ) as session:
        found = run_selftest(session, board, "Unicorn")
    values = by_name(found.checks)
    assert values["network"] == "10 of 10"
    assert found.passed
    assert len(found.checks) == 13


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
    assert "| clock | 1.1 | cases exact | **wrong** |  |" in bad.to_page()


def test_reports_that_were_sent_are_shown(tmp_path: Path) -> None:
    assert list(seen(tmp_path)) == ["Nobody has sent a report yet."]
    values: dict[str, float | str] = {
        "network": "10 of 10",
        "clock": 1.001,
        "network: cycles to the model's": 1.02,
        "stack guard": "a fault",
    }
    checks = tuple(Check(name, value, "", True) for name, value in values.items())
    report = Selftest("b", "a board", "", "1", checks, "N. N.", "2026-01-02")
    (tmp_path / "b.json").write_text(json.dumps(report.to_dict()))
    assert list(seen(tmp_path))[2] == "| b | N. N. | 2026-01-02 | 10 of 10 | 1.001 | 1.020 | a fault |"


def test_reports_of_simulators_are_not_kept() -> None:
    assert [file.name for file in SEEN.glob("*.json") if json.loads(file.read_text())["simulated"]] == []
