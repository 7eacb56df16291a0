"""Networks of float32: no output is compared, and memory, registers, stack and time are proven."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from typer.testing import CliRunner

from crtgen import api
from crtgen.base.errors import MismatchError
from crtgen.boards import find_board
from crtgen.boards.core import find_core
from crtgen.cli.app import app
from crtgen.proof.checker import prove
from crtgen.proof.checker.binary.image import DecodedImage, read_image
from tests.support import model_path, require_tool

pytestmark = [pytest.mark.qemu, pytest.mark.models]

M4, M55 = "mps2_an386", "mps3_an547"
NAME = "ad01_float32"
Built = Callable[[str], Path]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("float")

    @cache
    def build(board: str) -> Path:
        require_tool("arm-none-eabi-gcc")
        path = folder / f"{board}.elf"
        image = api.load(model_path(NAME)).compile(board).generate("standalone").build()
        path.write_bytes(image.path.read_bytes())
        return path

    return build


def changed(path: Path, address: int, data: bytes, directory: Path) -> Path:
    """The image with other bytes at an address."""
    content = bytearray(path.read_bytes())
    with path.open("rb") as file:
        segments = [(s["p_vaddr"], s["p_offset"], s["p_filesz"]) for s in ELFFile(file).iter_segments()]
    first, offset, _ = next(s for s in segments if s[0] <= address < s[0] + s[2])
    content[offset + address - first : offset + address - first + len(data)] = data
    made = directory / "changed.elf"
    made.write_bytes(content)
    return made


@pytest.mark.nightly
@pytest.mark.parametrize("board", [M4, M55])
def test_safe(built: Built, board: str) -> None:
    """On a push ``test_error.py`` looks at the same proof for M4, and ``test_command`` at that for M55."""
    proof = prove(built(board), model_path(NAME))
    assert proof.stopped == ""
    assert not proof.is_proven
    assert proof.outputs_proven == 0
    assert proof.outputs == 640
    assert proof.first_reason == "outputs of float32 are not compared"
    least, most = proof.instructions
    assert 100_000 < least == most < 1_000_000
    assert 0 < proof.stack < 500
    assert proof.reset.stopped == ""


@pytest.mark.nightly
def test_command(built: Built) -> None:
    done = CliRunner().invoke(app, ["prove", str(model_path(NAME)), "--image", str(built(M55))])
    assert done.exit_code == MismatchError.exit_code
    verdict = "ad01_float32: memory is checked, 0 of 640 outputs; outputs of float32 are not compared"
    assert verdict in " ".join(done.stdout.split())
    assert "no input was found" not in done.stdout


def test_a_load_outside_of_the_arena(tmp_path: Path) -> None:
    """The address that the network's function has of the arena is 1 MiB further on."""
    require_tool("arm-none-eabi-gcc")
    name = "hello_world_float"
    built = api.load(model_path(name)).compile(M4).generate("standalone").build()
    image = read_image(built.path)
    first, end = image.span(f"{name}_compute")
    low, high = image.arena(name)
    at = next(a for a in range(first, end, 4) if low <= image_word(image, a) < high)
    wrong = (image_word(image, at) + 0x10_0000).to_bytes(4, "little")
    proof = prove(changed(built.path, at, wrong, tmp_path), model_path(name))
    assert "outside of constants, arena and stack" in proof.stopped


def image_word(image: DecodedImage, address: int) -> int:
    data = next(d[address - a :] for a, d in image.constant if a <= address < a + len(d))
    return int.from_bytes(data[:4], "little")


@pytest.mark.nightly
def test_registers_that_are_not_kept(built: Built, tmp_path: Path) -> None:
    """VPOP becomes an addition to the stack pointer of as much."""
    image = read_image(built(M55))
    at = next(a for a, i in sorted(image.instructions.items()) if i.text.startswith("vpop {d8-d11}"))
    add = bytes.fromhex("08b000bf")  # add sp, #32 and nop
    proof = prove(changed(built(M55), at, add, tmp_path), model_path(NAME))
    assert "a register that a callee has to keep" in proof.stopped


@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m3"])
def test_in_software(core: str) -> None:
    """The compiler's library is not followed: the text says so at its first call, and what to do."""
    require_tool("arm-none-eabi-gcc")
    model = model_path("hello_world_float")
    board = replace(find_board("mps2_an385"), core=find_core(core))
    image = api.load(model).compile(board).generate("standalone").build()
    proof = prove(image.path, model)
    said = "': float32 in software (__aeabi_fmul) is not followed: take a core with an FPU"
    assert proof.stopped.endswith(said)
    assert not proof.is_proven
