"""Many kernels in one image on QEMU: each byte of output, what is around the buffers, and the instructions.

Every kernel runs with its buffers apart in the arena, in place by each permit that it has, and with each of
its buffers in turn as the last and as the first thing of a memory, beyond which an access is a fault.
"""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from crtgen.base.resources import runtime_dir
from crtgen.boards.core import find_core
from crtgen.compiler.codegen.render import render
from crtgen.compiler.kernels import Kernel
from crtgen.compiler.kernels.asm import Routine, assembly_file
from crtgen.network.ir import Array, DType, Signature, Value, shape_text
from crtgen.network.ops import Case
from tests.compiler.kernels.program import compile_program
from tests.support import WARNINGS, qemu_version, require_tool

__all__ = [
    "MACHINES",
    "Job",
    "Machine",
    "Result",
    "batches",
    "describe",
    "guarded",
    "measure_jobs",
    "run_jobs",
]

HERE = Path(__file__).parent / "baremetal"
_STACK = 8192
_SETS = 4  # of inputs, for the largest output of float32
_ROUNDS = 10  # that are measured together
_MOST_JOBS, _MOST_BYTES = 60, 500_000  # in one image


@dataclass(frozen=True)
class Machine:
    """A machine of QEMU's with its memories as (start, end), and the instructions per tick of SysTick.

    ``low`` and ``high`` are memories that hold nothing else: before the one and behind the other, any access
    is a fault. Without bytes, there is none.
    """

    name: str
    core: str
    code: tuple[int, int]
    constants: tuple[int, int]
    ram: tuple[int, int]
    instructions: float
    low: tuple[int, int] = (0, 0)
    high: tuple[int, int] = (0, 0)

    @property
    def room(self) -> int:
        """Bytes of memory beside the stack."""
        return self.ram[1] - self.ram[0] - _STACK


def _mps2(name: str, core: str) -> Machine:
    return Machine(name, core, (0, 0x80000), (0x80000, 0x400000), (0x20000000, 0x20400000), 40)


def _an505(core: str) -> Machine:
    return Machine(
        "mps2-an505",
        core,
        (0x10000000, 0x10080000),
        (0x10080000, 0x10400000),
        (0x38000000, 0x38200000),
        50,
        high=(0x38200000, 0x38400000),
    )


MACHINES = {
    "cortex-m0plus": _mps2("mps2-an385", "cortex-m0plus"),
    "cortex-m3": _mps2("mps2-an385", "cortex-m3"),
    "cortex-m4": _mps2("mps2-an386", "cortex-m4"),
    "cortex-m7": _mps2("mps2-an500", "cortex-m7"),
    "cortex-m23": _an505("cortex-m23"),
    "cortex-m33": _an505("cortex-m33"),
    "cortex-m55": Machine(
        "mps3-an547",
        "cortex-m55",
        (0, 0x80000),
        (0x01000000, 0x01200000),
        (0x21000000, 0x21400000),
        31.25,
        low=(0x20000000, 0x20040000),
        high=(0x20040000, 0x20080000),
    ),
}
"""One for each core. QEMU has no M0+ and no M23: an M3 and an M33 stand in, which know their code."""


def guarded(core: str) -> Machine:
    """The machine whose memories end in faults; the MPS2 boards of Cortex-M4 read zeros beyond theirs."""
    if core != "cortex-m4":
        return MACHINES[core]
    code, constants, tick = (0x08000000, 0x08040000), (0x08040000, 0x08100000), 1e9 / 168e6
    ram, low, high = (0x2000C000, 0x20024000), (0x20000000, 0x2000C000), (0x20024000, 0x20030000)
    if qemu_version() >= (8, 0):  # 64 of the 192 KiB are the CCM, as on the chip
        ram, low, high = (0x20008000, 0x20020000), (0x20000000, 0x20008000), (0x10000000, 0x10010000)
    return Machine("netduinoplus2", core, code, constants, ram, tick, low, high)


_LINK = """
ENTRY(reset_handler)
MEMORY
{{
    code (rx) : ORIGIN = {code[0]:#x}, LENGTH = {code[1]:#x} - {code[0]:#x}
    constants (r) : ORIGIN = {constants[0]:#x}, LENGTH = {constants[1]:#x} - {constants[0]:#x}
    ram (rwx) : ORIGIN = {ram[0]:#x}, LENGTH = {ram[1]:#x} - {ram[0]:#x}
}}
SECTIONS
{{
    .text : {{ KEEP(*(.vectors)) *(.text .text.*) }} > code
    .ARM.exidx : {{ *(.ARM.exidx*) }} > code
    .rodata : {{ *(.rodata .rodata.*) }} > constants
    .data : {{ data_start = .; *(.data .data.*) data_end = .; }} > ram AT > constants
    data_load = LOADADDR(.data);
    .bss (NOLOAD) : {{ . = ALIGN(16); bss_start = .; *(.bss .bss.* COMMON) bss_end = .; }} > ram
    stack_top = ORIGIN(ram) + LENGTH(ram);
    ASSERT(stack_top - bss_end >= {stack}, "no room for the stack")
}}
"""


@dataclass(frozen=True, eq=False)
class Job:
    """A kernel of a case, on inputs drawn from ``seed``."""

    case: Case
    kernel: Kernel
    seed: int = 1

    @property
    def nbytes(self) -> int:
        """What it adds to an image."""
        return sum(v.nbytes for v in self._values) + sum(c.nbytes for c in self.kernel.consts)

    @property
    def arena(self) -> int:
        """Bytes for all buffers apart, and once more for those of which one lies over the other."""
        sizes = [*(v.nbytes for v in self._values), self.kernel.scratch]
        lead = max((lead for _, _, lead in _permits(self)), default=0)
        return 64 + sum(n + 15 + 64 for n in sizes) + 96 + lead + max(sizes)

    @property
    def _values(self) -> list[Value]:
        """What it reads and writes, beside constants, in the order of its arguments."""
        sig = self.case.sig
        return [*(v for v in sig.inputs if not v.is_constant), *sig.outputs]


@dataclass
class Result:
    """``wrong``: what differed, by placement; ``instructions``: of the run with all buffers apart.

    ``code`` is the bytes of its functions, where these are measured.
    """

    wrong: list[str] = field(default_factory=list)
    instructions: int = 0
    code: int = 0


@dataclass(frozen=True, eq=False)
class _Buffer:
    """An argument of a kernel, as in ``jobs.h``; ``symbol`` is that of its data.

    ``greatest`` is the largest number that an output of float32 has, on several inputs.
    """

    kind: str
    symbol: str
    data: Array | None
    nbytes: int
    align: int = 4
    greatest: float = 0.0

    @property
    def row(self) -> str:
        return f"{{{self.symbol}, {self.nbytes}, {self.align}, {self.kind}, {self._tolerance}}},"

    @property
    def _tolerance(self) -> str:
        """float32 outputs may differ by 1e-5 of the largest number: of one input, all may be near 0."""
        if self.kind != "OUTPUT" or self.data is None or self.data.dtype != np.float32:
            return "0"
        return f"{1e-5 * self.greatest + 1e-30!r}f"


def describe(case: Case) -> str:
    """The layer in a line: attributes, shapes and quantisation."""
    values = [f"{v.name} {shape_text(v.shape)} {v.dtype.value} {v.quant}" for v in case.sig.inputs]
    made = [f"{shape_text(y.shape)} {y.quant}" for y in case.sig.outputs]
    return f"{case.op.name} {case.op.attributes()} of {', '.join(values)} to {', '.join(made)}"


def batches(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """The jobs in order, as many at once as go into an image."""
    batch: list[Job] = []
    for job in jobs:
        if batch and (len(batch) == _MOST_JOBS or sum(j.nbytes for j in batch) + job.nbytes > _MOST_BYTES):
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch


def run_jobs(jobs: Sequence[Job], folder: Path, machine: Machine, optimize: str = "-O2") -> list[Result]:
    """Build one image of all jobs, run it, and say how each fared.

    What a fault prevents runs in another image; where one does not build, its halves are built.
    """
    try:
        elf = _build(jobs, folder, machine, optimize)
    except subprocess.CalledProcessError as error:
        if len(jobs) == 1:
            return [Result([f"it does not build: {error.stderr[-1000:]}"])]
        half = len(jobs) // 2
        parts = (jobs[:half], jobs[half:])
        return [result for part in parts for result in run_jobs(part, folder, machine, optimize)]
    results, finished = _run(elf, machine, len(jobs))
    if not finished and len(results) < len(jobs):
        results += run_jobs(jobs[len(results) :], folder, machine, optimize)
    return results


def measure_jobs(jobs: Sequence[Job], folder: Path, core: str, optimize: str) -> list[Result]:
    """The results of the jobs, with instructions to a tenth of a tick's and the bytes of their own code.

    Each runs apart only. Equal functions stay apart, as if each were in an image of its own.
    """
    machine = replace(MACHINES[core], low=(0, 0), high=(0, 0))
    alone = [replace(job, kernel=replace(job.kernel, inplace=())) for job in jobs]
    elf = _build(alone, folder, machine, optimize, "-fno-ipa-icf", f"-DROUNDS={_ROUNDS}u")
    results, _ = _run(elf, machine, len(jobs))
    results += [Result(["it did not run"])] * (len(jobs) - len(results))
    sizes = _code_bytes(elf, jobs)
    return [
        Result(result.wrong, round(result.instructions / _ROUNDS), code)
        for result, code in zip(results, sizes, strict=True)
    ]


def _code_bytes(elf: Path, jobs: Sequence[Job]) -> list[int]:
    """The bytes of each job's functions in C, and of those of the runtime that it includes."""
    sizes = Counter[str]()
    with elf.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        for symbol in table.iter_symbols():
            # what is in assembly is local to its file, or has sections
            own = re.match(r"k\d+(?![0-9])(?!_call$)|crt_(?:dsp|mve)_[a-z]+", symbol.name)
            if own and symbol["st_info"]["type"] == "STT_FUNC":
                sizes[own[0]] += symbol["st_size"]
    included = [[f"crt_{Path(i).stem}" for i in _includes(job.kernel)] for job in jobs]
    return [sum(sizes[name] for name in (f"k{n}", *names)) for n, names in enumerate(included)]


def _build(jobs: Sequence[Job], folder: Path, machine: Machine, optimize: str, *flags: str) -> Path:
    core = find_core(machine.core)
    buffers = [_buffers(job, f"k{index}") for index, job in enumerate(jobs)]
    _write_data([b for group in buffers for b in group if b.data is not None], folder)
    _write_kernels(jobs, buffers, folder)
    (folder / "link.ld").write_text(_LINK.format(stack=_STACK - 256, **vars(machine)))
    symbols = {
        "ARENA": max(job.arena for job in jobs),
        "LOW": machine.low[0],
        "LOW_BYTES": machine.low[1] - machine.low[0],
        "HIGH_END": machine.high[1],
        "HIGH_BYTES": machine.high[1] - machine.high[0],
    }
    command = [require_tool("arm-none-eabi-gcc"), *core.gcc_flags, optimize, *WARNINGS, *flags]
    command += [f"-D{name}={number}u" for name, number in symbols.items()]
    command += [] if core.unaligned else ["-DTRAP_UNALIGNED"]
    command += [f"-I{HERE}", f"-I{runtime_dir() / 'include'}", "-nostartfiles", "-specs=nano.specs"]
    command += [f"-T{folder / 'link.ld'}"]
    sources = [
        folder / "kernels.c",
        HERE / "start.c",
        HERE / "jobs.c",
        folder / "routines.S",
        folder / "data.S",
    ]
    compile_program(command, sources, folder / "image.elf")
    return folder / "image.elf"


def _buffers(job: Job, name: str) -> list[_Buffer]:
    """The arguments of the kernel, in order."""
    case, kernel = job.case, job.kernel
    inputs = case.inputs(job.seed)
    expected = _outputs(case, inputs)
    sets = [expected]
    if any(v.dtype is DType.FLOAT32 for v in case.sig.outputs):
        sets += [_outputs(case, case.inputs(job.seed + n)) for n in range(1, _SETS)]
    greatest = [max(float(np.abs(made[i]).max()) for made in sets) for i in range(len(expected))]
    variable = [v for v in case.sig.inputs if not v.is_constant]
    return [
        *(_Buffer("INPUT", f"{name}_x{i}", inputs[v.name], v.nbytes) for i, v in enumerate(variable)),
        *(
            _Buffer("OUTPUT", f"{name}_y{i}", array, v.nbytes, greatest=greatest[i])
            for i, (v, array) in enumerate(zip(case.sig.outputs, expected, strict=True))
        ),
        *(
            _Buffer("CONSTANT", f"{name}_c{i}", c.data, c.nbytes, c.align)
            for i, c in enumerate(kernel.consts)
        ),
        *([_Buffer("SCRATCH", "0", None, kernel.scratch, 16)] if kernel.scratch else []),
    ]


def _outputs(case: Case, inputs: Mapping[str, Array]) -> Sequence[Array]:
    """Those of the reference."""
    arrays = [v.array() if v.is_constant else inputs[v.name] for v in case.sig.inputs]
    return case.op.reference(case.sig, arrays)


def _write_data(buffers: Sequence[_Buffer], folder: Path) -> None:
    lines, at = [".section .rodata"], 0
    with (folder / "data.bin").open("wb") as file:
        for b in buffers:
            assert b.data is not None
            data = np.ascontiguousarray(b.data).tobytes()
            file.write(data)
            lines += [
                ".balign 16",
                f".global {b.symbol}",
                f'{b.symbol}: .incbin "data.bin", {at}, {len(data)}',
            ]
            at += len(data)
    (folder / "data.S").write_text("\n".join([*lines, ""]))


def _write_kernels(jobs: Sequence[Job], buffers: Sequence[Sequence[_Buffer]], folder: Path) -> None:
    includes = sorted({f"#include <{i}>" for job in jobs for i in _includes(job.kernel)})
    lines = ["#include <crt/kernel.h>", *includes, '#include "jobs.h"']
    table, routines = [], dict[str, Routine]()
    for index, (job, group) in enumerate(zip(jobs, buffers, strict=True)):
        name, kernel = f"k{index}", job.kernel
        lines += [f"/* {job.case.op.name}: {kernel.design} */", _source(name, job.case.sig, kernel, routines)]
        lines += [f"extern const uint8_t {b.symbol}[];" for b in group if b.data is not None]
        lines += [f"static const struct buffer {name}_buffers[] = {{", *(b.row for b in group), "};"]
        permits = [f"{{{', '.join(map(str, permit))}}}" for permit in _permits(job)]
        lines += (
            [f"static const struct permit {name}_permits[] = {{{', '.join(permits)}}};"] if permits else []
        )
        rows = ["0", str(job.case.sig.x.shape[1])] if kernel.fed else []
        arguments = ", ".join([*(f"(void *)p[{i}]" for i in range(len(group))), *rows])
        lines += [f"static void {name}_call(uint8_t *const *p) {{ {name}({arguments}); }}"]
        place = f"{name}_permits, {len(permits)}" if permits else "0, 0"
        table += [f"{{{name}_call, {name}_buffers, {len(group)}, {place}}},"]
    lines += ["const struct job jobs[] = {", *table, "};", f"const uint32_t num_jobs = {len(jobs)};", ""]
    (folder / "kernels.c").write_text("\n".join(lines))
    (folder / "routines.S").write_text(assembly_file("Routines of the jobs.", routines.items()))


def _includes(kernel: Kernel) -> Iterator[str]:
    yield from kernel.includes
    for part in kernel.parts:
        yield from _includes(part.kernel)


def _source(name: str, sig: Signature, kernel: Kernel, routines: dict[str, Routine]) -> str:
    """The function of that name, after those that it calls; its routines are added to ``routines``."""
    own = [f"{name}_{i}" for i in range(len(kernel.routines))] if kernel.template else [name]
    routines |= zip(own, kernel.routines, strict=False)
    texts = [f"{routine.prototype(n)};" for n, routine in zip(own, kernel.routines, strict=False)]
    if not kernel.template:
        return "\n".join(texts)
    parts = [f"{name}_part{i}" for i in range(len(kernel.parts))]
    texts += [_source(n, p.sig, p.kernel, routines) for n, p in zip(parts, kernel.parts, strict=True)]
    variable = [v for v in sig.inputs if not v.is_constant]
    parameters = [f"const {v.dtype.c_name} *x{i}" for i, v in enumerate(variable)]
    parameters += [f"{v.dtype.c_name} *y{i}" for i, v in enumerate(sig.outputs)]
    parameters += [f"const {c.c_type} *{c.name}" for c in kernel.consts]
    parameters += ["uint8_t *scratch"] if kernel.scratch else []
    parameters += ["int32_t first", "int32_t count"] if kernel.fed else []
    prototype = f"void {name}({', '.join(parameters)})"
    context = {"k": kernel.view, "name": name, "prototype": prototype, "parts": parts, "routines": own}
    source = render(f"kernels/{kernel.template}", **context)
    return "\n".join([*texts, source])


def _permits(job: Job) -> list[tuple[int, int, int]]:
    """Input and output, counted as buffers are, and how many bytes the output begins before the input.

    The least lead, to which an output stays aligned, and a greater one: a third of the input more.
    """
    sig = job.case.sig
    order = [v.name for v in sig.inputs if not v.is_constant]
    found = []
    for permit in job.kernel.inplace:
        value, made = sig.inputs[permit.input], sig.outputs[permit.output]
        least = -(-permit.lead // made.dtype.itemsize) * made.dtype.itemsize
        more = 0 if permit.exact else value.nbytes // 48 * 16
        places = order.index(value.name), len(order) + permit.output
        found += [(*places, lead) for lead in dict.fromkeys((least, least + more))]
    return found


def _run(elf: Path, machine: Machine, count: int) -> tuple[list[Result], bool]:
    """The results of the jobs that were begun, and whether all came to their end."""
    command = [require_tool("qemu-system-arm"), "-M", machine.name, "-kernel", str(elf), "-nographic"]
    command += ["-monitor", "none", "-serial", "none", "-icount", "shift=0,align=off,sleep=off"]
    command += ["-semihosting-config", "enable=on,target=native"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
        end, printed = f"a fault (QEMU returned {done.returncode})", done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        end, printed = "no end", (error.stdout or b"") + (error.stderr or b"")
    results: list[Result] = []
    runs = re.findall(
        r"^job (\d+) (.*?)( output \d+ at \d+)?( arena \d+)?(?: ticks (\d+))?$", printed.decode(), re.M
    )
    assert runs, printed[-1000:]
    for number, placement, output, arena, ticks in runs:
        if int(number) == len(results):
            results.append(Result(instructions=round(int(ticks or 0) * machine.instructions)))
        text = end if not ticks else f"{output}{arena}".strip()
        if text:
            results[-1].wrong.append(f"{placement}: {text}")
    return results, len(results) == count and bool(runs[-1][4])
