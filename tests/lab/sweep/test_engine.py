"""Jobs on workers: each comes to an end, whatever becomes of workers and boards."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from crtgen.base.errors import LinkClosedError, LinkTimeoutError, MismatchError
from crtgen.lab.sweep import engine
from crtgen.lab.sweep.engine import run_tasks
from crtgen.lab.sweep.farm import local_cluster
from crtgen.lab.sweep.job import Outcome, failure
from crtgen.lab.sweep.work import Task
from tests.lab.sweep.jobs import SOURCE, cluster, figures, tasks

distributed = pytest.importorskip("distributed")

CONTENTS = {SOURCE: b"network"}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Two workers, each with a board."""
    with cluster(**{"board.pico": 1}) as made, distributed.Client(made) as found:
        yield found


def outcomes(client: Any, given: Sequence[Task], function: Any) -> dict[str, Outcome]:
    """What came of each task; nothing comes twice."""
    found: dict[str, Outcome] = {}

    def done(part: Sequence[tuple[Task, Outcome]]) -> None:
        for task, outcome in part:
            assert task.digest not in found
            found[task.digest] = outcome

    run_tasks(client, given, CONTENTS, done, function)
    return found


def test_every_job_is_run_once(client: Any) -> None:
    given = tasks(40)
    found = outcomes(client, given, figures)
    assert {n: found[task.digest].figures for n, task in enumerate(given)} == {
        n: {"instructions": n * n + 7} for n in range(40)
    }
    assert len({outcome.worker for outcome in found.values()}) == 2


def test_an_error_of_a_function_is_an_outcome(client: Any) -> None:
    def function(task: Task, contents: Mapping[str, bytes]) -> Outcome:
        raise ValueError("a mistake of crtgen's")

    (found,) = outcomes(client, tasks(1), function).values()
    assert (found.error, found.message) == ("ValueError", "a mistake of crtgen's")
    assert "in function" in found.log


def test_few_jobs_are_with_the_cluster(client: Any) -> None:
    """A scheduler that knows all of a million would need much memory, and a dead worker would take many."""
    counts = []

    def done(part: Sequence[tuple[Task, Outcome]]) -> None:
        counts.append(sum(not key.startswith("crtgen-file") for key in client.cluster.scheduler.tasks))

    run_tasks(client, tasks(30), CONTENTS, done, figures)
    assert max(counts) <= 6


def test_a_board_that_does_not_answer_means_another_one(client: Any) -> None:
    bad = sorted(info["name"] for info in client.scheduler_info()["workers"].values())[0]

    def function(task: Task, contents: Mapping[str, bytes]) -> Outcome:
        if distributed.get_worker().name == bad:
            return failure(LinkClosedError("the board is unplugged"))
        return figures(task, contents)

    found = outcomes(client, tasks(4, "pico"), function).values()
    assert [outcome.error for outcome in found] == [""] * 4
    assert {outcome.worker for outcome in found}.isdisjoint({str(bad)})


def test_a_job_that_no_board_answers_fails_with_the_reason(client: Any) -> None:
    def function(task: Task, contents: Mapping[str, bytes]) -> Outcome:
        return failure(LinkClosedError("the board is unplugged"))

    (found,) = outcomes(client, tasks(1, "pico"), function).values()
    assert (found.error, found.message) == ("LinkClosedError", "the board is unplugged")


def test_what_the_device_computed_is_not_tried_elsewhere(client: Any, tmp_path: Path) -> None:
    def function(task: Task, contents: Mapping[str, bytes]) -> Outcome:
        with file.open("a") as log:
            log.write("x")
        return failure(MismatchError("case 1 differs"))

    file = tmp_path / "log"
    (found,) = outcomes(client, tasks(1, "pico"), function).values()
    assert (found.error, file.read_text()) == ("MismatchError", "x")


def test_a_board_that_nobody_has(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other jobs go on meanwhile."""
    monkeypatch.setattr(engine, "PATIENCE", 0.0)
    found = outcomes(client, [*tasks(3, "nrf"), *tasks(3)], figures)
    assert [found[task.digest].error for task in tasks(3)] == [""] * 3
    for task in tasks(3, "nrf"):
        assert found[task.digest].error == "LinkTimeoutError"
        assert "no worker has a board nrf" in found[task.digest].message


def test_no_worker_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PATIENCE", 0.0)
    with local_cluster(0) as client, pytest.raises(LinkTimeoutError, match="there is no worker"):
        outcomes(client, tasks(3), figures)


@pytest.mark.nightly
def test_workers_that_are_killed_in_mid_job(tmp_path: Path) -> None:
    """Their jobs run again, alone; one that kills whoever runs it fails, and no other."""

    def function(task: Task, contents: Mapping[str, bytes]) -> Outcome:
        once = tmp_path / "killed"
        if task.digest == bad or not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return figures(task, contents)

    given = tasks(6)
    bad = given[3].digest
    with local_cluster(2) as client:
        client.run_on_scheduler(_forgive_nothing)
        found = outcomes(client, given, function)
    assert [found[task.digest].error for task in given] == [""] * 3 + ["KilledWorker"] + [""] * 2
    assert found[bad].message == "workers died while they ran it: 1 in a row"


def _forgive_nothing(dask_scheduler: Any) -> None:
    """A worker that dies takes all jobs with it that were given to it."""
    dask_scheduler.allowed_failures = 0
