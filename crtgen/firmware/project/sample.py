"""Built-in inputs: arrays as C, or a pattern that the device makes itself."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crtgen.base.errors import UsageError
from crtgen.compiler.codegen.module import Interface, ModelInfo
from crtgen.compiler.codegen.render import render
from crtgen.firmware.project.firmware import FirmwareRequest
from crtgen.network.ir import Array, DType, shape_text

__all__ = ["sample_files"]

_PER_LINE = 16
# Floats travel as their bits: the text is exact and the same everywhere.
_BITS = {DType.FLOAT32: DType.INT32}


@dataclass(frozen=True, slots=True)
class _ArrayView:
    symbol: str
    c_type: str
    elements: int
    note: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _SampleModelView:
    """A model with the symbols of its arrays, or with the number of its inputs that are filled with
    ``patterns``.
    """

    symbol: str
    arrays: tuple[str, ...]
    patterns: int


@dataclass(frozen=True, slots=True)
class _SampleView:
    arrays: tuple[_ArrayView, ...]
    models: tuple[_SampleModelView, ...]

    @property
    def has_pattern(self) -> bool:
        return any(model.patterns for model in self.models)


def sample_files(firmware: FirmwareRequest) -> dict[str, str]:
    """Return ``sample.c`` and ``sample.h`` of a standalone program. Raises ``UsageError`` for a wrong
    sample.
    """
    unknown = sorted(set(firmware.samples) - {info.name for info in firmware.models})
    if unknown:
        raise UsageError(
            f"a sample is for {unknown[0]}, which is not a model of the project",
            hint="name one of the project's models",
        )
    arrays: list[_ArrayView] = []
    models: list[_SampleModelView] = []
    for info in firmware.models:
        given = firmware.samples.get(info.name)
        views = [] if given is None else [_array(info, i, a) for i, a in enumerate(_checked(info, given))]
        arrays += views
        symbols = tuple(view.symbol for view in views)
        models.append(
            _SampleModelView(f"sample_{info.name}", symbols, len(info.inputs) if given is None else 0)
        )
    view = _SampleView(tuple(arrays), tuple(models))
    return {name: render(f"project/common/{name}.j2", v=view) for name in ("sample.c", "sample.h")}


def _checked(info: ModelInfo, given: Sequence[Array]) -> Sequence[Array]:
    if len(given) != len(info.inputs):
        raise UsageError(
            f"{len(given)} sample arrays for {len(info.inputs)} inputs",
            where=info.name,
            hint="give one array per input",
        )
    for interface, array in zip(info.inputs, given, strict=True):
        if array.shape != interface.shape or array.dtype != interface.dtype.numpy:
            raise UsageError(
                f"the sample is {shape_text(array.shape)} {array.dtype}, "
                f"the input is {shape_text(interface.shape)} {interface.dtype.value}",
                where=f"{info.name}: {interface.name}",
                hint="convert the array to the input's shape and type",
            )
    return given


def _array(info: ModelInfo, index: int, array: Array) -> _ArrayView:
    interface: Interface = info.inputs[index]
    stored = _BITS.get(interface.dtype, interface.dtype)
    numbers = np.ascontiguousarray(array).view(stored.numpy).ravel().tolist()
    texts = [_literal(int(number), stored) for number in numbers]
    lines = tuple(" ".join(texts[i : i + _PER_LINE]) for i in range(0, len(texts), _PER_LINE))
    note = f"{info.name}: {interface.name}, {shape_text(interface.shape)} {interface.dtype.value}"
    return _ArrayView(f"sample_{info.name}_{index}", stored.c_name, len(texts), note, lines)


def _literal(number: int, dtype: DType) -> str:
    # The least value of a wide type has no literal of its own in C.
    if dtype in (DType.INT32, DType.INT64) and number == -(1 << (8 * dtype.itemsize - 1)):
        return f"{number + 1} - 1,"
    return f"{number},"
