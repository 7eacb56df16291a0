"""Runs many kernels in one QEMU image: bit-exact against the reference, guarded, and counted."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crtgen.boards.core import find_core
from crtgen.codegen.render import render
from crtgen.ir import Array
from crtgen.kernels.kernel import Kernel
from crtgen.ops.case import Case
from crtgen.resources import runtime_dir
from tests.support import require_tool

MACHINES = {
    "cortex-m4": "mps2-an386",
    "cortex-m7": "mps2-an500",
    "cortex-m33": "mps2-an505",
    "cortex-m55": "mps3-an547",
}
_PERIODS = {"cortex-m33": 50.0, "cortex-m55": 31.25}
_MEMORY = {
    "cortex-m33": {"code": 0x10000000, "constants": 0x10080000, "ram": 0x38000000},
    "cortex-m55": {"code": 0, "constants": 0x01000000, "ram": 0x21000000},
}
_SMALL = {"code": 0, "constants": 0x00080000, "ram": 0x20000000}
_GUARD = 64

_LINK = """
MEMORY {{
  code (rx) : ORIGIN = {code:#x}, LENGTH = 512K
  constants (r) : ORIGIN = {constants:#x}, LENGTH = 2M
  ram (rwx) : ORIGIN = {ram:#x}, LENGTH = 2M
}}
ENTRY(reset)
SECTIONS {{
  .text : {{ KEEP(*(.vectors)) *(.text*) }} > code
  .rodata : {{ *(.rodata*) }} > constants
  .bss (NOLOAD) : {{ *(.data*) *(.bss*) *(COMMON) }} > ram
}}
stack_top = ORIGIN(ram) + LENGTH(ram);
"""

_RUN = """
#include <stdint.h>
#include <string.h>
extern char stack_top[];
int main(void);
static void call(uint32_t op, const void *arg) {
    register uint32_t r0 __asm__("r0") = op; register const void *r1 __asm__("r1") = arg;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}
static void text(const char *s) { call(4, s); }
static void number(uint32_t v) {
    char b[12]; int i = 11; b[i] = 0;
    do { b[--i] = (char)('0' + v % 10); v /= 10; } while (v);
    text(b + i); text(" ");
}
static void quit(void) { call(0x18, (void *)0x20026); for (;;) {} }
void reset(void) {
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20;
    main(); quit();
}
void fault(void) { text("FAULT\\n"); quit(); }
__attribute__((section(".vectors"), used)) void (*const vectors[16])(void) = {
    (void (*)(void))stack_top, reset, fault, fault, fault, fault, fault };
static volatile uint32_t *const systick = (volatile uint32_t *)0xE000E010;
static void start(void) { systick[1] = 0xFFFFFF; systick[2] = 0; systick[0] = 5; }
static uint32_t ticks(void) { return 0xFFFFFF - systick[2]; }
static uint8_t arena[ARENA] __attribute__((aligned(16)));
static uint32_t equal(const void *a, const void *b, uint32_t n) {
    uint32_t i = 0;
    while (i < n && ((const uint8_t *)a)[i] == ((const uint8_t *)b)[i]) i++;
    return i;
}
static int check(const uint8_t *p, uint32_t n) { for (; n; n--) if (*p++ != 0xA5) return 0; return 1; }
"""


@dataclass(frozen=True)
class Job:
    """A kernel of a case; ``inplace`` lays the output over an input, ``lead`` bytes before it.

    ``memory`` is the start and the end of a memory that holds nothing else: the first input is put at one of
    these, at the end if ``last``, so that reading beyond it is a fault.
    """

    case: Case
    kernel: Kernel
    inplace: bool = False
    memory: tuple[int, int] | None = None
    last: bool = False

    def place(self, nbytes: int) -> int:
        """The address of a first input of so many bytes in ``memory``."""
        assert self.memory
        return self.memory[1] - nbytes if self.last else self.memory[0]


@dataclass(frozen=True)
class Result:
    """How many bytes are right before one is wrong, whether the guards are whole, and the instructions.

    Instructions are counted in steps of 40, on M33 of 50, on M55 of 31.25.
    """

    equal: int
    right: bool
    whole: bool
    instructions: int


def _array(name: str, data: Array) -> str:
    flat = np.ascontiguousarray(data).reshape(-1)
    kind = f"{flat.dtype.name}_t" if flat.dtype != np.float32 else "float"
    body = ",".join(map(str, flat.tolist()))
    return f"static const {kind} {name}[{flat.size}] __attribute__((aligned(16))) = {{{body}}};\n"


def _up(n: int) -> int:
    return -(-n // 16) * 16


def _job(index: int, job: Job) -> tuple[str, str, int]:
    """Constants and function, the statements that run it, and the bytes of arena it needs."""
    case, kernel = job.case, job.kernel
    inputs = case.inputs(index)
    env = {v.name: inputs.get(v.name, v.data) for v in case.sig.inputs}
    (expected,) = case.op.reference(case.sig, [env[v.name] for v in case.sig.inputs])
    name = f"k{index}"
    text = f"/* {case.name}: {kernel.design} */\n" + render(
        f"kernels/{kernel.template}", k=kernel.view, name=name
    )
    variable = [v for v in case.sig.inputs if not v.is_constant]
    text += "".join(_array(f"{name}_x{i}", inputs[v.name]) for i, v in enumerate(variable))
    text += "".join(_array(f"{name}_c{i}", c.data) for i, c in enumerate(kernel.consts))
    text += _array(f"{name}_y", expected)
    place, end = {}, _GUARD
    if job.inplace:
        lead, over = kernel.inplace[0].lead, case.sig.inputs[kernel.inplace[0].input].name
        size = max(_up(lead) + inputs[over].nbytes, expected.nbytes)
        out = end + _up(lead) - lead
        place[over] = end + _up(lead)
        end = max(out + expected.nbytes, end + size)
    for v in variable:
        if v.name not in place:
            place[v.name] = _up(end)
            end = _up(end) + inputs[v.name].nbytes
    if not job.inplace:
        out = _up(end) + _GUARD
        end = out + expected.nbytes
    scratch = _up(end) + _GUARD
    total = scratch + kernel.scratch + _GUARD
    run = f"    memset(arena, 0xA5, {total});\n"
    where = [f"(arena + {place[v.name]})" for v in variable]
    if job.memory:
        where[0] = f"(uint8_t *){job.place(inputs[variable[0].name].nbytes):#x}u"
    for i, v in enumerate(variable):
        run += f"    memcpy({where[i]}, {name}_x{i}, {inputs[v.name].nbytes});\n"
    args = [f"(void *){p}" for p in where] + [f"(void *)(arena + {out})"]
    args += [f"{name}_c{i}" for i in range(len(kernel.consts))]
    args += [f"arena + {scratch}"] if kernel.scratch else []
    run += f"    start(); {name}({', '.join(args)}); t = ticks();\n"
    guards = [(0, _GUARD), (scratch - _GUARD, _GUARD), (scratch + kernel.scratch, _GUARD)]
    if not job.inplace:
        guards.append((out - _GUARD, _GUARD))
    whole = " && ".join(f"check(arena + {a}, {n})" for a, n in guards)
    run += f"    number({index}); number(equal(arena + {out}, {name}_y, {expected.nbytes}));"
    run += f' number({whole}); number(t); text("\\n");\n'
    return text, run, total


def run_jobs(
    jobs: Sequence[Job], folder: Path, core: str = "cortex-m4", optimize: str = "-O2"
) -> list[Result]:
    """Build one image of all jobs, run it, and say how each fared."""
    gcc = require_tool("arm-none-eabi-gcc")
    parts = [_job(i, job) for i, job in enumerate(jobs)]
    includes = "#include <crt/kernel.h>\n" + "".join(
        sorted({f"#include <{i}>\n" for job in jobs for i in job.kernel.includes})
    )
    arena = max(p[2] for p in parts)
    source = f"#define ARENA {arena}\n" + _RUN + includes + "".join(p[0] for p in parts)
    source += "int main(void) {\n    uint32_t t;\n" + "".join(p[1] for p in parts) + "    return 0;\n}\n"
    (folder / "main.c").write_text(source)
    (folder / "link.ld").write_text(_LINK.format(**_MEMORY.get(core, _SMALL)))
    elf = folder / "image.elf"
    flags = [*find_core(core).gcc_flags, optimize, "-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    command = [
        gcc,
        *flags,
        "-ffreestanding",
        "-nostartfiles",
        f"-I{runtime_dir() / 'include'}",
        "-T",
        str(folder / "link.ld"),
        "-o",
        str(elf),
    ]
    subprocess.run([*command, str(folder / "main.c")], check=True, timeout=250)
    return _run(elf, core, [job.case.sig.y.nbytes for job in jobs])


def _run(elf: Path, core: str, sizes: Sequence[int]) -> list[Result]:
    qemu = require_tool("qemu-system-arm")
    command = [qemu, "-M", MACHINES[core], "-kernel", str(elf), "-nographic", "-monitor", "none"]
    command += ["-serial", "none", "-semihosting-config", "enable=on,target=native"]
    command += ["-icount", "shift=0,align=off,sleep=off"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    lines = [line.split() for line in (done.stdout + done.stderr).splitlines()]
    found = {int(w[0]): w for w in lines if len(w) == 4 and w[0].isdigit()}
    assert len(found) == len(sizes), f"{len(found)} of {len(sizes)} kernels came back: {lines[-3:]}"
    period = _PERIODS.get(core, 40.0)
    return [
        Result(
            int(found[i][1]), int(found[i][1]) == size, found[i][2] == "1", round(int(found[i][3]) * period)
        )
        for i, size in enumerate(sizes)
    ]
