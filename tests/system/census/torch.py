"""Writes networks of PyTorch by both of its ONNX exporters, and what ONNX Runtime computes.

python -m tests.system.census.torch FOLDER      # torch 2.13, onnxscript
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

_CASES = 1
SHAPES = {
    "vit": (1, 3, 12, 12),
    "unet": (1, 3, 16, 16),
    "gru": (1, 7, 4),
    "yolo": (1, 3, 8, 8),
    "mobile": (1, 3, 8, 8),
    "tcn": (1, 4, 24),
    "volumes": (1, 2, 4, 4, 4),
}
_BY_SCRIPT = ("vit", "unet", "gru", "tcn")


def _images() -> dict[str, Any]:
    torch = importlib.import_module("torch")
    nn, f = torch.nn, torch.nn.functional

    class Vit(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 12, 4, 4)
            self.encoder = nn.TransformerEncoderLayer(
                12, 2, 16, batch_first=True, activation="gelu", dropout=0.0
            )
            self.head, self.first = nn.Linear(12, 3), nn.Parameter(torch.randn(1, 1, 12) * 0.1)

        def forward(self, x: Any) -> Any:
            t = self.patches(x).flatten(2).transpose(1, 2)
            return self.head(self.encoder(torch.cat([self.first, t], 1))[:, 0])

    class Unet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
            self.b, self.up = nn.Conv2d(6, 8, 3, stride=2, padding=1), nn.ConvTranspose2d(8, 6, 2, 2)
            self.c = nn.Conv2d(12, 4, 3, padding=1)

        def forward(self, x: Any) -> Any:
            a = f.silu(self.norm(self.a(x)))
            return torch.sigmoid(self.c(torch.cat([self.up(f.relu6(self.b(a))), a], 1)))

    class Yolo(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.c = nn.Conv2d(3, 18, 3, 2, 1)

        def forward(self, x: Any) -> Any:
            y = self.c(x).view(1, 3, 6, -1).permute(0, 1, 3, 2).sigmoid()
            place, size, score = y.split([2, 2, 2], -1)
            return torch.cat([place * 2 - 0.5, (size * 2) ** 2, score], -1).flatten(1, 2)

    class Mobile(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.d = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
            self.down, self.up, self.head = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1), nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            d = f.hardswish(self.d(f.hardswish(self.a(x))))
            share = f.hardsigmoid(self.up(f.relu(self.down(f.adaptive_avg_pool2d(d, 1)))))
            return self.head((d * share).mean([2, 3]))

    return {
        "vit": Vit(),
        "unet": Unet(),
        "yolo": Yolo(),
        "mobile": Mobile(),
    }


def _others() -> dict[str, Any]:
    torch = importlib.import_module("torch")
    nn, f = torch.nn, torch.nn.functional

    class Sequence(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.layer, self.head = layer, nn.Linear(6, 2)

        def forward(self, x: Any) -> Any:
            return self.head(self.layer(x)[0])

    class Tcn(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv1d(4, 8, 3, dilation=2), nn.Conv1d(8, 8, 3, dilation=4)
            self.norm, self.slope, self.head = nn.GroupNorm(2, 8), nn.PReLU(8), nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            h = f.pad(self.slope(self.a(f.pad(x, (4, 0)))), (8, 0))
            return f.log_softmax(self.head(f.elu(self.norm(self.b(h))).amax(-1)), -1)

    class Volumes(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.c, self.pool, self.head = nn.Conv3d(2, 4, 3), nn.MaxPool3d(2), nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return self.head(self.pool(self.c(x)).flatten(1))

    return {
        "volumes": Volumes(),
        "gru": Sequence(nn.GRU(4, 6, num_layers=2, batch_first=True)),
        "tcn": Tcn(),
    }


def networks() -> dict[str, Any]:
    """The networks with weights that depend on nothing but PyTorch's version."""
    importlib.import_module("torch").manual_seed(0)
    return {name: network.eval() for name, network in {**_images(), **_others()}.items()}


def _main(folder: Path) -> None:
    torch = importlib.import_module("torch")
    for name, network in networks().items():
        file, x, random = folder / f"torch_{name}.onnx", torch.randn(SHAPES[name]), np.random.default_rng(3)
        options = {"dynamo": False} if name in _BY_SCRIPT else {"dynamo": True, "external_data": False}
        torch.onnx.export(network, (x,), file, **options)
        session, cases = ort.InferenceSession(file), dict[str, Any]()
        for case in range(_CASES):
            given = random.normal(size=SHAPES[name]).astype(np.float32)
            (y,) = session.run(None, {session.get_inputs()[0].name: given})
            cases |= {f"case{case}_input0": given, f"case{case}_output0": y}
        np.savez_compressed(folder / f"torch_{name}.npz", **cases)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
