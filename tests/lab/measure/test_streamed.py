"""Savings from a DMA that fetches weights: bounds by the cycle model, listed in docs/performance-log.md."""

import pytest

import crtgen
from benchmarks.streamed import CHIPS, Chip, Time, streamed
from crtgen.boards import find_board
from tests.support import model_path


def test_a_slow_dma_brings_a_share() -> None:
    """Core and DMA end together: 360 + 169 * (1 - share) = 643 * share."""
    time = Time(core=360, waits=169, fetching=643)
    share = 529 / (643 + 169)
    assert time.now == 529
    assert time.all_fetched == 643
    assert time.best == pytest.approx(643 * share)


def test_a_flash_that_is_busy_all_the_time_bounds_what_is_saved() -> None:
    assert Time(core=40, waits=160, fetching=160).best == 160
    assert Time(core=160, waits=40, fetching=40).best == 160


def test_a_dma_that_is_faster_hides_all_waiting() -> None:
    assert Time(core=360, waits=80, fetching=300).best == 360
    assert Time(core=5, waits=0, fetching=0).best == 5


@pytest.mark.parametrize("chip", [chip for chip in CHIPS if chip.reads is None], ids=lambda chip: chip.board)
def test_weights_in_ram_are_faster_than_any_buffer(chip: Chip) -> None:
    """Where a network fits there is nothing to fetch: kws fits every board."""
    model = crtgen.load(model_path("kws_int8"))
    rams = [memory for memory in find_board(chip.board).memories if memory.kind == "ram"]
    fast = next(memory.name for memory in rams if memory.reads is None)  # an SDRAM waits, too
    flash, ram = (
        model.compile(chip.board, optimize="speed", place=place) for place in ({}, {"weights": fast})
    )
    bound = sum(streamed(step.kernel, chip).best + step.waits for step in flash.plans[0].steps)
    assert (ram.reports[0].cycles_estimated or 0) <= 1.001 * bound


def test_ad01_waits_for_no_weights_in_ram() -> None:
    made = crtgen.load(model_path("ad01_int8")).compile(
        "nucleo_l4r5zi", optimize="speed", place={"weights": "ram"}
    )
    assert (made.reports[0].cycles_estimated or 0) == pytest.approx(360_314, rel=0.02)
