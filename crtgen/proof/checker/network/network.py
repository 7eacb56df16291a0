"""A network as its file describes it: layers, and the symbols of their tensors."""

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import tflite

from crtgen.base.errors import UnsupportedError
from crtgen.proof.checker.algebra.products import SymbolProducts
from crtgen.proof.checker.algebra.value import Symbol
from crtgen.proof.checker.network.choices import ChoiceLayer, ExtremePlace
from crtgen.proof.checker.network.elementwise import (
    COMPARISONS,
    AbsoluteLayer,
    Addition,
    ComparisonLayer,
    Composed,
    DifferenceLayer,
    ElementLayer,
    ExtremeLayer,
    HardSwishLayer,
    PreluLayer,
    ProductLayer,
    RescalingLayer,
    RsqrtLayer,
    Sigmoid,
)
from crtgen.proof.checker.network.file import ModelFile, NetworkOperator
from crtgen.proof.checker.network.layer import Layer, Value
from crtgen.proof.checker.network.lstm import LstmLayer
from crtgen.proof.checker.network.matrices import MatrixProducts
from crtgen.proof.checker.network.means import AveragePool, Bilinear, MeanLayer
from crtgen.proof.checker.network.moves import MOVES, Move
from crtgen.proof.checker.network.onnx_file import OnnxFile
from crtgen.proof.checker.network.onnx_layers import ONNX_LAYERS
from crtgen.proof.checker.network.others import ExtremeAlongAxes, MaxPool, SoftmaxLayer
from crtgen.proof.checker.network.real_chains import ChainLayer, with_chains
from crtgen.proof.checker.network.real_ends import RealInput, RealOutput
from crtgen.proof.checker.network.real_functions import FunctionOfOne
from crtgen.proof.checker.network.sums import SumLayer
from crtgen.proof.checker.network.svdf import SvdfLayer
from crtgen.proof.checker.network.tabulated import TabulatedLayer
from crtgen.proof.checker.network.weighted import (
    ConvolutionLayer,
    DepthwiseLayer,
    FullyConnectedLayer,
    TransposedConvolution,
)
from crtgen.proof.checker.refusal import Refusal

__all__ = ["Network"]

_B = tflite.BuiltinOperator
_LAYERS: dict[int | str, type[Layer]] = {
    _B.CONV_2D: ConvolutionLayer,
    _B.DEPTHWISE_CONV_2D: DepthwiseLayer,
    _B.TRANSPOSE_CONV: TransposedConvolution,
    _B.FULLY_CONNECTED: FullyConnectedLayer,
    _B.AVERAGE_POOL_2D: AveragePool,
    _B.MEAN: MeanLayer,
    _B.SUM: MeanLayer,
    _B.RESIZE_BILINEAR: Bilinear,
    _B.MAX_POOL_2D: MaxPool,
    _B.ADD: Addition,
    _B.SUB: Addition,
    _B.MUL: ProductLayer,
    _B.SQUARED_DIFFERENCE: DifferenceLayer,
    _B.MAXIMUM: ExtremeLayer,
    _B.MINIMUM: ExtremeLayer,
    _B.QUANTIZE: RescalingLayer,
    _B.RELU: RescalingLayer,
    _B.RELU_N1_TO_1: RescalingLayer,
    _B.RELU6: RescalingLayer,
    _B.RELU_0_TO_1: RescalingLayer,
    _B.LEAKY_RELU: RescalingLayer,
    _B.PRELU: PreluLayer,
    _B.LOGISTIC: Sigmoid,
    _B.TANH: Sigmoid,
    _B.HARD_SWISH: HardSwishLayer,
    _B.ABS: AbsoluteLayer,
    **dict.fromkeys((_B.ELU, _B.EXP, _B.GELU, _B.LOG, _B.SQRT), TabulatedLayer),
    _B.RSQRT: RsqrtLayer,
    **dict.fromkeys(COMPARISONS, ComparisonLayer),
    _B.REDUCE_MAX: ExtremeAlongAxes,
    _B.REDUCE_MIN: ExtremeAlongAxes,
    _B.BATCH_MATMUL: MatrixProducts,
    _B.SVDF: SvdfLayer,
    _B.SELECT: ChoiceLayer,
    _B.SELECT_V2: ChoiceLayer,
    _B.ARG_MAX: ExtremePlace,
    _B.ARG_MIN: ExtremePlace,
    _B.SOFTMAX: SoftmaxLayer,
    _B.UNIDIRECTIONAL_SEQUENCE_LSTM: LstmLayer,
    **dict.fromkeys(MOVES, Move),
}
_LAYERS.update(ONNX_LAYERS)  # by name
# Operators of TensorFlow Lite with an input, or an output, of float32.
_OF_REALS: dict[tuple[int, bool, bool], type[Layer]] = {
    (_B.QUANTIZE, True, False): RealInput,
    (_B.DEQUANTIZE, False, True): RealOutput,
}
_VARIABLES = frozenset((_B.CALL_ONCE, _B.VAR_HANDLE, _B.READ_VARIABLE, _B.ASSIGN_VARIABLE))


class Network:
    """The layers of a file in order. A layer is prepared when the first byte of its inputs is looked at.

    Variables hold their first values or, if ``later``, anything. For windows over a signal, ``window`` has
    all values of the current window, ``new`` those that this run receives, in this shape, and
    ``before`` is the network on the previous window.
    """

    uncompared = ""
    """Reason why outputs are not compared with the file, if they are not."""
    given_shape: tuple[int, ...] = ()
    """Shape of what a run receives of a window, if it is not the whole input."""

    def __init__(
        self,
        path: Path,
        later: bool = False,
        window: Sequence[Value] = (),
        new: Sequence[Value] = (),
        before: "Network | None" = None,
        given_shape: tuple[int, ...] = (),
    ) -> None:
        self.given_shape = given_shape
        self.slides, self.products = bool(new), SymbolProducts()
        self.functions: dict[Hashable, Symbol] = {}
        self._earlier = before.functions if before else {}
        self._proven_before = before.proven_symbols() if before else frozenset()
        self._places: dict[Symbol, int] = {}
        self.file = cast(ModelFile, OnnxFile(path)) if path.suffix.lower() == ".onnx" else ModelFile(path)
        self.path = path
        self._given: dict[int, list[Value]] = {}
        for tensor in self.file.inputs:
            self._given[tensor] = list(window) or self._symbols(tensor)
        self.fed = {t: list(new) if new else values for t, values in self._given.items()}
        """Elements that the image receives of each input."""
        self.states = self.file.variables()
        for state in self.states:
            values: list[Value] = [int(v) for v in state.first]
            if later:
                values = self._symbols(state.read[0])
            self._given |= dict.fromkeys(state.read, values)
        known = [o for o in self.file.operators if o.code not in _VARIABLES]
        self.chains: dict[int, FunctionOfOne] = {}
        if not isinstance(self.file, OnnxFile):
            known, self.chains = with_chains(self.file, known)
        self.layers = [self._layer(o) for o in known]
        self._made = {y: layer for layer in self.layers for y in layer.operator.outputs}
        self._sources: dict[int, frozenset[int]] = {
            t: frozenset(v.tensor for v in values if isinstance(v, Symbol))
            for t, values in self._given.items()
        }
        self.readers: dict[int, list[Layer]] = {}
        for layer in self.layers:
            for part in layer.parts if isinstance(layer, LstmLayer | SvdfLayer) else (layer,):
                self._note_readers(part)

    def _symbols(self, tensor: int) -> list[Value]:
        kind = self.file.kind(tensor)
        return [Symbol(tensor, i, kind.low, kind.high, kind.bits) for i in range(self.file.size(tensor))]

    def _layer(self, operator: NetworkOperator) -> Layer:
        if operator.number in self.chains:
            layer = ChainLayer(self, operator)
            layer.chain = self.chains[operator.number]
            return layer
        kind = _LAYERS.get(operator.code)
        ends = any(map(self._is_real, operator.inputs)), any(map(self._is_real, operator.outputs))
        if any(ends) and isinstance(operator.code, int):
            kind = _OF_REALS.get((operator.code, *ends))
        if kind is Sigmoid and self._has_own_scale(operator):
            kind = TabulatedLayer
        if kind is None:
            where, of = f"{self.path.name}, operator {operator.number}", " of float32" if any(ends) else ""
            raise UnsupportedError(f"{operator.name}{of} has no proof yet", where=where)
        return kind(self, operator)

    def _has_own_scale(self, operator: NetworkOperator) -> bool:
        # TensorFlow Lite Micro has one output scale for LOGISTIC and TANH of int8; exporters write others.
        usual = (1 / 256, -128) if operator.code == _B.LOGISTIC else (1 / 128, 0)
        y = operator.output
        return self.file.kind(y).bits == 8 and (self.file.scale(y), self.file.zero_point(y)) != usual

    def _is_real(self, tensor: int) -> bool:
        return tensor >= 0 and self.file.is_real(tensor)

    def _note_readers(self, layer: Layer) -> None:
        # Who reads the symbols of a tensor: through layers that move bytes, too.
        sources = [self._sources.get(t, frozenset((t,))) for t in layer.data_inputs()]
        origins = frozenset[int]().union(*sources)
        if layer.is_move:
            self._sources |= dict.fromkeys(layer.operator.outputs, origins)
            return
        self._sources[layer.operator.output] = frozenset(layer.operator.outputs)
        followers = [layer, *(self._composed(layer) if layer in self.layers else ())]
        for tensor in origins:
            self.readers.setdefault(tensor, []).extend(followers)

    def _composed(self, layer: Layer) -> list[Layer]:
        # Element-wise functions that directly follow, one after the other.
        found: list[Layer] = []
        while isinstance(layer, SumLayer):
            after = [
                n for n in self.layers
                if isinstance(n, ElementLayer) and tuple(n.data_inputs()) == layer.operator.outputs
            ]  # fmt: skip
            if not after:
                break
            layer = Composed(layer, after[0])
            found.append(layer)
        return found

    def values(self, tensor: int) -> list[Value]:
        """Return the elements of a tensor: symbols, or integers if it is constant. Prepares the layer that
        computes it.
        """
        if tensor in self._given:
            return self._given[tensor]
        layer = self._made.get(tensor)
        if layer is None:
            constant = self.file.constant(tensor)
            if constant is None:
                raise Refusal(f"tensor {tensor} comes from nowhere")
            return [int(v) for v in constant.ravel()]
        first = self._offset(layer, tensor)
        return self.prepared(layer)[first : first + self.file.size(tensor)]

    def prepared(self, layer: Layer) -> list[Value]:
        if layer.values is None:
            try:
                layer.values = layer.prepare()
            except Refusal as refusal:
                raise Refusal(f"layer {layer.number}, {layer.name}: {refusal}") from None
        return layer.values

    def shared(self, layer: Layer, output: int, function: Hashable, symbol: Symbol) -> Symbol:
        """Return the symbol that a layer's function had in the previous window, or else the given one."""
        if not self.slides:
            return symbol
        found = self._earlier.get((layer.number, function), symbol)
        self.functions.setdefault((layer.number, function), found)
        self._places[found] = output
        if found in self._proven_before:
            layer.proven.add(output)
        return found

    def keeps(self, tensor: int, source: int) -> None:
        # A tensor has symbols of another one: who reads the first may be reached by those, too.
        known = self.readers.setdefault(source, [])
        known += [layer for layer in self.readers.get(tensor, ()) if layer not in known]

    def proven_symbols(self) -> frozenset[Symbol]:
        found = ((layer.values or (), layer.proven_outputs()) for layer in self.layers)
        values = (values[i] for values, proven in found for i in proven if values)
        return frozenset(v for v in values if isinstance(v, Symbol))

    def tensors(self) -> Iterator[tuple[int, list[Value]]]:
        """Yield the index and the elements of each input, and of the output of each prepared layer."""
        yield from self._given.items()
        yield from ((layer.operator.output, layer.values) for layer in self.layers if layer.values)

    def _offset(self, layer: Layer, tensor: int) -> int:
        # Offset of a tensor among the outputs of its layer.
        outputs = layer.operator.outputs
        return sum(self.file.size(t) for t in outputs[: outputs.index(tensor)])

    def array(self, tensor: int) -> "np.ndarray[Any, np.dtype[np.object_]]":
        values = self.values(tensor)
        array = np.empty(len(values), object)
        array[:] = values
        return array.reshape(self.file.shape(tensor))

    @property
    def results(self) -> list[int]:
        """The tensors that a run leaves behind: its outputs, and the next values of variables."""
        return [*self.file.outputs, *(state.assigned for state in self.states)]

    def needed(self) -> dict[int, set[int]]:
        need: dict[int, set[int]] = {}
        for tensor in self.results:
            self._need(need, tensor, range(self.file.size(tensor)))
        for layer in reversed(self.layers):
            outputs = need.get(layer.number)
            if outputs and layer.values is not None:
                for symbol in layer.needs(outputs):
                    self._need(need, symbol.tensor, (self._places.get(symbol, symbol.index),))
        return need

    def made_from(self, values: Sequence[Value], given: Container[Symbol]) -> dict[int, set[int]] | None:
        """Return, by layer, the outputs on the way from the ``given`` symbols to ``values``.

        Returns None if the values also depend on other inputs of the network.
        """
        need: dict[int, set[int]] = {}
        if not self._reached(need, values, given):
            return None
        for layer in reversed(self.layers):
            outputs = need.get(layer.number)
            if outputs and not self._reached(need, layer.needs(outputs), given):
                return None
        return need

    def _reached(self, need: dict[int, set[int]], values: Iterable[Value], given: Container[Symbol]) -> bool:
        # Note the layers of symbols that are not given; False for symbols of no layer.
        for value in values:
            if isinstance(value, int) or value in given:
                continue
            if value.tensor not in self._made:
                return False
            self._need(need, value.tensor, (self._places.get(value, value.index),))
        return True

    def trust(self, made: Mapping[int, set[int]]) -> None:
        for layer in self.layers:
            layer.trusted |= made.get(layer.number, set())

    def _need(self, need: dict[int, set[int]], tensor: int, indices: Any) -> None:
        layer = self._made.get(tensor)
        if layer is not None:
            first = self._offset(layer, tensor)
            need.setdefault(layer.number, set()).update(first + i for i in indices)
