"""What images by rows and the level ``ram`` save and cost.

``python -m benchmarks.by_rows MODELS [NETWORK...]`` from the root of the repository.

MODELS is the directory of the reference models, with ``networks`` beside it. MobileNetV2 for images of
224x224 has weights at random, which change neither memory nor, but for a little, instructions.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import crtgen
from benchmarks.networks import mobilenet_v2
from crtgen.api import Model
from crtgen.base.errors import UnsupportedError

BOARDS = ("mps2_an386", "mps3_an547")
LEVELS = ("speed", "balanced", "ram")
FILES = {
    "kws": "models/kws_int8.tflite",
    "vww": "models/vww_int8.tflite",
    "person_detect": "networks/tflm/person_detect.tflite",
    "mbnet96": "networks/tinymaix/mbnet96_0.25_q.tflite",
}


def rows(model: Model, board: str, level: str) -> Iterator[str]:
    """Two lines of the table: the image in memory, and by rows, if it can be fed so.

    RAM is that of a standalone image, less the array from which it feeds itself.
    """
    for feed in ("", "rows"):
        try:
            compiled = model.compile(board, optimize=level, feed=feed)
        except UnsupportedError:
            continue
        sizes = compiled.generate("standalone").build().size.sizes
        with compiled.generate().build().run() as session:
            instructions = session.measure().instructions or 0
        (info,) = (module.info for module in compiled.modules)
        ram = sizes.ram - (info.inputs[0].nbytes if feed else 0)
        cells = (
            model.name,
            board,
            level,
            feed or "whole",
            *(f"{n:,}" for n in (info.arena, ram, sizes.flash)),
        )
        yield f"| {' | '.join((*cells, f'{instructions:,}'))} |"


def main() -> None:
    folder, chosen = Path(sys.argv[1]).parent, sys.argv[2:]
    print("| network | board | level | image | arena | RAM | flash | instructions |")
    print("|---|---|---|---|---|---|---|---|")
    for name in chosen or (*FILES, "mobilenet_v2"):
        model = crtgen.load(folder / FILES[name]) if name in FILES else Model(mobilenet_v2())
        assert isinstance(model, Model)
        for board in BOARDS if name in FILES else BOARDS[:1]:  # which has flash for 3.7 MB of weights
            for level in LEVELS:
                for line in rows(model, board, level):
                    print(line, flush=True)


if __name__ == "__main__":
    main()
