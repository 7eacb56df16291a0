"""Layers whose weights are codes in flash: exact on every core, smaller, and only where that is wanted."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Kernel, Target, applicable, select
from crtgen.compiler.kernels.engine.huffman import HuffmanCode
from crtgen.compiler.kernels.portable.coded import CodedView
from crtgen.network.ir import Quant, Signature, Value
from crtgen.network.ops import Case, Conv2d, FullyConnected, Padding, all_cases
from crtgen.network.ops.case import int8s, int16s, make, of_few_values, weights_and_bias
from tests.compiler.kernels.harness import MACHINES, Job, run_jobs
from tests.support import nightly

_OUT = Quant.tensor(0.4, 3)


def _normal(case: Case) -> Case:
    """With weights that are small mostly, some of which have the code of all that are rare."""
    x, w, b = case.sig.inputs
    drawn = np.random.default_rng(4).normal(0, 12, w.shape)
    numbers = np.clip(np.rint(drawn), -127, 127).astype(np.int8)
    inputs = (x, Value.constant(w.name, numbers, w.quant), b)
    return Case(f"{case.name}_normal", case.op, Signature(inputs, case.sig.outputs), case.limits)


def _dense(outputs: int, depth: int, wide: bool = False) -> Case:
    x = int16s("x", (1, depth), 0.0004) if wide else int8s("x", (1, depth), 0.02, -7)
    constants = weights_and_bias("dense", x, (outputs, depth), 0, False)
    return _normal(make("dense", FullyConnected(), [x, *constants], Quant.tensor(0.002) if wide else _OUT))


def _conv(channels: int, outputs: int, window: int, wide: bool = False) -> Case:
    shape = (1, 5, 6, channels)
    x = int16s("x", shape, 0.0004) if wide else int8s("x", shape, 0.02, -7)
    around = window // 2
    op = Conv2d((1, 1), Padding(around, around, around, around))
    constants = weights_and_bias("conv", x, (outputs, window, window, channels), 0, True)
    return _normal(make("conv", op, [x, *constants], Quant.tensor(0.002) if wide else _OUT))


def _cases() -> Iterator[Case]:
    yield from (case for case in all_cases() if case.name.endswith(("_few", "_few_each")))
    for wide in (False, True):
        yield from (_dense(32, 80, wide), _dense(20, 100, wide), _dense(17, 64, wide), _dense(40, 51, wide))
        yield from (_conv(24, 24, 1, wide), _conv(16, 9, 3, wide), _conv(13, 16, 3, wide))


def _coded(case: Case, target: Target) -> list[Kernel]:
    return [k for k in applicable(case.op, case.sig, target) if isinstance(k.view, CodedView)]


@pytest.mark.qemu
@pytest.mark.parametrize("optimize", ["speed", nightly("size")])
@pytest.mark.parametrize(
    ("core", "designs"),
    [
        ("cortex-m0plus", {"dense 8", "pairs 2", "gemm 1x4"}),
        nightly("cortex-m3", {"dense 8", "pairs 4", "gemm 1x4"}),
        ("cortex-m4", {"dsp_dense", "dsp_matrix"}),
        ("cortex-m55", {"mve row", "mve pixels", "mve rows"}),
    ],
)
def test_outputs(tmp_path: Path, core: str, designs: set[str], optimize: str) -> None:
    target = Target(find_core(core), optimize, coded=True)
    jobs = [Job(case, kernel) for case in _cases() for kernel in _coded(case, target)]
    results = run_jobs(jobs, tmp_path, MACHINES[core])
    assert [r.wrong for r in results if r.wrong] == []
    if optimize == "speed":
        found = {job.kernel.design for job in jobs}
        assert not [name for name in designs if not any(design.startswith(name) for design in found)]
        for name in ("coded", "coded 8 at a time", "indices", "indices 8 at a time"):
            assert any(design.endswith(name) for design in found)


@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m4", "cortex-m55", "host"])
def test_flash_and_memory(core: str) -> None:
    """Weights of 16 values take four bits and a little; of a layer with one row, eight outputs lie in RAM."""
    case = next(case for case in all_cases() if case.name == "fully_connected_groups_few")
    target = Target(find_core(core), "speed")
    plain = applicable(case.op, case.sig, replace(target, coded=None))[0]
    kernels = {k.design.partition(", ")[2]: k for k in _coded(case, target)}
    codes, indices = kernels["coded 8 at a time"], kernels["indices 8 at a time"]
    weights = case.sig.inputs[1].elements
    whole = kernels["indices"]
    assert [c.nbytes for c in indices.consts if c.name == "codes"] == [weights // 2]
    for kernel in (codes, indices, whole):
        assert kernel.cost.constants < plain.cost.constants - weights * 0.38
    assert indices.cost.instructions < codes.cost.instructions - 5 * weights
    groups = indices
    view = groups.view
    assert isinstance(view, CodedView)
    assert view.groups == 3
    assert groups.cost.scratch < whole.cost.scratch - 1000


def test_they_are_for_few_values_only_or_where_all_are_wanted() -> None:
    case, target = _dense(32, 80), Target(find_core("cortex-m4"), "speed")
    assert _coded(case, target) == []
    both = {"dsp_dense, coded", "dsp_dense, coded 8 at a time"}
    assert {k.design for k in _coded(case, replace(target, coded=True))} == both
    few = next(case for case in all_cases() if case.name == "fully_connected_groups_few")
    assert len(_coded(few, target)) == 4
    assert _coded(few, replace(target, coded=None)) == []


@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_tables_of_channels(optimize: str) -> None:
    """Where every other weight of a row is of one channel, each channel has a table of its own."""
    case = next(case for case in all_cases() if case.name.endswith("_few_each"))
    target = Target(find_core("cortex-m4"), optimize)
    (kernel,) = (k for k in _coded(case, target) if k.design.endswith("indices"))
    assert len(np.unique(case.sig.inputs[1].array())) > 16
    assert kernel.view.tables == 32
    constants = {const.name: const.nbytes for const in kernel.consts}
    assert constants["codes"] == 12 * 80 // 2  # the last pair has a channel again
    assert constants["decoding"] == 12 * 16
    plain = applicable(case.op, case.sig, replace(target, coded=None))[0]
    assert kernel.cost.constants == plain.cost.constants - 12 * 80 // 2 + 12 * 16


@pytest.mark.parametrize(
    ("optimize", "design"), [("speed", "dsp_matrix"), ("balanced", "dsp_matrix, indices")]
)
def test_the_level_chooses(optimize: str, design: str) -> None:
    """Each weight serves 400 pixels, and the image takes five times as much memory as all weights."""
    x = int8s("x", (1, 20, 20, 64), 0.02, -7)
    constants = weights_and_bias("many", x, (64, 1, 1, 64), 0, True)
    case = of_few_values(make("many", Conv2d(), [x, *constants], _OUT))
    (kernel,) = select(case.graph(), Target(find_core("cortex-m4"), optimize)).values()
    assert kernel.design == design


def test_weights_that_no_code_makes_smaller_stay() -> None:
    """Each of 255 values is there as often."""
    x = int8s("x", (1, 64), 0.02, -7)
    case = make("dense", FullyConnected(), [x, *weights_and_bias("even", x, (32, 64), 0, False)], _OUT)
    assert _coded(case, Target(find_core("cortex-m4"), "speed", coded=True)) == []


def test_codes_are_compared_with_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in all_cases() if case.name == "fully_connected_groups_few")
    kernel = _coded(case, Target(find_core("cortex-m4"), "speed", coded=True))[-1]
    codes = next(const for const in kernel.consts if const.name == "codes")
    assert codes.data.dtype == np.uint16
    read = HuffmanCode.read
    monkeypatch.setattr(HuffmanCode, "read", lambda *args: read(*args) ^ 1)
    with pytest.raises(ValueError, match="the codes of weights are not those weights"):
        _ = codes.data
