"""A network as its file says it: layers, and the symbols of their tensors."""

from pathlib import Path
from typing import Any

import numpy as np
import tflite

from crtgen.errors import UnsupportedError
from crtgen.prove.network.elementwise import Addition, Product, Rescaling
from crtgen.prove.network.file import ModelFile, Operator
from crtgen.prove.network.layer import Layer, Value
from crtgen.prove.network.others import MaxPool, Move, Softmax
from crtgen.prove.network.sums import AveragePool, Convolution, Depthwise, FullyConnected
from crtgen.prove.refusal import Refusal
from crtgen.prove.value import Symbol

__all__ = ["Network"]

_B = tflite.BuiltinOperator
_LAYERS: dict[int, type[Layer]] = {
    _B.CONV_2D: Convolution,
    _B.DEPTHWISE_CONV_2D: Depthwise,
    _B.FULLY_CONNECTED: FullyConnected,
    _B.AVERAGE_POOL_2D: AveragePool,
    _B.MAX_POOL_2D: MaxPool,
    _B.ADD: Addition,
    _B.SUB: Addition,
    _B.MUL: Product,
    _B.QUANTIZE: Rescaling,
    _B.RELU: Rescaling,
    _B.RELU_N1_TO_1: Rescaling,
    _B.RELU6: Rescaling,
    _B.LEAKY_RELU: Rescaling,
    _B.SOFTMAX: Softmax,
    _B.RESHAPE: Move,
    _B.SQUEEZE: Move,
    _B.EXPAND_DIMS: Move,
    _B.CONCATENATION: Move,
    _B.PAD: Move,
}


class Network:
    """The layers of a file in its order. Each is prepared when the first byte of its inputs is looked at."""

    def __init__(self, path: Path) -> None:
        self.file = ModelFile(path)
        self.input, self.output = self.file.inputs[0], self.file.outputs[0]
        if not self.file.is_int8(self.input) or not self.file.is_int8(self.output):
            raise UnsupportedError("a proof is of int8 from input to output", where=str(path))
        self.layers = [self._layer(o, path) for o in self.file.operators]
        self._made = {layer.operator.output: layer for layer in self.layers}
        self._input: list[Value] = [
            Symbol(self.input, i, -128, 127) for i in range(self.file.size(self.input))
        ]
        self._sources: dict[int, frozenset[int]] = {self.input: frozenset((self.input,))}
        self.readers: dict[int, list[Layer]] = {}
        for layer in self.layers:
            self._note_readers(layer)

    def _layer(self, operator: Operator, path: Path) -> Layer:
        kind = _LAYERS.get(operator.code)
        if kind is None:
            where = f"{path.name}, operator {operator.number}"
            raise UnsupportedError(f"{operator.name} has no proof yet", where=where)
        return kind(self, operator)

    def _note_readers(self, layer: Layer) -> None:
        """Who reads the symbols of a tensor: through layers that move bytes, too."""
        sources = [self._sources.get(t, frozenset((t,))) for t in layer.data_inputs()]
        origins = frozenset[int]().union(*sources)
        out = layer.operator.output
        if layer.is_move:
            self._sources[out] = origins
            return
        self._sources[out] = frozenset((out,))
        for tensor in origins:
            self.readers.setdefault(tensor, []).append(layer)

    def values(self, tensor: int) -> list[Value]:
        """The symbols of a tensor, or numbers; its layer is prepared first."""
        if tensor == self.input:
            return self._input
        layer = self._made.get(tensor)
        if layer is None:
            constant = self.file.constant(tensor)
            if constant is None:
                raise Refusal(f"tensor {tensor} comes from nowhere")
            return [int(v) for v in constant.ravel()]
        if layer.values is None:
            try:
                layer.values = layer.prepare()
            except Refusal as refusal:
                raise Refusal(f"layer {layer.number}, {layer.name}: {refusal}") from None
        return layer.values

    def array(self, tensor: int) -> "np.ndarray[Any, np.dtype[np.object_]]":
        """The values of a tensor, in its shape."""
        values = self.values(tensor)
        array = np.empty(len(values), object)
        array[:] = values
        return array.reshape(self.file.shape(tensor))

    def needed(self) -> dict[int, set[int]]:
        """By tensor: the outputs that the result depends on."""
        need: dict[int, set[int]] = {self.output: set(range(self.file.size(self.output)))}
        for layer in reversed(self.layers):
            outputs = need.get(layer.operator.output)
            if outputs and layer.values is not None:
                for symbol in layer.needs(outputs):
                    need.setdefault(symbol.tensor, set()).add(symbol.index)
        return need
