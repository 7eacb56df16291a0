"""Writes networks of Keras 3, as TensorFlow's converter quantises them, and what its interpreter computes.

    python -m tests.system.census.keras FOLDER [NAME_MODE...]

The outputs are of BUILTIN_REF kernels. Each conversion runs in a process of its own, since some end it: the
converter of TensorFlow 2.21 crashes when it quantises a WHILE.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["NETWORKS"]

_ROW = (10, 4)
_CASES, _CALIBRATION = 2, 8


def _networks(keras: Any) -> Mapping[str, tuple[Callable[[], Any], tuple[int, ...]]]:
    layers = keras.layers

    def start(*shape: int) -> Any:
        return keras.Input(shape, batch_size=1)

    def row(shape: tuple[int, ...], *added: Any) -> Any:
        return keras.Sequential([start(*shape), *added])

    def encoder() -> Any:
        x = start(8, 16)
        h = layers.LayerNormalization()(x)
        h = layers.Add()([x, layers.MultiHeadAttention(2, 8)(h, h)])
        f = layers.Dense(32, activation="gelu")(layers.LayerNormalization()(h))
        h = layers.Add()([h, layers.Dense(16)(f)])
        return keras.Model(x, layers.Dense(3, activation="softmax")(layers.GlobalAveragePooling1D()(h)))

    def residual() -> Any:
        x = start(8, 8, 4)
        a = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
        y = layers.ReLU()(layers.Add()([a, layers.Conv2D(8, 1)(x)]))
        return keras.Model(x, layers.Dense(3)(layers.GlobalMaxPooling2D()(layers.Concatenate()([y, a]))))

    def mobile() -> Any:
        x = start(8, 8, 4)
        a = layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same", use_bias=False)(x))
        d = layers.DepthwiseConv2D(3, padding="same")(layers.Activation("hard_swish")(a))
        s = layers.Conv2D(4, 1, activation="relu")(layers.GlobalAveragePooling2D(keepdims=True)(d))
        d = layers.Multiply()([d, layers.Conv2D(8, 1, activation="hard_sigmoid")(s)])
        return keras.Model(x, layers.Dense(3, activation="softmax")(layers.Flatten()(d)))

    return {
        "gru_sequences": (
            lambda: row(_ROW, layers.GRU(8, return_sequences=True), layers.Dense(2)),
            (1, *_ROW),
        ),
        "gru_backwards": (
            lambda: row(
                _ROW,
                layers.GRU(8, return_sequences=True, go_backwards=True, reset_after=False),
                layers.Dense(2),
            ),
            (1, *_ROW),
        ),
        "lstm_sequences": (
            lambda: row(_ROW, layers.LSTM(8, return_sequences=True), layers.Dense(2)),
            (1, *_ROW),
        ),
        "rnn_sequences": (
            lambda: row(_ROW, layers.SimpleRNN(8, return_sequences=True), layers.Dense(2)),
            (1, *_ROW),
        ),
        "lstm_of_images": (
            lambda: row(
                (4, 6, 6, 2), layers.ConvLSTM2D(3, 3, padding="same"), layers.Flatten(), layers.Dense(2)
            ),
            (1, 4, 6, 6, 2),
        ),
        "encoder": (encoder, (1, 8, 16)),
        "residual": (residual, (1, 8, 8, 4)),
        "mobile": (mobile, (1, 8, 8, 4)),
        "unet": (
            lambda: row(
                (16, 16, 3),
                layers.Conv2D(8, 3, padding="same", activation="relu"),
                layers.MaxPool2D(),
                layers.SeparableConv2D(12, 3, padding="same"),
                layers.BatchNormalization(),
                layers.Activation("swish"),
                layers.Conv2DTranspose(8, 3, strides=2, padding="same"),
                layers.UpSampling2D(2, interpolation="bilinear"),
                layers.Conv2D(1, 1, activation="sigmoid"),
            ),
            (1, 16, 16, 3),
        ),
        "tcn": (
            lambda: row(
                (32, 4),
                layers.Conv1D(8, 3, padding="causal", dilation_rate=2, activation="relu"),
                layers.Conv1D(8, 3, padding="causal", dilation_rate=4),
                layers.Conv1DTranspose(4, 4, strides=2),
                layers.GlobalMaxPooling1D(),
                layers.Dense(3, activation="softmax"),
            ),
            (1, 32, 4),
        ),
        "groups": (
            lambda: row(
                (12, 12, 3),
                layers.DepthwiseConv2D(5, depth_multiplier=4, padding="same", strides=2),
                layers.ReLU(6.0),
                layers.GroupNormalization(4),
                layers.Conv2D(8, 3, groups=2),
                layers.GlobalAveragePooling2D(),
                layers.Dense(4),
            ),
            (1, 12, 12, 3),
        ),
        "activations": (
            lambda: row(
                (6, 6, 4),
                layers.Conv2D(6, 3, activation="mish"),
                layers.Conv2D(6, 2, activation="hard_sigmoid"),
                layers.PReLU(),
                layers.Conv2D(6, 2, activation="softplus"),
                layers.Flatten(),
                layers.Dense(8, activation="selu"),
                layers.Dense(3, activation="softsign"),
            ),
            (1, 6, 6, 4),
        ),
        "gelu": (
            lambda: row(
                (16,),
                layers.Dense(24),
                layers.Lambda(lambda x: keras.activations.gelu(x, approximate=True)),
                layers.Dense(8),
            ),
            (1, 16),
        ),
        "volumes": (
            lambda: row(
                (4, 5, 6, 3),
                layers.Conv3D(4, (2, 3, 3), strides=(1, 2, 1), padding="same", activation="relu"),
                layers.Conv3D(4, (2, 1, 2), activation="tanh"),
                layers.Flatten(),
                layers.Dense(2),
            ),
            (1, 4, 5, 6, 3),
        ),
        "perceptron": (
            lambda: row(
                (20,),
                layers.Normalization(mean=[0.0] * 20, variance=[2.0] * 20),
                layers.Dense(16, activation="relu"),
                layers.Dense(8, activation="tanh"),
                layers.Dense(1),
            ),
            (1, 20),
        ),
        "autoencoder": (
            lambda: row(
                (16, 16, 1),
                layers.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
                layers.UpSampling2D(2),
                layers.Conv2DTranspose(4, 3, padding="same", activation="relu"),
                layers.Conv2D(1, 3, padding="same"),
            ),
            (1, 16, 16, 1),
        ),
    }


NETWORKS: Mapping[str, Sequence[str]] = {
    "gru_sequences": ("float16",),
    "gru_backwards": ("float",),
    "lstm_sequences": ("dynamic",),
    "rnn_sequences": ("dynamic",),
    "lstm_of_images": ("float16",),
    "encoder": ("int8",),
    "residual": ("int8", "int16"),
    "mobile": ("int8",),
    "unet": ("int8", "int16"),
    "tcn": ("int8", "int16"),
    "groups": ("int8",),
    "activations": ("int8",),
    "gelu": ("float", "int8", "int16"),
    "volumes": ("float", "int8"),
    "perceptron": ("dynamic", "int8", "int16"),
    "autoencoder": ("float16",),
}
"""Networks and how each is quantised; what the converter refuses, or crashes with, is left out."""


def _converted(tf: Any, model: Any, mode: str, calibration: Sequence[npt.NDArray[Any]]) -> bytes:
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if mode != "float":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if mode == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if mode in ("int8", "int16"):
        sets = tf.lite.OpsSet
        wide = sets.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        converter.representative_dataset = lambda: ([x] for x in calibration)
        converter.target_spec.supported_ops = [sets.TFLITE_BUILTINS_INT8 if mode == "int8" else wide]
    if mode == "int8":
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return bytes(converter.convert())


def _outputs(tf: Any, data: bytes, draw: Callable[[], npt.NDArray[Any]]) -> Iterator[tuple[str, Any]]:
    reference = tf.lite.experimental.OpResolverType.BUILTIN_REF
    interpreter = tf.lite.Interpreter(model_content=data, experimental_op_resolver_type=reference)
    interpreter.allocate_tensors()
    (given,) = interpreter.get_input_details()
    for case in range(_CASES):
        x = draw()
        if given["dtype"] is np.int8:
            scale, zero = given["quantization"]
            x = np.clip(np.round(x / scale) + zero, -128, 127).astype(np.int8)
        interpreter.set_tensor(given["index"], x)
        interpreter.invoke()
        yield f"case{case}_input0", x
        for number, made in enumerate(interpreter.get_output_details()):
            yield f"case{case}_output{number}", interpreter.get_tensor(made["index"])


def _write(folder: Path, name: str, mode: str) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"], os.environ["CUDA_VISIBLE_DEVICES"] = "3", ""
    tf, keras = importlib.import_module("tensorflow"), importlib.import_module("keras")
    make, shape = _networks(keras)[name]
    keras.utils.set_random_seed(1)
    model, random = make(), np.random.default_rng(7)

    def draw() -> npt.NDArray[Any]:
        return random.normal(size=shape).astype(np.float32)

    data = _converted(tf, model, mode, [draw() for _ in range(_CALIBRATION)])
    outputs: dict[str, Any] = dict(_outputs(tf, data, draw))
    (folder / f"keras_{name}_{mode}.tflite").write_bytes(data)
    np.savez_compressed(folder / f"keras_{name}_{mode}.npz", **outputs)


def _main(folder: Path, names: Sequence[str]) -> None:
    for name, modes in NETWORKS.items():
        for mode in modes:
            if names and f"{name}_{mode}" not in names:
                continue
            child = os.fork()
            if not child:
                _write(folder, name, mode)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            print(f"{name} {mode}: {'done' if status == 0 else f'ended with {status}'}", flush=True)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2:])
