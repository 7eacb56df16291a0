"""LSTMs of integers: cell and hidden states by their structure, in the first run and in later ones."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crtgen import api
from crtgen.boards import Board, find_board
from crtgen.boards.core import find_core
from crtgen.network.ops import all_cases
from crtgen.proof.checker import prove
from crtgen.proof.checker.binary.image import read_image
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.network.numbers import OnNumbers
from crtgen.proof.refute import refute
from tests.network.ops import oracle
from tests.proof.checker.changed import built_with
from tests.proof.checker.mutations import flipped
from tests.support import models_dir, nightly, require_tool

M3, M4, M55 = "mps2_an385", "mps2_an386", "mps3_an547"


def built(folder: Path, board: str | Board, old: str = "", new: str = "") -> tuple[Path, Path]:
    """An image of five times of six units and its model, with a text of the kernels changed."""
    require_tool("arm-none-eabi-gcc")
    model = folder / "lstm_int8.tflite"
    (case,) = (c for c in all_cases() if c.name == "lstm_int8")
    model.write_bytes(oracle.model(case.graph()))
    generated = api.load(model).compile(board).generate("standalone")
    file = "model/lstm_int8_asm_kernels.S"
    made = built_with(generated, file, (old, new)) if old else generated.build()
    path = folder / "firmware.elf"
    path.write_bytes(made.path.read_bytes())
    return path, model


@pytest.fixture(scope="module")
def lstm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Five times of six units, for an M55."""
    return built(tmp_path_factory.mktemp("lstm"), M55)


@pytest.mark.models
def test_recorded_outputs() -> None:
    """28 times of 20 units, and what comes after it: recorded with TFLite Micro, from a start."""
    path = models_dir().parent / "networks" / "tflm" / "trained_lstm_int8.tflite"
    cases, runs = np.load(path.with_suffix(".npz")), OnNumbers(Network(path))
    names = sorted(k.removesuffix("_input0") for k in cases.files if k.endswith("_input0"))
    for name in names:
        found, _ = runs.results(cases[f"{name}_input0"].ravel().astype(np.int64))
        np.testing.assert_array_equal(found, cases[f"{name}_output0"].ravel())
    assert names


@pytest.mark.qemu
def test_every_run(lstm: tuple[Path, Path]) -> None:
    """Hidden states of all times, and the two states that are kept."""
    proof = prove(*lstm)
    assert proof.is_proven, proof.stopped or proof.first_reason
    assert (proof.outputs, proof.runs) == (5 * 6 + 2 * 6, 2)
    assert [(layer.needed, layer.missing) for layer in proof.layers] == [(42, 0)]


@pytest.mark.qemu
@pytest.mark.parametrize("core", ["cortex-m4", nightly("cortex-m3"), nightly("cortex-m0plus")])
def test_registers_take_the_name_of_a_cell(core: str, tmp_path: Path) -> None:
    """Where C computes it, a cell state is in a register when its tanh is looked up."""
    board = replace(find_board(M4 if core == "cortex-m4" else M3), core=find_core(core))
    proof = prove(*built(tmp_path, board))
    assert proof.is_proven, proof.stopped or proof.first_reason


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("old", "new"),
    [
        nightly("vrshr.s32 q0, q0, #18", "vrshr.s32 q0, q0, #17"),
        ("vrshr.s32 q0, q0, #14", "vshr.s32 q0, q0, #14"),
        nightly("movw    r12, #43716", "movw    r12, #43724"),
    ],
)
def test_a_step_between_products(old: str, new: str, tmp_path: Path) -> None:
    """Twice what enters the cells, a rounding that is none, a factor of 2^-28 more."""
    path, model = built(tmp_path, M55, old, new)
    proof = prove(path, model)
    assert not proof.is_proven
    assert proof.layers[0].reasons, "with the number that shows it"
    assert "the network says" in proof.layers[0].reasons[0]


@pytest.mark.qemu
def test_an_entry_of_a_table(lstm: tuple[Path, Path], tmp_path: Path) -> None:
    """Of tanh, which only cell states near the end of their range look at."""
    path, model = lstm
    image = read_image(path)
    (name,) = (n for n in image.symbols if n.endswith("_lstm_tables"))
    changed = flipped(path, image.symbols[name] + 2 * (2 * 256 + 250), 0, tmp_path)
    assert not prove(changed, model).is_proven


@pytest.mark.qemu
def test_a_fault_is_shown(tmp_path: Path) -> None:
    """What is kept is taken twice."""
    require_tool("qemu-system-arm")
    path, model = built(tmp_path, M55, "vrshr.s32 q0, q0, #14", "vrshr.s32 q0, q0, #13")
    found = refute(prove(path, model), path, find_board(M55))
    assert found.inputs
