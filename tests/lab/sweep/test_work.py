"""What a worker does with a job, beside running it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from crtgen.base.errors import CrtgenError, FlashError, LinkTimeoutError, MismatchError, RemoteError
from crtgen.base.resources import code_digest
from crtgen.base.text import DeviceText
from crtgen.device.local_boards import LocalBoard
from crtgen.lab.sweep import work
from crtgen.lab.sweep.address import content_digest, tool_version
from crtgen.lab.sweep.job import Job, Outcome, failure, own_board
from crtgen.lab.sweep.work import Task, perform
from tests.support import ROOT

UNIT = LocalBoard(("pico",), DeviceText("1"), "/dev/x", reset="off-and-on")
GOOD = Outcome({"instructions": 1})


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    return Task(Job("m.tflite", "", "pico"), "d", code_digest(), {"cc": tool_version("cc")}, "pico")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Sets what becomes of runs and resets, one after the other; the list is what happened."""

    def set_up(*results: Outcome, broken: CrtgenError | None = None) -> list[str]:
        happened: list[str] = []
        left = list(results)

        def run(*_: object) -> Outcome:
            happened.append("run")
            return left.pop(0)

        def reset(unit: LocalBoard) -> None:
            happened.append(unit.reset)
            if broken:
                raise broken

        monkeypatch.setattr(work, "run_job", run)
        monkeypatch.setattr(work, "power_cycle", reset)
        return happened

    return set_up


@pytest.mark.parametrize("error", [LinkTimeoutError("hung"), FlashError("no probe")])
def test_a_hung_board_is_reset_once(task: Task, events: Callable[..., list[str]], error: CrtgenError) -> None:
    happened = events(failure(error), GOOD)
    assert perform(task, {}, UNIT) == GOOD
    assert happened == ["run", "off-and-on", "run"]
    happened = events(failure(error), failure(error))
    assert perform(task, {}, UNIT).message == error.message
    assert happened == ["run", "off-and-on", "run"]


@pytest.mark.parametrize("error", [MismatchError("differs"), RemoteError("no room")])
def test_what_a_board_answered_is_no_reason(
    task: Task, events: Callable[..., list[str]], error: CrtgenError
) -> None:
    happened = events(failure(error))
    assert perform(task, {}, UNIT).error == type(error).__name__
    assert happened == ["run"]


def test_without_a_command(task: Task, events: Callable[..., list[str]]) -> None:
    happened = events(failure(FlashError("no probe")))
    assert perform(task, {}, replace(UNIT, reset="")).is_elsewhere_better
    assert happened == ["run"]


def test_a_command_that_fails_is_said(task: Task, events: Callable[..., list[str]]) -> None:
    events(failure(FlashError("no probe")), broken=LinkTimeoutError("no hub", log="usage"))
    found = perform(task, {}, UNIT)
    assert (found.message, found.log) == ("no probe; no hub", "usage")
    assert found.is_elsewhere_better


def test_another_crtgen_or_other_tools(task: Task, events: Callable[..., list[str]]) -> None:
    happened = events(GOOD)
    for other, said in (
        (replace(task, code="0.0 x"), f"the worker has another crtgen: {code_digest()}, the sweep 0.0 x"),
        (replace(task, tools={"cc": "old"}), "the worker has another cc: "),
    ):
        found = perform(other, {})
        assert found.error == "UsageError"
        assert said in found.message
    assert not happened


def test_a_board_of_ones_own_that_the_worker_does_not_know() -> None:
    """Its file has come with the job; the next job's may be another one of that name."""
    described = (ROOT / "boards" / "mps2_an385.toml").read_bytes()
    for text in (described, described.replace(b'"4 MiB"', b'"8 MiB"')):
        job = Job("m.tflite", "", "board_of_a_test", own_board=content_digest(text))
        board = own_board(job, text)
        assert (board.name, board.ram) == ("board_of_a_test", (4 if text == described else 8) << 20)
