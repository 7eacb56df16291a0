"""Complex values around a Fourier transform, as pairs on an additional last axis."""

from dataclasses import replace

from crtgen.network.frontends.tflite_file import FileTensor, TfliteFileGraph
from crtgen.network.ir import DType

__all__ = ["paired"]

# Operators that know such pairs; to all others a tensor of complex numbers is one of an unknown type.
_KNOWN = frozenset(("COMPLEX_ABS", "EXPAND_DIMS", "IMAG", "REAL", "RESHAPE", "RFFT2D", "SQUEEZE"))


def paired(graph: TfliteFileGraph) -> TfliteFileGraph:
    places = [i for i, tensor in enumerate(graph.tensors) if tensor.type_name == "COMPLEX64"]
    others = (op for op in graph.operators if op.code not in _KNOWN)
    foreign = {i for op in others for i in (*op.inputs, *op.outputs)} | {*graph.inputs, *graph.outputs}
    found = [i for i in places if i not in foreign and graph.tensors[i].data is None]
    if not found:
        return graph
    tensors = list(graph.tensors)
    for i in found:
        tensors[i] = _pair(tensors[i])
    return replace(graph, tensors=tuple(tensors))


def _pair(tensor: FileTensor) -> FileTensor:
    return replace(tensor, dtype=DType.FLOAT32, shape=(*tensor.shape, 2))
