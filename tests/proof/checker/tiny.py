"""The smallest image that is proven: RELU of four elements, written by hand, from its vector table on.

A test changes some parts of it. Nothing is generated or compiled: an image takes a fraction of a second.
"""

import struct
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from crtgen.proof.checker import Proof, prove
from tests.support import require_tool
from tests.tflite_builder import Model, Operator, Tensor

__all__ = ["ELEMENT", "PARTS", "Rewritten", "build", "check", "network", "patched"]

Rewritten = Mapping[str, str]

ELEMENT = "ldrb r0, [r1, #{0}] ; sxtb r0, r0 ; asrs r3, r0, #31 ; bics r0, r3 ; strb r0, [r1, #{0} + 16]"
PARTS = {
    "table": ".word crt_stack_top, crt_reset, 0, crt_fault ; .space 12 * 4",
    "enable": "",
    "start": "",
    "copy": "",
    "main": "push {r4, lr} ; bl tiny_compute ; pop {r4, pc}",
    "compute": "push {r4, lr} ; ldr r1, =tiny_arena ; {before} ; {elements} ; {after} ; movs r0, #0 ; {end}",
    "before": "movs r3, #0",
    "elements": " ; ".join(ELEMENT.format(k) for k in range(4)),
    "after": "movs r3, #0",
    "end": "pop {r4, pc}",
    "more": "",
    "bss": "",
    "data": "",
    "arena": ".space 32",
    "stack": "1024",
}
"""By name, assembly with a semicolon after each line; braces name another part."""
_ENABLE = "ldr r0, =0xE000ED88 ; ldr r1, =0x00F00000 ; str r1, [r0] ; dsb ; isb"
_DEPTH = 3
"""Parts are within parts that are within the source."""
_SOURCE = """
.syntax unified
.thumb
.macro function name
.balign 4
.global \\name
.thumb_func
.type \\name, %function
\\name:
.endm
.section .vectors, "a"
.global crt_vectors
.type crt_vectors, %object
crt_vectors: {table}
.size crt_vectors, . - crt_vectors
.text
function crt_reset ; {enable} ; {start} ; {copy} ; bl main ; b .
.ltorg ; .size crt_reset, . - crt_reset
function main ; {main}
.ltorg ; .size main, . - main
function crt_fault ; b . ; .size crt_fault, . - crt_fault
function tiny_compute ; {compute}
.ltorg ; .size tiny_compute, . - tiny_compute
{more}
.balign 4
.global tiny_input_tensors, tiny_output_tensors
.type tiny_input_tensors, %object
.type tiny_output_tensors, %object
tiny_input_tensors: .word tiny_arena ; .size tiny_input_tensors, 4
tiny_output_tensors: .word tiny_arena + 16 ; .size tiny_output_tensors, 4
.bss
.balign 16
.global tiny_arena
.type tiny_arena, %object
tiny_arena: {arena} ; .size tiny_arena, . - tiny_arena
{bss}
.data
{data}
"""
_LINK = """
ENTRY(crt_reset)
MEMORY {{ flash (rx) : ORIGIN = 0, LENGTH = 64K  ram (rw) : ORIGIN = 0x20000000, LENGTH = 64K }}
SECTIONS {{
  .vectors : {{ *(.vectors) }} > flash
  .text : {{ *(.text) *(.rodata) . = ALIGN(4); }} > flash
  .stack (NOLOAD) : ALIGN(8) {{ crt_stack_bottom = .; . += {stack}; crt_stack_top = .; }} > ram
  .data : ALIGN(8) {{ data_start = .; *(.data) . = ALIGN(4); data_end = .; }} > ram AT > flash
  data_load = LOADADDR(.data);
  .bss (NOLOAD) : ALIGN(16) {{ bss_start = .; *(.bss) . = ALIGN(4); bss_end = .; }} > ram
}}
"""
_CLEAR = (
    "ldr r0, =bss_start ; ldr r1, =bss_end ; movs r2, #0 ; "
    "8: str r2, [r0] ; adds r0, #4 ; cmp r0, r1 ; bne 8b"
)
_COPY = (
    "ldr r0, =data_start ; ldr r1, =data_end ; ldr r2, =data_load ; "
    "8: ldr r3, [r2] ; str r3, [r0] ; adds r0, #4 ; adds r2, #4 ; cmp r0, r1 ; bne 8b"
)


def network(folder: Path) -> Path:
    """RELU of four elements whose zero point is 0: max(x, 0)."""
    tensors = [Tensor(name, (1, 4), "int8", [0.05], [0]) for name in "xy"]
    path = folder / "tiny.tflite"
    path.write_bytes(Model(tensors, [Operator("RELU", ["x"], ["y"])], ["x"], ["y"]).to_bytes())
    return path


def build(folder: Path, changed: Rewritten, core: str = "cortex-m4") -> Path:
    """The image with some of its ``PARTS`` changed."""
    parts = {**PARTS, "copy": _CLEAR, **changed}
    if parts["data"] and "copy" not in changed:
        parts["copy"] = f"{_COPY} ; {parts['copy']}"
    if core in ("cortex-m55", "cortex-m85") and "enable" not in changed:
        parts["enable"] = _ENABLE
    text = _SOURCE
    for _ in range(_DEPTH):
        for name, part in parts.items():
            text = text.replace(f"{{{name}}}", part)
    (folder / "tiny.s").write_text(text.replace(" ; ", "\n"))
    (folder / "tiny.ld").write_text(_LINK.format(stack=parts["stack"]))
    flags = [
        f"-mcpu={core}",
        "-mthumb",
        "-nostdlib",
        "-nostartfiles",
        "-Ttiny.ld",
        "-Wl,--no-warn-rwx-segments",
    ]
    if core not in ("cortex-m0", "cortex-m0plus", "cortex-m3", "cortex-m23"):
        flags.append("-mfloat-abi=hard")
    command = [require_tool("arm-none-eabi-gcc"), *flags, "tiny.s", "-o", "tiny.elf"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    return folder / "tiny.elf"


def check(folder: Path, changed: Rewritten, core: str = "cortex-m4") -> Proof:
    """The proof of the image with some of its ``PARTS`` changed."""
    return prove(build(folder, changed, core), network(folder))


def patched(path: Path, change: Callable[[bytearray, list[int]], None]) -> Path:
    """The file after ``change``, which gets its bytes and where its program headers are."""
    data = bytearray(path.read_bytes())
    (first,), (size, count) = struct.unpack_from("<I", data, 28), struct.unpack_from("<HH", data, 42)
    change(data, [first + size * k for k in range(count)])
    path.write_bytes(data)
    return path
