"""What an application uses of an image: ``<model>_run``, and the description of the tensors."""

from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from crtgen import api
from crtgen.proof.checker import Proof, prove
from crtgen.proof.checker.image import read_image
from crtgen.proof.printed import lines_of
from tests.support import ROOT, require_tool
from tests.tflite_builder import Model, Operator, Options, Tensor

pytestmark = pytest.mark.qemu

DIGITS = ROOT / "demo" / "digits.tflite"
M4 = "mps2_an386"


def server(model: Path, folder: Path) -> Path:
    """A server image, which has all that applications call."""
    require_tool("arm-none-eabi-gcc")
    built = api.load(model).compile(M4).generate("server").build()
    path = folder / "firmware.elf"
    path.write_bytes(built.path.read_bytes())
    return path


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return server(DIGITS, tmp_path_factory.mktemp("digits"))


def changed(image: Path, folder: Path, symbol: str, old: bytes, new: bytes) -> Path:
    """The image with some bytes of a symbol's object changed, the first that are ``old``."""
    first, end = read_image(image).span(symbol)
    data = bytearray(image.read_bytes())
    with image.open("rb") as file:
        (offset,) = ELFFile(file).address_offsets(first & ~1)
    place = data.index(old, offset, offset + end - first)
    data[place : place + len(old)] = new
    path = folder / "changed.elf"
    path.write_bytes(data)
    return path


def said(proof: Proof) -> str:
    return "\n".join(lines_of(proof))


def test_run_and_description_are_followed(digits: Path) -> None:
    proof = prove(digits, DIGITS)
    assert (proof.is_computed, proof.application.followed, proof.application.described) == (True,) * 3
    assert "application: digits_run moves inputs and outputs, and returns the status" in said(proof)


def test_two_inputs_and_two_outputs(tmp_path: Path) -> None:
    """Of int8 and int16: their sizes differ."""
    kinds = {name: ("int8", 7) for name in "abcde"} | {name: ("int16", 5) for name in "xyz"}
    tensors = [
        Tensor(name, (1, size), kind, [1 / 256 if name == "e" else 0.05], [-128 if name == "e" else 0])
        for name, (kind, size) in kinds.items()
    ]
    operators = [
        Operator("ADD", ["a", "b"], ["d"], Options("AddOptions")),
        Operator("SOFTMAX", ["d"], ["e"], Options("SoftmaxOptions", Beta=1.0)),
        Operator("ADD", ["e", "b"], ["c"], Options("AddOptions")),
        Operator("RELU", ["x"], ["z"]),
        Operator("RELU6", ["z"], ["y"]),
    ]
    path = tmp_path / "two.tflite"
    path.write_bytes(Model(tensors, operators, ["a", "x", "b"], ["c", "y"]).to_bytes())
    proof = prove(server(path, tmp_path), path)
    assert proof.application.followed, lines_of(proof)
    assert not proof.application.wrong


@pytest.mark.parametrize(
    ("symbol", "old", "new", "reason"),
    [
        ("digits_run", "03f14006", "03f13006", "byte 48 of input 0 is not what the network gets"),
        ("digits_run", "2381", "00bf", "byte 8 of output 0 is not what an application gets"),
        ("digits_input0_shape", "08000000", "09000000", "the description of input 0 says"),
        ("digits_input_tensors", "00080100", "01080100", "the description of input 0 says"),
        ("digits_output_tensors", "0a000000", "0b000000", "the description of output 0 says"),
    ],
)
def test_what_is_wrong_is_named(
    symbol: str, old: str, new: str, reason: str, digits: Path, tmp_path: Path
) -> None:
    image = changed(digits, tmp_path, symbol, bytes.fromhex(old), bytes.fromhex(new))
    proof = prove(image, DIGITS)
    assert proof.is_computed
    assert not proof.holds
    assert reason in proof.application.wrong
    assert "digits: not checked: application" in lines_of(proof)[-1]
