"""What stages of features take on each core, and numbers that are no ordinary ones."""

from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target, applicable
from crtgen.network.ir import Array, DType, Graph, Value
from crtgen.network.ops import Bands, Before, BlockPower, Case, Frame, Power, Rfft, block_power
from crtgen.network.ops.case import make
from tests.compiler.kernels.program import Run, check_outputs, run_on_host, run_on_qemu

_F32, _I16, _I32 = DType.FLOAT32, DType.INT16, DType.INT32
_WINDOW = Value.constant("w", np.hamming(1024).astype(np.float32))
_CASES = {
    "frame": make("a", Frame(1, 0.96875), [Value("x", (1025,), _I16), _WINDOW]),
    "fft": make("a", Rfft(1024), [Value("x", (1024,), _F32)]),
    "fft of int16": make("a", Rfft(512), [Value("x", (480,), _I16)]),
    "fft of int32": make("a", Rfft(512), [Value("x", (512,), _I32)]),
    "power": make("a", Power(), [Value("x", (1026,), _F32)]),
}


@pytest.mark.parametrize(
    ("core", "stage", "design", "most"),
    [
        ("cortex-m4", "frame", "vfp frame", 6_300),
        ("cortex-m4", "fft", "vfp radix 4", 31_200),
        ("cortex-m4", "power", "vfp power", 1_810),
        ("cortex-m4", "fft of int16", "dsp radix 4", 14_250),
        ("cortex-m4", "fft of int32", "dsp words", 33_300),
        ("cortex-m55", "frame", "mve frame", 2_400),
        ("cortex-m55", "fft", "mve radix 4", 9_900),
        ("cortex-m55", "power", "mve power", 920),
        ("cortex-m55", "fft of int16", "mve radix 4", 2_800),
    ],
)
def test_instructions(core: str, stage: str, design: str, most: int) -> None:
    case = _CASES[stage]
    kernel = applicable(case.op, case.sig, Target(find_core(core), "speed"))[0]
    assert kernel.design == design
    assert kernel.cost.instructions < most


def _bands() -> Case:
    tables = [
        Value.constant("w", np.linspace(0.1, 1, 11).astype(np.float32)),
        Value.constant("f", np.array([0, 2, 3, 6, 0], np.int16)),
        Value.constant("n", np.array([2, 1, 4, 4, 0], np.int16)),
    ]
    return make("a", Bands(), [Value("x", (10,), _F32), *tables])


@pytest.mark.qemu
@pytest.mark.parametrize(("machine", "core"), [("mps2-an386", "cortex-m4"), ("mps3-an547", "cortex-m55")])
def test_infinite_numbers_stay_in_their_bands(tmp_path: Path, machine: str, core: str) -> None:
    """Bands that are summed side by side read no neighbours of their own."""
    graph = _bands().graph()
    runs = []
    for place in range(10):
        x = np.ones(10, np.float32)
        x[place] = np.inf
        runs.append(Run(f"infinite {place}", graph, {"x": x}))
    outputs = run_on_qemu(tmp_path, runs, machine, find_core(core))
    wrong = [check_outputs(run, out) for run, out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (BlockPower(0, 0.0, Before.EARLIER, 400, (0, 201)), "not a power of two"),
        (BlockPower(0, 1.0, Before.EARLIER, 64, (0, 33)), "a preemphasis of 1.0"),
        (BlockPower(0, 0.0, Before.EARLIER, 16, (0, 9)), "more than 16 samples"),
        (BlockPower(0, 0.0, Before.EARLIER, 64, (0, 33), centred=True), "without mean"),
        (BlockPower(0, 0.0, Before.EARLIER, 64, (5, 6)), "powers 5 to 6 of 33; supported: two or more"),
        (BlockPower(0, 0.0, Before.EARLIER, 64, (0, 34)), "powers 0 to 34 of 33"),
    ],
)
def test_what_blocks_cannot_be(op: BlockPower, said: str) -> None:
    weights = Value.constant("w", np.ones(20, np.float32))
    with pytest.raises(ValueError, match=said):
        op.infer([Value("x", (20,), _I16), weights])


def test_powers_of_blocks_are_equal_to_the_last_bit(tmp_path: Path) -> None:
    """The arithmetic in integers hides behind float32, where other tests allow for rounding."""
    runs = [
        Run(case.name, graph := case.graph(), _given(case, graph)) for case in [*block_power.cases()][::5]
    ]
    for run, printed in zip(runs, run_on_host(tmp_path, runs), strict=True):
        (wanted,) = (run.graph.evaluate(run.inputs)[name] for name in run.graph.outputs)
        np.testing.assert_array_equal(np.frombuffer(printed, np.float32), wanted.ravel(), run.name)


def _given(case: Case, graph: Graph) -> dict[str, Array]:
    inputs = case.inputs(1)
    return {name: inputs[name] for name in graph.inputs}
