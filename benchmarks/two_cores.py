"""What two cores save: instructions of the slower one, and those of one core, for networks on cores of QEMU.

python benchmarks/two_cores.py MODEL.tflite ... [--board mps2_an386]

The halves of a layer run one after the other, on one core; the time of the shorter one is taken away. Virtual
time of QEMU with two CPUs is the sum of both, which is why nothing else is measured there. Asking the
other core and waiting for it, some 20 instructions a layer, is not in it.
"""

import argparse
import re
import tempfile
from pathlib import Path

import crtgen
from crtgen.api import Compiled, Image, Model
from crtgen.boards import Board, find_board, name_board
from crtgen.device.run import run_standalone

_BOTH = """/* Both here; the time of the shorter one does not count. */
#include <crt/cores.h>
#include "platform.h"

uint64_t crt_saved;

void crt_both(void (*first)(const void *call), void (*second)(const void *call), const void *call)
{
    const uint64_t start = crt_clock_ticks();
    first(call);
    const uint64_t between = crt_clock_ticks();
    second(call);
    const uint64_t end = crt_clock_ticks();
    crt_saved += (between - start < end - between) ? between - start : end - between;
}
"""


def board_with_two(name: str, folder: Path) -> Board:
    """A board of QEMU as if it had a second core."""
    text = Path(find_board(name).file or "").read_text()
    file = folder / f"two_{name}.toml"
    file.write_text(re.sub(r'(?m)^core = ".*"$', r'\g<0>\nsecond_core = "sse200"', text, count=1))
    return name_board(file)


def ticks_of_one_core(compiled: Compiled) -> int:
    """Ticks of a run of a standalone image."""
    return _ticks(compiled.generate("standalone").build(), compiled.board)


def ticks_of_slower(compiled: Compiled, folder: Path) -> int:
    """The same of the core that is there for longer, of a model for two."""
    project = compiled.generate("standalone").extract(folder)
    (folder / "platform" / "second_sse200.c").write_text(_BOTH + "void crt_second_start(void) {}\n")
    (folder / "runtime" / "src" / "crt_cores.c").write_text("typedef int crt_nothing;\n")
    main = folder / "platform" / "main.c"
    text = main.read_text()
    timed = "(uint32_t)(crt_clock_ticks() - start)"
    assert text.count(timed) == 1
    edited = text.replace(timed, "(uint32_t)(crt_clock_ticks() - start - crt_saved)")
    main.write_text(f"#include <stdint.h>\nextern uint64_t crt_saved;\n{edited}")
    return _ticks(project.build(), compiled.board)


def _ticks(image: Image, board: Board) -> int:
    finished = run_standalone(image.path, board, timeout=300)
    (found,) = re.findall(r"(\d+) ticks", finished.output)
    return int(found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--board", default="mps2_an386")
    parser.add_argument("--optimize", default="speed")
    options = parser.parse_args()
    print("| network | one core | two cores, the slower | times | arena |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        board = board_with_two(options.board, folder)
        for path in options.models:
            model = crtgen.load(path)
            assert isinstance(model, Model)
            one, two = (model.compile(board=board, optimize=options.optimize, cores=n) for n in (1, 2))
            before, after = ticks_of_one_core(one), ticks_of_slower(two, folder / path.stem)
            (plan,), (pair,) = one.plans, two.plans
            print(
                f"| {path.stem} | {before:,} | {after:,} | {before / after:.3f}"
                f" | {plan.arena:,} -> {pair.arena:,} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
