"""A library in an application that has a start, a linker script and a stack of its own."""

import subprocess
from pathlib import Path

import pytest

from crtgen import api
from crtgen.boards import board_of_core
from crtgen.proof.checker import prove
from crtgen.proof.checker.binary.image import read_image
from crtgen.proof.printed import lines_of
from tests.cli.test_folder import as_json
from tests.proof.checker.mutations import flipped
from tests.support import ROOT, require_tool

pytestmark = pytest.mark.qemu

DIGITS = ROOT / "demo" / "digits.tflite"
_MAIN = """
#include <stdint.h>
#include <digits.h>
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
volatile int8_t sensor[64];
volatile int8_t decision;
int main(void)
{
    for (;;) {
        int8_t image[64], probabilities[10];
        for (int i = 0; i < 64; i++) image[i] = sensor[i];
        const struct digits_inputs inputs = {image};
        const struct digits_outputs outputs = {probabilities};
        CALL
    }
}
"""
_RUN = "if (digits_run(&inputs, &outputs) == 0) decision = probabilities[3];"
_STEPS = """
        for (int i = 0; i < 64; i++) digits_input_places.image[i] = inputs.image[i];
        for (uint32_t step = 0; step < DIGITS_STEPS; step++) {
            if (digits_step(step) != 0) return -1;
            decision = (int8_t)step;
        }
        decision = digits_output_places.probabilities[3];
"""
_LINK = """
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


def linked(folder: Path, call: str, *flags: str) -> Path:
    """The application, which calls the network in one of several ways."""
    project = api.load(DIGITS).compile(board_of_core("cortex-m4")).generate("library").project
    for name, data in project.sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "main.c").write_text(_MAIN.replace("CALL", call))
    (folder / "app.ld").write_text(_LINK)
    return rebuilt(folder, *flags)


def rebuilt(folder: Path, *flags: str) -> Path:
    model = sorted(f.as_posix() for f in (folder / "model").glob("*.[cS]"))
    target = "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=auto -Os -ffunction-sections -fdata-sections"
    places = "-Imodel -Iruntime/include -T app.ld -nostartfiles -Wl,--gc-sections -o app.elf"
    command = [require_tool("arm-none-eabi-gcc"), *target.split(), *flags, "main.c", *model, *places.split()]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    return folder / "app.elf"


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return linked(tmp_path_factory.mktemp("application"), _RUN)


def test_each_output_from_the_call_on(application: Path) -> None:
    """The places of input and output are found from what ``digits_run`` does."""
    assert "digits_input_tensors" not in read_image(application).symbols
    proof = prove(application, DIGITS)
    assert (proof.holds, proof.holds_from_call, proof.application.followed) == (False, True, True)
    assert proof.reset.stopped == "the image has no symbol crt_vectors"
    assert "digits: not checked: reset" in lines_of(proof)[-1]
    said = "\n".join(lines_of(proof, from_call=True))
    assert "the application sees to it: 128 bytes of stack are left" in said
    assert "digits: checked from the call on, 10 of 10 outputs" in said


def test_exit_codes(application: Path, tmp_path: Path) -> None:
    weights = read_image(application).symbols["crt_param_digits_conv2d_weights"]
    wrong = flipped(application, weights + 2, 6, tmp_path)
    for image, code in ((application, 0), (wrong, 8)):
        found = as_json("prove", str(DIGITS), "--image", str(image), "--from-call", code=code)
        assert (found["proven"], found["proven_from_call"]) == (False, image is application)
        assert any("bytes of stack" in premise for premise in found["premises"])


def test_steps(tmp_path: Path) -> None:
    """Alone, and beside a whole run; a step that computes something else is found either way."""
    for call, others in ((_STEPS, ()), (_STEPS + _RUN, ("digits_run moves inputs and outputs",))):
        image = linked(tmp_path, call, "-DCRT_STEPS")
        proof = prove(image, DIGITS)
        said = "\n".join(lines_of(proof, from_call=True))
        assert proof.holds_from_call, said
        assert ("digits_compute" in read_image(image).symbols) == bool(others)
        assert all(text in said for text in others)
    assert "the steps of digits_step compute the same" in said
    source = tmp_path / "model" / "digits.c"
    text = source.read_text()
    first, second = (text.index(f"    case {n}:") for n in (1, 2))
    source.write_text(text[:first] + "case 1: break;\n" + text[second:])
    wrong = prove(rebuilt(tmp_path, "-DCRT_STEPS"), DIGITS)
    assert wrong.is_computed
    assert wrong.application.wrong.startswith("digits_step: ")
    assert "digits: not checked: application" in lines_of(wrong, from_call=True)[-1]
