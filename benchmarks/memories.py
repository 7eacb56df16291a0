"""Tables of models in a board's memories: ``python -m benchmarks.memories MODELS [BOARD...]``.

MODELS is the directory of the reference models. Modelled Mcycles and KiB of RAM of a standalone image at
``speed``, or at ``ram`` if that does not fit: with all in the flash and one RAM, and where crtgen puts it.
Nothing is built. A board that only Zephyr starts is taken as if crtgen did.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import crtgen
from benchmarks.networks import mobilenet_v1, mobilenet_v2, tiny_yolo
from crtgen.api import Model
from crtgen.base.errors import DoesNotFitError
from crtgen.boards import Board, find_board
from crtgen.boards.board import Timer, Uart

__all__ = ["Placed", "placements"]

BOARDS = (
    *("rpi_pico", "rpi_pico2", "pico_plus2", "nucleo_l4r5zi", "nucleo_h743zi"),
    *("mimxrt1050_evk", "nucleo_n657x0_q", "stm32n6570_dk"),
)
LEVELS = ("speed", "ram")
FILES = {"ad01": "ad01_int8.tflite", "kws": "kws_int8.tflite", "vww": "vww_int8.tflite"}


@dataclass(frozen=True, slots=True)
class Placed:
    """Modelled cycles of a run at a level, and bytes of each RAM."""

    level: str
    cycles: float
    rams: Mapping[str, int]

    @property
    def text(self) -> str:
        sizes = " + ".join(f"{name} {size / 1024:.1f}" for name, size in self.rams.items())
        return f"{self.cycles / 1e6:.2f}: {sizes}" + (
            f" at `{self.level}`" if self.level != LEVELS[0] else ""
        )


def placements(model: Model, board: Board, feed: str = "") -> tuple[Placed | None, Placed | None]:
    """Return a model with all in one RAM and the flash, and as crtgen places it; None if nothing holds it."""
    fixed = {"weights": board.code, "arena": board.data}
    before, after = (
        next(filter(None, (_placed(model, board, level, feed, place) for level in LEVELS)), None)
        for place in (fixed, {})
    )
    return before, after


def _placed(model: Model, board: Board, level: str, feed: str, place: Mapping[str, str]) -> Placed | None:
    try:
        compiled = model.compile(board, optimize=level, feed=feed, place=place)
    except DoesNotFitError:
        return None
    placed = compiled.placed("standalone")
    needs = placed.footprint("standalone").memories
    if any(needs.get(m.name, 0) > m.size for m in board.memories):
        return None
    rams = {m.name: needs[m.name] for m in board.memories if m.kind == "ram" and needs.get(m.name)}
    cycles = sum((step.kernel.cycles or 0) + step.waits for plan in placed.plans for step in plan.steps)
    return Placed(level, cycles, rams)


def as_bare_metal(board: Board) -> Board:
    """Return a board that crtgen could start: only what an image's plan needs is true of it."""
    if "baremetal" in board.platforms:
        return board
    return replace(board, uart=Uart("cmsdk", 0, board.clock, 0, 115200), timer=Timer("systick", board.clock))


def models(folder: Path) -> Iterator[tuple[str, Model, str]]:
    """Yield networks with their names, and how their images arrive."""
    for name, file in FILES.items():
        model = crtgen.load(folder / file)
        assert isinstance(model, Model)
        yield name, model, ""
    yield "MobileNetV1-0.5-160", Model(mobilenet_v1()), ""
    yield "MobileNetV2-224 by rows", Model(mobilenet_v2()), "rows"
    yield "Tiny YOLO 192, 1/4", Model(tiny_yolo()), ""


def main() -> None:
    folder, named = Path(sys.argv[1]), sys.argv[2:]
    print("| board | network | one RAM | placed |")
    print("|---|---|---|---|")
    networks = tuple(models(folder))
    for board in (as_bare_metal(find_board(name)) for name in named or BOARDS):
        for name, model, feed in networks:
            before, after = (each.text if each else "does not fit" for each in placements(model, board, feed))
            cells = (f"`{board.name}`", name, before, after if after != before else "the same")
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
