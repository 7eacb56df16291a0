"""Forests by crtgen, emlearn and micromlgen: flash, and instructions of a row, on three sets of scikit-learn.

    python -m venv other && other/bin/pip install emlearn micromlgen
    python -m benchmarks.trees other/bin/python

The other two are not dependencies of crtgen: the Python that has them writes their C from the forest that is
trained here. docs/trees.md shows the table. Each program labels 40 rows of the test set in a loop, on QEMU;
code for Cortex-M0+ runs on an M3, which knows it. Flash is what the predictor adds to the same image without
it: nodes, code, and the functions for floats that it calls. crtgen copies each row to its input and gives
the shares of the classes beside the label; the others give the label.
"""

import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from elftools.elf.elffile import ELFFile
from skl2onnx import to_onnx
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from crtgen.base.resources import runtime_dir
from crtgen.boards.core import find_core
from crtgen.compiler.codegen.generate import generate_c
from crtgen.compiler.kernels import Target
from crtgen.compiler.plan import plan_model
from crtgen.network.frontends import load_onnx
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.compiler.kernels.harness import HERE, MACHINES
from tests.compiler.kernels.program import qemu_command

_SETS = {"iris": 10, "breast_cancer": 10, "digits": 10}
"""Trees of the forest for each set."""

_DEPTH, _ROWS, _ROUNDS = 8, 40, 50
_CORES = ("cortex-m0plus", "cortex-m4")

# What the Python with the other packages runs: both ports of a pickled forest, to files.
_OTHERS = """
import pickle, sys
import emlearn, micromlgen
folder = sys.argv[1]
forest = pickle.load(open(f"{folder}/forest.pickle", "rb"))
emlearn.convert(forest, method="inline", dtype="float").save(file=f"{folder}/emlearn.h", name="forest")
open(f"{folder}/micromlgen.h", "w").write(micromlgen.port(forest, classname="Forest"))
"""

_PREDICTORS = {
    "emlearn": '#include "emlearn.h"\nextern "C" int32_t predict(const float *x)\n'
    "{ return forest_predict(x, FEATURES); }\n",
    "micromlgen": '#include "micromlgen.h"\nstatic Eloquent::ML::Port::Forest forest;\n'
    'extern "C" int32_t predict(const float *x) { return forest.predict(const_cast<float *>(x)); }\n',
    "crtgen": '#include "forest.h"\nextern "C" int32_t predict(const float *x)\n'
    "{ int64_t label; float shares[CLASSES];\n"
    "  const struct forest_inputs in = {x}; const struct forest_outputs out = {&label, shares};\n"
    "  forest_run(&in, &out); return (int32_t)label; }\n",
    "": 'extern "C" int32_t predict(const float *x) { return x[0] > 0 ? 1 : 0; }\n',
}

_MAIN = """
#include <stdint.h>
#include "print.h"
#include "rows.h"
int32_t predict(const float *x);
void systick_handler(void);
void systick_handler(void) {}
int main(void)
{
    volatile uint32_t *timer = (volatile uint32_t *)0xe000e010u;
    uint32_t labels = 0;
    for (uint32_t i = 0; i < ROWS; ++i) put_number(" label ", (uint32_t)predict(rows[i]));
    timer[1] = 0xffffffu; timer[2] = 0; timer[0] = 5u;
    for (uint32_t round = 0; round < ROUNDS; ++round)
        for (uint32_t i = 0; i < ROWS; ++i) labels += (uint32_t)predict(rows[i]);
    put_number(" ticks ", 0xffffffu - timer[2]);
    put_number(" sum ", labels);
    return 0;
}
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """A predictor's flash in bytes, its instructions per row, and how many labels are scikit-learn's."""

    flash: int
    instructions: float
    equal: int


def trained(name: str) -> tuple[RandomForestClassifier, Any]:
    """Return a forest, and rows that it did not see."""
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    seen, others, labels, _ = train_test_split(x.astype(np.float32), y, random_state=0, test_size=_ROWS)
    forest = RandomForestClassifier(_SETS[name], max_depth=_DEPTH, random_state=0).fit(seen, labels)
    return forest, others


def write_sources(folder: Path, forest: RandomForestClassifier, rows: Any, other: str) -> None:
    """Write the C of all three, and the rows."""
    (folder / "forest.pickle").write_bytes(pickle.dumps(forest))
    subprocess.run([other, "-c", _OTHERS, str(folder)], check=True, capture_output=True)
    numbers = ",".join(f"{{{','.join(f'{v:.9g}f' for v in row)}}}" for row in rows.astype(float))
    numbers = re.sub(r"(?<=[{,])(-?\d+)f", r"\1.0f", numbers)
    text = f"static const float rows[{len(rows)}][{rows.shape[1]}] = {{{numbers}}};\n"
    (folder / "rows.h").write_text(f"#define ROWS {len(rows)}u\n#define ROUNDS {_ROUNDS}u\n{text}")
    (folder / "main.c").write_text(_MAIN)
    (folder / "cstdarg").write_text("#include <stdarg.h>\n")  # Debian's compiler has no C++ library
    model = to_onnx(forest, rows[:1], options={"zipmap": False}).SerializeToString()
    (folder / "forest.onnx").write_bytes(model)


def measured(folder: Path, kind: str, core: str, forest: RandomForestClassifier, rows: Any) -> Figures:
    """Build an image with one of the predictors, and run it."""
    machine, found = MACHINES[core], find_core(core)
    sources = [folder / "main.c", HERE / "start.c"]
    if kind == "crtgen":
        graph, _ = run_passes(load_onnx(folder / "forest.onnx"), DEFAULT_PASSES)
        module = generate_c(plan_model(graph, Target(found))[0], "forest", core=found)
        for name, text in module.files.items():
            (folder / name).write_text(text)
        names = [n for n in module.files if n.endswith((".c", ".S")) and "registry" not in n]
        sources += [folder / name for name in names]
    (folder / "predict.cpp").write_text(f"#include <stdint.h>\n{_PREDICTORS[kind]}")
    flags = [*found.gcc_flags, "-O2", "-ffunction-sections", "-fdata-sections", f"-I{folder}", f"-I{HERE}"]
    flags += [f"-DFEATURES={rows.shape[1]}", f"-DCLASSES={len(forest.classes_)}"]
    flags += [f"-I{runtime_dir() / 'include'}"]
    objects = []
    for number, source in enumerate([*sources, folder / "predict.cpp"]):
        compiler = "arm-none-eabi-g++" if source.suffix == ".cpp" else "arm-none-eabi-gcc"
        objects.append(folder / f"{number}.o")
        more = ["-fno-exceptions", "-fno-rtti", "-w"] if source.suffix == ".cpp" else []
        subprocess.run([compiler, *flags, *more, "-c", source, "-o", objects[-1]], check=True)
    link = ["-nostartfiles", "-specs=nano.specs", "-Wl,--gc-sections", f"-T{HERE / 'an385.ld'}"]
    image = folder / "image.elf"
    subprocess.run(["arm-none-eabi-gcc", *found.gcc_flags, *objects, *link, "-o", image], check=True)
    command = qemu_command(machine.name, image)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    printed = done.stdout + done.stderr
    ticks = re.search(r"ticks (\d+)", printed)
    assert ticks is not None, printed[-500:]
    labels = np.array([int(n) for n in re.findall(r"label (\d+)", printed)])
    instructions = int(ticks[1]) * machine.instructions / (_ROUNDS * len(rows))
    return Figures(_flash(image), instructions, int((labels == forest.predict(rows)).sum()))


def _flash(image: Path) -> int:
    with image.open("rb") as file:
        sections = ELFFile(file).iter_sections()
        return sum(s.data_size for s in sections if s.name in (".text", ".data", ".ARM.exidx"))


def lines(other: str) -> Iterator[str]:
    """Yield the lines of the table."""
    columns = [f"{what} {core}" for core in ("M0+", "M4") for what in ("flash", "instructions")]
    yield f"| set | features, classes, nodes | | {' | '.join(columns)} | equal labels |"
    yield "|" + "---|" * 8
    for name in _SETS:
        forest, rows = trained(name)
        nodes = sum(tree.tree_.node_count for tree in forest.estimators_)
        size = f"{rows.shape[1]}, {len(forest.classes_)}, {nodes}"
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            write_sources(folder, forest, rows, other)
            without = {core: measured(folder, "", core, forest, rows) for core in _CORES}
            for kind in ("crtgen", "emlearn", "micromlgen"):
                cells, equal = list[str](), set[int]()
                for core in _CORES:
                    found, empty = measured(folder, kind, core, forest, rows), without[core]
                    cells += [
                        f"{found.flash - empty.flash:,}",
                        f"{found.instructions - empty.instructions:,.0f}",
                    ]
                    equal.add(found.equal)
                yield f"| {name} | {size} | {kind} | {' | '.join(cells)} | {min(equal)} of {len(rows)} |"


def main(arguments: list[str]) -> str | None:
    if len(arguments) != 1:
        return __doc__
    for line in lines(arguments[0]):
        print(line, flush=True)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
