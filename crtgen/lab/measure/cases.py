"""Inputs and expected outputs from files, checked against a model's interface, and the comparison."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import count, pairwise, takewhile
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.base.formats.arrays import read_arrays
from crtgen.compiler.codegen.module import Interface
from crtgen.lab.measure.media import MEDIA, Scaling, read_media
from crtgen.network.ir import Array, DType, Value, shape_text

__all__ = [
    "Difference",
    "Inputs",
    "ReferenceRun",
    "case_name",
    "compare",
    "first_runs",
    "interface_of",
    "largest_outputs",
    "random_inputs",
    "read_cases",
    "read_inputs",
    "runs_in_array",
    "write_outputs",
]

FLOAT_TOLERANCE = 1e-5
"""Largest difference of a float32 output, relative to the largest absolute value that the cases expect."""

_AS_IT_SUITS = Scaling()
_TINY = float(np.finfo(np.float32).tiny)
_CASE_KEY = re.compile(r"case(\d+)_(?:step(\d+)_)?(?:input|output)\d+")


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceRun:
    """One run: an array per input, an array per output, in the order of the model's interface.

    It begins with a reset, unless it ``follows`` the previous run. ``state`` are the states before it, in the
    device's format, if they are not those after a reset.
    """

    name: str
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    follows: bool = False
    state: bytes = b""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first wrong element of an output, and the number of wrong elements."""

    output: str
    index: tuple[int, ...]
    expected: float
    actual: float
    count: int
    total: int

    def __str__(self) -> str:
        place = ", ".join(map(str, self.index))
        return (
            f"output {self.output}[{place}]: expected {self.expected:g}, got {self.actual:g}"
            f" ({self.count} of {self.total} elements differ)"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """Arrays for consecutive runs, one per input, and a description of their source.

    ``is_sequence``: they were given as a sequence, possibly of a single run.
    """

    runs: tuple[tuple[Array, ...], ...]
    source: str
    is_sequence: bool = False


def read_inputs(
    path: Path, interfaces: Sequence[Interface], quantize: bool = False, scaling: Scaling = _AS_IT_SUITS
) -> Inputs:
    """Return the inputs in a ``.npy`` or ``.npz`` file, or in a file that ``read_media`` reads.

    An archive names them by the model's input names, as ``input0, input1 ...`` or as the first case of a file
    of cases (``case0_input0 ...``). A single array is the only input. With ``quantize``, floats for an
    integer input are real values, which become round(x / scale) + zero_point, saturated. Arrays with an
    additional leading dimension are a sequence of runs.
    """
    if path.suffix.lower() in MEDIA:
        return _media(path, interfaces, scaling)
    arrays = _load(path)
    cases = len({m[1] for m in map(_CASE_KEY.fullmatch, arrays) if m})
    source = f"{path}, case0 of {cases}" if cases > 1 else str(path)

    if len(interfaces) == 1 and len(arrays) == 1:
        found = [(next(iter(arrays.values())), interfaces[0], str(path))]
        return _inputs(found, source, quantize)
    found = []
    for i, interface in enumerate(interfaces):
        keys = (interface.name, interface.c_name, f"input{i}", f"case0_input{i}", f"case0_step0_input{i}")
        key = next((k for k in keys if k in arrays), None)
        if key is None:
            raise UsageError(
                f"no array for input {i} ({interface.name})",
                where=str(path),
                hint=f"name it {keys[0]} or input{i}; the file has {', '.join(arrays)}",
            )
        found.append((_first_case(arrays, key), interface, f"{path}: {key}"))
    return _inputs(found, source, quantize)


def interface_of(value: Value) -> Interface:
    return Interface(value.name, value.name, value.shape, value.dtype, value.quant, value.nbytes)


def runs_in_array(array: Array, interface: Interface, where: str, *, quantize: bool) -> tuple[Array, ...]:
    """Return the only input, for one run or for each index of a leading dimension, as ``read_inputs``
    does.
    """
    return tuple(run[0] for run in _inputs([(array, interface, where)], where, quantize).runs)


def _media(path: Path, interfaces: Sequence[Interface], scaling: Scaling) -> Inputs:
    # Real numbers for the only input, quantised as the model says.
    if len(interfaces) != 1:
        hint = f"name them in a .npz: {', '.join(i.name for i in interfaces)}"
        raise UsageError(f"the model has {len(interfaces)} inputs", where=str(path), hint=hint)
    (interface,) = interfaces
    runs, source = read_media(path, interface, scaling)
    real = (run if run.dtype == np.int16 else _quantized(run, interface, str(path)) for run in runs)
    stored = [_checked(run, interface, str(path)) for run in real]
    return Inputs(tuple((array,) for array in stored), source, len(runs) > 1)


def _first_case(arrays: Mapping[str, Array], key: str) -> Array:
    # The array of that name; all steps of a case that is a sequence.
    steps = (key.replace("_step0_", f"_step{n}_") for n in count(1)) if "_step0_" in key else ()
    more = [arrays[step] for step in takewhile(arrays.__contains__, steps)]
    return np.stack([arrays[key], *more]) if "_step0_" in key else arrays[key]


def _batched(array: Array, interface: Interface) -> Array:
    # Put in the leading 1 of an input if only that is missing: of one run, or of N runs ``[N, ...]``.
    shape = interface.shape
    if shape[:1] != (1,):
        return array
    if array.shape == shape[1:]:
        return array[None]
    is_batch = array.ndim == len(shape) and array.shape[1:] == shape[1:] and len(array) > 1
    return array[:, None] if is_batch else array


def _inputs(given: Sequence[tuple[Array, Interface, str]], source: str, quantize: bool) -> Inputs:
    # The checked arrays of one run; or of several, where all have one more dimension.
    def taken(array: Array, interface: Interface, where: str) -> Array:
        return _checked(_quantized(array, interface, where) if quantize else array, interface, where)

    given = [(_batched(a, i), i, where) for a, i, where in given]
    sequences = [a.ndim == len(i.shape) + 1 and a.shape[1:] == i.shape and len(a) > 0 for a, i, _ in given]
    if not all(sequences):
        return Inputs((tuple(taken(*each) for each in given),), source)
    lengths = {len(array) for array, _, _ in given}
    if len(lengths) > 1:
        text = f"sequences of {' and '.join(map(str, sorted(lengths)))} runs"
        raise UsageError(text, where=source, hint="each input has an array for each run")
    runs = range(lengths.pop())
    made = tuple(tuple(taken(a[run], i, where) for a, i, where in given) for run in runs)
    return Inputs(made, source, is_sequence=True)


def read_cases(
    path: Path, inputs: Sequence[Interface], outputs: Sequence[Interface], prefix: str = ""
) -> tuple[ReferenceRun, ...]:
    """Return the cases in a ``.npz`` file with keys ``caseN_inputM`` and ``caseN_outputM``, after ``prefix``.

    With keys ``caseN_stepS_inputM`` and so on, a case is a sequence of runs.
    """
    loaded = _load(path)
    arrays = {k.removeprefix(prefix): a for k, a in loaded.items() if k.startswith(prefix)}
    matches = [m for m in map(_CASE_KEY.fullmatch, arrays) if m]
    found = sorted({(int(m[1]), None if m[2] is None else int(m[2])) for m in matches}, key=_order)
    if not found:
        hint = f"name the arrays {prefix}case0_input0, {prefix}case0_output0 ..."
        raise UsageError("the file has no cases", where=str(path), hint=hint)
    follows = [False, *(step is not None and n == m for (m, _), (n, step) in pairwise(found))]
    cases = zip(found, follows, strict=True)
    return tuple(_case(n, step, after, arrays, inputs, outputs, str(path)) for (n, step), after in cases)


def _order(run: tuple[int, int | None]) -> tuple[int, int]:
    number, step = run
    return number, -1 if step is None else step


def case_name(case: str, step: int | None) -> str:
    return case if step is None else f"{case} step {step}"


def _case(
    number: int,
    step: int | None,
    follows: bool,
    arrays: Mapping[str, Array],
    inputs: Sequence[Interface],
    outputs: Sequence[Interface],
    where: str,
) -> ReferenceRun:
    def side(kind: str, interfaces: Sequence[Interface]) -> tuple[Array, ...]:
        found = []
        for i, interface in enumerate(interfaces):
            key = f"{stem}_{kind}{i}"
            if key not in arrays:
                raise UsageError(
                    f"no array {key}",
                    where=where,
                    hint="each case needs all inputs and outputs: docs/tutorials/own-network.md",
                )
            array = _checked(arrays[key], interface, f"{where}: {key}")
            is_half = kind == "output" and arrays[key].dtype == np.float16
            found.append(array.astype(np.float16) if is_half else array)
        return tuple(found)

    name, stem = case_name(f"case{number}", step), f"case{number}" + ("" if step is None else f"_step{step}")
    state = b"" if follows else arrays.get(f"case{number}_state", np.zeros(0, np.uint8)).tobytes()
    return ReferenceRun(name, side("input", inputs), side("output", outputs), follows, state)


def first_runs(cases: Sequence[ReferenceRun]) -> tuple[ReferenceRun, ...]:
    return (cases[0], *takewhile(lambda case: case.follows, cases[1:]))


def random_inputs(interfaces: Sequence[Interface], seed: int) -> tuple[Array, ...]:
    """Return uniform random inputs: the whole range of an integer type, both booleans, -1 to 1 for floats."""
    rng = np.random.default_rng(seed)
    return tuple(_random(rng, i) for i in interfaces)


def _random(rng: np.random.Generator, interface: Interface) -> Array:
    dtype = interface.dtype.numpy
    if interface.dtype is DType.BOOL:
        return rng.integers(0, 2, interface.shape).astype(dtype)
    if interface.dtype.is_integer:
        info = np.iinfo(interface.dtype.value)
        return rng.integers(info.min, info.max, interface.shape, dtype=interface.dtype.value, endpoint=True)
    return rng.uniform(-1, 1, interface.shape).astype(dtype)


def write_outputs(path: Path, interfaces: Sequence[Interface], arrays: Sequence[Array]) -> None:
    """Write a ``.npz`` with one array per output, under the outputs' names, which may be any text."""
    buffer = BytesIO()
    with ZipFile(buffer, "w") as archive:
        for interface, array in zip(interfaces, arrays, strict=True):
            with archive.open(f"{interface.name}.npy", "w") as file:
                np.save(file, array)
    files.write(path, buffer.getvalue())


def largest_outputs(cases: Sequence[ReferenceRun]) -> tuple[float, ...]:
    """Return for each output the largest finite absolute value that any case expects, the scale of its
    errors.
    """
    return tuple(max(map(_largest, arrays)) for arrays in zip(*(case.outputs for case in cases), strict=True))


def _largest(array: Array) -> float:
    return float(np.abs(array[np.isfinite(array)].astype(np.float64)).max(initial=0.0))


def compare(
    interfaces: Sequence[Interface],
    expected: Sequence[Array],
    actual: Sequence[Array],
    largest: Sequence[float],
) -> Difference | None:
    """Return the first difference, in the order of the interface, or None.

    Integers must be equal; floats may differ by ``FLOAT_TOLERANCE`` times the output's ``largest`` value, and
    expected float16 values additionally by their rounding.
    """
    for interface, want, have, scale in zip(interfaces, expected, actual, largest, strict=True):
        if want.dtype.kind == "f":
            exact, got = want.astype(np.float64), have.astype(np.float64)
            with np.errstate(invalid="ignore"):
                rounding = np.spacing(np.abs(want)) / 2 if want.dtype == np.float16 else 0
                wrong = ~(np.abs(exact - got) <= FLOAT_TOLERANCE * max(scale, _TINY) + rounding)
            wrong &= ~((want == have) | (np.isnan(want) & np.isnan(have)))
        else:
            wrong = want != have
        if wrong.any():
            index = tuple(int(i) for i in np.argwhere(wrong)[0])
            count = int(wrong.sum())
            return Difference(interface.name, index, float(want[index]), float(have[index]), count, want.size)
    return None


def _load(path: Path) -> dict[str, Array]:
    if not path.exists():
        raise UsageError("no such file", where=str(path), hint="check the path")
    return read_arrays(path, "the arrays")


def _quantized(array: Array, interface: Interface, where: str) -> Array:
    # Floats for an integer input as the operator QUANTIZE makes them: halves away from zero, saturated.
    quant = interface.quant
    if array.dtype.kind != "f" or quant is None or quant.axis is not None:
        return array
    if np.isnan(array).any():
        count = int(np.isnan(array).sum())
        raise UsageError(
            f"{count} of {array.size} values are NaN, which cannot be quantised",
            where=where,
            hint="remove the NaN from the file",
        )
    scaled = array.astype(np.float32) / np.float32(quant.scale)
    rounded = np.trunc(scaled + np.copysign(np.float32(0.5), scaled)) + quant.zero_point
    limits = np.iinfo(interface.dtype.value)
    stored: Array = np.clip(rounded, limits.min, limits.max).astype(interface.dtype.numpy)
    return stored


def _checked(array: Array, interface: Interface, where: str) -> Array:
    if tuple(array.shape) != interface.shape:
        wanted = shape_text(interface.shape)
        raise UsageError(
            f"shape {shape_text(array.shape)}, but {interface.name} has {wanted}",
            where=where,
            hint="reshape the array, or leave out cases of another shape",
        )
    if array.dtype == np.float16 and interface.dtype is DType.FLOAT32:
        return array.astype(np.float32)
    if array.dtype.newbyteorder("=") != interface.dtype.numpy:
        hint = "--quantize-input makes it round(x / scale) + zero_point; `crtgen inspect` shows both"
        raise UsageError(
            f"type {array.dtype}, but {interface.name} has {interface.dtype.value}",
            where=where,
            hint=hint if interface.quant and array.dtype.kind == "f" else "",
        )
    return array.astype(interface.dtype.numpy, copy=False)
