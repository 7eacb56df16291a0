"""Firmware for MLPerf Tiny: the EEMBC runner sends inputs and commands as lines of text, and measures the
time.

The commands and messages are those of the EEMBC runner's firmware, version 2.2.0 of its monitor
(https://github.com/mlcommons/tiny, ``benchmark/api``).
"""

import re
from dataclasses import dataclass

from crtgen.base.errors import UsageError
from crtgen.compiler.codegen.module import Interface, ModelInfo
from crtgen.network.ir import DType

__all__ = ["BenchmarkView", "benchmark"]

# Prefix of the name of a model from the benchmark: kws_int8, ad01.
_NAME = re.compile(r"(ad|ic|kws|vww)(01)?(?:_|$)")

# The runner sends float32 to it, and its result is the mean square of what the output is off the input.
_REAL = "ad01"

# The runner sends pixels from 0 to 255; the network takes them less 128.
_PIXELS = ("ic01", "vww01")


@dataclass(frozen=True, slots=True)
class BenchmarkView:
    """Data for the benchmark's program: ``received`` is the number of bytes that the runner sends for an
    input.

    ``quantises``, ``shifts`` and ``compares`` describe the conversion of inputs and outputs; ``keeps``: a run
    does not change its input. Scales are C literals.
    """

    model: str
    received: int
    inputs: int
    outputs: int
    quantises: bool
    shifts: bool
    compares: bool
    has_floats: bool
    keeps: bool
    input_scale: str
    input_zero: int
    output_scale: str
    output_zero: int


def benchmark(models: tuple[ModelInfo, ...], where: str) -> BenchmarkView:
    """Return the view. Raises ``UsageError`` unless the network is one of the benchmark's."""
    if len(models) != 1:
        raise UsageError(
            f"the benchmark takes one model, not {len(models)}", where=where, hint="name one model"
        )
    (info,) = models
    named = _NAME.match(info.name)
    if named is None:
        hint = "call the file kws01.tflite, vww01.tflite, ic01.tflite or ad01.tflite"
        raise UsageError("the model is not one of MLPerf Tiny's", where=info.name, hint=hint)
    name = f"{named[1]}01"
    if len(info.inputs) != 1 or len(info.outputs) != 1:
        raise UsageError(
            "a network of MLPerf Tiny has one input and one output",
            where=info.name,
            hint="docs/models.md says where the benchmark's models are",
        )
    given, result = info.inputs[0], info.outputs[0]
    types = (DType.INT8, DType.FLOAT32) if name == _REAL else (DType.INT8,)
    if given.dtype not in types or result.dtype is not given.dtype:
        wanted = " or ".join(dtype.value for dtype in types)
        raise UsageError(
            f"the inputs and outputs of {name} must be {wanted}, not {given.dtype.value}",
            where=info.name,
            hint="take the model of the benchmark's release, quantised to these types",
        )
    if name == _REAL and _count(given) != _count(result):
        raise UsageError(
            "the output has to be as long as the input",
            where=info.name,
            hint="take the autoencoder of the benchmark's release",
        )
    return _view(name, given, result, info.kept_inputs)


def _view(name: str, given: Interface, result: Interface, keeps: bool) -> BenchmarkView:
    floats = given.dtype is DType.FLOAT32
    return BenchmarkView(
        model=name,
        received=4 * _count(given) if name == _REAL else given.nbytes,
        inputs=_count(given),
        outputs=_count(result),
        quantises=name == _REAL and not floats,
        shifts=name in _PIXELS,
        compares=name == _REAL,
        has_floats=floats,
        keeps=keeps,
        input_scale=_scale(given),
        input_zero=_zero(given),
        output_scale=_scale(result),
        output_zero=_zero(result),
    )


def _count(value: Interface) -> int:
    return value.nbytes // value.dtype.itemsize


def _scale(value: Interface) -> str:
    return f"{value.quant.scales[0]!r}f" if value.quant else "1.0f"


def _zero(value: Interface) -> int:
    return value.quant.zero_points[0] if value.quant else 0
