"""The reference models on the inputs that are recorded with them."""

from collections.abc import Mapping

import numpy as np

from crtgen.network.frontends import load
from crtgen.network.ir import Array, Graph
from tests.compiler.kernels.program import Run
from tests.support import model_path, models_dir

__all__ = ["recorded_runs"]


def recorded_runs(name: str, cases: int) -> list[tuple[Run, Mapping[str, Array]]]:
    """The first ``cases`` runs of a model, all of one graph, each with TFLite Micro's outputs by name."""
    graph = load(model_path(name))
    with np.load(models_dir() / f"{name}.npz") as data:
        return [
            (
                Run(f"{name} case {case}", graph, _arrays(graph, graph.inputs, data, f"case{case}_input")),
                _arrays(graph, graph.outputs, data, f"case{case}_output"),
            )
            for case in range(cases)
        ]


def _arrays(graph: Graph, names: tuple[str, ...], data: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {n: data[f"{prefix}{i}"].reshape(graph.values[n].shape) for i, n in enumerate(names)}
