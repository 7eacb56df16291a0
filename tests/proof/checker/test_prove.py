"""Images that are proven, and images with one bit changed, which are not."""

import re
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from typer.testing import CliRunner

from crtgen import api
from crtgen.base.errors import CorruptModelError, UnsupportedError, UsageError
from crtgen.boards import find_board
from crtgen.cli.app import app
from crtgen.device.run import run_standalone
from crtgen.proof.checker import CoreTiming, Proof, prove
from crtgen.proof.checker.binary.image import read_image
from crtgen.proof.printed import functions_of, lines_of
from tests.proof.checker.mutations import flipped
from tests.proof.checker.networks import average_pool, elements, root, two_inputs
from tests.support import ROOT, model_path, models_dir, require_tool

pytestmark = pytest.mark.qemu

DIGITS = ROOT / "demo" / "digits.tflite"
M4, M33, M55, M0 = "mps2_an386", "mps2_an505", "mps3_an547", "rpi_pico"


def image_of(model: Path, board: str, directory: Path, optimize: str = "balanced") -> Path:
    """The standalone image; the temporary one of the build is gone with its object."""
    require_tool("arm-none-eabi-gcc")
    built = api.load(model).compile(board, optimize=optimize).generate("standalone").build()
    path = directory / "firmware.elf"
    path.write_bytes(built.path.read_bytes())
    return path


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_of(DIGITS, M4, tmp_path_factory.mktemp("digits"))


def states(proof: Proof) -> list[tuple[str, int]]:
    return [(layer.operator, layer.missing) for layer in proof.layers]


def test_digits_on_m4(digits: Path) -> None:
    proof = prove(digits, DIGITS)
    assert proof.is_proven, lines_of(proof)
    assert (proof.outputs_proven, proof.forgotten) == (10, 0)
    assert all(missing == 0 for _, missing in states(proof))
    assert 0 < proof.stack < 512
    assert 0 < proof.instructions[0] <= proof.instructions[1] < 60_000
    assert len(proof.certificate["image_sha256"]) == 64
    least, most = proof.instructions
    assert f"stack: {proof.stack} bytes; time: {least:,} to {most:,} instructions" in lines_of(proof)
    require_tool("qemu-system-arm")
    printed: list[str] = []
    run_standalone(digits, find_board(M4), on_line=printed.append)
    ticks = int(printed[0].split()[2])
    assert least <= 40 * (ticks + 1)
    assert 40 * (ticks - 2) <= most, "counted by QEMU for the image's own input, a tick for 40"


@pytest.mark.nightly
@pytest.mark.parametrize("board", [M33, M55])
def test_digits_on(board: str, tmp_path: Path) -> None:
    """On M33 the compiler has copied the end of softmax's loop into both ways of a branch.

    On a push ``test_cycles.py`` proves these images.
    """
    proof = prove(image_of(DIGITS, board, tmp_path), DIGITS)
    assert proof.is_proven, lines_of(proof)


@pytest.fixture(scope="module")
def digits_on_m0plus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_of(DIGITS, M0, tmp_path_factory.mktemp("m0plus"))


def test_digits_on_m0plus(digits_on_m0plus: Path) -> None:
    """Products of 64 bits are calls of libgcc's function, and CLZ is one with a table.

    rp2040js counts 180,258 cycles of a run of this image.
    """
    proof = prove(digits_on_m0plus, DIGITS, timing=CoreTiming("cortex-m0plus"))
    assert proof.is_proven, lines_of(proof)
    assert proof.instructions[1] < 180_258 < proof.cycles < 1.1 * 180_258
    assert proof.reset.stopped == ""
    functions = functions_of(proof)
    least, most = next(counts for name, counts in functions.items() if "softmax" in name)
    assert least < most
    assert sum(most for _, most in functions.values()) < proof.instructions[1]


@pytest.mark.nightly
@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547"])
def test_an_image_by_clang_is_proven(board: str) -> None:
    """LLD calls the segment of the stack read-only: it has no bytes in the file."""
    image = api.load(DIGITS).compile(board).generate("standalone").build(toolchain="zig")
    proof = prove(image.path, DIGITS)
    assert proof.is_proven, lines_of(proof)


def test_a_store_beyond_the_frame_is_rejected(digits_on_m0plus: Path, tmp_path: Path) -> None:
    """The frames of callers are not the network's, also where the linker put the arena behind the stack."""
    image = read_image(digits_on_m0plus)
    shifts = [a for a, i in image.instructions.items() if re.fullmatch(r"asrs r\d, r\d, #31", i.text)]
    changed = flipped(digits_on_m0plus, shifts[-1] + 1, 7, tmp_path)
    assert re.fullmatch(r"str r7, \[sp, #[789]\d\d\].*", read_image(changed).instructions[shifts[-1]].text)
    assert "outside of arena and stack" in prove(changed, DIGITS).stopped


@pytest.mark.nightly
def test_a_carry_of_long_products_is_compared(digits_on_m0plus: Path, tmp_path: Path) -> None:
    """What libgcc's multiplication adds for a carry between halves, which few products have."""
    image = read_image(digits_on_m0plus)
    first, end = image.span("__aeabi_lmul")
    (carry,) = [a for a in range(first, end, 2) if image.instructions[a].text == "lsls r3, r3, #9"]
    proof = prove(flipped(digits_on_m0plus, carry, 6, tmp_path), DIGITS)
    assert states(proof)[-1] == ("SOFTMAX", 10)
    assert all(missing == 0 for _, missing in states(proof)[:-1])


@pytest.mark.nightly
@pytest.mark.models
def test_ad01_on_m55(tmp_path: Path) -> None:
    """No branch depends on an input, so that the count is exact."""
    model = model_path("ad01_int8")
    proof = prove(image_of(model, M55, tmp_path), model)
    assert proof.is_proven, lines_of(proof)
    assert proof.outputs_proven == 640
    assert proof.instructions[0] == proof.instructions[1]


@pytest.mark.parametrize(("board", "optimize"), [(M4, "speed"), (M0, "balanced")])
def test_elements_on(board: str, optimize: str, tmp_path: Path) -> None:
    """QUANTIZE, LEAKY_RELU, MUL and SUB; at ``speed`` a table is one of them, of which each entry counts."""
    model = tmp_path / "elements.tflite"
    model.write_bytes(elements())
    image = image_of(model, board, tmp_path, optimize)
    proof = prove(image, model)
    assert proof.is_proven, lines_of(proof)
    assert states(proof) == [("QUANTIZE", 0), ("LEAKY_RELU", 0), ("MUL", 0), ("SUB", 0)]
    if board == M4:
        for name, layer in (("leaky_relu_table", 1), ("mul_operand1", 2)):
            changed = flipped(image, symbol(image, f"__tvm_param__elements_{name}") + 7, 0, tmp_path)
            proof = prove(changed, model)
            assert not proof.is_proven
            assert states(proof)[layer][1] > 0


def test_each_entry_of_a_table_of_roots(tmp_path: Path) -> None:
    model = tmp_path / "root.tflite"
    model.write_bytes(root())
    image = image_of(model, M4, tmp_path)
    assert prove(image, model).is_proven
    table = symbol(image, "__tvm_param__root_sqrt_table")
    for at in (0, 77, 255):
        assert states(prove(flipped(image, table + at, 0, tmp_path), model)) == [("SQRT", 16)]


def test_two_layers_of_the_same_inputs(tmp_path: Path) -> None:
    """A sum and a difference of int16: what the sum's rules refuse may be the difference."""
    model = tmp_path / "two.tflite"
    model.write_bytes(two_inputs())
    proof = prove(image_of(model, M4, tmp_path), model)
    assert proof.is_proven, lines_of(proof)
    assert proof.outputs_proven == 12


def test_divisions_on_m0plus(tmp_path: Path) -> None:
    """The function of libgcc is run for every sum that there can be."""
    model = tmp_path / "average_pool.tflite"
    model.write_bytes(average_pool())
    image = image_of(model, M0, tmp_path)
    proof = prove(image, model)
    assert proof.is_proven, lines_of(proof)
    assert proof.instructions[0] < proof.instructions[1], "some dividends take longer"
    read = read_image(image)
    code = range(read.symbols["__divsi3"], read.symbols["__aeabi_idivmod"], 2)
    bits = [a for a in code if a in read.instructions and read.instructions[a].text == "adcs r2, r2"]
    changed = flipped(image, bits[-1], 0, tmp_path)
    assert read_image(changed).instructions[bits[-1]].text == "adcs r3, r2"
    assert not prove(changed, model).is_proven


@pytest.mark.models
def test_products_of_polynomials_on_m3(tmp_path: Path) -> None:
    """A 3x3 depthwise layer of vww, of which some fields end within the lower word of a product."""
    model = models_dir().parent / "proof" / "dw25_m3.tflite"
    proof = prove(image_of(model, "mps2_an385", tmp_path), model)
    assert proof.is_proven, lines_of(proof)
    assert proof.outputs_proven == 2304


@pytest.mark.models
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["ad01_int8", "kws_int8", "vww_int8"])
@pytest.mark.parametrize("board", [M0, "mps2_an385", M4, M33, M55])
def test_reference_networks_on(board: str, name: str, tmp_path: Path) -> None:
    """Layers of vww run row by row, and a channel of it that is a constant is left out."""
    model = model_path(name)
    proof = prove(image_of(model, board, tmp_path), model)
    assert proof.is_proven, lines_of(proof)
    assert all(missing == 0 for _, missing in states(proof))
    assert proof.reset.stopped == ""


def symbol(path: Path, name: str) -> int:
    """The address of the first symbol with this in its name."""
    with path.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        return int(min(s["st_value"] & ~1 for s in table.iter_symbols() if name in s.name))


@pytest.mark.parametrize(
    ("name", "offset", "bit"),
    [
        ("__tvm_param__digits_fully_connected_weights", 77, 3),
        ("digits_max_pool2d", 6, 1),
        ("digits_compute", 24, 2),
    ],
)
def test_a_changed_bit_is_rejected(digits: Path, tmp_path: Path, name: str, offset: int, bit: int) -> None:
    changed = flipped(digits, symbol(digits, name) + offset, bit, tmp_path)
    assert not prove(changed, DIGITS).is_proven


def test_a_status_that_is_not_0_is_rejected(digits: Path, tmp_path: Path) -> None:
    """The outputs are the same, but who calls the function takes it for one that failed."""
    image = read_image(digits)
    first, end = image.span("digits_compute")
    texts = {a: image.instructions[a].text for a in range(first, end, 2) if a in image.instructions}
    at = [a for a, text in texts.items() if text.startswith("movs r0, #0")][-1]
    assert "does not return 0" in prove(flipped(digits, at, 5, tmp_path), DIGITS).stopped


def test_a_power_of_softmax_is_compared(digits: Path, tmp_path: Path) -> None:
    """A bit of the factors of exp: no test of outputs would find the last one."""
    changed = flipped(digits, symbol(digits, "power.0") + 24, 0, tmp_path)
    proof = prove(changed, DIGITS)
    assert not proof.is_proven
    assert states(proof)[-1] == ("SOFTMAX", 10)


def test_command(digits: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    header = tmp_path / "worst.h"
    result = runner.invoke(app, ["prove", str(DIGITS), "--image", str(digits), "--header", str(header)])
    assert result.exit_code == 0, result.output
    assert "#define DIGITS_WORST_INSTRUCTIONS " in header.read_text()
    assert "digits: checked, 10 of 10 outputs" in result.output
    changed = flipped(digits, symbol(digits, "__tvm_param__digits_conv2d_weights") + 5, 0, tmp_path)
    result = runner.invoke(app, ["prove", str(DIGITS), "--image", str(changed)])
    assert result.exit_code == 8
    assert "not checked" in result.output


@pytest.mark.models
def test_the_image_of_another_network(digits: Path) -> None:
    proof = prove(digits, model_path("ad01_int8"))
    assert not proof.is_proven
    assert proof.stopped


def test_files_that_are_none(digits: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.tflite"
    cut.write_bytes(DIGITS.read_bytes()[:300])
    with pytest.raises(CorruptModelError, match="cannot be read"):
        prove(digits, cut)
    pipeline = tmp_path / "marvin.toml"
    pipeline.write_text("model = 'kws.tflite'")
    with pytest.raises(UnsupportedError, match="the file of its network can be proven by itself"):
        prove(digits, pipeline)
    with pytest.raises(UsageError, match="the file is not a readable ELF file:"):
        prove(DIGITS, DIGITS)
