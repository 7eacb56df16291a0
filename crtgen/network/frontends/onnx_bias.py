"""The bias of an integer layer, in units of its accumulator."""

from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen.network.frontends.onnx_edges import Edge, Links
from crtgen.network.frontends.onnx_file import FileNode, constant

__all__ = ["bias_of"]

_APART = 1e-5


def bias_of(links: Links, node: FileNode, x: Edge, weights: Edge | None) -> str | None:
    """Return the name of an int32 bias, empty if there is no bias; None if the bias is not supported.

    A constant float bias is rounded to the accumulator's units, as ONNX Runtime does.
    """
    if node.code not in ("Conv", "ConvTranspose", "Gemm") or len(node.inputs) < 3 or not node.inputs[2]:
        return ""
    edge, real = links.source(node.inputs[2]), links.data(node.inputs[2])
    data = links.data(edge.numbers) if edge is not None else None
    step = _step(links, x, weights)
    if step is not None and step.size > 1 and node.code == "ConvTranspose":
        step = np.tile(step, int(node.attributes.get("group", 1)))
    if edge is not None:
        if data is None or data.dtype != np.int32:
            return None
        scale = links.data(edge.scale)
        if scale is None or step is None or _is_step(scale, step):
            return edge.numbers
        # Two layers share the bias, whose scale is that of the other one.
        real = (data.reshape(-1).astype(np.float64) * scale.astype(np.float64).reshape(-1)).astype(np.float32)
    if real is None or step is None or real.dtype != np.float32 or real.shape[:-1] not in ((), (1,)):
        return None
    steps, name = np.rint(real.astype(np.float32).reshape(-1) / step), f"{node.outputs[0]}.bias"
    if not (np.abs(steps) < 1 << 31).all():
        return None
    links.tensors[name] = constant(name, steps.astype(np.int32))
    return name


def _is_step(scale: npt.NDArray[Any], step: npt.NDArray[np.float32]) -> bool:
    # True if a bias has the scale of the sums, but for rounding.
    given = scale.astype(np.float32).reshape(-1)
    same = given.size in (1, step.size) or step.size == 1
    return not same or bool((np.abs(given - step) <= _APART * np.abs(step)).all())


def _step(links: Links, x: Edge, weights: Edge | None) -> npt.NDArray[np.float32] | None:
    # Step size of the sums, for all outputs or for each.
    scales = [links.data(edge.scale) for edge in (x, weights) if edge is not None]
    known = [s.astype(np.float32).reshape(-1) for s in scales if s is not None]
    return known[0] * known[1] if len(known) == 2 else None
