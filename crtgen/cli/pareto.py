"""``crtgen pareto``: what a model costs optimised for speed, for size, and in between."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen import api
from crtgen.cli import options
from crtgen.cli.output import Debug, Json, guarded
from crtgen.cli.show import figures_table
from crtgen.level import LEVELS
from crtgen.measure.benchmark import measure_model
from crtgen.measure.pareto import front, plot
from crtgen.project.options import STACK

__all__ = ["command"]


def command(
    model: Annotated[Path, typer.Argument(help="A model file (.tflite, .onnx).", show_default=False)],
    board: options.Board = "mps2_an386",
    fold: options.Fold = True,
    stack: options.Stack = STACK,
    toolchain: options.Toolchain = None,
    trust: options.Trust = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure a model at each level of optimisation: a table and a plot of instructions over flash."""
    with guarded(as_json, debug) as out:
        with out.stage() as say:
            loaded = api.load(model, trust=trust)
            results = []
            for level in LEVELS:
                say(f"{model.name} for {level}")
                compiled = loaded.compile(board, optimize=level, passes=options.passes(fold))
                results.append(measure_model(compiled, stack=stack, toolchain=toolchain))
        best = front(results)
        points = [r.to_dict() | {"on_front": good} for r, good in zip(results, best, strict=True)]

        def render(console: Console) -> None:
            console.print(figures_table(results))
            for result, good in zip(results, best, strict=True):
                if not good:
                    console.print(f"{result.optimize} is no better than another in anything")
            if all(r.instructions is not None for r in results):
                console.print(f"\n{plot(results)}")

        out.result({"points": points}, render)
