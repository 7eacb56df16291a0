"""Writes docs/operators.md: the operators of TFLite that crtgen computes, their types, and on what.

usage: python tools/operators.py [--check]      --check: change nothing, fail if the page is not up to date
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping

from crtgen.base.resources import templates_dir
from crtgen.compiler.kernels.engine.registry import registered
from crtgen.network.frontends.tflite_convert import CONVERTERS
from crtgen.network.frontends.tflite_flow import FLOW
from crtgen.network.ir import DType, Op
from crtgen.network.ops import all_cases

PAGE = templates_dir().parent / "docs" / "operators.md"

_OF_TENSORS = "float32 int8 int16 int32 int64 bool"
_TFLM: Mapping[str, str] = {
    "ABS": "float32 int8 int16",
    "ADD": "float32 int8 int16 int32",
    "ADD_N": "float32 int8",
    "ARG_MAX": "float32 int8",
    "ARG_MIN": "float32 int8",
    "ASSIGN_VARIABLE": "any",
    "AVERAGE_POOL_2D": "float32 int8 int16",
    "BATCH_MATMUL": "float32 int8 int16",
    "BATCH_TO_SPACE_ND": "float32 int8",
    "BROADCAST_ARGS": "int32 int64",
    "BROADCAST_TO": _OF_TENSORS,
    "CALL_ONCE": "",
    "CAST": "float32 int8 int16 int32 uint32 bool",
    "CEIL": "float32",
    "CONCATENATION": _OF_TENSORS,
    "CONV_2D": "float32 int8 int16",
    "COS": "float32",
    "CUMSUM": "float32 int8",
    "CUSTOM CIRCULAR_BUFFER": "int8",
    "CUSTOM SignalDelay": "int16",
    "CUSTOM SignalEnergy": "int16",
    "CUSTOM SignalFftAutoScale": "int16",
    "CUSTOM SignalFilterBank": "uint32",
    "CUSTOM SignalFilterBankLog": "uint32",
    "CUSTOM SignalFilterBankSpectralSubtraction": "uint32",
    "CUSTOM SignalFilterBankSquareRoot": "uint64",
    "CUSTOM SignalFramer": "int16",
    "CUSTOM SignalIrfft": "float32 int16 int32",
    "CUSTOM SignalOverlapAdd": "float32 int16",
    "CUSTOM SignalPCAN": "uint32",
    "CUSTOM SignalRfft": "float32 int16 int32",
    "CUSTOM SignalStacker": "int16",
    "CUSTOM SignalWindow": "int16",
    "CUSTOM TFLite_Detection_PostProcess": "float32",
    "DEPTHWISE_CONV_2D": "float32 int8 int16",
    "DEPTH_TO_SPACE": "float32 int8",
    "DEQUANTIZE": "int8 int16 uint8",
    "DIV": "float32 int8 int32",
    "DYNAMIC_UPDATE_SLICE": "float32 int8 int16 int32 int64",
    "ELU": "float32 int8",
    "EMBEDDING_LOOKUP": "float32 int8",
    "EQUAL": "float32 int8 int32 int64 bool",
    "EXP": "float32",
    "EXPAND_DIMS": "float32 int8 int16",
    "FILL": "float32 int8 int16 int32 int64",
    "FLOOR": "float32",
    "FLOOR_DIV": "float32",
    "FLOOR_MOD": "float32",
    "FULLY_CONNECTED": "float32 int8 int16",
    "GATHER": "float32 int8",
    "GATHER_ND": "float32 int8",
    "GREATER": "float32 int8 int32 int64",
    "GREATER_EQUAL": "float32 int8 int32 int64",
    "HARD_SWISH": "float32 int8",
    "IF": "any",
    "L2_NORMALIZATION": "float32 int8",
    "L2_POOL_2D": "float32",
    "LEAKY_RELU": "float32 int8 int16",
    "LESS": "float32 int8 int32 int64",
    "LESS_EQUAL": "float32 int8 int32 int64",
    "LOG": "float32",
    "LOGICAL_AND": "bool",
    "LOGICAL_NOT": "bool",
    "LOGICAL_OR": "bool",
    "LOGISTIC": "float32 int8 int16",
    "LOG_SOFTMAX": "float32 int8",
    "MAXIMUM": "float32 int8 int16 int32 int64",
    "MAX_POOL_2D": "float32 int8 int16",
    "MEAN": "float32 int8 int16",
    "MINIMUM": "float32 int8 int16 int32 int64",
    "MIRROR_PAD": "float32 int8",
    "MUL": "float32 int8 int16 int32",
    "NEG": "float32",
    "NOT_EQUAL": "float32 int8 int32 int64 bool",
    "PACK": "float32 int8 int16 int32 int64",
    "PAD": "float32 int8 int16 int32",
    "PADV2": "float32 int8 int16 int32",
    "PRELU": "float32 int8 int16",
    "QUANTIZE": "float32 int8 int16 int32 uint8",
    "READ_VARIABLE": "any",
    "REDUCE_ALL": "bool",
    "REDUCE_MAX": "float32 int8",
    "REDUCE_MIN": "float32 int8",
    "RELU": "float32 int8 int16",
    "RELU6": "float32 int8 int16",
    "RESHAPE": "any",
    "RESIZE_BILINEAR": "float32 int8",
    "RESIZE_NEAREST_NEIGHBOR": "float32 int8 int16",
    "REVERSE_V2": "float32 int8 int16 int32 int64 uint8 bool",
    "ROUND": "float32",
    "RSQRT": "float32 int8",
    "SELECT_V2": "float32 int8 int16",
    "SHAPE": "any",
    "SIN": "float32",
    "SLICE": _OF_TENSORS,
    "SOFTMAX": "float32 int8 int16",
    "SPACE_TO_BATCH_ND": "float32 int8",
    "SPACE_TO_DEPTH": "float32 int8",
    "SPLIT": "float32 int8 int16 int32",
    "SPLIT_V": "float32 int8 int16 int32",
    "SQRT": "float32",
    "SQUARE": "float32",
    "SQUARED_DIFFERENCE": "float32 int8 int16 int32",
    "SQUEEZE": "any",
    "STRIDED_SLICE": "float32 int8 int16 int32 bool",
    "SUB": "float32 int8 int16 int32",
    "SUM": "float32 int8 int16",
    "SVDF": "float32 int8",
    "TANH": "float32 int8 int16",
    "TRANSPOSE": "float32 int8 int16",
    "TRANSPOSE_CONV": "float32 int8 int16",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "float32 int8 int16",
    "UNPACK": "float32 int8 int16 int32",
    "VAR_HANDLE": "",
    "WHILE": "any",
    "ZEROS_LIKE": "float32 int8 int32 int64",
}
"""What TFLite Micro registers, and the types of data that its kernels take."""

_BECOMES: Mapping[str, str] = {
    "CUSTOM CIRCULAR_BUFFER": "concat",
    "CUSTOM LceBMaxPool2d": "packed_max_pool2d",
    "CUSTOM LceBconv2d": "binary_conv2d",
    "CUSTOM LceDequantize": "unpack_signs",
    "CUSTOM LceQuantize": "pack_signs",
    "CUSTOM SignalDelay": "delay",
    "CUSTOM SignalEnergy": "spectrum_energy",
    "CUSTOM SignalFftAutoScale": "fft_auto_scale",
    "CUSTOM SignalFilterBank": "filter_bank",
    "CUSTOM SignalFilterBankLog": "filter_bank_log",
    "CUSTOM SignalFilterBankSpectralSubtraction": "spectral_subtraction",
    "CUSTOM SignalFilterBankSquareRoot": "filter_bank_square_root",
    "CUSTOM SignalFramer": "framer",
    "CUSTOM SignalIrfft": "irfft",
    "CUSTOM SignalOverlapAdd": "overlap_add",
    "CUSTOM SignalPCAN": "pcan",
    "CUSTOM SignalRfft": "rfft",
    "CUSTOM SignalStacker": "stacker",
    "CUSTOM SignalWindow": "window",
    "CUSTOM TFLite_Detection_PostProcess": "detection_post_process",
    "AVERAGE_POOL_2D": "average_pool2d",
    "BATCH_TO_SPACE_ND": "transpose",
    "BUCKETIZE": "greater_equal",
    "COMPLEX_ABS": "sqrt",
    "CONCATENATION": "concat",
    "CONV_2D": "conv2d",
    "CONV_3D": "conv2d",
    "CUSTOM Convolution2DTransposeBias": "conv2d",
    "DEPTHWISE_CONV_2D": "depthwise_conv2d",
    "DEPTH_TO_SPACE": "transpose",
    "EMBEDDING_LOOKUP": "gather",
    "EXPAND_DIMS": "reshape",
    "IMAG": "strided_slice",
    "MAX_POOL_2D": "max_pool2d",
    "ONE_HOT": "select",
    "PACK": "concat",
    "PADV2": "pad",
    "REAL": "strided_slice",
    "REDUCE_ANY": "reduce_all",
    "REDUCE_PROD": "cumsum",
    "RELU6": "relu",
    "RELU_0_TO_1": "relu",
    "RELU_N1_TO_1": "relu",
    "RESIZE_NEAREST_NEIGHBOR": "resize_nearest",
    "REVERSE_V2": "strided_slice",
    "RFFT2D": "rfft",
    "SELECT": "select",
    "STABLEHLO_REDUCE_WINDOW": "maximum",
    "SELECT_V2": "select",
    "SIGN": "select",
    "SLICE": "strided_slice",
    "SPACE_TO_BATCH_ND": "transpose",
    "SPACE_TO_DEPTH": "transpose",
    "SPLIT": "strided_slice",
    "SPLIT_V": "strided_slice",
    "SQUEEZE": "reshape",
    "TILE": "broadcast_to",
    "TOPK_V2": "top_k",
    "TRANSPOSE_CONV": "conv2d",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "lstm",
    "UNPACK": "strided_slice",
}
"""The operator of crtgen that does the work, where it has another name."""

_KNOWN_EARLY = ("BROADCAST_ARGS", "DENSIFY", "FILL", "SHAPE", "ZEROS_LIKE")
_ORDER = ("float32", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "bool")
_TYPES_FROM_OUTPUT = ("EMBEDDING_LOOKUP", "SELECT", "SELECT_V2", "SPLIT", "TRANSPOSE_CONV")

_HEAD = """# Operators of TensorFlow Lite

The operators and types that crtgen computes, beside those of TensorFlow Lite for Microcontrollers (TFLite
Micro). Written by `tools/operators.py` from the code's own tables.

Integers equal TFLite Micro's bit for bit; float32 is within 1e-5 of the largest output. Every operator has
portable C for any core and for the host. A letter means faster kernels for some or all shapes: **D** with
the DSP extension (M4, M7, M33, M85), **F** with the FPU of M4, M7 and M33, **H** with Helium (M55, M85).

- "same": TFLite Micro takes the same types; "-": it does not have the operator.
- "const": the outputs are known when the model is read. Whatever follows from constants is computed then,
  too.
- int16 activations have int8 weights and biases of 64 or 32 bits. float32 activations may have int8
  weights, which stay int8 in flash in convolutions and fully connected layers. float16 constants are read
  as float32.
- int8 activations may have 4-bit weights, which stay two to a byte.
- Operators that move elements, and RELU6, also take an output with another quantisation. FULLY_CONNECTED
  takes weights with a zero point if they have a single scale. CONCATENATION, padding values, poolings and
  REDUCE_MAX of int8 need equal quantisation of inputs and output. All this is TFLite Micro's behaviour.
- Networks in uint8, from converters before 2020, become int8 networks, exactly; only inputs and outputs
  stay uint8. Weights whose distance from the zero point needs nine bits are summed in two parts, which
  takes more time and memory. RESIZE_BILINEAR of uint8 is computed in float32 and averages of an even number
  of pixels in int16, as TensorFlow Lite's kernels round them.
- Operators and types that TFLite Micro lacks equal TensorFlow Lite 2.21's reference kernels. SUM of int8 with
  two scales equals TFLite Micro's; TensorFlow Lite 2.21's overflows.
- A list that a loop fills, as Keras' GRU, LSTM and SimpleRNN have it with `return_sequences`, is updated row
  by row, in place.

| operator | types | TFLite Micro |
|---|---|---|
"""


def _names(row_types: Iterable[tuple[DType, DType]], code: str) -> list[str]:
    side = 1 if code in _TYPES_FROM_OUTPUT else 0
    found = {pair[side].value for pair in row_types} - {"float16"}
    return [name for name in _ORDER if name in found]


def _marks(op: type[Op], dtype: DType) -> str:
    """D, F and H for a type, where a design is registered for it."""
    needs = {e.needs for e in registered(op) if not e.types or dtype in e.types}
    return "".join(mark for need, mark in (("dsp", "D"), ("vfp", "F"), ("mve", "H")) if need in needs)


def _types(code: str, ops: Mapping[str, type[Op]]) -> str:
    if code in FLOW:
        return "any" if code not in ("CALL_ONCE", "VAR_HANDLE") else "yes"
    if code not in CONVERTERS:
        return "not yet"
    if code in _KNOWN_EARLY:
        return "const"
    op = ops[_BECOMES.get(code, code.lower())]
    names = _names(CONVERTERS[code].types, code)
    marks = [_marks(op, DType(name)) for name in names]
    if len(names) == len(_ORDER) and len(set(marks)) == 1:
        names, marks = ["any"], marks[:1]
    return ", ".join(f"{n} **{m}**" if m else n for n, m in zip(names, marks, strict=True))


def page() -> str:
    """The text of the page."""
    ops = {type(case.op).name: type(case.op) for case in all_cases()}
    return _HEAD + "".join(_rows(ops))


def _rows(ops: Mapping[str, type[Op]]) -> Iterator[str]:
    for code in sorted({*CONVERTERS, *_TFLM}):
        ours = _types(code, ops)
        theirs = ", ".join(_TFLM[code].split()) or "yes" if code in _TFLM else "-"
        same = re.sub(r" \*\*\w+\*\*", "", ours) == theirs
        yield f"| {code} | {ours} | {'same' if same else theirs} |\n"


def main() -> str | None:
    text = page()
    if PAGE.exists() and PAGE.read_text() == text:
        return None
    if "--check" in sys.argv:
        return "docs/operators.md is not up to date; run python tools/operators.py"
    PAGE.write_text(text)
    return None


if __name__ == "__main__":
    sys.exit(main())
