"""Spoils a network, as a training that went wrong might: one layer's weights get the other sign.

usage: python spoil.py FILE LAYER SPOILED
"""

import sys
from pathlib import Path

import numpy as np

import crtgen


def main(file: Path, layer: str, spoiled: Path) -> None:
    """Change the weights where they are in the file."""
    graph = crtgen.load(file).graph
    node = next(node for node in graph.nodes if node.name == layer)
    weights = np.asarray(graph.values[node.inputs[1]].data, np.int8)
    data = file.read_bytes()
    assert data.count(weights.tobytes()) == 1, "the weights are not in the file as they are in the graph"
    spoiled.parent.mkdir(parents=True, exist_ok=True)
    spoiled.write_bytes(data.replace(weights.tobytes(), np.where(weights == -128, 127, -weights).tobytes()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
