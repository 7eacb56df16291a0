"""The main job on the reference models: compiled, built, run and compared on host and simulated boards."""

from pathlib import Path

import numpy as np
import pytest

import crtgen
from tests.support import FLOAT_MODELS, INT8_MODELS, model_path, nightly, require_tool

BOARDS = ("mps2_an385", "mps2_an386", "mps2_an500", "mps2_an505", "mps2_an521", "mps3_an547")
MODELS = (*INT8_MODELS, *FLOAT_MODELS)

IN_CI = (
    ("kws_int8", "mps2_an385"),
    ("ad01_int8", "mps2_an505"),
    ("hello_world_int8", "mps2_an521"),
    ("kws_int8", "mps3_an547"),
    ("hello_world_float", "mps2_an386"),
    ("ad01_float32", "mps2_an500"),
    ("ic01_float32", "mps3_an547"),
)
"""Every board once, every kernel family on its core; vww and ic01 are in ``test_stream``."""

_ON_THE_HOST = ("ad01_int8", "vww_int8", "hello_world_float", "ic01_float32")

LIVE_PEAK = {"ad01_int8": 768, "kws_int8": 16_000, "ic01_int8": 49_152, "vww_int8": 55_296}
"""Bytes of live activations at the worst moment, whole tensors, nothing in place."""


def verified(model: str, board: str, toolchain: str | None = None) -> None:
    path = model_path(model)
    image = crtgen.load(path).compile(board).generate().build(toolchain=toolchain)
    with image.run(counting=False) as session:
        verdicts = crtgen.verify(session, path, path.with_suffix(".npz"))
    assert len(verdicts) == 8
    assert [str(v.difference) for v in verdicts if v.difference] == []


@pytest.mark.cc
@pytest.mark.models
@pytest.mark.parametrize("model", [m if m in _ON_THE_HOST else nightly(m) for m in MODELS])
def test_every_model_on_the_host(model: str) -> None:
    verified(model, "host")


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize(("model", "board"), IN_CI)
def test_models_on_simulated_boards(model: str, board: str) -> None:
    require_tool("qemu-system-arm")
    verified(model, board)


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.nightly
@pytest.mark.parametrize(("model", "board"), [("kws_int8", "mps2_an386"), ("kws_int8", "mps3_an547")])
def test_models_built_with_zig(model: str, board: str) -> None:
    require_tool("qemu-system-arm")
    verified(model, board, toolchain="zig")


@pytest.mark.matrix
@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("model", MODELS)
def test_the_whole_matrix(model: str, board: str) -> None:
    verified(model, board)


@pytest.mark.models
@pytest.mark.parametrize("model", LIVE_PEAK)
def test_the_arena_is_below_the_live_peak(model: str) -> None:
    (plan,) = crtgen.load(model_path(model)).compile("mps2_an385").plans
    scratch = max((step.kernel.scratch for step in plan.steps), default=0)
    assert plan.arena - scratch <= LIVE_PEAK[model]
    assert plan.optimal


@pytest.mark.qemu
@pytest.mark.models
def test_the_standalone_image_of_kws_is_small() -> None:
    require_tool("arm-none-eabi-gcc")
    compiled = crtgen.compile([crtgen.load(model_path("kws_int8"))], "mps2_an386", optimize="size")
    size = compiled.generate("standalone").build().size
    weights, arena = compiled.modules[0].info.weights, compiled.modules[0].info.arena
    assert weights == 24_368
    assert size.sizes.flash <= weights + 14 * 1024
    assert size.sizes.ram <= arena + 2 * 1024
    names = {symbol.name for symbol in size.sizes.symbols}
    assert not {
        n for n in names if n in ("malloc", "free", "_malloc_r", "printf") or n.startswith("__aeabi_f")
    }


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.usefixtures("compiled_anew")
def test_the_same_model_gives_the_same_elf(tmp_path: Path) -> None:
    require_tool("arm-none-eabi-gcc")
    images = []
    for name in ("one", "two"):
        generated = crtgen.load(model_path("kws_int8")).compile("mps2_an386").generate("standalone")
        images.append(generated.extract(tmp_path / name).build().path.read_bytes())
    assert images[0] == images[1]


@pytest.mark.models
@pytest.mark.cc
def test_python_says_what_the_command_line_says() -> None:
    cases = np.load(model_path("kws_int8").with_suffix(".npz"))
    image = crtgen.load(model_path("kws_int8")).compile(board="host").generate().build()
    with image.run() as session:
        (y,) = session.infer(cases["case0_input0"])
        measured = session.measure(runs=3)
    np.testing.assert_array_equal(y, cases["case0_output0"])
    assert len(measured.ticks) == 3
    assert measured.seconds > 0
