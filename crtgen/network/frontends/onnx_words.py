"""Removes text outputs of an `.onnx` file, since firmware decides on scores.

Classifiers of scikit-learn have two outputs. The first is the label, which is text if the classes have names.
The second has the scores, which skl2onnx wraps into dictionaries with a ZipMap unless told not to. A device
needs the scores, in the order of the classes. The class names go into a note, for a file of labels.
"""

from collections.abc import Iterator
from dataclasses import replace

from crtgen.network.frontends.onnx_file import OnnxFileGraph

__all__ = ["without_words"]

_ZIP_MAP = "ai.onnx.ml.ZipMap"
_WORDS = "classlabels_strings"


def without_words(graph: OnnxFileGraph) -> tuple[OnnxFileGraph, str]:
    """Remove text outputs and unwrap dictionaries of scores; return the graph and a note about it.

    A graph that has only text outputs is unchanged.
    """
    wrapped = {n.outputs[0]: n.inputs[0] for n in graph.nodes if n.code == _ZIP_MAP}
    outputs = tuple(wrapped.get(name, name) for name in graph.outputs)
    kept = tuple(name for name in outputs if graph.tensors[name].type_name != "STRING")
    if not kept or kept == graph.outputs:
        return graph, ""
    gone = [name for name in graph.outputs if name not in kept and name not in wrapped]
    parts = [f"the output {', '.join(gone)} of words is left out"] if gone else []
    if unwrapped := [wrapped[name] for name in graph.outputs if name in wrapped]:
        parts.append(f"the scores {', '.join(unwrapped)} are an array, without their dictionary")
    if words := tuple(dict.fromkeys(_words(graph))):
        parts.append(f"labels in order: {', '.join(words)}")
    return replace(graph, outputs=kept), "; ".join(parts)


def _words(graph: OnnxFileGraph) -> Iterator[str]:
    for node in graph.nodes:
        for word in node.attributes.get(_WORDS) or ():
            yield word.decode(errors="replace") if isinstance(word, bytes) else str(word)
