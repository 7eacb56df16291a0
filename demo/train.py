"""Train the demonstration model: handwritten digits, 8 x 8 pixels, ten classes, int8.

The data is scikit-learn's copy of the UCI "Optical Recognition of Handwritten Digits" test set (1,797
images of 8 x 8 pixels with 17 levels of grey). A fifth of it is held out. Training is plain numpy and
deterministic: the same versions write the same file.

    python -m demo.train        # writes demo/digits.tflite, .npz and .onnx, prints the accuracies
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

from demo.export import quantize_and_write
from demo.export_onnx import write

Array = npt.NDArray[np.float32]
HERE = Path(__file__).resolve().parent

EPOCHS, BATCH, RATE = 60, 32, 2e-3
CHANNELS = (8, 16)
CALIBRATION = 64
PIXELS = ([0, 1, 2], [0, 1, 2])


@dataclass
class Weights:
    """conv 3x3 (1 -> 8), conv 3x3 (8 -> 16), dense (64 -> 10); HWIO and [in, out] layouts."""

    tensors: list[Array]

    @classmethod
    def initial(cls, rng: np.random.Generator) -> "Weights":
        a, b = CHANNELS
        shapes = [(3, 3, 1, a), (a,), (3, 3, a, b), (b,), (4 * b, 10), (10,)]
        return cls([_initial(rng, shape) for shape in shapes])


def _initial(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    if len(shape) == 1:
        return np.zeros(shape, np.float32)
    fan_in = int(np.prod(shape[:-1]))
    return rng.normal(0, np.sqrt(2 / fan_in), shape).astype(np.float32)


def _patches(x: Array) -> Array:
    """Every 3 x 3 neighbourhood, zero padded: [n, h, w, c] -> [n, h, w, 9 * c]."""
    h, w = x.shape[1:3]
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return np.concatenate([padded[:, i : i + h, j : j + w] for i in range(3) for j in range(3)], axis=3)


def _unpatch(grad: Array, channels: int) -> Array:
    """The gradient of ``_patches``."""
    n, h, w, _ = grad.shape
    padded = np.zeros((n, h + 2, w + 2, channels), np.float32)
    for k in range(9):
        i, j = divmod(k, 3)
        padded[:, i : i + h, j : j + w] += grad[..., k * channels : (k + 1) * channels]
    return padded[:, 1:-1, 1:-1]


def _pool(x: Array) -> tuple[Array, npt.NDArray[np.intp]]:
    """2 x 2 maximum and which of the four it was."""
    n, h, w, c = x.shape
    windows = (
        x.reshape(n, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 5, 2, 4).reshape(n, h // 2, w // 2, c, 4)
    )
    best = windows.argmax(-1)
    return np.take_along_axis(windows, best[..., None], -1)[..., 0], best


def _unpool(grad: Array, best: npt.NDArray[np.intp]) -> Array:
    n, h, w, c = grad.shape
    windows = np.zeros((n, h, w, c, 4), np.float32)
    np.put_along_axis(windows, best[..., None], grad[..., None], -1)
    return windows.reshape(n, h, w, c, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(n, 2 * h, 2 * w, c)


def forward(weights: Weights, x: Array) -> dict[str, Array]:
    """Every activation of a batch [n, 8, 8, 1], by name."""
    w1, b1, w2, b2, w3, b3 = weights.tensors
    conv1 = np.maximum(_patches(x) @ w1.reshape(-1, CHANNELS[0]) + b1, 0)
    pool1, _ = _pool(conv1)
    conv2 = np.maximum(_patches(pool1) @ w2.reshape(-1, CHANNELS[1]) + b2, 0)
    pool2, _ = _pool(conv2)
    logits = pool2.reshape(len(x), -1) @ w3 + b3
    return {"input": x, "conv1": conv1, "pool1": pool1, "conv2": conv2, "pool2": pool2, "logits": logits}


def gradients(weights: Weights, x: Array, labels: npt.NDArray[np.intp]) -> list[Array]:
    """The gradient of the mean cross-entropy with respect to each weight tensor."""
    w2, w3 = weights.tensors[2], weights.tensors[4]
    act = forward(weights, x)
    probabilities = np.exp(act["logits"] - act["logits"].max(1, keepdims=True))
    probabilities /= probabilities.sum(1, keepdims=True)
    probabilities[np.arange(len(x)), labels] -= 1
    d_logits = probabilities / len(x)
    flat = act["pool2"].reshape(len(x), -1)
    d_pool2 = (d_logits @ w3.T).reshape(act["pool2"].shape)
    d_conv2 = _unpool(d_pool2, _pool(act["conv2"])[1]) * (act["conv2"] > 0)
    patches2 = _patches(act["pool1"])
    d_pool1 = _unpatch(d_conv2 @ w2.reshape(-1, CHANNELS[1]).T, CHANNELS[0])
    d_conv1 = _unpool(d_pool1, _pool(act["conv1"])[1]) * (act["conv1"] > 0)
    return [
        np.tensordot(_patches(x), d_conv1, PIXELS).reshape(weights.tensors[0].shape),
        d_conv1.sum((0, 1, 2)),
        np.tensordot(patches2, d_conv2, PIXELS).reshape(w2.shape),
        d_conv2.sum((0, 1, 2)),
        flat.T @ d_logits,
        d_logits.sum(0),
    ]


def _batches(rng: np.random.Generator, n: int) -> Iterator[npt.NDArray[np.intp]]:
    order = rng.permutation(n)
    for start in range(0, n, BATCH):
        yield order[start : start + BATCH]


def train(x: Array, labels: npt.NDArray[np.intp], seed: int = 7) -> Weights:
    """Adam (Kingma and Ba, 2015) with a linearly falling rate."""
    rng = np.random.default_rng(seed)
    weights = Weights.initial(rng)
    mean = [np.zeros_like(t) for t in weights.tensors]
    square = [np.zeros_like(t) for t in weights.tensors]
    step = 0
    for epoch in range(EPOCHS):
        rate = RATE * (1 - epoch / EPOCHS)
        for batch in _batches(rng, len(x)):
            step += 1
            for i, grad in enumerate(gradients(weights, x[batch], labels[batch])):
                mean[i] = 0.9 * mean[i] + 0.1 * grad
                square[i] = 0.999 * square[i] + 0.001 * grad * grad
                update = (mean[i] / (1 - 0.9**step)) / (np.sqrt(square[i] / (1 - 0.999**step)) + 1e-8)
                weights.tensors[i] = (weights.tensors[i] - rate * update).astype(np.float32)
    return weights


def load() -> tuple[Array, npt.NDArray[np.intp], Array, npt.NDArray[np.intp]]:
    """Training images and labels, held-out images and labels; images [n, 8, 8, 1] with values 0 to 16."""
    images, labels = load_digits(return_X_y=True)
    x = images.astype(np.float32).reshape(-1, 8, 8, 1)
    order = np.random.default_rng(1).permutation(len(x))
    held, rest = order[: len(x) // 5], order[len(x) // 5 :]
    return x[rest], labels[rest], x[held], labels[held]


def main() -> None:
    x, labels, x_held, labels_held = load()
    weights = train(x, labels)
    right = forward(weights, x_held)["logits"].argmax(1) == labels_held
    print(f"float32: {right.mean():.2%} of {len(x_held)} held-out images")
    write(HERE / "digits", weights.tensors, x[:CALIBRATION])
    accuracy, size = quantize_and_write(
        HERE / "digits", weights.tensors, forward(weights, x), x_held, labels_held
    )
    print(f"int8:    {accuracy:.2%} of {len(x_held)} held-out images, digits.tflite has {size:,} bytes")


if __name__ == "__main__":
    main()
