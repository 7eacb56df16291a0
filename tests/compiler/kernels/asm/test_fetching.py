"""Waiting for the flash: loops that fit a cache and loops that do not, weights that are read again."""

from dataclasses import replace

import pytest

import crtgen
from crtgen.boards.board import FlashReads
from crtgen.boards.core import find_core
from crtgen.compiler.kernels.asm import Function, Routine, pipeline_of, waiting
from tests.support import ROOT, model_path

_M4 = pipeline_of(find_core("cortex-m4"))
DIGITS = ROOT / "demo" / "digits.tflite"
_FLASH = FlashReads(wait_states=5, width=8, code_cache=1024)


def _sums(steps: int, rounds: int) -> Routine:
    """A loop over ``steps`` wide instructions of a cycle each."""
    f = Function("sums", "const int *weights")
    (weights,) = f.arguments
    total = f.core("total", ("r9",))
    with f.counted_loop("rounds", f.core("left", ("r8",)), rounds):
        for _ in range(steps):
            f("add", total, total, "#1")
        f("ldr", total, f"[{weights}], #4")
    return f.done()


def _code(routine: Routine, flash: FlashReads) -> float:
    assert _M4 is not None
    return waiting(routine.runs(), _M4, flash, None)


def test_a_loop_that_fits_is_read_once() -> None:
    assert _code(_sums(8, 100), _FLASH) == _code(_sums(8, 1000), _FLASH)


def test_a_loop_that_does_not_fit_is_read_in_each_round() -> None:
    small = replace(_FLASH, code_cache=16)
    once, twice = (_code(_sums(98, n), small) for n in (100, 200))
    assert twice == pytest.approx(2 * once, rel=0.01)
    assert _code(_sums(98, 100), _FLASH) < once / 50
    lines = (98 * 4 + 4 + 4 + 2) // 8 + 1  # of eight bytes: sums, load, subtraction, branch
    assert once == pytest.approx(100 * lines * 5, rel=0.02)


def test_what_is_read_ahead_costs_less() -> None:
    """Two instructions of a cycle each are executed while the next eight bytes come."""
    small = replace(_FLASH, code_cache=16)
    plain, ahead = (_code(_sums(98, 100), replace(small, ahead=a)) for a in (False, True))
    assert ahead == pytest.approx(plain * 4 / 5, rel=0.05)


def test_constants_are_read_from_flash_in_each_round() -> None:
    assert _M4 is not None
    runs = _sums(1, 100).runs()
    assert waiting(runs, _M4, None, _FLASH) == 100 * 4 / 8 * 5
    assert waiting(7 * runs, _M4, None, _FLASH) == 7 * 100 * 4 / 8 * 5
    assert waiting(runs, _M4, None, None) == 0


@pytest.mark.parametrize(
    ("mnemonic", "nbytes"),
    [
        ("ldrb", 1),
        ("ldrsb", 1),
        ("ldrh", 2),
        ("ldrsh", 2),
        ("ldr", 4),
        ("vldrb.u8", 16),
        ("vldrb.s16", 8),
        ("vldrb.s32", 4),
        ("vldrh.s32", 8),
        ("vldrw.u32", 16),
    ],
)
def test_a_load_reads_as_many_bytes_as_it_brings(mnemonic: str, nbytes: int) -> None:
    f = Function("loads", "const int *weights")
    (weights,) = f.arguments
    vector = mnemonic.startswith("v")
    f(mnemonic, f.vector("numbers") if vector else f.core("number"), f"[{weights}]")
    pipeline = pipeline_of(find_core("cortex-m55" if vector else "cortex-m4"))
    assert pipeline is not None
    assert waiting(f.done().runs(), pipeline, None, _FLASH) == nbytes / 8 * 5


def test_a_layer_of_bytes_is_not_read_four_times_over() -> None:
    """Fully connected layers of an RP2040 load byte by byte, each from flash once.

    One of a thousand weights, which its cache holds, may be in C.
    """
    (report,) = crtgen.load(model_path("ad01_int8")).compile("rpi_pico", optimize="speed").reports
    assert {layer.kernel for layer in report.layers if layer.macs > 1024} == {"dense 8"}
    assert len([layer for layer in report.layers if layer.kernel == "dense 8"]) >= 9


def test_a_board_that_waits_gets_loops_that_fit() -> None:
    """The same core: with wait states kernels are shorter, and a run takes more cycles."""
    model = crtgen.load(DIGITS)
    (plain,) = model.compile("mps2_an386", optimize="speed").reports
    (waits,) = model.compile("nucleo_l4r5zi", optimize="speed").reports
    assert plain.cycles_estimated is not None
    assert waits.cycles_estimated is not None
    assert 1.1 < waits.cycles_estimated / plain.cycles_estimated < 1.6
    assert sum(layer.cycles_estimated or 0 for layer in waits.layers) == waits.cycles_estimated


def test_constants_that_fit_their_cache_are_read_once() -> None:
    assert _M4 is not None
    flash = replace(_FLASH, data_cache=256)
    runs = 7 * _sums(1, 100).runs()
    assert waiting(runs, _M4, None, flash, weights=256) == 256 / 8 * 5
    assert waiting(runs, _M4, None, flash, weights=260) == 7 * 100 * 4 / 8 * 5
