"""Networks that keep something from run to run: the first run after a start, and every later one."""

from pathlib import Path

import numpy as np
import pytest

from crtgen import api
from crtgen.boards import find_board
from crtgen.lab.measure.cases import read_cases
from crtgen.proof.checker import prove
from crtgen.proof.checker.binary.image import read_image
from crtgen.proof.refute import refute
from tests.network.frontends.flow import assign, handle, read, variable
from tests.proof.checker.changed import built_with
from tests.proof.checker.mutations import flipped
from tests.support import require_tool
from tests.tflite_builder import Model, Operator, Options, Subgraph, Tensor

pytestmark = pytest.mark.qemu

M4 = "mps2_an386"


def remembering() -> bytes:
    """Adds its input to the sum of those before, which begins at 0."""

    def tensor(name: str) -> Tensor:
        return Tensor(name, (1, 4), "int8", [0.05], [0])

    zeros = Tensor("zeros", (1, 4), "int8", [0.05], [0], data=np.zeros((1, 4), np.int8))
    start = Subgraph([handle("h"), zeros], [variable("sum", "h"), assign("h", "zeros")], [], [], "start")
    operators = [
        Operator("CALL_ONCE", [], [], Options("CallOnceOptions", InitSubgraphIndex=1)),
        variable("sum", "k"),
        read("k", "before"),
        Operator("ADD", ["x", "before"], ["y"], Options("AddOptions")),
        assign("k", "y"),
    ]
    tensors = [handle("k"), *map(tensor, ("x", "before", "y"))]
    return Model(tensors, operators, ["x"], ["y"], others=[start]).to_bytes()


def built(folder: Path, old: str = "", new: str = "") -> tuple[Path, Path]:
    """The model and its image, with a text of the kernels changed."""
    require_tool("arm-none-eabi-gcc")
    model = folder / "remembering.tflite"
    model.write_bytes(remembering())
    generated = api.load(model).compile(M4).generate("standalone")
    made = built_with(generated, "model/remembering_asm_kernels.S", (old, new), count=None)
    path = folder / "firmware.elf"
    path.write_bytes(made.path.read_bytes())
    return model, path


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return built(tmp_path_factory.mktemp("states"))


def test_every_run_is_proven(image: tuple[Path, Path]) -> None:
    """Four outputs, and four elements that are kept."""
    model, path = image
    proof = prove(path, model)
    assert proof.is_proven, proof.first_reason
    assert proof.outputs == 8


def test_what_is_kept_is_compared(image: tuple[Path, Path], tmp_path: Path) -> None:
    """The store of the next state, of another register."""
    model, path = image
    read_again = read_image(path)
    first, end = read_again.span("remembering_compute")
    (at,) = [a for a, i in read_again.instructions.items() if first <= a < end and i.name == "str"]
    proof = prove(flipped(path, at, 0, tmp_path), model)
    assert not proof.is_proven


def test_a_fault_of_later_runs_only(tmp_path: Path) -> None:
    """Two elements of the state are taken for 0, which they are in the first run."""
    model, path = built(tmp_path, "and     r10, r11, r10", "mov     r10, #0")
    proof = prove(path, model)
    assert not proof.is_proven
    assert proof.outputs_proven < proof.outputs
    for board in (find_board(M4), None):
        found = refute(proof, path, board)
        assert len(found.inputs) > 1, "it takes a run before"
        assert found.got is not None
        differ = found.got != found.wanted[-1]
        assert (differ == [False, differ[1], False, differ[3]]).all()
        assert f"in run {len(found.inputs)} after a start" in found.lines()[0]
    found.write(tmp_path / "shown.npz", proof.network)
    info = api.load(model).compile(M4).modules[0].info
    cases = read_cases(tmp_path / "shown.npz", info.inputs, info.outputs)
    assert [case.follows for case in cases] == [False, *(True for _ in found.inputs[1:])]
