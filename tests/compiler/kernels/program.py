"""One C program that runs many models on given inputs and prints their outputs, for the host or QEMU."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crtgen.base.resources import runtime_dir
from crtgen.boards.core import Core
from crtgen.compiler.codegen.generate import generate_c
from crtgen.compiler.kernels import Target, select
from crtgen.compiler.plan import Plan, make_plan
from crtgen.network.ir import Array, Graph
from tests.support import BRIEF, CHECKED, WARNINGS, cached, require_tool

HERE = Path(__file__).parent
_MEMORY = {"mps2-an505": "an505.ld", "mps3-an547": "an547.ld"}
_MOST_RUNS = 200


@dataclass(frozen=True)
class Run:
    """A network with the inputs of one inference."""

    name: str
    graph: Graph
    inputs: Mapping[str, Array]


def plan_runs(runs: Sequence[Run], target: Target) -> list[tuple[Run, Plan]]:
    """Each run with the plan of its network; runs of one network share the plan."""
    graphs = {id(run.graph): run.graph for run in runs}
    plans = {key: make_plan(graph, select(graph, target)) for key, graph in graphs.items()}
    return [(run, plans[id(run.graph)]) for run in runs]


def write_program(directory: Path, runs: Sequence[tuple[Run, Plan]]) -> list[Path]:
    """The generated sources of every plan, and a table of the runs' inputs."""
    models: dict[int, str] = {}
    sources, table, blobs = [], [], []
    for number, (run, plan) in enumerate(runs):
        if id(plan) not in models:
            name = models[id(plan)] = f"m{len(models)}"
            module = generate_c(plan, name)
            for file, text in module.files.items():
                (directory / file).write_text(text)
            sources += [directory / f for f in module.files if f.endswith((".c", ".S"))]
        data = b"".join(np.ascontiguousarray(run.inputs[i]).tobytes() for i in run.graph.inputs)
        blobs.append(f"static const uint8_t in{number}[] = {{{','.join(map(str, data))}}};")
        table.append(f"{{&{models[id(plan)]}_model, in{number}}},")
    externs = [f"extern const struct crt_model {m}_model;" for m in models.values()]
    lines = ["#include <crt/model.h>", '#include "runs.h"', *externs, *blobs]
    lines += ["const struct run runs[] = {", *table, "};", f"const uint32_t num_runs = {len(runs)};"]
    (directory / "runs.c").write_text("\n".join(lines) + "\n")
    if any(step.kernel.shares for _, plan in runs for step in plan.steps):
        sources.append(runtime_dir() / "src" / "crt_cores.c")
    return [*sources, directory / "runs.c", HERE / "baremetal" / "main.c"]


def one_unit(directory: Path, sources: Sequence[Path]) -> list[Path]:
    """The same sources as few files, which compile faster: assembly apart from C."""
    c_files = [s for s in sources if s.suffix == ".c"]
    unit = directory / "all.c"
    unit.write_text("".join(f'#include "{s.name if s.parent == directory else s}"\n' for s in c_files))
    return [unit, *(s for s in sources if s.suffix != ".c")]


def compile_program(command: Sequence[str], sources: Sequence[Path], program: Path) -> None:
    """Compile and link. The first source, the largest by far, may come from the cache of the compiler.

    Raises ``CalledProcessError`` with what the compiler says.
    """
    flags = [flag for flag in command if not flag.startswith(("-T", "-Wl,"))]
    _compile([*cached(flags), "-c", sources[0].name, "-o", "unit.o"], program.parent)
    _compile([*command, "unit.o", *map(str, sources[1:]), "-o", program.name], program.parent)


def _compile(command: Sequence[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, timeout=240, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
        raise subprocess.CalledProcessError(done.returncode, command, stderr=done.stderr)


def include_flags(directory: Path) -> list[str]:
    return [f"-I{directory}", f"-I{HERE / 'baremetal'}", f"-I{runtime_dir() / 'include'}"]


def run_on_host(directory: Path, runs: Sequence[Run]) -> list[bytes]:
    """The output bytes of each run, compiled with gcc and sanitizers; what is optimised runs on QEMU."""
    return run_plans_on_host(directory, plan_runs(runs, Target()))


def run_plans_on_host(
    directory: Path, runs: Sequence[tuple[Run, Plan]], flags: Sequence[str] = ()
) -> list[bytes]:
    """The same with given plans; where a sanitizer finds something, it is compiled again to say what."""
    gcc = require_tool("gcc")
    sources = one_unit(directory, write_program(directory, runs))
    program = directory / "program"
    command = [gcc, *CHECKED, *flags, *include_flags(directory)]
    compile_program([*command, *BRIEF], sources, program)
    done = subprocess.run([program], timeout=120, capture_output=True, text=True)
    if done.returncode != 0:
        compile_program(command, sources, program)
        again = subprocess.run([program], timeout=120, capture_output=True, text=True)
        raise AssertionError(f"the program returned {done.returncode}: {again.stderr[-5000:]}")
    return parse_outputs(done.stdout, len(runs))


def run_on_qemu(
    directory: Path, runs: Sequence[Run], machine: str, core: Core, flags: Sequence[str] = ()
) -> list[bytes]:
    """The output bytes of each run on a board of QEMU, over semihosting."""
    return run_plans_on_qemu(directory, plan_runs(runs, Target(core=core)), machine, core, flags)


def run_plans_on_qemu(
    directory: Path, runs: Sequence[tuple[Run, Plan]], machine: str, core: Core, flags: Sequence[str] = ()
) -> list[bytes]:
    """The same with given plans: in as many images as their code needs."""
    outputs = []
    for number, start in enumerate(range(0, len(runs), _MOST_RUNS)):
        part, folder = runs[start : start + _MOST_RUNS], directory / str(number)
        folder.mkdir()
        image = build_image(folder, part, machine, core, flags)
        command = qemu_command(machine, image)
        done = subprocess.run(command, check=True, timeout=240, capture_output=True, text=True)
        outputs += parse_outputs(done.stdout + done.stderr, len(part))
    return outputs


def build_image(
    directory: Path, runs: Sequence[tuple[Run, Plan]], machine: str, core: Core, flags: Sequence[str] = ()
) -> Path:
    """An ELF image for a board of QEMU."""
    gcc = require_tool("arm-none-eabi-gcc")
    sources = one_unit(directory, write_program(directory, runs))
    image = directory / "image.elf"
    memory = HERE / "baremetal" / _MEMORY.get(machine, "an385.ld")
    command = [gcc, *core.gcc_flags, "-O2", *WARNINGS, *flags, *include_flags(directory)]
    command += ["-ffunction-sections", "-fdata-sections", "-nostartfiles", "-specs=nano.specs"]
    command += ["-Wl,--gc-sections", f"-T{memory}"]
    compile_program(command, [*sources, HERE / "baremetal" / "start.c"], image)
    return image


def qemu_command(machine: str, image: Path) -> list[str]:
    qemu = require_tool("qemu-system-arm")
    semihosting = ["-semihosting-config", "enable=on,target=native"]
    counting = ["-icount", "shift=0,align=off,sleep=off"]
    return [qemu, "-M", machine, "-display", "none", "-serial", "null", "-monitor", "none", *semihosting,
            *counting, "-kernel", str(image)]  # fmt: skip


def parse_outputs(text: str, count: int) -> list[bytes]:
    """The lines ``out <hex>``, one for each run."""
    outputs = [bytes.fromhex(line[4:]) for line in text.splitlines() if line.startswith("out ")]
    assert len(outputs) == count, text[-2000:]
    return outputs


def check_outputs(run: Run, printed: bytes, expected: Mapping[str, Array] | None = None) -> str:
    """Where the printed outputs differ from the reference: empty if they agree.

    int8 has to be equal, and so has what is infinite or no number; float32 may differ by 1e-5 of the
    largest output.
    """
    expected = run.graph.evaluate(run.inputs) if expected is None else expected
    offset = 0
    for name in run.graph.outputs:
        value = run.graph.values[name]
        actual = np.frombuffer(printed[offset : offset + value.nbytes], value.dtype.numpy)
        offset += value.nbytes
        want = expected[name].ravel()
        if value.dtype.value == "float32":
            finite = np.isfinite(want)
            bounded = np.where(finite, want, 0)
            near = np.abs(actual - bounded) <= 1e-5 * np.abs(bounded).max()
            alike = (actual == want) | (np.isnan(actual) & np.isnan(want))
            wrong = ~np.where(finite, near, alike)
        else:
            wrong = actual != want
        if wrong.any():
            at = int(wrong.argmax())
            return f"{run.name} {name}[{at}] is {actual[at]}, not {want[at]}; {wrong.sum()} of {wrong.size}"
    return "" if offset == len(printed) else f"{run.name}: {len(printed)} bytes instead of {offset}"
