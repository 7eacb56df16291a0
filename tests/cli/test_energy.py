"""Energy at the command line: microjoules and days, by the board's file and by a recording."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crtgen.cli.app import app
from tests.support import ROOT

DIGITS = str(ROOT / "demo" / "digits.tflite")
runner = CliRunner()


def fit(*args: str) -> dict[str, float]:
    done = runner.invoke(app, ["fit", DIGITS, "-b", "nucleo_l4r5zi", *args, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, float] = json.loads(done.stdout)["fits"][0]
    return found


def test_days_follow_from_the_figures_of_the_board() -> None:
    found = fit("--every", "2", "--cell", "100")
    asleep = 10 * (2 - found["energy_uj"] * 1e6 / 278 / 120e6)
    assert found["days"] == pytest.approx(100 * 3.6e6 * 2 / (found["energy_uj"] + asleep) / 86400, rel=1e-3)
    assert (found["sleep_uw"], found["sleep_is_assumed"]) == (10, True)
    rarely = fit("--every", "3600")
    assert rarely["days"] < 675 * 3.6e6 / 10 / 86400, "no longer than it sleeps on that cell"


def test_what_is_assumed_of_sleeping_is_said() -> None:
    done = runner.invoke(app, ["fit", DIGITS, "-b", "nucleo_l4r5zi", "--every", "2"])
    assert "278 pJ a cycle, 10 µW asleep, assumed" in " ".join(done.output.split())


def test_a_recording_in_the_place_of_the_boards_figure(tmp_path: Path) -> None:
    """3.336 mW at 120 MHz are 27.8 pJ, a tenth of the board's."""
    file = tmp_path / "session.csv"
    file.write_text("Timestamp(ms),Current(uA)\n0,1000\n1,1224\n")
    known, recorded = fit(), fit("--power", str(file), "--volts", "3")
    assert recorded["energy_uj"] == pytest.approx(known["energy_uj"] / 10, abs=1)
    assert known["days"] is None


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--every", "0"], "--every 0 is not above 0"),
        (["--every", "1", "--cell", "-1"], "--cell -1 is not above 0"),
        (["--power", "none.csv"], "no such file"),
        (["--power", "none.csv", "-b", "rpi_pico"], "one board"),
    ],
)
def test_what_is_refused(args: list[str], says: str) -> None:
    done = runner.invoke(app, ["fit", DIGITS, "-b", "nucleo_l4r5zi", *args])
    assert done.exit_code == 2, done.output
    assert says in " ".join(done.output.split())
