"""Energy: what boards say, beside what was published, and how long a cell lasts."""

from pathlib import Path

import pytest

from crtgen.base.errors import UsageError
from crtgen.boards import Duty, Energy, find_board, load_board
from tests.support import ROOT

BOARDS = {"STM32L4R5": "nucleo_l4r5zi", "STM32U575": "nucleo_u575zi_q", "STM32U385": "nucleo_u385rg_q"}


def _points() -> list[tuple[str, str, float, float]]:
    """Each point of the table in docs/cycles.md: chip, network, megacycles, microjoules."""
    found, chip = [], ""
    for line in (
        (ROOT / "docs" / "cycles.md")
        .read_text()
        .split("| chip | network | Mcycles | µJ |")[1]
        .splitlines()[2:]
    ):
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        chip = cells[0].partition(",")[0] or chip
        found.append((chip, cells[1], float(cells[2]), float(cells[3].replace(",", ""))))
    return found


def test_energy_is_within_5_percent_of_what_was_published_but_once() -> None:
    points = _points()
    assert len(points) == 12
    far = []
    for chip, network, megacycles, microjoules in points:
        energy = find_board(BOARDS[chip]).energy
        assert energy is not None
        if energy.pj_per_cycle * megacycles != pytest.approx(microjoules, rel=0.05):
            far.append((chip, network))
    assert far == [("STM32U385", "ad01")]


def test_days_on_a_cell() -> None:
    """100 uJ a second and 9.9 uW asleep for 0.99 s: 109.8 uW of 2430 J."""
    energy = Energy(100.0, 9.9 / 0.99, "here")
    days = Duty(every=1.0).days(energy, 100.0, clock=100_000_000)
    assert days == pytest.approx(2430 / 109.9e-6 / 86400, rel=1e-3)


def test_a_run_that_takes_longer_than_there_is() -> None:
    assert Duty(every=0.001).days(Energy(100.0, None, "here"), 1000.0, clock=1_000_000) is None


@pytest.mark.parametrize(
    ("line", "says"),
    [("pj_per_cycle = 0", "above 0"), ("pj_per_cycle = true", "above 0"), ("sleep_uw = 1", "pj_per_cycle")],
)
def test_what_a_board_may_say(line: str, says: str, tmp_path: Path) -> None:
    text = (ROOT / "boards" / "nucleo_l4r5zi.toml").read_text().split("[energy]")[0]
    file = tmp_path / "mine.toml"
    file.write_text(f'{text}[energy]\n{line}\nsource = "me"\n')
    with pytest.raises(UsageError, match=says):
        load_board(file)
