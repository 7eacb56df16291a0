"""A network whose weights take few bits."""

import numpy as np

from crtgen.network.ir import Graph, Quant, Value
from crtgen.network.ops import FullyConnected
from crtgen.network.ops.case import int8s, make, weights_and_bias

__all__ = ["dense"]


def dense() -> Graph:
    """A fully connected layer whose weights are small mostly."""
    x = int8s("x", (1, 96), 0.02, -7)
    w, b = weights_and_bias("dense", x, (40, 96), 0, False)
    small = np.rint(np.random.default_rng(1).normal(0, 10, w.shape)).astype(np.int8)
    weights = Value.constant("w", small, w.quant)
    return make("dense", FullyConnected(), [x, weights, b], Quant.tensor(0.4, 3)).graph()
