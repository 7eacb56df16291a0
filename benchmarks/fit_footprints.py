"""Build images for each core, write the sizes around the model, ``crtgen/firmware/project/footprints.csv``.

``CRTGEN_MODELS=FOLDER python -m benchmarks.fit_footprints [CORE...]`` from the root of the repository; rows
of cores that are not named stay. It needs arm-none-eabi-gcc, and a workspace of Zephyr for the rows of
``zephyr``; without one those stay as they are.
"""

import csv
import os
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from itertools import product
from pathlib import Path

import numpy as np

from crtgen import api
from crtgen.base.resources import footprints_file
from crtgen.boards import Board, find_board, find_core
from crtgen.compiler.kernels import Target
from crtgen.firmware.project.footprint import ALIGN, Around, Footprint, around

_CORES = ("cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55")
_MODELS = ("hello_world_int8", "ad01_int8", "kws_int8", "vww_int8", "ic01_int8")
_DIGITS = Path(__file__).parents[1] / "demo" / "digits.tflite"
_FLOATS = ("hello_world_float", "ic01_float32")
_ZEPHYR = {
    "cortex-m0plus": "rpi_pico",
    "cortex-m3": "mps2_an385",
    "cortex-m33": "mps2_an521",
    "cortex-m55": "mps3_an547",
}
_TYPES = ("library", "standalone", "server")


@dataclass(frozen=True, eq=False)
class _Sample:
    """An image that was built: its layers, its sizes, and what was expected of them."""

    layers: int
    flash: int
    ram: int
    expected: Footprint

    @property
    def more(self) -> int:
        """Bytes of flash that were not expected."""
        return self.flash - self.expected.flash


def main() -> None:
    models = Path(os.environ["CRTGEN_MODELS"])
    columns = ["core", "flag", "type", *(field.name for field in fields(Around))]
    named = sys.argv[1:] or _CORES
    with footprints_file().open(encoding="utf-8", newline="") as file:
        rows = [tuple(row) for row in list(csv.reader(file))[1:] if row[0] not in named]
    for core, level in product(named, ("speed", "size")):
        found = {kind: _around(models, core, level, kind) for kind in _TYPES}
        found["zephyr"] = _zephyr(models, core, level)
        flag = Target(find_core(core), level).flag
        rows += [(core, flag, kind, *(f"{n:g}" for n in astuple(figures))) for kind, figures in found.items()]
        print(core, flag, file=sys.stderr, flush=True)
    with footprints_file().open("w", encoding="utf-8", newline="") as file:
        rows.sort(key=lambda row: (_CORES.index(row[0]), row[1]))
        csv.writer(file, lineterminator="\n").writerows([columns, *rows])


def _around(models: Path, core: str, level: str, kind: str) -> Around:
    board = replace(find_board("mps2_an385"), core=find_core(core))  # any: images are only built
    known = around(core, Target(board.core, level).flag, kind)
    paths = [_DIGITS, *(models / f"{name}.tflite" for name in _MODELS)]
    samples = [_built(path, board, kind, level) for path in paths]
    flash, layer = _flash(samples)
    floats = 0.0
    if board.core.fpu == "none" and kind != "library":
        others = [_built(models / f"{name}.tflite", board, kind, level) for name in _FLOATS]
        left = [s.more - flash - layer * s.layers for s in others]
        floats = float(np.average(left, weights=[1 / s.flash**2 for s in others]))
    ram = _ram(samples, known.ram) if kind != "library" else 0
    return Around(
        round(known.flash + flash), round(known.layer + layer, 1), round(known.floats + floats), ram
    )


def _flash(samples: Sequence[_Sample]) -> tuple[float, float]:
    """Bytes around the models and for each layer with which relative errors are least.

    A few hundred bytes are nothing of vww and a sixth of hello_world: a plain fit left tiny models too small.
    """
    sizes = np.array([sample.flash for sample in samples], float)
    table = np.array([(1, sample.layers) for sample in samples], float) / sizes[:, None]
    found, *_ = np.linalg.lstsq(table, [sample.more for sample in samples] / sizes, rcond=None)
    return float(found[0]), float(found[1])


def _zephyr(models: Path, core: str, level: str) -> Around:
    """What Zephyr adds to a server; as before where it is not there.

    No board of these has Cortex-M4 or M7: their figures are those of Cortex-M33.
    """
    known = around(core, Target(find_core(core), level).flag, "zephyr")
    if core not in _ZEPHYR or "ZEPHYR_BASE" not in os.environ:
        return known
    board = find_board(_ZEPHYR[core])
    samples = [_built(models / f"{name}.tflite", board, "server", level, "zephyr") for name in _MODELS[:2]]
    flash = known.flash + np.mean([sample.more for sample in samples])
    return Around(round(flash), ram=round(known.ram + np.mean([s.ram - s.expected.ram for s in samples])))


def _built(path: Path, board: Board, kind: str, optimize: str, platform: str = "") -> _Sample:
    compiled = api.load(path).compile(board, optimize=optimize)
    sizes = compiled.generate(kind, platform=platform).build().size.sizes
    expected = compiled.footprint(kind, platform=platform)
    return _Sample(len(compiled.modules[0].info.layers), sizes.flash, sizes.ram, expected)


def _ram(samples: Sequence[_Sample], known: float) -> float:
    """The RAM around models with which that of all samples is as it is, a multiple of 8 bytes.

    Images are rounded up; pools, buffers and tables are multiples of that.
    """
    pads = [-int(s.expected.arena + s.expected.state + known) % ALIGN[s.expected.type] for s in samples]
    unrounded = [s.expected.ram - pad for s, pad in zip(samples, pads, strict=True)]
    align = ALIGN[samples[0].expected.type]
    wanted = [sample.ram for sample in samples]
    guess = (wanted[0] - unrounded[0]) // 8 * 8
    more = (
        m for m in range(guess - 16, guess + 17, 8) if [u + m + -(u + m) % align for u in unrounded] == wanted
    )
    return known + next(more)


if __name__ == "__main__":
    main()
