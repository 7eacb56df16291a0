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
        if (digits_run(&inputs, &outputs) == 0) decision = probabilities[3];
    }
}
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


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler, folder = require_tool("arm-none-eabi-gcc"), tmp_path_factory.mktemp("application")
    project = api.load(DIGITS).compile(board_of_core("cortex-m4")).generate("library").project
    for name, data in project.sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "main.c").write_text(_MAIN)
    (folder / "app.ld").write_text(_LINK)
    model = sorted(f.as_posix() for f in (folder / "model").glob("*.[cS]"))
    flags = "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=auto -Os -ffunction-sections -fdata-sections"
    places = "-Imodel -Iruntime/include -T app.ld -nostartfiles -Wl,--gc-sections -o app.elf"
    command = [compiler, *flags.split(), "main.c", *model, *places.split()]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    return folder / "app.elf"


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
