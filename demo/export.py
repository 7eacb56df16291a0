"""From float weights to an int8 `.tflite` file with test cases: post-training quantisation."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from tflite_micro import runtime

from tests.tflite_builder import Model, Operator, Options, Tensor

__all__ = ["quantize_and_write"]

Floats = npt.NDArray[np.float32]
INPUT_SCALE, INPUT_ZERO = 16 / 255, -128
"""An input of 0 to 16 levels of grey fills the int8 range."""

SAME, RELU = 0, 1


def quantize_and_write(
    stem: Path,
    weights: list[Floats],
    activations: dict[str, Floats],
    held: Floats,
    labels: npt.NDArray[np.intp],
) -> tuple[float, int]:
    """Write ``<stem>.tflite`` and ``<stem>.npz``; returns the accuracy on ``held`` and the file's bytes.

    The cases are the first held-out image of each digit and what TFLite Micro computes for it.
    """
    content = _model(weights, activations).to_bytes()
    stem.with_suffix(".tflite").write_bytes(content)
    images = np.clip(np.round(held / INPUT_SCALE) + INPUT_ZERO, -128, 127).astype(np.int8)
    outputs = _infer(content, images)
    first = [int(np.flatnonzero(labels == digit)[0]) for digit in range(10)]
    cases = {f"case{n}_input0": images[i : i + 1] for n, i in enumerate(first)}
    cases |= {f"case{n}_output0": outputs[i : i + 1] for n, i in enumerate(first)}
    np.savez_compressed(stem.with_suffix(".npz"), **cases)
    np.savez_compressed(stem.with_name("digit.npz"), image=images[first[7] : first[7] + 1])
    return float((outputs.argmax(1) == labels).mean()), len(content)


def _infer(content: bytes, images: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    interpreter = runtime.Interpreter.from_bytes(content)
    outputs = []
    for image in images:
        interpreter.set_input(image[None], 0)
        interpreter.invoke()
        outputs.append(interpreter.get_output(0)[0].copy())
    return np.stack(outputs)


def _model(weights: list[Floats], activations: dict[str, Floats]) -> Model:
    w1, b1, w2, b2, w3, b3 = weights
    x = _activation("image", (1, 8, 8, 1), INPUT_SCALE, INPUT_ZERO)
    c1 = _measured("conv1", activations["conv1"], (1, 8, 8, 8))
    p1 = _activation("pool1", (1, 4, 4, 8), c1.scales[0], c1.zero_points[0])
    c2 = _measured("conv2", activations["conv2"], (1, 4, 4, 16))
    p2 = _activation("pool2", (1, 2, 2, 16), c2.scales[0], c2.zero_points[0])
    flat = _activation("flat", (1, 64), c2.scales[0], c2.zero_points[0])
    logits = _measured("logits", activations["logits"], (1, 10))
    y = _activation("probabilities", (1, 10), 1 / 256, -128)
    layers = [
        *_layer("conv1", w1.transpose(3, 0, 1, 2), b1, x.scales[0], per_channel=True),
        *_layer("conv2", w2.transpose(3, 0, 1, 2), b2, p1.scales[0], per_channel=True),
        *_layer("dense", w3.T, b3, flat.scales[0], per_channel=False),
    ]
    shape = Tensor("shape", (2,), "int32", data=np.array([1, 64], np.int32))
    conv = Options("Conv2DOptions", Padding=SAME, StrideH=1, StrideW=1, FusedActivationFunction=RELU)
    pool = Options("Pool2DOptions", Padding=SAME, StrideH=2, StrideW=2, FilterHeight=2, FilterWidth=2)
    return Model(
        tensors=[x, c1, p1, c2, p2, flat, logits, y, *layers, shape],
        operators=[
            Operator("CONV_2D", ["image", "conv1_weights", "conv1_bias"], ["conv1"], conv),
            Operator("MAX_POOL_2D", ["conv1"], ["pool1"], pool),
            Operator("CONV_2D", ["pool1", "conv2_weights", "conv2_bias"], ["conv2"], conv),
            Operator("MAX_POOL_2D", ["conv2"], ["pool2"], pool),
            Operator("RESHAPE", ["pool2", "shape"], ["flat"]),
            Operator("FULLY_CONNECTED", ["flat", "dense_weights", "dense_bias"], ["logits"]),
            Operator("SOFTMAX", ["logits"], ["probabilities"], Options("SoftmaxOptions", Beta=1.0)),
        ],
        inputs=["image"],
        outputs=["probabilities"],
        description="digits 8x8, int8, trained by demo/train.py",
    )


def _activation(name: str, shape: tuple[int, ...], scale: float, zero: int) -> Tensor:
    return Tensor(name, shape, "int8", scales=[scale], zero_points=[zero])


def _measured(name: str, values: Floats, shape: tuple[int, ...]) -> Tensor:
    """An activation whose scale covers the values seen in training, and zero."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = (high - low) / 255
    return _activation(name, shape, scale, round(-128 - low / scale))


def _layer(
    name: str, weights: Floats, bias: Floats, input_scale: float, *, per_channel: bool
) -> list[Tensor]:
    """Symmetric weights, -127 to 127, and the bias in int32 at input scale times weight scale."""
    rows = weights.reshape(len(weights), -1)
    largest = np.abs(rows).max(1) if per_channel else np.abs(rows).max(keepdims=True)[0]
    scales = (largest / 127).astype(np.float32)
    quantized = np.clip(np.round(rows / scales[:, None]), -127, 127).astype(np.int8).reshape(weights.shape)
    bias_scales = scales * np.float32(input_scale)
    quantized_bias = np.round(bias / bias_scales).astype(np.int32)
    zeros = [0] * len(scales)
    return [
        Tensor(f"{name}_weights", weights.shape, "int8", scales.tolist(), zeros, 0, quantized),
        Tensor(f"{name}_bias", bias.shape, "int32", bias_scales.tolist(), zeros, 0, quantized_bias),
    ]
