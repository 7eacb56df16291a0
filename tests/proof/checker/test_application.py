"""A library in an application that has a start, a linker script and a stack of its own."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from crtgen import api
from crtgen.api.slot.make import slot_image
from crtgen.boards import board_of_core, find_board
from crtgen.proof.checker import prove
from crtgen.proof.checker.binary.image import read_image
from crtgen.proof.checker.network.reading import read_network
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.surroundings.npu import DRIVER
from crtgen.proof.checker.surroundings.places import SymbolicCall
from crtgen.proof.printed import lines_of
from tests.cli.test_folder import as_json
from tests.proof.checker.mutations import flipped
from tests.proof.checker.networks import elements
from tests.support import ROOT, require_tool

pytestmark = pytest.mark.qemu

DIGITS = ROOT / "demo" / "digits.tflite"

START = """
#include <stdint.h>
#include <MODEL.h>
extern uint32_t _estack, _sdata, _edata, _sidata, _sbss, _ebss;
int main(void);
void Reset_Handler(void)
{
    for (uint32_t *to = &_sdata, *from = &_sidata; to < &_edata;) *to++ = *from++;
    for (uint32_t *to = &_sbss; to < &_ebss;) *to++ = 0;
    main();
    for (;;) { }
}
__attribute__((section(".isr_vector"), used))
static const void *const table[16] = {&_estack, (const void *)Reset_Handler};
volatile int8_t sensor[32];
volatile int8_t decision;
"""
_MAIN = (
    START.replace("MODEL", "elements")
    + """
int main(void)
{
    for (;;) {
        int8_t x[32], y[32];
        for (int i = 0; i < 32; i++) x[i] = sensor[i];
        const struct elements_inputs inputs = {x};
        const struct elements_outputs outputs = {y};
        CALL
    }
}
"""
)
_RUN = "if (elements_run(&inputs, &outputs) == 0) decision = y[3];"
_STEPS = """
        for (int i = 0; i < 32; i++) elements_input_places.x[i] = inputs.x[i];
        for (uint32_t step = 0; step < ELEMENTS_STEPS; step++) {
            if (elements_step(step) != 0) return -1;
            decision = (int8_t)step;
        }
        decision = elements_output_places.y[3];
"""
LINK = """
MEMORY
{
  FLASH (rx) : ORIGIN = 0x08000000, LENGTH = 256K
  RAM (rw) : ORIGIN = 0x20000000, LENGTH = 64K
}
ENTRY(Reset_Handler)
_estack = ORIGIN(RAM) + LENGTH(RAM);
SECTIONS
{
  .isr_vector : { KEEP(*(.isr_vector)) } > FLASH
  .text : { *(.text*) *(.rodata*) . = ALIGN(4); } > FLASH
  _sidata = LOADADDR(.data);
  .data : ALIGN(4) { _sdata = .; *(.data*) . = ALIGN(4); _edata = .; } > RAM AT > FLASH
  .bss (NOLOAD) : ALIGN(16) { _sbss = .; *(.bss*) *(COMMON) . = ALIGN(4); _ebss = .; } > RAM
}
"""


def linked(folder: Path, call: str, *flags: str, core: str = "cortex-m4") -> Path:
    """The application, which calls the network in one of several ways."""
    (folder / "elements.tflite").write_bytes(elements())
    project = api.load(folder / "elements.tflite").compile(board_of_core(core)).generate("library").project
    for name, data in project.sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "main.c").write_text(_MAIN.replace("CALL", call))
    (folder / "app.ld").write_text(LINK)
    return rebuilt(folder, *flags, core=core)


def rebuilt(folder: Path, *flags: str, core: str = "cortex-m4") -> Path:
    sources = sorted(f.as_posix() for f in (folder / "model").glob("*.[cS]"))
    abi = "soft" if core in ("cortex-m0plus", "cortex-m3") else "hard -mfpu=auto"
    target = f"-mcpu={core} -mthumb -mfloat-abi={abi} -Os -ffunction-sections -fdata-sections"
    places = "-Imodel -Iruntime/include -T app.ld -nostartfiles -Wl,--gc-sections -o app.elf"
    command = [
        require_tool("arm-none-eabi-gcc"),
        *target.split(),
        *flags,
        "main.c",
        *sources,
        *places.split(),
    ]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    return folder / "app.elf"


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return linked(tmp_path_factory.mktemp("application"), _RUN)


def test_each_output_from_the_call_on(application: Path) -> None:
    """The places of input and output are found from what ``elements_run`` does."""
    assert "elements_input_tensors" not in read_image(application).symbols
    proof = prove(application, application.parent / "elements.tflite")
    assert (proof.holds, proof.holds_from_call, proof.application.followed) == (False, True, True)
    assert proof.reset.stopped == "the image has no symbol crt_vectors"
    assert "elements: not checked: reset" in lines_of(proof)[-1]
    said = "\n".join(lines_of(proof, from_call=True))
    assert f"the application sees to it: {proof.stack} bytes of stack are left" in said
    assert "elements: checked from the call on, 32 of 32 outputs" in said


def test_a_network_within_the_function_that_is_called(tmp_path: Path) -> None:
    """GCC puts the network into ``elements_run``; a copy of it may stay, for others who call it."""
    linked(tmp_path, _RUN)
    model, source = tmp_path / "elements.tflite", tmp_path / "model" / "elements.c"
    kept, text = "-Wl,--undefined=elements_compute", source.read_text()
    for wrong in ("", "ELEMENTS_AT_X, inputs->x, 3", "ELEMENTS_ARENA + ELEMENTS_AT_Y, 3"):
        assert not wrong or text.count(f"{wrong}2)") == 1
        source.write_text(text.replace(f"{wrong}2)", f"{wrong}1)") if wrong else text)
        for flags in ((), (kept,)):
            image = rebuilt(tmp_path, "-O2", *flags)
            assert ("elements_compute" in read_image(image).symbols) == bool(flags)
            proof = prove(image, model)
            assert (proof.holds_from_call, proof.application.followed) == (not wrong, not wrong)


def test_a_run_that_returns_a_number(tmp_path: Path) -> None:
    """GCC 14 returns 0 where it sees that the network always does; of an NPU the status would be lost."""
    linked(tmp_path, _RUN)
    model, source = tmp_path / "elements.tflite", tmp_path / "model" / "elements.c"
    text = source.read_text()
    assert text.count("return status;") == 1
    for number, wrong in ((1, "elements_run returns another status than elements_compute"), (0, "")):
        source.write_text(text.replace("return status;", f"(void)status; return {number};"))
        image = rebuilt(tmp_path)
        proof = prove(image, model)
        assert (proof.holds_from_call, proof.stopped) == (not wrong, wrong)
    decoded = read_image(image)
    with_driver = replace(decoded, symbols={**decoded.symbols, DRIVER: 0x08000000})
    with pytest.raises(Refusal, match="another status"):
        SymbolicCall(with_driver, read_network(model), "elements").run(lambda: None)


@pytest.mark.nightly
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547"])
def test_the_command_for_a_slot(board: str) -> None:
    found = as_json("prove", str(DIGITS), "--board", board, "--slot", "a")
    assert (found["proven"], found["proven_from_call"], found["outputs_proven"]) == (False, True, 10)


def test_a_slot_with_options_of_other_images(tmp_path: Path) -> None:
    found = as_json("prove", str(DIGITS), "--image", str(tmp_path / "x.elf"), "--slot", "a", code=2)
    assert found["message"] == "--slot builds an image of its own"


def test_a_slot(tmp_path: Path) -> None:
    """What is written into a slot is what is checked; the firmware that calls it sees to the premises."""
    require_tool("arm-none-eabi-gcc")
    image = api.load(DIGITS).compile("mps2_an386").generate("slot", slot="a").build()
    (segment,) = read_image(image.path).constant
    assert slot_image(image, find_board("mps2_an386")).code.startswith(segment[1])
    assert prove(image.path, DIGITS).holds_from_call
    weights = read_image(image.path).symbols["__tvm_param__digits_conv2d_weights"]
    changed = flipped(image.path, weights + 2, 6, tmp_path)
    assert not prove(changed, DIGITS).holds_from_call


def test_exit_codes(application: Path, tmp_path: Path) -> None:
    weights = read_image(application).symbols["crt_param_elements_mul_operand1"]
    wrong = flipped(application, weights + 2, 6, tmp_path)
    for image, code in ((application, 0), (wrong, 8)):
        found = as_json(
            "prove",
            str(application.parent / "elements.tflite"),
            "--image",
            str(image),
            "--from-call",
            code=code,
        )
        assert (found["proven"], found["proven_from_call"]) == (False, image is application)
        assert any("bytes of stack" in premise for premise in found["premises"])


def test_steps(tmp_path: Path) -> None:
    """Alone, and beside a whole run; a step that computes something else is found either way."""
    for call, others in ((_STEPS, ()), (_STEPS + _RUN, ("elements_run moves inputs and outputs",))):
        image = linked(tmp_path, call, "-DCRT_STEPS")
        proof = prove(image, tmp_path / "elements.tflite")
        said = "\n".join(lines_of(proof, from_call=True))
        assert proof.holds_from_call, said
        assert ("elements_compute" in read_image(image).symbols) == bool(others)
        assert all(text in said for text in others)
    assert "the steps of elements_step compute the same" in said
    source = tmp_path / "model" / "elements.c"
    text = source.read_text()
    first, second = (text.index(f"    case {n}:") for n in (1, 2))
    source.write_text(text[:first] + "case 1: break;\n" + text[second:])
    wrong = prove(rebuilt(tmp_path, "-DCRT_STEPS"), tmp_path / "elements.tflite")
    assert wrong.is_computed
    assert wrong.application.wrong.startswith("elements_step: ")
    assert "elements: not checked: application" in lines_of(wrong, from_call=True)[-1]
