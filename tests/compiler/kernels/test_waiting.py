"""Kernels for flash that waits: weights in RAM, shorter loops, and what they are worth."""

from dataclasses import replace
from pathlib import Path

import pytest

import crtgen
from benchmarks.streamed import lstm_of_ten_steps, on_memory
from crtgen.boards import board_of_core, find_board
from crtgen.boards.board import FlashReads
from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target, applicable
from crtgen.compiler.plan import Plan
from crtgen.network.ir import DType, Quant
from crtgen.network.ops import Case, Conv2d, FullyConnected, all_cases
from crtgen.network.ops.case import floats, in_four_bits, int8s, int16s, make, weights_and_bias
from tests.compiler.kernels.harness import Job, guarded, run_jobs
from tests.support import model_path

_L4 = FlashReads(wait_states=5, width=8, code_cache=1024, data_cache=256, ahead=True)
_WAITS = Target(find_core("cortex-m4"), "speed", code=_L4, constants=_L4)
_NEAR = "dsp_matrix, weights in RAM"


@pytest.mark.qemu
def test_weights_in_ram_give_the_same(tmp_path: Path) -> None:
    """Convolutions of int8, int16 and int4, with padding and without, of one image and of several."""
    jobs = [
        Job(case, kernel)
        for case in all_cases()
        if isinstance(case.op, Conv2d)
        for kernel in applicable(case.op, case.sig, _WAITS)
        if kernel.design == _NEAR
    ]
    assert len(jobs) > 15
    assert {job.case.sig.x.dtype.value for job in jobs} == {"int8", "int16"}
    results = run_jobs(jobs, tmp_path, guarded("cortex-m4"), "-O2")
    assert [(job.case.name, r.wrong) for job, r in zip(jobs, results, strict=True) if r.wrong] == []


def _pointwise() -> list[Case]:
    """1x1 convolutions and fully connected layers of several rows: integers, 4-bit weights and float32."""
    x = int8s("x", (1, 3, 5, 12), 0.05, -3)
    floating = floats("x", (1, 3, 5, 12))
    rows = int8s("r", (5, 12), 0.05, 4)
    short = int16s("s", (1, 3, 5, 12))
    quant = Quant.tensor(0.4, 3)
    cases = [
        make("conv", Conv2d(), [x, *weights_and_bias("conv", x, (20, 1, 1, 12), 0, True)], quant),
        make("one", Conv2d(), [x, *weights_and_bias("one", x, (24, 1, 1, 12), 0, False)], quant),
        make("rows", FullyConnected(), [rows, *weights_and_bias("rows", rows, (16, 12), 0, False)], quant),
        make("real", Conv2d(), [floating, *weights_and_bias("real", floating, (20, 1, 1, 12), 0, True)]),
        make(
            "short",
            Conv2d(),
            [short, *weights_and_bias("short", short, (20, 1, 1, 12), 0, True)],
            Quant.tensor(0.001, 0),
        ),
    ]
    return [*cases, *map(in_four_bits, cases[:2])]


@pytest.mark.qemu
@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m55"])
def test_products_by_channels_give_the_same(core: str, tmp_path: Path) -> None:
    """Caches that hold one, two and three blocks of four channels, of which the last chunk may have fewer."""
    jobs = [
        Job(case, kernel)
        for case in _pointwise()
        for blocks in (1, 2, 3)
        for kernel in applicable(case.op, case.sig, _behind(core, case, blocks))
        if kernel.design.endswith(" by channels")
    ]
    assert {job.case.name for job in jobs} == {case.name for case in _pointwise()}
    assert not any(kernel.inplace for kernel in (job.kernel for job in jobs))
    results = run_jobs(jobs, tmp_path, guarded(core), "-O2")
    assert [(job.case.name, r.wrong) for job, r in zip(jobs, results, strict=True) if r.wrong] == []


def _behind(core: str, case: Case, blocks: int) -> Target:
    """A flash whose cache has room for the weights of some blocks, beside as much code."""
    weights = case.sig.inputs[1]
    row = weights.elements // weights.shape[0] * weights.dtype.itemsize
    row = row // 2 if weights.dtype is DType.INT4 else row
    flash = FlashReads(wait_states=48, width=4, code_cache=16384, data_cache=2 * 4 * row * blocks)
    return Target(find_core(core), "speed", code=flash, constants=flash)


def test_weights_that_no_cache_holds_are_read_for_each_tile() -> None:
    """Channel by channel, weights are read once, as if the cache held all of them."""
    case = _pointwise()[0]
    target = _behind("cortex-m0plus", case, 2)
    kernels = {k.design: k for k in applicable(case.op, case.sig, target)}
    plain, turned = kernels["gemm 1x4"], kernels["gemm 1x4 by channels"]
    nbytes, reads = sum(const.nbytes for const in plain.consts), target.constants
    assert reads is not None
    held = replace(target, constants=replace(reads, data_cache=1 << 14))
    for kernel, times in ((plain, 15), (turned, 1)):  # a pixel at a time
        waits = kernel.cycles_on(held) - kernel.cycles_on(replace(target, constants=None))
        assert waits == pytest.approx(reads.waits(nbytes))
        assert kernel.cycles_on(target) - kernel.cycles_on(held) == pytest.approx((times - 1) * waits)


def test_weights_stay_in_flash_that_does_not_wait() -> None:
    case = next(case for case in all_cases() if isinstance(case.op, Conv2d))
    found = applicable(case.op, case.sig, Target(find_core("cortex-m4"), "speed"))
    assert _NEAR not in {kernel.design for kernel in found}


@pytest.mark.parametrize(("model", "most"), [("kws_int8", 3.8), ("vww_int8", 6.2), ("ic01_int8", 15.1)])
def test_cycles_on_a_flash_that_waits(model: str, most: float) -> None:
    """Millions of cycles by the model, and no level is slower than one that cares more for size."""
    made = crtgen.load(model_path(model))
    cycles = []
    for level in ("speed", "balanced", "size"):
        (report,) = made.compile("nucleo_l4r5zi", optimize=level).reports
        assert report.cycles_estimated is not None
        cycles.append(report.cycles_estimated)
    assert cycles[0] < most * 1e6
    assert cycles == sorted(cycles)


@pytest.mark.parametrize(
    ("board", "design"),
    [("rpi_pico", "base lstm"), ("rpi_pico2", "dsp lstm"), ("mimxrt1050_evk", "dsp lstm")],
)
def test_parts_that_a_cache_holds_are_read_once(board: str, design: str) -> None:
    """All weights fit a cache of 16 KiB: the kernel with the fewest instructions is the fastest."""
    found, case = find_board(board), lstm_of_ten_steps()
    reads = found.reads(found.code)
    kernels = applicable(case.op, case.sig, Target(found.core, "speed", code=reads, constants=reads))
    assert kernels[0].design == design
    assert kernels[0].cost.instructions == min(kernel.cost.instructions for kernel in kernels)


def test_parts_that_no_cache_holds_are_read_in_each_call() -> None:
    case = lstm_of_ten_steps()
    target = replace(_WAITS, code=None)
    far = next(k for k in applicable(case.op, case.sig, target) if k.design == "dsp lstm")
    held = replace(_L4, data_cache=1 << 14)
    read = sum(const.nbytes for part in far.parts for const in part.kernel.consts)
    tables = sum(const.nbytes for const in far.consts) - read
    first, later, once = (
        on_memory(far, replace(target, constants=flash)).cycles for flash in (_L4, None, held)
    )
    assert first is not None
    assert later is not None
    assert once is not None
    assert first - later == pytest.approx(10 * _L4.waits(read) + _L4.waits(tables), rel=0.1)
    assert once - later == pytest.approx(_L4.waits(read + tables), rel=0.1)


_FLASHES = {
    "STM32L4R5, one bank": FlashReads(wait_states=5, width=16, code_cache=1024, data_cache=256, ahead=True),
    "STM32F405": FlashReads(wait_states=5, width=16, code_cache=1024, data_cache=128, ahead=True),
    "nRF52840": FlashReads(wait_states=2, width=16, code_cache=2048),
}


@pytest.mark.parametrize(("model", "most"), [("kws_int8", 0.88), ("ic01_int8", 0.96)])
def test_what_is_made_for_an_unknown_flash_is_fast_on_others(model: str, most: float) -> None:
    """Of what is gained where reading is slow, little is lost where it is not.

    Winograd's tiles read fewer weights for each pixel: of ic01 less is to be gained.
    """
    made = crtgen.load(model_path(model))
    unknown, never = (
        made.compile(board, optimize="speed").plans[0] for board in (board_of_core("cortex-m4"), "mps2_an386")
    )
    for name, flash in _FLASHES.items():
        assert _on(unknown, flash) < 1.025 * _on(never, flash), name
    assert _on(unknown, _L4) < most * _on(never, _L4)


def _on(plan: Plan, flash: FlashReads) -> float:
    """Cycles of a plan on a flash that it was not made for."""
    kernels = [step.kernel for step in plan.steps]
    targets = [replace(k.target, code=flash, constants=flash) for k in kernels if k.target is not None]
    return sum(on_memory(k, target).cycles or 0.0 for k, target in zip(kernels, targets, strict=True))
