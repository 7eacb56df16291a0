"""Layers in halves for two cores: what is cut, what is proven of it, and that the halves make the whole."""

import math
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import crtgen
from crtgen.api import Model
from crtgen.base.errors import CrtgenError, ToolMissingError, UsageError
from crtgen.base.resources import runtime_dir
from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Kernel, Parts, Target, on_two_cores, select
from crtgen.compiler.kernels.engine import pair
from crtgen.compiler.kernels.engine.kernel import Share
from crtgen.compiler.plan import Plan, make_plan
from crtgen.compiler.plan.check import check_plan
from crtgen.device.run import Site
from crtgen.device.run.rp2040 import find_rp2040js
from crtgen.network.frontends import load_tflite
from crtgen.network.ir import Graph
from crtgen.network.ops import all_cases
from tests import tflite_builder
from tests.compiler.kernels.program import Run, check_outputs, run_plans_on_host, run_plans_on_qemu
from tests.support import ROOT, compile_each, few, model_path, nightly, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"


def _paired(graph: Graph, target: Target) -> Plan:
    """With every layer in halves that can be."""
    parts, kernels = Parts(target), select(graph, target)
    halves = {n.name: on_two_cores(n.op, graph.signature(n), kernels[n.name], parts) for n in graph.nodes}
    return make_plan(graph, halves)


def _runs(target: Target, each: int) -> list[tuple[Run, Plan]]:
    """Choose cases with a layer that can be cut: some of each operator and type, then of each design."""
    runs = []
    for case in few(all_cases(), lambda case: [(type(case.op), case.sig.y.dtype)], 4 * each):
        graph, inputs = case.graph(), case.inputs(1)
        plan = _paired(graph, target)
        if any(step.kernel.shares for step in plan.steps):
            runs.append((Run(case.name, graph, {name: inputs[name] for name in graph.inputs}), plan))
    assert len(runs) > 100
    return few(runs, _designs, each)


def _designs(pair: tuple[Run, Plan]) -> set[str]:
    return {step.kernel.design for step in pair[1].steps if step.kernel.shares}


_EACH = pytest.mark.parametrize("each", [1, nightly(10_000)], ids=["some", "all"])
"""Cases of each design."""


def _check(runs: list[tuple[Run, Plan]], outputs: list[bytes]) -> None:
    pairs = zip(runs, outputs, strict=True)
    wrong = [text for (run, _), out in pairs if (text := check_outputs(run, out))]
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers are cut whatever that saves."""
    monkeypatch.setattr(pair, "_WORTH", math.inf)


@pytest.mark.cc
@_EACH
def test_halves_on_this_computer(tmp_path: Path, everything: None, each: int) -> None:
    """One core computes both, with sanitizers."""
    runs = _runs(Target(cores=2), each)
    _check(runs, run_plans_on_host(tmp_path, runs))


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("machine", "core"),
    [
        nightly("mps2-an385", "cortex-m0plus"),
        ("mps2-an386", "cortex-m4"),
        nightly("mps3-an547", "cortex-m55"),
    ],
)
@_EACH
def test_halves_on_boards(tmp_path: Path, everything: None, machine: str, core: str, each: int) -> None:
    runs = _runs(Target(core=find_core(core), cores=2), each)
    _check(runs, run_plans_on_qemu(tmp_path, runs, machine, find_core(core)))


def _of(name: str) -> tuple[Plan, Plan]:
    """Plans of a reference model for one core and for two."""
    model = crtgen.load(model_path(name))
    assert isinstance(model, Model)
    one, two = (model.compile(board="mps2_an386", optimize="speed", cores=n) for n in (1, 2))
    return one.plans[0], two.plans[0]


@pytest.mark.models
@pytest.mark.parametrize("name", ["kws_int8", "ad01_int8", "vww_int8", "ic01_int8"])
def test_what_two_cores_save(name: str) -> None:
    """By estimates for a Cortex-M4: 1.9 times at least, and constants as before within 4 %."""
    plans = _of(name)
    one, two = (sum(s.kernel.cost.time for s in plan.steps) for plan in plans)
    assert one / two > 1.9
    flash = [sum(s.kernel.cost.constants for s in plan.steps) for plan in plans]
    assert flash[1] < 1.04 * flash[0]


def _changed(plan: Plan, number: int, share: Share) -> Plan:
    """With another share of the second core in a step."""
    step = plan.steps[number]
    kernel: Kernel = replace(step.kernel, shares=(step.kernel.shares[0], share))
    steps = (*plan.steps[:number], replace(step, kernel=kernel), *plan.steps[number + 1 :])
    return replace(plan, steps=steps)


@pytest.mark.models
def test_a_half_that_touches_the_other_is_found() -> None:
    model = crtgen.load(DIGITS)
    assert isinstance(model, Model)
    plan = model.compile(board="rpi_pico2", cores=2).plans[0]
    kws = _of("kws_int8")[1]
    number = next(n for n, step in enumerate(plan.steps) if step.kernel.shares)
    second = plan.steps[number].kernel.shares[1]
    check_plan(plan)
    begin, end = second.writes
    for writes in ((begin - 1, end), (begin, end - 1), (begin + 1, end)):
        with pytest.raises(CrtgenError, match="do not write each byte"):
            check_plan(_changed(plan, number, replace(second, writes=writes)))
    number = next(n for n, s in enumerate(plan.steps) if s.kernel.shares and s.kernel.scratch)
    first, second = plan.steps[number].kernel.shares
    with pytest.raises(CrtgenError, match="share scratch memory"):
        check_plan(_changed(plan, number, replace(second, scratch=first.scratch)))
    number = next(n for n, s in enumerate(kws.steps) if s.kernel.shares and s.kernel.inplace)
    wide = kws.steps[number].kernel.shares[1]
    with pytest.raises(CrtgenError, match="overwrites what the other one reads"):
        check_plan(_changed(kws, number, replace(wide, reads=((0, wide.reads[0][1]), *wide.reads[1:]))))


def test_what_two_cores_cannot(tmp_path: Path) -> None:
    model = crtgen.load(DIGITS)
    assert isinstance(model, Model)
    with pytest.raises(UsageError, match="3 cores; supported here: 1 and 2"):
        model.compile(board="rpi_pico2", cores=3)
    with pytest.raises(UsageError, match="the board's file describes no second core equal to the first"):
        model.compile(board="mps2_an386", cores=2).generate()
    with pytest.raises(UsageError, match="plain libraries only"):
        model.compile(board="mps2_an521", cores=2).generate("slot", slot="a")


@pytest.mark.cc
def test_threads_do_not_race(tmp_path: Path) -> None:
    """A thread is the second core; ThreadSanitizer sees no race, and the outputs are right."""
    model = crtgen.load(DIGITS)
    assert isinstance(model, Model)
    rng = np.random.default_rng(3)
    pictures = [rng.integers(-128, 128, (1, 8, 8, 1)).astype(np.int8) for _ in range(20)]
    generated = model.compile(board="host", cores=2).generate("library")
    generated.extract(tmp_path)
    numbers = (", ".join(map(str, picture.reshape(-1))) for picture in pictures)
    (tmp_path / "model" / "pictures.h").write_text("".join(f"{{{row}}},\n" for row in numbers))
    sources = [*(tmp_path / "model").glob("*.c")]
    sources.append(Path(__file__).with_name("two_cores.c"))
    command = [require_tool("gcc"), "-O1", "-w", "-fsanitize=thread", f"-I{tmp_path / 'model'}"]
    command += [f"-I{runtime_dir() / 'include'}"]
    compile_each(command, sources, tmp_path / "program", ["-lpthread", "-lm"])
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[:2000]
    expected = [next(iter(model.graph.run([(picture,)])))[0].reshape(-1) for picture in pictures]
    assert list(map(int, done.stdout.split())) == np.concatenate(expected).tolist()


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2_an521", nightly("musca_b1")])
@pytest.mark.parametrize("name", ["", nightly("kws_int8"), nightly("ad01_int8"), nightly("vww_int8")])
def test_two_cores_of_qemu(tmp_path: Path, name: str, board: str) -> None:
    """Two Cortex-M33: the second one computes its halves, or the run would end in a trap.

    Those of the Musca have an FPU and the DSP extension.
    """
    model = crtgen.load(model_path(name) if name else DIGITS)
    assert isinstance(model, Model)
    extracted = model.compile(board=board, cores=2).generate().extract(tmp_path / "project")
    source = tmp_path / "project" / "runtime" / "src" / "crt_cores.c"
    alone = "        first(call);\n        second(call);\n        return;\n"
    assert source.read_text().count(alone) == 1
    source.write_text(source.read_text().replace(alone, "        __builtin_trap();\n"))
    rng = np.random.default_rng(1)
    runs = [tuple(rng.integers(-128, 128, v.shape).astype(np.int8) for v in model.inputs) for _ in range(3)]
    with extracted.build().run() as session:
        for run, wanted in zip(runs, model.graph.run(runs), strict=True):
            np.testing.assert_array_equal(session.infer(*run)[0], wanted[0])


def test_two_cores_of_a_simulated_pico() -> None:
    """By cycles, both in rp2040js: outputs as they should be, in less than 0.6 of the time."""
    try:
        find_rp2040js()
    except ToolMissingError as error:
        pytest.skip(str(error))
    model = crtgen.load(DIGITS)
    assert isinstance(model, Model)
    picture = np.arange(-32, 32, dtype=np.int8).reshape(1, 8, 8, 1)
    cycles = []
    for cores in (1, 2):
        image = model.compile(board="rpi_pico", cores=cores).generate().build()
        with image.run(site=Site(simulate=True)) as session:
            np.testing.assert_array_equal(session.infer(picture)[0], next(model.graph.run([(picture,)]))[0])
            cycles.append(session.measure().cycles or 0)
    assert 0.4 < cycles[1] / cycles[0] < 0.6


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["constant second", "constant first"])
@pytest.mark.parametrize("shape", [(4,), (1, 4), (8, 8, 4), (1, 8, 8, 4)], ids=str)
def test_a_constant_of_any_rank_on_either_side(shape: tuple[int, ...], order: tuple[int, int]) -> None:
    """Whatever side a constant is on, and however many axes it has, the sum is cut or left to one core."""
    tensors = [tflite_builder.Tensor(name, (1, 8, 8, 4), "int8", [0.1], [0]) for name in ("x", "y")]
    tensors.append(tflite_builder.Tensor("c", shape, "int8", [0.1], [0], data=np.ones(shape, np.int8)))
    add = tflite_builder.Operator(
        "ADD", [("x", "c")[n] for n in order], ["y"], tflite_builder.Options("AddOptions")
    )
    data = tflite_builder.Model(tensors, [add], inputs=["x"], outputs=["y"]).to_bytes()
    compiled = crtgen.compile([Model(load_tflite(data, "sum"))], "musca_b1", cores=2)
    assert [step.name for step in compiled.plans[0].steps] == ["add"]
