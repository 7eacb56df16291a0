"""Checks of ``_run``, ``_reset`` and the description of a model, which applications and hosts use."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from crtgen import api
from crtgen.proof.checker import Proof, prove
from crtgen.proof.checker.algebra.value import unknown
from crtgen.proof.checker.binary.image import image_bytes, read_image
from crtgen.proof.checker.core.layout import variables
from crtgen.proof.checker.network.reading import read_network
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.surroundings.calls import Afterwards, application_call
from crtgen.proof.checker.surroundings.description import compare_description
from crtgen.proof.printed import lines_of
from tests.proof.checker.test_states import remembering
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


def changed(image: Path, folder: Path, symbol: str, olds: Iterable[bytes], new: bytes) -> Path:
    """The image with some bytes of a symbol's object changed, the first that are one of ``olds``."""
    first, end = read_image(image).span(symbol)
    data = bytearray(image.read_bytes())
    with image.open("rb") as file:
        (offset,) = ELFFile(file).address_offsets(first & ~1)
    place = max(data.find(old, offset, offset + end - first) for old in olds)
    assert place >= 0, f"the compiler made other instructions of {symbol}"
    data[place : place + len(new)] = new
    path = folder / "changed.elf"
    path.write_bytes(data)
    return path


def said(proof: Proof) -> str:
    return "\n".join(lines_of(proof))


def test_run_and_description_are_followed(digits: Path) -> None:
    proof = prove(digits, DIGITS)
    assert (proof.is_computed, proof.application.followed, proof.application.described) == (True,) * 3
    assert "application: digits_run moves inputs and outputs, and returns the status" in said(proof)
    assert "a host's copies to inputs and from outputs move their bytes" in said(proof)


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
    assert proof.application.served
    assert not proof.application.wrong


@pytest.mark.parametrize(
    ("symbol", "old", "new", "reason"),
    [
        ("digits_run", "03f14006", "03f13006", "byte 48 of input 0 is not what the network gets"),
        # strh r3, [r4, #8] by GCC 12, [r2, #8] by GCC 14
        ("digits_run", "2381 1381", "00bf", "byte 8 of output 0 is not what an application gets"),
        ("digits_input0_shape", "08000000", "09000000", "the description of input 0 says"),
        ("digits_input_tensors", "00080100", "01080100", "the description of input 0 says"),
        ("digits_output_tensors", "0a000000", "0b000000", "the description of output 0 says"),
    ],
)
def test_what_is_wrong_is_named(
    symbol: str, old: str, new: str, reason: str, digits: Path, tmp_path: Path
) -> None:
    image = changed(digits, tmp_path, symbol, map(bytes.fromhex, old.split()), bytes.fromhex(new))
    proof = prove(image, DIGITS)
    assert proof.is_computed
    assert not proof.holds
    assert reason in proof.application.wrong
    assert "digits: not checked: application" in lines_of(proof)[-1]


def words_changed(image: Path, folder: Path, symbol: str, at: int, value: int, size: int = 4) -> Path:
    """The image with a number at some bytes of a symbol's object changed."""
    data = bytearray(image.read_bytes())
    with image.open("rb") as file:
        (offset,) = ELFFile(file).address_offsets(read_image(image).symbols[symbol])
    data[offset + at : offset + at + size] = value.to_bytes(size, "little")
    path = folder / "changed.elf"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("symbol", "at", "size", "value", "reason"),
    [
        ("digits_model", 0, 4, "digits_softmax_18", "the description has no name at"),
        ("digits_model", 0, 4, "digits_input0_shape", "the description has no name at"),
        ("digits_model", 4, 4, "digits_softmax_18", "digits_model runs another function than digits_compute"),
        ("digits_model", 4, 4, "digits_compute", "digits_model runs another function than digits_compute"),
        ("digits_model", 8, 4, "digits_run", "as the function that resets states, not 0x0"),
        ("digits_model", 12, 4, "digits_output_tensors", "digits_model has the tensors of another model"),
        ("digits_model", 16, 4, "digits_input_tensors", "digits_model has the tensors of another model"),
        ("digits_model", 20, 2, 2, "digits_model has another number of inputs or outputs than the network"),
        ("digits_model", 26, 2, 0, "digits_model says that a run keeps the inputs, and it does not"),
        ("digits_model", 28, 4, "crt_stack_bottom", "digits_model has another arena than the network"),
        ("digits_model", 32, 4, 0x10000, "digits_model has another arena than the network"),
        ("digits_model", 36, 4, "digits_run", "as its recorder"),
        ("digits_model", 40, 4, 32, "digits_model has 0x20 as its drift_reference"),
        ("crt_models", 0, 4, "digits_input_tensors", "digits_model is not among the models of the image"),
        ("crt_num_models", 0, 2, 0, "digits_model is not among the models of the image"),
        ("digits_input_tensors", 0, 4, "digits_input0_shape", "the description has no name at"),
    ],
)
def test_a_model_that_is_described_wrongly(
    symbol: str, at: int, size: int, value: int | str, reason: str, digits: Path, tmp_path: Path
) -> None:
    """Compared by themselves: the proof of the function is the same."""
    number = value if isinstance(value, int) else read_image(digits).symbols[value] & ~1
    image = read_image(words_changed(digits, tmp_path, symbol, at, number, size))
    with pytest.raises(Refusal, match=re.escape(reason)):
        compare_description(image, read_network(DIGITS), "digits", keeps_inputs=False)


def test_names_that_are_exchanged(tmp_path: Path) -> None:
    tensors = [Tensor(name, (1, 8), "int8", [0.05], [0]) for name in ("left", "right", "both")]
    add = Operator("SUB", ["left", "right"], ["both"], Options("SubOptions"))
    path = tmp_path / "pair.tflite"
    path.write_bytes(Model(tensors, [add], ["left", "right"], ["both"]).to_bytes())
    image = server(path, tmp_path)
    symbols, network = read_image(image), read_network(path)
    assert compare_description(symbols, network, "pair", keeps_inputs=True)
    first, _ = symbols.span("pair_input_tensors")
    right = int.from_bytes(image_bytes(symbols, first + 24, 4), "little")
    changed = read_image(words_changed(image, tmp_path, "pair_input_tensors", 0, right))
    with pytest.raises(Refusal, match="the description of input 0 has the name 'right', the file 'left'"):
        compare_description(changed, network, "pair", keeps_inputs=True)


def test_states_are_reset(tmp_path: Path) -> None:
    """``_reset`` is followed, and one that leaves another value is found."""
    model = tmp_path / "remembering.tflite"
    model.write_bytes(remembering())
    image = server(model, tmp_path)
    proof = prove(image, model)
    assert proof.application.resets, said(proof)
    assert "remembering_reset leaves the states' first values" in said(proof)
    symbols, network = read_image(image), read_network(model, later=True)
    first, end = symbols.span("remembering_state")
    kept = {
        i: unknown()
        for low, high in variables(symbols, "remembering")
        for i in range(low >> 2, high + 3 >> 2)
    }
    for value, wrong in (
        (0, ""),
        (7, "remembering_reset leaves another state than the network's first, at "),
    ):
        after = Afterwards(True, kept, {at: value for at in range(first, end)})
        found = application_call(symbols, network, "remembering", after)
        assert (found.resets, found.wrong.rstrip("0123456789abcdefx")) == (not value, wrong)
