"""Writes docs/census.md: networks of today's exporters, and what crtgen makes of them.

python -m tests.system.census.page
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.system.census.measured import Census, all_files

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).parents[3] / "docs" / "census.md"

_HEAD = """# Files of today's exporters

{files} small networks as exporters write them, all of which crtgen compiles, beside the outputs of the
exporter's own runtime. Written by `python -m tests.system.census.page`; the files and the scripts that made
them are in `tests/system/census`.

"Integers" is the share of multiplications that are computed in integers; those of a loop count once. "Apart"
is the largest difference of an output: in steps for integers, relative to the largest output for float32.
"exact" means equal to the last bit.

- TensorFlow Lite rounds the sums of fully connected layers once, TFLite Micro and crtgen twice, so results
  occasionally differ by one step.
- Dynamic range: TensorFlow Lite quantises activations at run time, crtgen computes with floats on int8
  weights.
- pt2e quantises the inputs of layers, not their outputs: convolutions with few inputs, whose results stay
  float, are computed in float32, which is as fast.

"""

_SECTIONS: Mapping[str, tuple[str, str]] = {
    "keras": ("Keras 3.15, TensorFlow Lite 2.21", "TensorFlow Lite's reference kernels"),
    "runtime": ("ONNX Runtime 1.32: its quantiser and optimiser", "ONNX Runtime"),
    "torch": ("PyTorch 2.13, both exporters to ONNX", "ONNX Runtime"),
    "brevitas": ("Brevitas 0.13, trained with quantisation", "ONNX Runtime"),
    "pt2e": ("PyTorch 2.14, pt2e quantisation, exported to ONNX", "ONNX Runtime"),
    "litert": ("litert-torch 0.10", "TensorFlow Lite's reference kernels"),
    "onnx2tf": ("onnx2tf 1.29, TensorFlow Lite 2.21", "TensorFlow Lite's reference kernels"),
    "sklearn": ("scikit-learn 1.9, skl2onnx", "ONNX Runtime"),
    "lightgbm": ("LightGBM 4.7, onnxmltools", "ONNX Runtime"),
    "xgboost": ("XGBoost 3.2, onnxmltools", "ONNX Runtime"),
}


def _apart(census: Census) -> str:
    steps, relative = census.apart()
    if steps == 0 and relative == 0:
        return "exact"
    if steps:
        return f"{steps} step{'s' if steps > 1 else ''}"
    return "below 1e-5" if relative <= 1e-5 else f"{relative:.1g}"


def _section(kind: str, found: list[Census]) -> Iterator[str]:
    title, oracle = _SECTIONS[kind]
    yield f"## {title}\n\nOutputs by {oracle}.\n\n| network | MACs | integers | apart |\n|---|---|---|---|\n"
    for census in found:
        name = census.name.removeprefix(f"{kind}_").replace("_", " ")
        macs = f"{census.graph.macs:,}" if census.graph.macs else "-"
        share = f"{100 * census.integer_share:.0f} %" if census.graph.macs else "-"
        yield f"| {name} | {macs} | {share} | {_apart(census)} |\n"
    yield "\n"


def page() -> str:
    """The text of the page."""
    found = [Census.of(file) for file in all_files()]
    sections = [
        "".join(_section(kind, [c for c in found if c.name.split("_")[0] == kind])) for kind in _SECTIONS
    ]
    return (_HEAD.format(files=len(found)) + "".join(sections)).rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
