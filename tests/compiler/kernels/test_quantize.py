"""QUANTIZE of float32 where it is hard: at the borders between results, beyond them, of what is no number."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target
from crtgen.compiler.kernels.engine.registry import registered
from crtgen.compiler.kernels.portable.borders import borders_of
from crtgen.compiler.kernels.vfp.quantize import parts_of
from crtgen.network.ir import Array, DType, Quant
from crtgen.network.ops import INT8, INT16, Case, Quantize
from crtgen.network.ops.case import by_float32, floats, make
from crtgen.network.ops.scheme import Scheme
from tests.compiler.kernels.harness import Job, guarded, run_jobs
from tests.support import nightly

_SCALES = (0.03, 1 / 255, 2 / 255, 0.0078125, 1.0, 17.3, 3e-7)
_ODD = (0.0, -0.0, 1e-40, -1e-40, 1e-45, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan, -np.nan)
_PAYLOADS = (0x7FC00001, 0xFFC00001, 0x7FFFFFFF, 0xFFFFFFFF)
"""Bits of others that are no numbers, as arithmetic gives them."""


@dataclass(frozen=True, slots=True, eq=False)
class _Chosen(Case):
    """A case whose input is not drawn."""

    numbers: Array | None = None

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        assert self.numbers is not None
        return {"x": self.numbers}


def _hard(scale: float, zero_point: int, even: bool, scheme: Scheme = INT8) -> Array:
    """Borders and their neighbours with both signs, whole steps, halves of them, and odd numbers; of int16
    only some borders.
    """
    at = borders_of(scale, scheme.magnitude(zero_point) + 3, even)
    assert at is not None
    at = at if scheme is INT8 else np.concatenate([at[:40], at[40:-10:61], at[-10:]])
    beside = [np.nextafter(at, np.float32(end)) for end in (0, np.inf)]
    whole = (np.arange(0, 600) * 0.5 * scale).astype(np.float32)
    far = (np.logspace(2, 9, 50) * scale).astype(np.float32)
    size = np.concatenate([at, *beside, whole, far])
    odd = [np.array(_ODD, np.float32), np.array(_PAYLOADS, np.uint32).view(np.float32)]
    numbers = np.concatenate([size, -size, *odd])
    return np.random.default_rng(1).permutation(numbers)


def _cases() -> list[Case]:
    made: list[Case] = []
    for scale in _SCALES:
        for zero_point in (-128, -5, 127):
            for even in (False, True):
                numbers = _hard(scale, zero_point, even)
                x = floats("x", (len(numbers),))
                case = make("hard", Quantize(), [x], Quant.tensor(scale, zero_point))
                case = by_float32(case) if even else case
                made.append(_Chosen(case.name, case.op, case.sig, numbers=numbers))
    for scale in (1 / 32768, 2.7e-4, 1.0, 3e-7):
        for even in (False, True):
            numbers = _hard(scale, 0, even, INT16)
            case = make("hard", Quantize(DType.INT16), [floats("x", (len(numbers),))], Quant.tensor(scale, 0))
            case = by_float32(case) if even else case
            made.append(_Chosen(case.name, case.op, case.sig, numbers=numbers))
    return made


@pytest.mark.qemu
@pytest.mark.parametrize(
    "core",
    ["cortex-m0plus", "cortex-m4", *map(nightly, ("cortex-m3", "cortex-m7", "cortex-m33")), "cortex-m55"],
)
def test_every_border(core: str, tmp_path: Path) -> None:
    """All designs give what the reference gives, also for infinities and for what is no number."""
    target = Target(find_core(core), "speed")
    kernels = [
        (case, entry.kernel(case.op, case.sig, target)) for case in _cases() for entry in registered(Quantize)
    ]
    jobs = [Job(case, kernel) for case, kernel in kernels if kernel is not None]
    assert "borders" in {job.kernel.design for job in jobs}
    assert target.core.vfp == ("vfp quantise" in {job.kernel.design for job in jobs})
    wrong = [
        (job.kernel.design, job.case.sig.y.quant, result.wrong[:1])
        for job, result in zip(jobs, run_jobs(jobs, tmp_path, guarded(core)), strict=True)
        if result.wrong
    ]
    assert not wrong


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("scale", [*_SCALES, 0.1, 0.00390625, 1e-12, 1e12])
def test_borders_are_where_quotients_round_up(scale: float, even: bool) -> None:
    borders = borders_of(scale, 255, even)
    assert borders is not None
    for numbers, less in ((borders, 0), (np.nextafter(borders, np.float32(0)), 1)):
        quotients = (numbers / np.float32(scale)).astype(np.float64)
        rounded = np.rint(quotients) if even else np.floor(quotients + 0.5)
        assert (rounded == np.arange(1, 256) - less).all()


def test_scales_that_are_hardly_ones_have_no_borders() -> None:
    assert borders_of(1e-30, 128) is None
    assert borders_of(1e30, 128) is None
    assert parts_of(1e-30, 0) is None


def test_one_product_would_not_be_exact() -> None:
    """Both parts of the reciprocal are needed: the nearest number alone is wrong at a border."""
    parts, at = parts_of(0.03, 0), borders_of(0.03, 128)
    assert parts is not None
    assert at is not None
    quotients = at * np.float32(parts[0]), np.nextafter(at, np.float32(0)) * np.float32(parts[0])
    halves = np.arange(1, 256, 2) / 2
    assert (quotients[0] < halves).any() or (quotients[1] >= halves).any()


def test_no_number_is_the_least_one() -> None:
    case = make("nan", Quantize(), [floats("x", (2,))], Quant.tensor(0.1, 3))
    (made,) = case.op.reference(case.sig, [np.array([np.nan, np.inf], np.float32)])
    assert made.tolist() == [-128, 127]
