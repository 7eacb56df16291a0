"""Flash and stack of each layer of a model."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crtgen.compiler.codegen.module import LayerInfo
from crtgen.firmware.builder.size import SizedSymbol

__all__ = ["LayerSize", "layer_sizes"]


@dataclass(frozen=True, slots=True)
class LayerSize:
    """Sizes of a layer: bytes of its function and parts, the number of layers that share it, bytes of
    constants and stack.

    ``code`` is 0 if the compiler inlined the function; ``stack`` is the function's frame plus the deepest
    call.
    """

    name: str
    operator: str
    kernel: str
    code: int
    shared_by: int
    constants: int
    stack: int


def layer_sizes(
    layers: Sequence[LayerInfo], symbols: Sequence[SizedSymbol], frames: Mapping[str, int]
) -> tuple[LayerSize, ...]:
    """Return the sizes of the layers, in order; ``frames`` maps a function to its stack depth.

    An array that several layers read is counted for the first one.
    """
    sizes = {symbol.name: symbol.size for symbol in symbols}
    users = Counter(layer.function for layer in layers)
    first = {const: layer.name for layer in reversed(layers) for const in layer.consts}
    return tuple(
        LayerSize(
            name=layer.name,
            operator=layer.operator,
            kernel=layer.kernel,
            code=sum(sizes.get(function, 0) for function in (layer.function, *layer.parts)),
            shared_by=users[layer.function] if layer.function else 0,
            constants=sum(sizes.get(const, 0) for const, owner in first.items() if owner == layer.name),
            stack=frames.get(layer.function, 0),
        )
        for layer in layers
    )
