"""``crtgen fit`` as a user types it."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crtgen.base.errors import DoesNotFitError, UsageError
from crtgen.boards import all_boards, find_board
from crtgen.cli.app import app
from tests.support import ROOT, model_path

DIGITS = str(ROOT / "demo" / "digits.tflite")
runner = CliRunner()

_SERIAL = ("mimxrt10", "nucleo_n6", "pico_plus2", "stm32n6", "teensy")
"""Starts of the names of boards, beside RP2040 and RP2350, whose flash is at a serial bus."""


def test_every_board_is_listed() -> None:
    done = runner.invoke(app, ["fit", DIGITS])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "digits: 23,680 MACs; flash and RAM of the library, in KiB"
    boards = [board.name for board in all_boards() if not board.is_host]
    rows = lines[2 : 2 + len(boards)]
    assert [line.split()[0] for line in rows] == boards
    assert all(line.rstrip().endswith("yes") for line in rows)
    guessed = [line.split()[0] for line in rows if "~" in line]
    serial = [b.name for b in all_boards() if "rp2" in b.boot or b.name.startswith(_SERIAL)]
    assert sorted(guessed) == sorted(
        [
            "apollo510_evb",
            "arduino_uno_r4_minima",
            "ek_ra8p1",
            "ensemble_e8_dk_he",
            "ensemble_e8_dk_hp",
            "frdm_mcxa153",
            "frdm_mcxn236",
            "kit_pse84_eval",
            "max78000fthr",
            "nrf54h20dk",
            "nrf54l15dk",
            "numaker_m55m1",
            "xg24_dk2601b",
            *serial,
        ]
    )
    assert lines[2 + len(boards) :] == [
        "copied: constants that an image has in RAM, unless --place weights=flash",
        "times are modelled: M4 ±2%; M33 ±4%; M85 ±5%; M0, M0+, M3, M7 ±20%; M55 ±22%",
        "~ for a usual flash; [memory.flash.reads] in the board's file describes its own",
        "~ for a flash at a serial bus: reads in sequence may wait half as long",
        "µJ of b_u585i_iot02a, nucleo_u575zi_q: 146 pJ a cycle, 10 µW asleep, assumed",
        "µJ of nucleo_l4r5zi: 278 pJ a cycle, 10 µW asleep, assumed",
        "µJ of nucleo_u385rg_q: 55 pJ a cycle, 10 µW asleep, assumed",
        "too small for the server of the RPC: frdm_mcxa153",
        lines[-1],
    ]
    assert "--optimize size --pool 1024 on frdm_mcxa153" in lines[-1]
    assert max(map(len, lines[:-1])) <= 80


def test_a_core_needs_no_board() -> None:
    done = runner.invoke(app, ["fit", DIGITS, "--core", "cortex-m4", "--core", "cortex-m0plus", "--json"])
    small, large = json.loads(done.stdout)["fits"]
    assert small["flash_is_assumed"]
    assert (small["board"], large["board"]) == ("cortex-m4", "cortex-m0plus")
    assert small["cycles_estimated"] < large["cycles_estimated"]
    assert small["library"]["weights"] >= 2000
    assert runner.invoke(app, ["fit", DIGITS, "--core", "cortex-m5"]).exit_code == UsageError.exit_code


@pytest.mark.models
def test_what_does_not_fit_is_said_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["fit", str(model_path("ic01_float32")), "--board", "bbc_microbit"]
    done = runner.invoke(app, command)
    assert done.exit_code == DoesNotFitError.exit_code
    assert re.search(r"no: flash \d+\.\d KiB short, ram \d+\.\d KiB short", done.stdout)
    (fit,) = json.loads(runner.invoke(app, [*command, "--json"]).stdout)["fits"]
    assert fit["fits"] is False
    assert fit["short"]["ram"] > 60_000
    large = str(model_path("ad01_int8"))
    some = tuple(map(find_board, ("bbc_microbit", "mps2_an386")))
    monkeypatch.setattr("crtgen.lab.measure.fit.all_boards", lambda: some)
    done = runner.invoke(app, ["fit", large])
    assert "short" in done.stdout
    assert done.exit_code == 0, "nobody asked for the boards that are too small"


@pytest.mark.models
def test_a_board_that_holds_the_model_and_no_server() -> None:
    done = runner.invoke(app, ["fit", str(model_path("kws_int8")), "--board", "bbc_microbit"])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[2].rstrip().endswith("yes")
    assert "too small for the server of the RPC: bbc_microbit" in done.stdout


def test_many_models_are_a_matrix_or_a_table_for_programs(tmp_path: Path) -> None:
    other = tmp_path / "other.tflite"
    shutil.copy(DIGITS, other)
    names = ["--board", "nucleo_l4r5zi", "--board", "ek_ra8m1"]
    lines = runner.invoke(app, ["fit", DIGITS, str(other), *names]).stdout.splitlines()
    assert lines[1].split() == ["board", "digits", "other"]
    assert lines[2].split() == ["ek_ra8m1", *["0.02", "ms"] * 2]
    assert lines[3].split()[0] == "nucleo_l4r5zi"
    rows = list(
        csv.DictReader(runner.invoke(app, ["fit", DIGITS, str(other), *names, "--csv"]).stdout.splitlines())
    )
    assert [(row["model"], row["board"], row["fits"]) for row in rows] == [
        (model, board, "True") for model in ("digits", "other") for board in ("nucleo_l4r5zi", "ek_ra8m1")
    ]
    assert int(rows[0]["ram_bytes"]) > 400


def test_code_is_built_to_be_known() -> None:
    source = ROOT / "README.md"
    done = runner.invoke(app, ["fit", str(source)])
    assert done.exit_code == UsageError.exit_code
    assert "has no model format" in done.stderr
