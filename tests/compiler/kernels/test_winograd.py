"""Convolutions by Winograd's tiles: exact, at the ends of ranges too, and faster than by windows."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Kernel, Target, applicable
from crtgen.network.ir import Quant, Signature
from crtgen.network.ops import Case, Conv2d, Padding
from crtgen.network.ops.attrs import Activation
from crtgen.network.ops.case import int8s, make, weights_and_bias
from tests.compiler.kernels.harness import MACHINES, Job, run_jobs

_SAME = Padding(1, 1, 1, 1)


def _case(
    size: tuple[int, int, int, int],
    outputs: int,
    padding: Padding = _SAME,
    out: Quant | None = None,
    op: Conv2d | None = None,
) -> Case:
    x = int8s("x", size, 0.05, 7)
    parts = weights_and_bias("tiles", x, (outputs, 3, 3, size[3]), 0, True)
    return make("tiles", op or Conv2d((1, 1), padding), [x, *parts], out or Quant.tensor(1.5, -7))


def _extreme(low: int) -> Case:
    """Weights and inputs that are as great as there are."""
    case = _case((1, 4, 4, 128), 4, out=Quant.tensor(60.0, 3))
    x, w, b = case.sig.inputs
    drawn = np.random.default_rng(3).choice(np.array([low, 127], np.int8), w.shape)
    sig = Signature((x, replace(w, data=drawn), b), case.sig.outputs)
    return replace(case, sig=sig, limits={"x": (-128, -127)})


def _cases() -> Iterator[Case]:
    for height, width in ((2, 2), (2, 4), (4, 6), (6, 10), (8, 8)):
        yield _case((1, height, width, 8), 6)
    yield _case((2, 6, 4, 12), 4)
    yield _case((1, 8, 10, 4), 2, Padding())
    yield _case((2, 4, 6, 4), 2, Padding())
    yield _case((1, 5, 4, 8), 4, Padding(1, 0, 1, 1))
    yield _case((1, 6, 6, 20), 4, op=Conv2d((1, 1), _SAME, activation=Activation.RELU))
    yield _case((1, 6, 6, 20), 4, out=Quant.tensor(0.02, 0))
    yield _case((1, 4, 6, 16), 8, out=Quant.tensor(0.11, 100))
    yield from (_extreme(-127), _extreme(-128), _extreme(120))


def _kernel(case: Case, core: str) -> Kernel:
    found = applicable(case.op, case.sig, Target(find_core(core), "speed"))
    return next(kernel for kernel in found if kernel.design == "dsp_winograd")


@pytest.mark.qemu
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m7", "cortex-m33"])
def test_outputs(tmp_path: Path, core: str) -> None:
    """In place, too, and at the ends of memory, as the harness runs all."""
    results = run_jobs([Job(case, _kernel(case, core)) for case in _cases()], tmp_path, MACHINES[core])
    assert [r.wrong for r in results if r.wrong] == []


@pytest.mark.parametrize(
    ("size", "outputs", "per_mac"),
    [((32, 32, 16), 16, 0.53), ((16, 16, 32), 32, 0.42), ((8, 8, 64), 64, 0.37)],
)
def test_instructions(size: tuple[int, int, int], outputs: int, per_mac: float) -> None:
    """Of the layers of a ResNet; the matrix micro-kernel takes 0.76 and more."""
    case = _case((1, *size), outputs)
    kernel = _kernel(case, "cortex-m4")
    assert kernel.cost.instructions <= per_mac * np.prod(size) * outputs * 9
    assert kernel.cost.constants == outputs * (size[2] * 32 + 16)


@pytest.mark.parametrize(
    ("shape", "outputs", "taps", "stride"),
    [
        ((1, 5, 4, 8), 4, 3, 1),
        ((1, 4, 5, 8), 4, 3, 1),
        ((1, 4, 4, 6), 4, 3, 1),
        ((1, 4, 4, 8), 3, 3, 1),
        ((1, 4, 4, 132), 4, 3, 1),
        ((1, 4, 4, 8), 4, 5, 1),
        ((1, 4, 4, 8), 4, 3, 2),
        ((1, 40, 400, 4), 16, 3, 1),
    ],
    ids=["rows", "columns", "inputs", "outputs", "depth", "window", "stride", "far"],
)
def test_what_has_no_tiles(shape: tuple[int, int, int, int], outputs: int, taps: int, stride: int) -> None:
    x = int8s("x", shape, 0.05, 7)
    parts = weights_and_bias("tiles", x, (outputs, taps, taps, shape[3]), 0, True)
    op = Conv2d((stride, stride), Padding(*[taps // 2] * 4))
    case = make("tiles", op, [x, *parts], Quant.tensor(1.5, -7))
    designs = {k.design for k in applicable(op, case.sig, Target(find_core("cortex-m4"), "speed"))}
    assert designs >= {"dsp_matrix"}
    assert "dsp_winograd" not in designs
