"""Kernels of the signal library on numbers at their borders: squares, words that are full."""

from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.network.ir import DType, Signature, Value
from crtgen.network.ops import Case, FftAutoScale, FilterBankSquareRoot, Window
from tests.compiler.kernels.program import Run, check_outputs, run_on_host, run_on_qemu
from tests.support import nightly


def _roots() -> Run:
    random = np.random.default_rng(0)
    roots = [int(n) for bits in (1, 4, 8, 12, 16, 20, 24, 28, 32) for n in random.integers(0, 1 << bits, 20)]
    roots += [(1 << 16) - 1, 1 << 16, (1 << 32) - 1]
    near = {n * n + d for n in roots for d in (-1, 0, 1, n, n + 1, 2 * n)} | {(1 << 32) - 1, (1 << 64) - 1}
    numbers = np.array(sorted(min(max(n, 0), (1 << 64) - 1) for n in near), np.uint64)
    x, bits = Value("x", numbers.shape, DType.UINT64), Value("bits", (), DType.INT32)
    sig = Signature((x, bits), (Value("y", numbers.shape, DType.UINT32),))
    graph = Case("roots", FilterBankSquareRoot(), sig).graph()
    return Run("roots", graph, {"x": numbers, "bits": np.array(0, np.int32)})


def _samples(most: int) -> list[Run]:
    random = np.random.default_rng(most)
    data = random.integers(-most, min(most, 32767) + 1, 62).astype(np.int16)
    x = Value("x", data.shape, DType.INT16)
    weights = Value.constant("w", random.integers(-32768, 32768, 62).astype(np.int16))
    windowed = Signature((x, weights), (Value("y", x.shape, DType.INT16),))
    scaled = Signature((x,), (Value("y", x.shape, DType.INT16), Value("bits", (), DType.INT32)))
    return [
        Run(f"window {most}", Case("window", Window(12), windowed).graph(), {"x": data}),
        Run(f"scaled {most}", Case("scaled", FftAutoScale(), scaled).graph(), {"x": data}),
    ]


def _check(runs: list[Run], outputs: list[bytes]) -> None:
    wrong = [text for run, out in zip(runs, outputs, strict=True) if (text := check_outputs(run, out))]
    assert not wrong, "\n".join(wrong)


def _runs() -> list[Run]:
    return [_roots(), *(run for most in (0, 1, 90, 16384, 32768) for run in _samples(most))]


@pytest.mark.cc
def test_host(tmp_path: Path) -> None:
    runs = _runs()
    _check(runs, run_on_host(tmp_path, runs))


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("machine", "core"),
    [
        ("mps2-an386", "cortex-m4"),
        nightly("mps3-an547", "cortex-m55"),
        nightly("mps2-an385", "cortex-m0plus"),
    ],
)
def test_qemu(tmp_path: Path, machine: str, core: str) -> None:
    runs = _runs()
    _check(runs, run_on_qemu(tmp_path, runs, machine, find_core(core)))
