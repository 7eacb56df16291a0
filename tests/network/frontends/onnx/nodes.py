"""The node tests of the onnx package: each is a small model with inputs and the outputs that it has to give.

``python -m tests.network.frontends.onnx.nodes [word]`` prints what passes, by operator, and why others are
refused; with ``--page`` it writes docs/onnx.md.
"""

import os
import pickle
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

from crtgen.base.errors import CrtgenError
from crtgen.network.frontends import load_onnx
from crtgen.network.frontends.onnx_types import held, kind_of
from crtgen.network.ir import Array, Graph
from tests.support import ROOT

__all__ = [
    "SETS",
    "NodeTest",
    "Outcome",
    "as_held",
    "by_operator",
    "found_by_name",
    "model_tests",
    "node_tests",
    "outcomes",
    "page",
]

SETS = ("simple", "pytorch-operator", "pytorch-converted")
"""Models that the package has as files."""

CONSTANT_INPUTS: Mapping[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BatchNormalization": (1, 2, 3, 4),
    "BlackmanWindow": (0,),
    "CausalConvWithState": (1, 2),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "Conv": (1, 2),
    "ConvInteger": (1, 3),
    "ConvTranspose": (1, 2),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "DeformConv": (1, 3),
    "Dropout": (1, 2),
    "Expand": (1,),
    "GRU": (1, 2, 3, 4),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "LSTM": (1, 2, 3, 4, 7),
    "Loop": (0, 1),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1, 2),
    "Pad": (1, 2, 3),
    "QLinearConv": (1, 2, 3, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "RNN": (1, 2, 3, 4),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
    **{f"Reduce{kind}": (1,) for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min")},
    **{f"Reduce{kind}": (1,) for kind in ("Prod", "Sum", "SumSquare")},
}
"""Inputs that networks have as constants, and crtgen with them: weights, and what decides shapes."""

_NAMED: Mapping[str, tuple[str, ...]] = {
    "test_affine_grid": ("size",),
    "test_blackmanwindow": ("x",),
    "test_causal_conv": ("weight", "bias"),
    "test_center_crop": ("shape",),
    "test_hammingwindow": ("x",),
    "test_hannwindow": ("x",),
    "test_range": ("start", "limit", "delta"),
}
"""The same by name, for tests of functions that are made of others; by the beginning of the test's name."""

_CANCEL = {"DFT": 1e-5}
"""Operators whose sums cancel: what may be left of numbers of some tens."""


_ROUNDED = {"float16": 4 * 2.0**-10, "bfloat16": 4 * 2.0**-7}
"""What outputs may differ in whose tests round each number on the way: four steps of the type."""

_FILLED = ("NonMaxSuppression",)
"""Operators whose results have room for as many rows as there can be, the last ones of -1."""

_LEAST = 0.1
"""Smaller numbers than this may differ as much as it does."""


@dataclass(frozen=True, slots=True)
class NodeTest:
    """One test: a model in bytes, which of its inputs are constants, the other inputs, and outputs."""

    name: str
    operator: str
    model: bytes
    fixed: Mapping[str, Array]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    rtol: float
    atol: float

    def graph(self) -> Graph:
        return load_onnx(self.model, self.name, fixed=self.fixed)

    def difference(self, outputs: tuple[Array, ...]) -> str:
        """In what outputs differ from those expected; empty if in nothing."""
        for got, expected in zip(outputs, self.outputs, strict=True):
            want = as_held(expected)
            if self.operator in _FILLED:
                want = np.pad(want, ((0, len(got) - len(want)), (0, 0)), constant_values=-1)
            if (got.shape, got.dtype) != (want.shape, want.dtype):
                return f"{got.shape} {got.dtype} instead of {want.shape} {want.dtype}"
            rtol = max(self.rtol, _ROUNDED.get(np.asarray(expected).dtype.name, 0))
            atol = max(self.atol, rtol * _LEAST if rtol > self.rtol else 0)
            if not np.allclose(got, want, rtol=rtol, atol=atol, equal_nan=True):
                return f"{got.reshape(-1)[:5]} instead of {want.reshape(-1)[:5]}"
        return ""


def as_held(array: Any) -> Array:
    """Numbers in the type that crtgen has for them."""
    numbers = np.asarray(array)
    kind = kind_of(onnx.helper.np_dtype_to_tensor_dtype(numbers.dtype))
    return numbers if kind is None else held(numbers, kind.dtype)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a test: ``passed``, ``refused`` or ``failed``, and why."""

    test: NodeTest
    kind: str
    reason: str = ""


@cache
def node_tests() -> tuple[NodeTest, ...]:
    """All of them, in the order of the package."""
    return tuple(map(_read, _collected()))


def _collected() -> list[Any]:
    """The package computes its tests when they are asked for, in seconds: they are kept for the next run."""
    kept = ROOT / ".pytest_cache" / "d" / f"onnx-{onnx.__version__}-numpy-{np.__version__}.pickle"
    if kept.is_file():
        found: list[Any] = pickle.loads(kept.read_bytes())
        return found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    kept.parent.mkdir(parents=True, exist_ok=True)
    own = kept.with_suffix(f".{os.getpid()}")
    own.write_bytes(pickle.dumps(found))
    own.replace(kept)
    return found


def _read(case: Any) -> NodeTest:
    graph = case.model.graph
    ((inputs, outputs),) = case.data_sets[:1]
    operator = graph.node[0].op_type if len(graph.node) == 1 else _of_expanded(case.name)
    inputs, outputs = (
        [numpy_helper.to_array(a) if isinstance(a, onnx.TensorProto) else a for a in arrays]
        for arrays in (inputs, outputs)
    )
    tolerances = (case.rtol or 1e-3, _CANCEL.get(operator, case.atol or 1e-7))
    return _test(case.name, operator, case.model, inputs, outputs, *tolerances)


def _test(
    name: str, operator: str, model: Any, inputs: list[Any], outputs: list[Any], rtol: float, atol: float
) -> NodeTest:
    constant = {
        node.input[position]
        for node in model.graph.node
        for position in CONSTANT_INPUTS.get(node.op_type, ())
        if position < len(node.input)
    }
    for start, names in _NAMED.items():
        constant |= set(names) if name.startswith(start) else set()
    initial = {tensor.name for tensor in model.graph.initializer}
    given = (value.name for value in model.graph.input if value.name not in initial)
    data = dict(zip(given, inputs, strict=True))
    constant |= {key for key, array in data.items() if isinstance(array, np.ndarray) and not array.size}
    fixed = {key: np.asarray(array) for key, array in data.items() if key in constant}
    rest = tuple(array for key, array in data.items() if key not in fixed)
    return NodeTest(name, operator, model.SerializeToString(), fixed, rest, tuple(outputs), rtol, atol)


@cache
def model_tests() -> tuple[NodeTest, ...]:
    """The models that the package has as files, by the name of their set."""
    root = Path(onnx.__file__).parent / "backend" / "test" / "data"
    folders = ((name, folder) for name in SETS for folder in sorted((root / name).iterdir()))
    return tuple(_stored(name, folder) for name, folder in folders)


def _stored(name: str, folder: Path) -> NodeTest:
    model, data = onnx.load(folder / "model.onnx"), folder / "test_data_set_0"
    count = [len(list(data.glob(f"{kind}_*.pb"))) for kind in ("input", "output")]
    inputs, outputs = (
        [_tensor(data / f"{kind}_{n}.pb") for n in range(number)]
        for kind, number in zip(("input", "output"), count, strict=True)
    )
    return _test(folder.name, name, model, inputs, outputs, 1e-3, 1e-5)


def _tensor(path: Path) -> Any:
    """A tensor of a file; what is none of numbers stays as it is, and its test is refused."""
    tensor = onnx.TensorProto.FromString(path.read_bytes())
    return numpy_helper.to_array(tensor)


def _of_expanded(name: str) -> str:
    """Of a test of several nodes: the word after ``test_``."""
    return name.split("_")[1]


def outcome(test: NodeTest) -> Outcome:
    """By the references of the graph's operators."""
    try:
        graph = test.graph()
    except CrtgenError as error:
        return Outcome(test, "refused", str(error).removeprefix(f"{test.name}: "))
    ((*outputs,),) = graph.run([[as_held(array) for array in test.inputs]])
    difference = test.difference(tuple(outputs))
    return Outcome(test, "failed" if difference else "passed", difference)


def outcomes(word: str = "", tests: Sequence[NodeTest] | None = None) -> Iterator[Outcome]:
    """Of the tests whose name has that word; of the node tests, unless others are given."""
    with np.errstate(all="ignore"):
        yield from (outcome(test) for test in (node_tests() if tests is None else tests) if word in test.name)


@cache
def found_by_name() -> Mapping[str, Outcome]:
    """Of all node tests and models, by the name of the test."""
    return {one.test.name: one for one in (*outcomes(), *outcomes(tests=model_tests()))}


def by_operator(found: list[Outcome]) -> Mapping[str, Counter[str]]:
    """How many of each kind, by operator."""
    table: dict[str, Counter[str]] = {}
    for one in sorted(found, key=lambda one: one.test.operator.lower()):
        table.setdefault(one.test.operator, Counter())[one.kind] += 1
    return table


_PAGE = """# ONNX

Which ONNX operators crtgen computes, by the {total} node tests of the onnx package {version}: {passed} pass,
{refused} are refused with a reason. Written by `python -m tests.network.frontends.onnx.nodes --page`.

"Pass" means that the numpy references of crtgen's operators give the expected outputs; `pytest -m nightly
tests/network/frontends/onnx` runs the same tests as generated C. As in real networks, weights and inputs that
decide shapes are constants in these tests.

## Types

float32, bool and integers of 8 to 64 bits are taken as they are. Other types are stored as one of these, in
inputs and outputs too; commands and `Model.notes` say so once per model.

| type | stored as | a Cast to it |
|---|---|---|
| DOUBLE | float32 | changes nothing; constants that follow from constants are computed in double |
| FLOAT16, BFLOAT16 | float32 | rounds to the type, halves to even; overflow is infinity |
| FLOAT8E4M3FN, FLOAT8E4M3FNUZ, FLOAT8E5M2, FLOAT8E5M2FNUZ | float32 | the same, with ONNX's `saturate` |
| FLOAT4E2M1 | float32 | the same; overflow becomes the largest value, NaN becomes 0 |
| INT4, INT2 | int8 | keeps the lowest bits |
| UINT4, UINT2 | uint8 | keeps the lowest bits |

Between casts, float16 and bfloat16 are computed in float32, so results equal ONNX Runtime's within the
rounding of the type. Strings, sequences, complex values and FLOAT8E8M0 are refused.

## Lengths

All lengths must be known when code is generated. NonMaxSuppression returns room for as many boxes as there
can be (`max_output_boxes_per_class`, or all of each class and batch): the chosen ones first, -1 in the
other rows. NonZero, Unique, and inputs and outputs without elements are refused; constants without elements
are fine.

## Operators of which every test passes

{complete}.

## Operators with refused tests

| operator | passed | refused | why |
|---|---|---|---|
{partial}

## Operators that are refused

| why | operators |
|---|---|
{missing}

## Models

The small models that the package brings as files; most were exported from PyTorch.

| set | passed | refused | why |
|---|---|---|---|
{sets}
"""


def page() -> str:
    """docs/onnx.md."""
    everything = found_by_name().values()
    found = [one for one in everything if one.test.operator not in SETS]
    kinds = Counter(one.kind for one in found)
    counts = {"passed": kinds["passed"], "refused": kinds["refused"], "total": len(found)}
    named = [one for one in found if one.test.operator[0].isupper()]  # others are expanded functions
    table = by_operator(named)
    partly = {name for name, each in table.items() if each["passed"] and each["refused"]}
    return _PAGE.format(
        version=onnx.__version__,
        complete=", ".join(name for name, each in table.items() if not each["refused"]),
        partial=_rows([one for one in named if one.test.operator in partly]),
        missing=_missing([one for one in named if not table[one.test.operator]["passed"]]),
        sets=_rows([one for one in everything if one.test.operator in SETS]),
        **counts,
    )


def _missing(found: list[Outcome]) -> str:
    """A row for each reason, with the operators that have no other."""
    reasons = _reasons(found)
    rows: dict[str, list[str]] = {}
    for name in by_operator(found):
        told = _told(reasons[name])
        unknown = told.endswith("the operator is not supported") and ";" not in told
        rows.setdefault("not supported" if unknown else told, []).append(name)
    return "\n".join(f"| {why} | {', '.join(names)} |" for why, names in rows.items())


def _rows(found: list[Outcome]) -> str:
    """A row of a table for each operator, or for each set."""
    reasons = _reasons(found)
    return "\n".join(
        f"| {name} | {counts['passed']} | {counts['refused']} | {_told(reasons.get(name))} |"
        for name, counts in by_operator(found).items()
    )


def _reasons(found: list[Outcome]) -> Mapping[str, Counter[str]]:
    """Why tests are refused, by operator."""
    reasons: dict[str, Counter[str]] = {}
    for one in (one for one in found if one.kind == "refused"):
        reasons.setdefault(one.test.operator, Counter())[_short(one.reason)] += 1
    return reasons


def _short(reason: str) -> str:
    """The first cause without its place and without what is supported."""
    first, *others = reason.splitlines()
    cause = others[0] if others else first
    return cause.strip().split("; supported")[0].split(" (")[0]


def _told(reasons: Counter[str] | None) -> str:
    """All of them, the commonest first."""
    found = [reason for reason, _ in reasons.most_common()] if reasons else []
    return "; ".join(found).replace("|", "/")


def main(word: str = "") -> None:
    if word == "--page":
        (ROOT / "docs" / "onnx.md").write_text(page())
        return
    found = [*outcomes(word), *outcomes(word, model_tests())]
    for operator, counts in by_operator(found).items():
        print(f"{operator:32}", *(f"{kind} {counts[kind]:4}" for kind in ("passed", "refused", "failed")))
    reasons = Counter(one.reason.split(" (")[0].replace("\n", "") for one in found if one.kind == "refused")
    for reason, count in reasons.most_common(None if word else 60):
        print(f"{count:5} {reason[:150]}")
    for one in (one for one in found if one.kind == "failed"):
        print(f"FAILED {one.test.name}: {one.reason}")
    print(dict(Counter(one.kind for one in found)))


if __name__ == "__main__":
    main(*sys.argv[1:])
