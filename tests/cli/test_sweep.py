"""What a terminal shows of a sweep."""

import io

import pytest
from rich.console import Console

from crtgen.cli.sweep import _Live
from crtgen.lab.sweep.job import Job, Outcome
from crtgen.lab.sweep.work import Task


def test_the_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while nothing is known yet; failures stay above it."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, highlight=False)
    for place in ("output", "sweep"):
        monkeypatch.setattr(f"crtgen.cli.{place}.log", console)
    task = Task(Job("kws.tflite", "", "host"), "d", "c", {})
    watch = _Live()
    with watch.progress:
        watch.begun({"waiting": 3, "done": 1, "failed": 1})
        watch.running("http://127.0.0.1:8787/status")
        watch.finished([(task, Outcome()), (task, Outcome(error="BuildError", message="it failed"))])
    shown = screen.getvalue()
    assert "2 of 5 jobs are known already" in shown
    assert "Dask's dashboard: http://127.0.0.1:8787/status" in shown
    assert "failed: kws.tflite on host, balanced: it failed" in shown
    assert "4 of 5 jobs, 2 failed" in shown
    assert "a minute" in shown
