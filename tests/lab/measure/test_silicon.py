"""How far modelled times are from silicon: the published points, and the ranges that follow from them."""

import re

import pytest

import crtgen
from crtgen.boards import find_board, find_core, silicon_range
from crtgen.lab.measure.fit import FitChoice, Fits
from tests.support import ROOT, model_path

_CORE = re.compile(r"\b(M4|M33|M55|M85)\b")


def _points() -> list[tuple[str, float]]:
    """Each point of the table in docs/cycles.md: the core, and measured by modelled."""
    found, core = [], ""
    text = (ROOT / "docs" / "cycles.md").read_text()
    for line in text.split("\n| chip | code | network | measured, Mcycles |")[1].splitlines()[2:]:
        if not line.startswith("|"):
            break
        chip, *_, measured, modelled = (cell.strip() for cell in line.strip("|").split("|"))
        if chip:
            core = "cortex-" + _CORE.findall(chip)[0].lower()
        found.append((core, float(measured) / float(modelled)))
    return found


def test_ranges_hold_the_points_and_little_more() -> None:
    points = _points()
    assert len(points) == 18
    for core in sorted({core for core, _ in points}):
        least, greatest = silicon_range(find_core(core))
        seen = [ratio for of, ratio in points if of == core]
        assert least <= min(seen) <= least + 0.011
        assert greatest - 0.011 <= max(seen) <= greatest


@pytest.mark.parametrize(
    ("computing", "weights", "published", "margin"),
    [(0.802e6, 264_192, 59.0e-3, 0.05), (9.74e6, 22_016, 60.4e-3, 0.16)],
    ids=["ad01", "kws"],
)
@pytest.mark.parametrize("board", ["rpi_pico2", "rpi_pico2_usb", "rpi_pico2_w"])
def test_the_flash_of_the_rp2350_waits_as_published(
    board: str, computing: float, weights: int, published: float, margin: float
) -> None:
    """TFLite Micro, weights in flash, at 150 MHz: what CMSIS-NN computes on an M33, and each weight read."""
    found = find_board(board)
    reads = found.reads(found.code)
    assert reads is not None
    modelled = (computing + reads.waits(weights)) / found.clock
    assert modelled == pytest.approx(published, rel=margin)


@pytest.mark.models
def test_ad01_on_a_pico_2_is_as_slow_as_its_flash() -> None:
    """Whoever computes: 59 ms were published for other code."""
    model = crtgen.load(model_path("ad01_int8"))
    assert isinstance(model, crtgen.Model)
    in_flash = FitChoice(place={"weights": "flash"})
    found = Fits(model).on(find_board("rpi_pico2"), in_flash)
    assert found.seconds == pytest.approx(59e-3, rel=0.06)


@pytest.mark.parametrize(("core", "expected"), [("cortex-m4+nofp", (1.02, 1.07)), ("cortex-m3", (0.8, 1.2))])
def test_cores_with_other_names_and_without_points(core: str, expected: tuple[float, float]) -> None:
    assert silicon_range(find_core(core)) == expected
