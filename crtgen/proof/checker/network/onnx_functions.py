"""Functions of one quantised tensor: float operators between its dequantisation and the next quantisation.

Each operator rounds to float32, as ONNX Runtime does. A function of the C library is taken as its exact
value, rounded once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crtgen.proof.checker.refusal import Refusal

__all__ = ["OPERATORS", "UNLIKE", "FunctionOfOne", "combined"]


@dataclass(frozen=True, slots=True)
class FunctionOfOne:
    """Operators on the numbers of a tensor. ``name`` is that of the last one.

    ``unlike`` counts the operators that no two libraries compute alike to the last bit.
    """

    tensor: int
    name: str
    of: Callable[[Any], Any]
    unlike: int = 0


def _exact(function: Callable[[float], float]) -> Callable[..., Any]:
    def each(x: Any, attributes: Mapping[str, Any]) -> Any:
        _only(attributes)
        found = [function(float(v)) for v in np.ravel(x)]
        return np.array(found, np.float64).astype(np.float32).reshape(np.shape(x))

    return each


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

    def of(x: Any) -> Any:
        given = [f.of(x) if isinstance(f, FunctionOfOne) else f for f in operands]
        return OPERATORS[code](*given, attributes)

    unlike = sum(f.unlike for f in operands if isinstance(f, FunctionOfOne))
    return FunctionOfOne(tensors.pop(), code, of, unlike + (code in UNLIKE))
