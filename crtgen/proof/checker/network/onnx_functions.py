"""Functions of one quantised tensor: float operators between its dequantisation and the next quantisation.

Each operator rounds to float32, as ONNX Runtime does. A function of the C library is taken as its exact
value, rounded once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from crtgen.proof.checker.network.real_functions import FunctionOfOne, composed, exact
from crtgen.proof.checker.refusal import Refusal

__all__ = ["OPERATORS", "UNLIKE", "combined"]


def _exact(function: Callable[[float], float]) -> Callable[..., Any]:
    each = exact(function)

    def of(x: Any, attributes: Mapping[str, Any]) -> Any:
        _only(attributes)
        return each(x)

    return of


def _only(attributes: Mapping[str, Any], *names: str) -> None:
    other = attributes.keys() - set(names)
    if other:
        raise Refusal(f"attributes that are not followed: {', '.join(sorted(other))}")


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -80 else 0.0


def _leaky(x: Any, attributes: Mapping[str, Any]) -> Any:
    _only(attributes, "alpha")
    return np.where(x >= 0, x, np.float32(attributes.get("alpha", 0.01)) * x)


def _hard(x: Any, attributes: Mapping[str, Any]) -> Any:
    _only(attributes, "alpha", "beta")
    alpha, beta = np.float32(attributes.get("alpha", 0.2)), np.float32(attributes.get("beta", 0.5))
    return np.clip(alpha * x + beta, np.float32(0), np.float32(1))


def _hard_swish(x: Any, attributes: Mapping[str, Any]) -> Any:
    _only(attributes)
    return x * _hard(x, {"alpha": 1 / 6})


def _power(x: Any, exponent: Any, attributes: Mapping[str, Any]) -> Any:
    _only(attributes)
    if exponent not in (2, 3):
        raise Refusal("a power other than 2 and 3")
    return x * x if exponent == 2 else x * x * x


def _of_two(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def of(a: Any, b: Any, attributes: Mapping[str, Any]) -> Any:
        _only(attributes)
        return function(a, b)

    return of


def _relu(x: Any, attributes: Mapping[str, Any]) -> Any:
    _only(attributes)
    return np.maximum(x, np.float32(0))


UNLIKE: Mapping[str, Callable[..., Any]] = {
    "Sigmoid": _exact(_logistic),
    "Tanh": _exact(math.tanh),
    "Erf": _exact(math.erf),
    "Exp": _exact(lambda x: math.exp(min(x, 88.0))),
}
"""Operators that no two libraries compute alike to the last bit."""
OPERATORS: Mapping[str, Callable[..., Any]] = {
    **UNLIKE,
    "Relu": _relu,
    "Clip": lambda x, low, high, attributes: np.clip(x, low, high),
    "LeakyRelu": _leaky,
    "HardSigmoid": _hard,
    "HardSwish": _hard_swish,
    "Pow": _power,
    "Add": _of_two(np.add),
    "Sub": _of_two(np.subtract),
    "Mul": _of_two(np.multiply),
    "Div": _of_two(np.divide),
}


def combined(code: str, attributes: Mapping[str, Any], operands: Sequence[Any]) -> FunctionOfOne:
    """Return an operator applied to functions of one tensor and to numbers."""
    tensors = {f.tensor for f in operands if isinstance(f, FunctionOfOne)}
    if len(tensors) != 1:
        raise Refusal(f"{code} of float32 numbers of several tensors is not followed")

    of = composed(lambda *given: OPERATORS[code](*given, attributes), operands)
    unlike = sum(f.unlike for f in operands if isinstance(f, FunctionOfOne))
    return FunctionOfOne(tensors.pop(), code, of, unlike + (code in UNLIKE))
