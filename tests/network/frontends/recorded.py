"""Operators of TensorFlow Lite that TFLite Micro lacks, and outputs of its reference kernels.

    python -m tests.network.frontends.recorded      # needs tensorflow; writes recorded.npz anew

The outputs in ``recorded.npz`` are of TensorFlow 2.21, BUILTIN_REF.
"""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.tflite_builder import Model, Operator, Options, Sparsity, Tensor

__all__ = ["MODELS", "RECORDED", "drawn"]

RECORDED = Path(__file__).with_suffix(".npz")
_IMAGE = (1, 4, 6, 8)
_QUANT: Mapping[str, tuple[float, int]] = {"int8": (0.05, 3), "int16": (0.001, 0), "uint8": (0.05, 120)}
_KEPT = Options("ReducerOptions", KeepDims=True)
_JOINED = Options("ConcatenationOptions", Axis=3, FusedActivationFunction=0)


def _tensor(name: str, dtype: str, shape: Sequence[int] = _IMAGE, scale: float = 0) -> Tensor:
    if dtype not in _QUANT:
        return Tensor(name, shape, dtype)
    own, zero = _QUANT[dtype]
    return Tensor(name, shape, dtype, [scale or own], [zero])


def _numbers(name: str, *numbers: int) -> Tensor:
    return Tensor(name, [len(numbers)], "int32", data=np.array(numbers, np.int32))


def _model(
    code: str,
    dtype: str,
    options: Options | None = None,
    *constants: Tensor,
    inputs: int = 1,
    shape: Sequence[int] = _IMAGE,
    scale: float = 0,
) -> Model:
    names = ["a", "b"][:inputs]
    tensors = [*(_tensor(name, dtype) for name in names), *constants, _tensor("y", dtype, shape, scale)]
    operator = Operator(code, [*names, *(c.name for c in constants)], ["y"], options)
    return Model(tensors, [operator], names, ["y"])


def _unary() -> Iterator[tuple[str, Model]]:
    for dtype in ("float32", "int8", "int16", "uint8"):
        for approximate in (False, True):
            options = Options("GeluOptions", Approximate=approximate)
            yield f"gelu_{dtype}_{approximate:d}", _model("GELU", dtype, options)
    for dtype in ("float32", "int8", "uint8"):
        yield f"relu_0_to_1_{dtype}", _model("RELU_0_TO_1", dtype, scale=0.011)
    for code in ("RELU", "RELU6", "RELU_N1_TO_1"):
        yield f"{code.lower()}_uint8", _model(code, "uint8", scale=0.031)
    yield "abs_int32", _model("ABS", "int32")
    for dtype in ("int32", "int64"):
        yield f"neg_{dtype}", _model("NEG", dtype)
        for exclusive in (False, True):
            options = Options("CumsumOptions", Exclusive=exclusive, Reverse=exclusive)
            axis = Tensor("axis", [], "int32", data=np.array(2, np.int32))
            yield f"cumsum_{dtype}_{exclusive:d}", _model("CUMSUM", dtype, options, axis)


def _reductions() -> Iterator[tuple[str, Model]]:
    wide: Mapping[str, Sequence[str]] = {
        "REDUCE_MAX": ("int16", "int32", "int64", "uint8"),
        "REDUCE_MIN": ("int16", "int32", "int64", "uint8"),
        "REDUCE_PROD": ("float32", "int32", "int64"),
        "SUM": ("int32", "int64"),
        "REDUCE_ANY": ("bool",),
    }
    for code, dtypes in wide.items():
        for dtype in dtypes:
            axes, kept = _numbers("axes", 1, -1), _model(code, dtype, _KEPT, _numbers("axes", 2))
            kept.tensors[-1].shape = (1, 4, 1, 8)
            yield f"{code.lower()}_{dtype}_kept", kept
            yield (
                f"{code.lower()}_{dtype}",
                _model(code, dtype, Options("ReducerOptions"), axes, shape=(1, 6)),
            )


def _pairs() -> Iterator[tuple[str, Model]]:
    yield "div_int16", _model("DIV", "int16", Options("DivOptions"), inputs=2, scale=0.01)
    yield "div_uint8", _model("DIV", "uint8", Options("DivOptions"), inputs=2)
    yield "floor_div_int32", _model("FLOOR_DIV", "int32", inputs=2)
    yield "prelu_uint8", _model("PRELU", "uint8", inputs=2)
    greater = _model("GREATER", "uint8", inputs=2)
    greater.tensors[-1].dtype, greater.tensors[-1].scales = "bool", ()
    yield "greater_uint8", greater


def _images() -> Iterator[tuple[str, Model]]:
    for dtype in ("int16", "uint8"):
        for height, width in ((7, 9), (8, 12), (3, 4)):
            size = _numbers("size", height, width)
            for corners, centres in ((False, False), (True, False), (False, True)):
                options = Options("ResizeBilinearOptions", AlignCorners=corners, HalfPixelCenters=centres)
                name = f"resize_{dtype}_{height}_{corners:d}{centres:d}"
                yield name, _model("RESIZE_BILINEAR", dtype, options, size, shape=(1, height, width, 8))
    for padding, activation, shape in ((1, 0, (1, 2, 3, 8)), (0, 0, (1, 2, 3, 8)), (1, 3, (1, 2, 3, 8))):
        options = Options(
            "Pool2DOptions",
            Padding=padding,
            StrideH=2,
            StrideW=2,
            FilterHeight=2 + 1 - padding,
            FilterWidth=2,
            FusedActivationFunction=activation,
        )
        yield f"average_uint8_{padding}{activation}", _model("AVERAGE_POOL_2D", "uint8", options, shape=shape)
    places = _model("ARG_MAX", "uint8", Options("ArgMaxOptions", OutputType=2), _numbers("axis", 2))
    places.tensors = [*places.tensors[:-1], Tensor("y", (1, 4, 8), "int32")]
    yield "arg_max_uint8", places
    wide = _model("ARG_MAX", "uint8", Options("ArgMaxOptions", OutputType=4), _numbers("axis", 2))
    wide.tensors = [*wide.tensors[:-1], Tensor("y", (1, 4, 8), "int64")]
    yield "arg_max_uint8_int64", wide
    joined = _model("CONCATENATION", "uint8", _JOINED, inputs=2, shape=(1, 4, 6, 16), scale=0.0713)
    joined.tensors = [joined.tensors[0], Tensor("b", _IMAGE, "uint8", [0.1431], [33]), joined.tensors[2]]
    yield "concatenation_uint8_of_scales", joined


# A tensor that is 0 but for some numbers, in three forms: rows of a matrix; columns; blocks of 2 x 4.
_SPARSE = np.arange(48, dtype=np.float32).reshape(6, 8) % 7 * (np.arange(48).reshape(6, 8) % 5 < 2)
_BLOCKS = np.kron(np.array([[1, 0], [0, 0], [1, 1]]), np.arange(1, 9).reshape(2, 4)).astype(np.float32)


def _compressed(rows: npt.NDArray[Any]) -> tuple[list[int], list[int]]:
    # Ends of segments, and indices of what is not 0.
    found = [np.flatnonzero(row).tolist() for row in rows]
    return [sum(map(len, found[:n])) for n in range(len(found) + 1)], [i for row in found for i in row]


def _densified() -> Iterator[tuple[str, Model]]:
    in_blocks = _BLOCKS.reshape(3, 2, 2, 4).swapaxes(1, 2)
    there = np.asarray(in_blocks.any(axis=(2, 3)))
    forms = {
        "rows": (_SPARSE, _SPARSE[_SPARSE != 0], Sparsity((0, 1), (), (6, _compressed(_SPARSE)))),
        "columns": (
            _SPARSE,
            _SPARSE.T[_SPARSE.T != 0],
            Sparsity((1, 0), (), (8, _compressed(_SPARSE.T))),
        ),
        "blocks": (
            _BLOCKS,
            in_blocks[there].reshape(-1),
            Sparsity((0, 1, 2, 3), (0, 1), (3, _compressed(there), 2, 4)),
        ),
    }
    for name, (whole, stored, sparsity) in forms.items():
        tensors = [
            Tensor("a", whole.shape, "float32"),
            Tensor("sparse", whole.shape, "float32", data=stored, sparsity=sparsity),
            Tensor("dense", whole.shape, "float32"),
            Tensor("y", whole.shape, "float32"),
        ]
        operators = [
            Operator("DENSIFY", ["sparse"], ["dense"], Options("DensifyOptions")),
            Operator("ADD", ["a", "dense"], ["y"], Options("AddOptions")),
        ]
        yield f"densify_{name}", Model(tensors, operators, ["a"], ["y"])


def _choices() -> Iterator[tuple[str, Model]]:
    for dtype in ("float32", "int8", "int16", "int32"):
        for name, shape in (("each", _IMAGE), ("rows", (1,)), ("one", ())):
            model = _model("SELECT", dtype, inputs=2)
            model.tensors = [Tensor("which", shape, "bool"), *model.tensors]
            model.operators = [Operator("SELECT", ["which", "a", "b"], ["y"])]
            model.inputs = ["which", "a", "b"]
            yield f"select_{dtype}_{name}", model


def _volumes() -> Iterator[tuple[str, Model]]:
    random = np.random.default_rng(3)
    for padding, stride, spread, activation in ((0, 1, 1, 0), (1, 1, 1, 1), (0, 2, 1, 3), (1, 1, 2, 0)):
        weights = random.normal(size=(2, 3, 2, 3, 4)).astype(np.float32)
        strides = {f"Stride{axis}": stride for axis in "DHW"}
        spreads = {f"Dilation{axis}Factor": spread for axis in "DHW"}
        options = Options(
            "Conv3DOptions", Padding=padding, FusedActivationFunction=activation, **strides, **spreads
        )
        taps, shape = (2, 3, 2), [1, 5, 6, 7, 4]
        for axis in range(3):
            extent = (taps[axis] - 1) * spread + 1 if padding else 1
            shape[axis + 1] = -(-(shape[axis + 1] - extent + 1) // stride)
        bias = random.normal(size=4).astype(np.float32)
        tensors = [
            Tensor("x", (1, 5, 6, 7, 3), "float32"),
            Tensor("w", weights.shape, "float32", data=weights),
            Tensor("bias", (4,), "float32", data=bias),
            Tensor("y", shape, "float32"),
        ]
        operator = Operator("CONV_3D", ["x", "w", "bias"], ["y"], options)
        yield f"conv3d_{padding}{stride}{spread}{activation}", Model(tensors, [operator], ["x"], ["y"])


def _all() -> Iterator[tuple[str, Model]]:
    for family in (_unary, _reductions, _pairs, _images, _choices, _volumes, _densified):
        yield from family()


MODELS: Mapping[str, Model] = dict(_all())


def drawn(model: Model, seed: int = 1) -> list[npt.NDArray[Any]]:
    """Inputs of a model; the second one has no zeros, by which nothing can be divided."""
    random, shapes = np.random.default_rng(seed), {t.name: t for t in model.tensors}
    made = []
    for name in model.inputs:
        shape, dtype = tuple(shapes[name].shape), shapes[name].dtype
        if dtype == "float32":
            made.append(random.normal(size=shape).astype(np.float32) * 3)
        elif dtype == "bool":
            made.append(np.asarray(random.integers(0, 2 if name == "which" else 30, shape) == 0))
        else:
            low, high = (-9, 9) if dtype in ("int32", "int64") else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            data = random.integers(low, high, shape, np.int64, endpoint=True)
            zero = shapes[name].zero_points[0] if shapes[name].zero_points else 0
            made.append(np.where((data == zero) & (name == "b"), zero + 1, data).astype(dtype))
    return made


def _interpreted(model: Model) -> npt.NDArray[Any]:
    tf: Any = importlib.import_module("tensorflow")

    reference = tf.lite.experimental.OpResolverType.BUILTIN_REF
    interpreter = tf.lite.Interpreter(model_content=model.to_bytes(), experimental_op_resolver_type=reference)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), drawn(model), strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    found: npt.NDArray[Any] = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    return found


if __name__ == "__main__":
    outputs: dict[str, Any] = {name: _interpreted(model) for name, model in MODELS.items()}
    np.savez_compressed(RECORDED, **outputs)
