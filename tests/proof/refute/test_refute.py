"""Inputs that show what is wrong with an image."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from crtgen import api
from crtgen.boards import find_board
from crtgen.cli.app import app
from crtgen.lab.measure.cases import read_cases
from crtgen.proof.checker import prove
from crtgen.proof.checker.binary.image import read_image
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.network.numbers import OnNumbers
from crtgen.proof.refute import refute
from crtgen.proof.refute.inputs import closing_steps, inputs_to_try
from tests.proof.checker.mutations import flipped
from tests.proof.checker.networks import elements, rare, two_inputs
from tests.support import ROOT, model_path, require_tool

pytestmark = pytest.mark.qemu

M4 = "mps2_an386"


def wrong_image(folder: Path, model: bytes, *changes: tuple[str, str, int]) -> tuple[Path, Path]:
    """A model, and its image with texts of the kernels changed, each as often as is said."""
    require_tool("arm-none-eabi-gcc")
    path = folder / "rare.tflite"
    path.write_bytes(model)
    generated = api.load(path).compile(M4).generate("standalone")
    sources = dict(generated.project.sources)
    kernels = sources["model/rare_kernels.c"].decode()
    for old, new, count in changes:
        assert kernels.count(old) == count
        kernels = kernels.replace(old, new)
    sources["model/rare_kernels.c"] = kernels.encode()
    built = replace(generated, project=replace(generated.project, sources=sources)).build()
    image = folder / "firmware.elf"
    image.write_bytes(built.path.read_bytes())
    return path, image


SHORT = (("sums[0] + bias[0]", "(int16_t)(sums[0] + bias[0])", 1),)
"""A fault: a sum is kept in 16 bits."""


@pytest.fixture(scope="module")
def overflowing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return wrong_image(tmp_path_factory.mktemp("rare"), rare(), *SHORT)


@pytest.mark.parametrize("board", [M4, None])
def test_an_overflow_for_one_input_in_2_to_60(overflowing: tuple[Path, Path], board: str | None) -> None:
    """No random test finds it: 9 inputs of 2^64 show it. It is run in QEMU, and by the checker's own core."""
    model, image = overflowing
    proof = prove(image, model)
    assert not proof.is_proven
    (layer,) = proof.layers
    assert layer.missing == 1
    assert "the sum 32768 gives -128, the network says 124" in layer.reasons[0]
    found = refute(proof, image, find_board(board) if board else None)
    assert len(found.inputs) == 1
    assert found.got is not None
    assert (found.inputs[0] + 128).sum() * 16 + 144 >= 32768
    assert (found.wanted[0].tolist(), found.got.tolist()) == ([124], [-128])
    assert found.tried <= 3
    assert found.where == ("QEMU" if board else "the checker")


def test_an_overflow_behind_another_layer(tmp_path: Path) -> None:
    """The input has to be high where a weight of the layer before is positive, low where it is negative."""
    model, image = wrong_image(tmp_path, rare(hidden=True), *SHORT)
    proof = prove(image, model)
    assert [layer.missing for layer in proof.layers] == [0, 1]
    found = refute(proof, image, find_board(M4))
    assert len(found.inputs) == 1
    assert found.got is not None
    assert found.got.tolist() == [-128]
    assert found.tried <= 3
    assert (np.abs(found.inputs[0] - np.array([127, -128] * 4)) <= 1).all()


@pytest.mark.parametrize("wanted", [12_345, -7, 31])
def test_one_sum_in_the_middle(wanted: int, tmp_path: Path) -> None:
    """A fault at one sum of 80,000: inputs that add up to it are a subset sum."""
    fault = f"(sums[0] + bias[0] == {wanted} ? 9000 : sums[0] + bias[0])"
    model, image = wrong_image(tmp_path, rare(weights=_WEIGHTS), ("sums[0] + bias[0]", fault, 1))
    proof = prove(image, model)
    assert not proof.is_proven
    found = refute(proof, image)
    assert found.got is not None
    assert found.tried <= 12
    assert int(np.dot(_WEIGHTS, found.inputs[0] + 128)) + _BIAS == wanted


_WEIGHTS = (97, -61, 23, 88, -45, 7, -113, 54)
_BIAS = 32784 - 8 * 255 * 16


@pytest.mark.parametrize("seed", range(4))
def test_steps_that_close_a_sum(seed: int) -> None:
    numbers, closed = np.random.default_rng(seed), 0
    for _ in range(100):
        count = int(numbers.integers(3, 12))
        factors = numbers.integers(-127, 128, count).tolist()
        rooms = [(k or 1, -int(numbers.integers(0, 200)), int(numbers.integers(0, 200))) for k in factors]
        off = int(numbers.integers(-120, 121))
        steps = closing_steps(off, rooms)
        total = sum(k * step for (k, _, _), step in zip(rooms, steps, strict=True))
        assert total == off or not any(steps)
        assert all(low <= step <= high for (_, low, high), step in zip(rooms, steps, strict=True))
        closed += total == off
    assert closed > 80


@pytest.mark.parametrize("board", [M4, None])
def test_several_tensors_of_int16(board: str | None, tmp_path: Path) -> None:
    """The second output is never the least number, which only far ends of both inputs give."""
    changes = (", -32768, 32767);", ", -32767, 32767);", 2)
    model, image = wrong_image(tmp_path, two_inputs(), changes)
    proof = prove(image, model)
    assert not proof.is_proven
    found = refute(proof, image, find_board(board) if board else None)
    assert len(found.inputs) == 1
    assert found.got is not None
    assert (found.inputs[0].size, found.got.size) == (12, 12)
    differ = found.got != found.wanted[0]
    assert (set(found.wanted[0][differ]), set(found.got[differ])) == ({-32768}, {-32767})
    found.write(tmp_path / "shown.npz", proof.network)
    info = api.load(model).compile(M4).modules[0].info
    (case,) = read_cases(tmp_path / "shown.npz", info.inputs, info.outputs)
    shapes = [(a.shape, str(a.dtype)) for a in (*case.inputs, *case.outputs)]
    assert shapes == [((1, 6), "int16")] * 4


def test_inputs_of_a_network_of_which_nothing_is_proven(tmp_path: Path) -> None:
    """Most weights of its first layer are 0. Each output is pushed up and down."""
    model = tmp_path / "rare.tflite"
    model.write_bytes(rare(hidden=True))
    tried = list(islice(inputs_to_try(OnNumbers(Network(model))), 60))
    assert all(x.shape == (8,) and x.min() >= -128 and x.max() <= 127 for x in tried)
    assert any((x == np.array([127, -128] * 4)).all() for x in tried)
    assert any((x == np.array([-128, 127] * 4)).all() for x in tried)
    assert (tried[-1] != tried[-3]).any(), "random ones come last"


@pytest.mark.parametrize("board", [M4, None])
def test_a_status_that_is_not_0(overflowing: tuple[Path, Path], board: str | None, tmp_path: Path) -> None:
    model, image = overflowing
    read = read_image(image)
    first, end = read.span("rare_compute")
    (at,) = [a for a, i in read.instructions.items() if first <= a < end and i.text == "movs r0, #0"]
    changed = flipped(image, at, 5, tmp_path)
    proof = prove(changed, model)
    assert "does not return 0" in proof.stopped
    found = refute(proof, changed, find_board(board) if board else None)
    (line,) = found.lines()
    who = "QEMU" if board else "the checker"
    assert line.endswith(
        f"the function does not return 0: the image returns status 32, expected 0 (run by {who})"
    )
    assert found.tried == 1


def test_a_fault_of_the_core(overflowing: tuple[Path, Path], tmp_path: Path) -> None:
    """QEMU's core takes an undefined instruction for what it is, and nobody waits for the end of a run."""
    model, image = overflowing
    read = read_image(image)
    changed = flipped(image, read.symbols["rare_compute"] + 1, 6, tmp_path)
    proof = prove(changed, model)
    assert proof.stopped
    found = refute(proof, changed, find_board(M4))
    assert found.got is None
    assert found.reason.startswith("the image stops at 0x")
    (line,) = refute(proof, changed).lines()
    assert line.startswith("no input was found that differs, in 0 tries (0x"), (
        "the checker's core shows nothing"
    )


def test_command(overflowing: tuple[Path, Path], tmp_path: Path) -> None:
    """The input is a case for verify, which takes it for what it is."""
    model, image = overflowing
    case = tmp_path / "shown.npz"
    command = ["prove", str(model), "--image", str(image), "--counterexample", str(case)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 8, result.output
    assert (
        "output 0 is -128, the network says 124; 1 of 1 outputs differ (run by the checker" in result.output
    )
    info = api.load(model).compile(M4).modules[0].info
    (read,) = read_cases(case, info.inputs, info.outputs)
    assert read.inputs[0].shape == (1, 8)
    np.testing.assert_array_equal(read.outputs[0], [[124]])


def test_nothing_is_found_where_nothing_is_wrong(tmp_path: Path) -> None:
    """QEMU and the network's meaning agree in all tries."""
    require_tool("arm-none-eabi-gcc")
    model = tmp_path / "elements.tflite"
    model.write_bytes(elements())
    built = api.load(model).compile(M4).generate("standalone").build()
    found = refute(prove(built.path, model), built.path, find_board(M4))
    assert found.lines() == ["no input was found that differs, in 200 tries"]


@pytest.mark.models
@pytest.mark.parametrize("name", ["digits", "ad01_int8"])
def test_recorded_outputs(name: str) -> None:
    """The network on numbers gives what TFLite Micro did."""
    path = ROOT / "demo" / "digits.tflite" if name == "digits" else model_path(name)
    cases = np.load(path.with_suffix(".npz"))
    on = OnNumbers(Network(path))
    names = sorted(k.removesuffix("_input0") for k in cases.files if k.endswith("_input0"))
    for case in names:
        found, _ = on.results(cases[f"{case}_input0"].ravel().astype(np.int64))
        np.testing.assert_array_equal(found, cases[f"{case}_output0"].ravel())
    assert len(names) >= 3
