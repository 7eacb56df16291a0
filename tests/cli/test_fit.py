"""``crtgen fit`` as a user types it."""

import json

import pytest
from typer.testing import CliRunner

from crtgen.boards import all_boards
from crtgen.cli.app import app
from crtgen.errors import DoesNotFitError, UsageError
from tests.support import ROOT, model_path

DIGITS = str(ROOT / "demo" / "digits.tflite")
runner = CliRunner()


def test_every_board_is_listed() -> None:
    done = runner.invoke(app, ["fit", DIGITS])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "digits: 23,680 MACs; flash and RAM in KiB, with the stack"
    boards = [board.name for board in all_boards() if not board.is_host]
    assert [line.split()[0] for line in lines[2:]] == boards
    assert all(line.rstrip().endswith("yes") for line in lines[2:])
    assert max(map(len, lines)) <= 80


def test_a_core_needs_no_board() -> None:
    done = runner.invoke(app, ["fit", DIGITS, "--core", "cortex-m4", "--core", "cortex-m0plus", "--json"])
    small, large = json.loads(done.stdout)["fits"]
    assert (small["board"], large["board"]) == ("cortex-m4", "cortex-m0plus")
    assert small["cycles_estimated"] < large["cycles_estimated"]
    assert small["library"]["weights"] >= 2000
    assert runner.invoke(app, ["fit", DIGITS, "--core", "cortex-m5"]).exit_code == UsageError.exit_code


@pytest.mark.models
def test_what_does_not_fit_is_said_and_fails() -> None:
    command = ["fit", str(model_path("ic01_float32")), "--board", "disco_l475_iot1"]
    done = runner.invoke(app, command)
    assert done.exit_code == DoesNotFitError.exit_code
    assert "no: ram 12" in done.stdout
    assert "KiB short" in done.stdout
    (fit,) = json.loads(runner.invoke(app, [*command, "--json"]).stdout)["fits"]
    assert fit["fits"] is False
    assert fit["short"]["ram"] > 10_000
    assert runner.invoke(app, ["fit", command[1]]).exit_code == 0, "nobody asked for that board"


def test_code_is_built_to_be_known() -> None:
    source = ROOT / "README.md"
    done = runner.invoke(app, ["fit", str(source)])
    assert done.exit_code == UsageError.exit_code
    assert "in no model format" in done.stderr
