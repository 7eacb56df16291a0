"""Files of the census and what crtgen makes of them: the share of integer MACs, and how close outputs are."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crtgen.network.frontends import load
from crtgen.network.ir import Array, DType, Graph
from crtgen.network.ops import ControlFlow

__all__ = ["FILES", "Census", "all_files"]

FILES = Path(__file__).parent / "files"


@dataclass(frozen=True)
class Census:
    """A network, and the inputs and outputs of its cases."""

    name: str
    graph: Graph
    cases: tuple[tuple[tuple[Array, ...], tuple[Array, ...]], ...]

    @classmethod
    def of(cls, file: Path) -> "Census":
        graph = load(file)
        with np.load(file.with_suffix(".npz")) as found:
            count = len({name.split("_")[0] for name in found.files})
            cases = tuple(
                (
                    tuple(found[f"case{case}_input{i}"] for i in range(len(graph.inputs))),
                    tuple(found[f"case{case}_output{i}"] for i in range(len(graph.outputs))),
                )
                for case in range(count)
            )
        return cls(file.stem, graph, cases)

    @property
    def integer_share(self) -> float:
        """The share of multiplications that are of integers; 1 without any."""
        layers = list(_macs(self.graph))
        total = sum(macs for macs, _ in layers)
        return sum(macs for macs, dtype in layers if dtype is not DType.FLOAT32) / total if total else 1.0

    def apart(self) -> tuple[int, float]:
        """The most steps that an integer output is apart, and float32 ones relative to their largest."""
        steps, relative = 0, 0.0
        runs = self.graph.run([inputs for inputs, _ in self.cases])
        for made, (_, expected) in zip(runs, self.cases, strict=True):
            for y, want in zip(made, expected, strict=True):
                if y.shape != want.shape or y.dtype != want.dtype:
                    raise ValueError(f"{self.name}: {y.dtype}{y.shape} instead of {want.dtype}{want.shape}")
                difference = float(np.abs(y.astype(np.float64) - want.astype(np.float64)).max())
                if y.dtype == np.float32:
                    scale = max(float(np.abs(want.astype(np.float64)).max()), 1e-30)
                    relative = max(relative, difference / scale)
                else:
                    steps = max(steps, round(difference))
        return steps, relative


def _macs(graph: Graph) -> Iterator[tuple[int, DType]]:
    # Multiplications of each layer and the type of its input; those of a loop once.
    for node in graph.nodes:
        if isinstance(node.op, ControlFlow):
            yield from (layer for inner in node.op.graphs for layer in _macs(inner))
        else:
            sig = graph.signature(node)
            yield node.op.macs(sig), sig.x.dtype


def all_files() -> Iterator[Path]:
    """The networks, in order of their names."""
    yield from sorted(file for file in FILES.iterdir() if file.suffix in (".tflite", ".onnx"))
