"""Images with an NPU: the core's layers are proven, those on the NPU named and tried with its model."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from crtgen import api
from crtgen.cli.app import app
from crtgen.compiler.byoc import read_generator
from crtgen.proof.checker import Proof, prove
from crtgen.proof.checker.binary.image import read_image
from crtgen.proof.checker.surroundings.npu import driver_stack
from crtgen.proof.printed import as_dict, lines_of
from crtgen.proof.refute import refute
from tests.proof.checker.mutations import flipped
from tests.support import ROOT, model_path, require_tool
from tests.tflite_builder import Model, Operator, Options, Tensor

pytest.importorskip("ethosu")
pytestmark = pytest.mark.qemu


def two_calls() -> bytes:
    """Fully connected, PRELU, fully connected: the middle one is for the core."""
    random = np.random.default_rng(5)

    def tensor(name: str, size: int, scale: float, zero: int) -> Tensor:
        return Tensor(name, (1, size), "int8", [scale], [zero])

    def weights(name: str, shape: tuple[int, int]) -> Tensor:
        return Tensor(name, shape, "int8", [0.02], [0], data=random.integers(-99, 99, shape, np.int8))

    slope = Tensor("slope", (8,), "int8", [0.01], [0], data=random.integers(-99, 99, 8, np.int8))
    tensors = [
        *(tensor("x", 8, 0.05, 3), weights("w", (8, 8)), tensor("a", 8, 0.08, -7), slope),
        *(tensor("b", 8, 0.06, 5), weights("v", (4, 8)), tensor("y", 4, 0.09, 11)),
    ]
    full = Options("FullyConnectedOptions")
    operators = [
        Operator("FULLY_CONNECTED", ["x", "w"], ["a"], full),
        Operator("PRELU", ["a", "slope"], ["b"]),
        Operator("FULLY_CONNECTED", ["b", "v"], ["y"], full),
    ]
    return Model(tensors, operators, ["x"], ["y"]).to_bytes()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The model and its standalone image."""
    require_tool("arm-none-eabi-gcc")
    folder = tmp_path_factory.mktemp("npu")
    model, image = folder / "calls.tflite", folder / "firmware.elf"
    model.write_bytes(two_calls())
    npu = read_generator("ethos-u:config=ethos-u55-128")
    compiled = api.load(model).compile("mps3_an547", generators=[npu], fallback=True)
    made = compiled.generate("standalone").build()
    image.write_bytes(made.path.read_bytes())
    return model, image


@pytest.fixture(scope="module")
def proof(built: tuple[Path, Path]) -> Proof:
    model, image = built
    return prove(image, model)


def test_what_the_npu_computes_is_named(proof: Proof) -> None:
    assert proof.holds, lines_of(proof)
    assert not proof.is_proven
    assert [(call.npu, call.layers) for call in proof.trusted] == [
        ("ethos-u55-128", (0,)),
        ("ethos-u55-128", (2,)),
    ]
    assert [(layer.proven, layer.trusted) for layer in proof.layers] == [(0, 8), (8, 0), (0, 4)]
    verdict = lines_of(proof)[-1]
    assert verdict == (
        "calls: checked but for the NPU, 4 of 4 outputs; each is the network's for every input if the NPU "
        "computes the 2 layers of its 2 calls as crtgen's model of it does"
    )
    said = as_dict(proof)
    assert (said["proven"], said["proven_but_for_npu"]) == (False, True)
    assert [call["operators"] for call in said["trusted"]] == [("FULLY_CONNECTED",)] * 2


def test_scratch_in_another_memory_is_no_output() -> None:
    """The arena's part for the NPU is not compared with a tensor of the network."""
    require_tool("arm-none-eabi-gcc")
    model = ROOT / "demo" / "digits.tflite"
    npu = read_generator("ethos-u:config=ethos-u65-256")
    place = {"arena": "ddr", "npu": "ram"}
    compiled = api.load(model).compile("mps3_an547", generators=[npu], fallback=True, place=place)
    assert compiled.plans[0].parts["npu"].size
    image = compiled.generate("standalone").build()  # removed with its object
    found = prove(image.path, model)
    assert found.holds, lines_of(found)
    assert len(found.trusted) == 1


def test_the_stack_has_the_drivers(built: tuple[Path, Path], proof: Proof) -> None:
    driver = driver_stack(read_image(built[1]))
    assert 32 <= driver < proof.stack < driver + 256


@pytest.mark.parametrize(
    ("part", "offset", "text"),
    [
        ("operand1", 0, "of the bytes that it reads, "),
        ("stream", 0, "crtgen's model of the NPU refuses the call"),
        ("constants", 8, "that are no tensor of the network, on 2 inputs"),
    ],
)
def test_a_fault_on_either_side_is_found(
    built: tuple[Path, Path], tmp_path: Path, part: str, offset: int, text: str
) -> None:
    """A slope of the core's layer, the first command of a stream, a scale of the NPU's."""
    model, path = built
    image = read_image(path)
    (first, *_) = sorted(at for name, at in image.symbols.items() if part in name and at >= 0x1000000)
    changed = flipped(path, first + offset, 5, tmp_path)
    found = prove(changed, model)
    assert not found.holds
    assert text in f"{found.stopped} {found.first_reason}", lines_of(found)
    assert "crtgen verify runs them" in refute(found, changed).lines()[0]


def test_there_is_no_header_of_a_time_that_nobody_knows(built: tuple[Path, Path], tmp_path: Path) -> None:
    model, image = built
    header = tmp_path / "worst.h"
    arguments = ["prove", str(model), "--image", str(image), "--header", str(header)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert "the worst-case time of the NPU is not known" in " ".join(done.output.split())
    assert not header.exists()


@pytest.mark.models
@pytest.mark.nightly
def test_an_input_at_the_end_of_the_arena(tmp_path: Path) -> None:
    """An input of 490 bytes, of which the NPU reads 496."""
    model = model_path("kws_int8")
    npu = read_generator("ethos-u:config=board")
    built = (
        api.load(model).compile("mps3_an547", generators=[npu], fallback=True).generate("standalone").build()
    )
    found = prove(built.path, model)
    assert found.holds, lines_of(found)
    assert sum(len(call.layers) for call in found.trusted) > 10


def test_the_command_says_it(built: tuple[Path, Path]) -> None:
    model, image = built
    done = CliRunner().invoke(app, ["prove", str(model), "--image", str(image)], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "on the NPU" in done.output
    assert "checked but for the NPU" in done.output
