"""What stands in memory when the network is called: what C takes to be there, or it is said where not."""

from dataclasses import replace
from pathlib import Path

import pytest

from crtgen import api
from crtgen.base.errors import UsageError
from crtgen.proof.checker import prove
from crtgen.proof.checker.binary.image import read_image
from crtgen.proof.checker.surroundings.reset import Needs, start_up
from crtgen.proof.printed import lines_of
from tests.proof.checker.mutations import flipped
from tests.proof.checker.networks import elements, rare
from tests.support import require_tool

pytestmark = pytest.mark.qemu

M55 = "mps3_an547"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image with a variable that is not 0."""
    require_tool("arm-none-eabi-gcc")
    folder = tmp_path_factory.mktemp("reset")
    model = folder / "rare.tflite"
    model.write_bytes(rare())
    generated = api.load(model).compile(M55).generate("standalone")
    sources = dict(generated.project.sources)
    text = sources["platform/main.c"].decode()
    variable = "static volatile uint32_t variable = 0x12345678;\n"
    text = text.replace("int main(void)\n{", f"{variable}int main(void)\n{{\n    (void)variable;")
    assert "(void)variable" in text
    sources["platform/main.c"] = text.encode()
    built = replace(generated, project=replace(generated.project, sources=sources)).build()
    path = folder / "firmware.elf"
    path.write_bytes(built.path.read_bytes())
    return path


def literal(path: Path, value: int) -> int:
    """Where the reset handler has this number."""
    read = read_image(path)
    first, end = read.span("crt_reset")
    data = next(d[first - a : end - a] for a, d in read.constant if a <= first < a + len(d))
    return first + next(i for i in range(0, len(data), 2) if data[i : i + 4] == value.to_bytes(4, "little"))


def test_variables_are_what_they_ought_to_be(image: Path) -> None:
    reset, code = start_up(read_image(image), "rare", Needs(100))
    assert reset.stopped == ""
    assert reset.reads > 0
    assert reset.writes > 0
    assert 0 < reset.stack < 300
    assert reset.reserved == 8192
    assert reset.instructions > 100
    assert len(code) > 50


def test_a_variable_from_elsewhere(image: Path, tmp_path: Path) -> None:
    """The source of the copy is an earlier place of the flash, by one bit."""
    read = read_image(image)
    source = read.symbols["crt_data_load"]
    bit = next(b for b in range(5, 20) if source >> b & 1)
    changed = flipped(image, literal(image, source) + bit // 8, bit % 8, tmp_path)
    reset, _ = start_up(read_image(changed), "rare", Needs(100))
    assert f"main is called, and {read.symbols['crt_data_start']:#x} does not hold 0x78" in reset.stopped


def test_zeros_that_end_early(image: Path, tmp_path: Path) -> None:
    end = read_image(image).symbols["crt_bss_end"]
    bit = next(b for b in range(2, 20) if end >> b & 1)
    changed = flipped(image, literal(image, end) + bit // 8, bit % 8, tmp_path)
    reset, _ = start_up(read_image(changed), "rare", Needs(100))
    assert "does not hold 0x0" in reset.stopped


def test_a_stack_that_is_too_small(image: Path) -> None:
    reset, _ = start_up(read_image(image), "rare", Needs(8192))
    assert "the stack is too small" in reset.stopped


def test_a_vector_table_that_leads_elsewhere(image: Path, tmp_path: Path) -> None:
    vectors = read_image(image).symbols["crt_vectors"]
    reset, _ = start_up(read_image(flipped(image, vectors + 1, 5, tmp_path)), "rare", Needs(100))
    assert "does not begin with the top of the stack" in reset.stopped


def test_several_models(tmp_path: Path) -> None:
    """Each has its proof by the name of its file; the way from reset leads to the first one."""
    models = tmp_path / "one.tflite", tmp_path / "Other-1.tflite"
    for path, data in zip(models, (rare(), elements()), strict=True):
        path.write_bytes(data)
    compiled = api.compile([api.load(path) for path in models], "mps2_an386")
    built = compiled.generate("standalone").build()
    first, second = (prove(built.path, path) for path in models)
    assert (first.is_proven, second.is_proven) == (True, False), (first.first_reason, second.first_reason)
    assert second.is_computed
    assert (first.model, first.outputs, second.outputs) == ("one", 1, 32)
    assert (first.reset.stopped, first.reset.reserved) == ("", 8192)
    assert "another network, one, is called first" in second.reset.stopped
    assert "not checked: reset" in lines_of(second)[-1]
    (tmp_path / "one.tflite").rename(tmp_path / "third.tflite")
    with pytest.raises(UsageError, match="several models are in the image, name one:"):
        prove(built.path, tmp_path / "third.tflite")
