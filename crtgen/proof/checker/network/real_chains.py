"""Float operators of TensorFlow Lite that compute a tensor of int8 from one other, element by element.

A converter leaves float32 where TensorFlow Lite has no kernel of int8: DEQUANTIZE, NEG or SQUARE or others,
QUANTIZE. Together they are a function of one int8 value, so they become one layer, which replaces QUANTIZE.
Each operator rounds to float32. A function of the C library is taken as its exact value, rounded once. An
operator between them that something else reads, too, is read by itself, and is refused.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tflite

from crtgen.proof.checker.network.elementwise import ElementLayer
from crtgen.proof.checker.network.file import ModelFile, NetworkOperator
from crtgen.proof.checker.network.real_functions import FunctionOfOne, composed, exact
from crtgen.proof.checker.refusal import Refusal

__all__ = ["ChainLayer", "with_chains"]

_B = tflite.BuiltinOperator
_INTEGER = 1e6
"""Beyond each integer of 8 or 16 bits with its zero point."""


class ChainLayer(ElementLayer):
    """QUANTIZE of a function of an int8 tensor: a quotient of float32, halves rounded away from 0."""

    chain: FunctionOfOne

    def read(self) -> None:
        f = self.file
        self.limits = f.limits(self.operator.output, 0)
        self.input_step = np.float32(f.scale(self.chain.tensor))
        self.output_step = np.float32(f.scale(self.operator.output))

    def of(self, *operands: Any) -> Any:
        with np.errstate(all="ignore"):
            found = self.chain.of(self.input_step * np.asarray(operands[0]).astype(np.float32))
            steps = (found.astype(np.float32) / self.output_step).astype(np.float64)
        if np.isnan(steps).any():
            raise Refusal("a float operator that gives no number for a value of its input")
        steps = np.clip(steps, -_INTEGER, _INTEGER)
        return np.copysign(np.floor(np.abs(steps) + 0.5), steps).astype(np.int64)


def with_chains(
    file: ModelFile, operators: Sequence[NetworkOperator]
) -> tuple[list[NetworkOperator], dict[int, FunctionOfOne]]:
    """Return the operators without float ones that became parts of a chain, and the chains by their ends.

    A chain's end is the operator QUANTIZE, whose input becomes the chain's source.
    """
    chains, ends, made = dict[int, FunctionOfOne](), dict[int, FunctionOfOne](), list[NetworkOperator]()
    for operator in operators:
        if operator.code == _B.QUANTIZE and operator.inputs[0] in chains:
            chain = chains[operator.inputs[0]]
            ends[operator.number] = chain
            operator = replace(operator, inputs=(chain.tensor,))
        elif (found := _chain(file, operator, chains)) is not None:
            chains[operator.output] = found
        made.append(operator)
    wanted, kept = set(file.outputs), list[NetworkOperator]()
    for operator in reversed(made):
        if operator.output not in chains or operator.output in wanted:
            wanted.update(operator.inputs)
            kept.append(operator)
    return kept[::-1], ends


def _chain(
    file: ModelFile, operator: NetworkOperator, chains: Mapping[int, FunctionOfOne]
) -> FunctionOfOne | None:
    # The chain that a float operator continues; None if it continues none.
    if operator.code == _B.DEQUANTIZE:
        (x,) = operator.inputs
        fits = file.type(x) == tflite.TensorType.INT8 and file.constant(x) is None and file.has_scale(x)
        return FunctionOfOne(x, operator.name, lambda v: v) if fits else None
    function = _function(operator)
    shape = file.shape(operator.output)
    parts = [_operand(file, tensor, chains, shape) for tensor in operator.inputs]
    sources = {part.tensor for part in parts if isinstance(part, FunctionOfOne)}
    if function is None or len(sources) != 1 or any(part is None for part in parts):
        return None

    return FunctionOfOne(sources.pop(), operator.name, composed(function, parts))


def _operand(
    file: ModelFile, tensor: int, chains: Mapping[int, FunctionOfOne], shape: tuple[int, ...]
) -> FunctionOfOne | Any:
    # A chain of the same shape, or a number that is the same for all elements; else None.
    if tensor in chains:
        return chains[tensor] if file.shape(tensor) == shape else None
    if tensor < 0 or not file.is_real(tensor):
        return None
    constant = file.constant(tensor)
    return constant.reshape(())[()] if constant is not None and constant.size == 1 else None


def _function(operator: NetworkOperator) -> Callable[..., Any] | None:
    if operator.code in _OF_TWO:
        kind, function = _OF_TWO[operator.code]
        options = operator.options(kind) if operator.has_options else None
        return function if options is None or options.FusedActivationFunction() == 0 else None
    return _FUNCTIONS.get(operator.code)


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf if x == 0 else math.nan


_FUNCTIONS: Mapping[int, Callable[..., Any]] = {
    _B.ABS: np.abs,
    _B.NEG: np.negative,
    _B.SQUARE: np.square,
    _B.SQRT: np.sqrt,
    _B.RSQRT: lambda x: np.float32(1) / np.sqrt(x),
    _B.RELU: lambda x: np.maximum(x, np.float32(0)),
    _B.RELU6: lambda x: np.clip(x, np.float32(0), np.float32(6)),
    _B.FLOOR: np.floor,
    _B.CEIL: np.ceil,
    _B.MAXIMUM: np.maximum,
    _B.MINIMUM: np.minimum,
    _B.SQUARED_DIFFERENCE: lambda a, b: np.square(a - b),
    _B.EXP: exact(lambda x: math.exp(min(x, 88.0))),
    _B.LOG: exact(_log),
    _B.SIN: exact(math.sin),
    _B.COS: exact(math.cos),
}
_OF_TWO: Mapping[int, tuple[Any, Callable[[Any, Any], Any]]] = {
    _B.ADD: (tflite.AddOptions, np.add),
    _B.SUB: (tflite.SubOptions, np.subtract),
    _B.MUL: (tflite.MulOptions, np.multiply),
    _B.DIV: (tflite.DivOptions, np.divide),
}
