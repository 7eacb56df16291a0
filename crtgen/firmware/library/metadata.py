"""``metadata.json`` of a Model Library Format archive, typed (formats.md, section 6).

All versions are converted to version 7; fields that an old version lacks are empty.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

__all__ = [
    "Dependency",
    "MainFunction",
    "MemoryUse",
    "ModelMetadata",
    "OperatorBuffer",
    "OperatorFunction",
    "OperatorMetadata",
    "Sid",
    "TensorSize",
    "parse_time",
    "time_text",
]

_TIME = "%Y-%m-%d %H:%M:%SZ"


def time_text(time: datetime) -> str:
    """Return a time in the form of the metadata: UTC, to the second."""
    return time.astimezone(UTC).strftime(_TIME)


def parse_time(text: str) -> datetime:
    """Parse a time that ``time_text`` wrote; raises ``ValueError``."""
    return datetime.strptime(text, _TIME).replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Sid:
    """A storage of the graph executor; ``input_binding`` is the argument stored in it, if any."""

    storage_id: int
    size_bytes: int
    input_binding: str | None = None


@dataclass(frozen=True, slots=True)
class TensorSize:
    name: str
    size: int
    dtype: str


@dataclass(frozen=True, slots=True)
class MainFunction:
    device: int
    workspace_size_bytes: int
    constants_size_bytes: int
    io_size_bytes: int
    inputs: tuple[TensorSize, ...] = ()
    outputs: tuple[TensorSize, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryUse:
    device: int
    workspace_size_bytes: int


@dataclass(frozen=True, slots=True)
class OperatorFunction:
    function_name: str
    workspace: tuple[MemoryUse, ...]


@dataclass(frozen=True, slots=True)
class Dependency:
    """A dependency of the archive's code that the archive does not contain."""

    short_name: str
    url: str
    url_type: str
    version_spec: str


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """One model of an archive in style ``full-model``; ``executor`` is ``aot`` or ``graph``."""

    model_name: str
    export_datetime: datetime
    target: tuple[str, ...]
    executor: str
    main: tuple[MainFunction, ...] = ()
    operators: tuple[OperatorFunction, ...] = ()
    sids: tuple[Sid, ...] = ()
    dependencies: tuple[Dependency, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorBuffer:
    size_bytes: int
    shape: tuple[int, ...]
    dtype: str
    input_binding: str | None = None


@dataclass(frozen=True, slots=True)
class OperatorMetadata:
    """An archive in style ``operator``: functions with their arguments, without a model."""

    model_name: str
    export_datetime: datetime
    target: tuple[str, ...]
    functions: tuple[tuple[str, tuple[OperatorBuffer, ...]], ...]
