"""A pipeline as its file describes it: the sensor, the features, the network, the decision."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crtgen.base.errors import UsageError
from crtgen.base.toml import TomlTable, load_toml, text
from crtgen.network.features import FeatureSettings, ImageSettings, VibrationSettings, changed, settings_of
from crtgen.network.features.scaler import Scaler, read_scaler, require_scalable
from crtgen.network.features.settings import FORMATS
from crtgen.network.pipeline.decision import Decision, Gate
from crtgen.network.pipeline.decisions import read_decision
from crtgen.network.pipeline.values import count, natural, number

__all__ = ["PIPELINE", "Description", "read_description"]

# The sensors that give samples, and what these are.
_TYPES = {"audio": "int16", "imu": "float32"}

_IMAGE = "image"
# Names of features by sensor.
_WHAT = {"audio": "of sound", "imu": "of vibrations", _IMAGE: "of images"}

PIPELINE = ".toml"
"""The suffix of a file that describes a pipeline."""


@dataclass(frozen=True, slots=True)
class Beside:
    """A second network on the same features, and its output that serves as the gate."""

    network: Path
    label: int
    gate: Gate


@dataclass(frozen=True, slots=True)
class Description:
    """Content of a pipeline file.

    ``network`` is a path, or None for features alone; it runs every ``every`` rows. ``output`` names the
    output on which the decision is based; empty means the first one.
    """

    name: str
    settings: FeatureSettings
    network: Path | None
    output: str
    every: int
    decision: Decision | None
    beside: Beside | None = None
    scaler: Scaler | None = None


def read_description(file: Path) -> Description:
    """Read a description. Raises ``UsageError`` with the key of the first error."""
    root = load_toml(file, "the pipeline")
    try:
        made = _description(root, file)
    except UsageError as error:
        error.where = error.where or str(file)
        raise
    root.finish()
    return made


def _description(root: TomlTable, file: Path) -> Description:
    head = _section(root, "pipeline", file)
    name = head.get("name", text)
    sensor = _sensor(_section(head, "sensor", file))
    head.finish()
    features = _section(root, "features", file)
    scaler = features.get("scaler", text, "")
    settings = _features(features, sensor)
    learned = read_scaler(file.parent / scaler) if scaler else None
    if learned is not None:
        require_scalable(settings, learned)
    network = root.section("network")
    path, output, every = None, "", 1
    if network is not None:
        path = file.parent / network.get("file", text)
        output = network.get("output", text, "")
        every = network.get("every", count, 1)
        network.finish()
    gate = root.section("gate")
    beside = None if gate is None else _beside(gate, file)
    decision = root.section("decision")
    if beside is not None and (path is None or decision is None):
        raise UsageError(
            "a [gate] needs a [network] and a [decision]",
            where=str(file),
            hint="add the missing table, or leave the [gate] out",
        )
    made = (
        None
        if decision is None
        else read_decision(decision, file.parent, None if beside is None else beside.gate)
    )
    if made is not None and (made.quiet or made.ignore) and not sensor.rate:
        hint = "give the sensor its rate, in frames a second"
        raise UsageError(
            "[decision] has times in seconds, but the sensor has no rate", where=str(file), hint=hint
        )
    return Description(name, settings, path, output, every, made, beside, learned)


def _beside(table: TomlTable, file: Path) -> Beside:
    path = file.parent / table.get("file", text)
    gate = Gate(above=table.get("above", number, 0.5), average=table.get("average", count, 1))
    made = Beside(path, table.get("label", natural, 0), gate)
    table.finish()
    return made


def _section(outer: TomlTable, key: str, file: Path) -> TomlTable:
    found = outer.section(key)
    if found is None:
        raise UsageError(
            f"the file has no table [{key}]", where=str(file), hint="docs/pipelines.md shows a whole file"
        )
    return found


@dataclass(frozen=True, slots=True)
class _Sensor:
    """A sensor; ``rate`` is samples or frames per second, or 0. ``frame`` are the settings of images."""

    kind: str
    rate: int
    axes: int = 1
    frame: Mapping[str, Any] = field(default_factory=dict)


def _sensor(table: TomlTable) -> _Sensor:
    kind = table.get("kind", text)
    if kind not in _WHAT:
        raise table.error("kind", f"unknown sensor {kind!r}; known: {', '.join(_WHAT)}")
    if kind == _IMAGE:
        return _camera(table)
    given = table.get("type", text, _TYPES[kind])
    if given != _TYPES[kind]:
        raise table.error("type", f"samples of {given}; supported for {kind}: {_TYPES[kind]}")
    rate = table.get("rate", count)
    axes = table.get("axes", count) if kind == "imu" else 1
    table.finish()
    return _Sensor(kind, rate, axes)


def _camera(table: TomlTable) -> _Sensor:
    kind = table.get("format", text)
    if kind not in FORMATS:
        raise table.error("format", f"unknown format {kind!r}; known: {', '.join(FORMATS)}")
    width, height = (table.get(key, count) for key in ("width", "height"))
    rate = table.get("rate", count, 0)
    table.finish()
    frame = {"format": kind, "frame_width": width, "frame_height": height, "frames": max(rate, 1)}
    return _Sensor(_IMAGE, rate, frame=frame)


def _features(table: TomlTable, sensor: _Sensor) -> FeatureSettings:
    preset = table.get("preset", text)
    known = settings_of(preset)
    changes: dict[str, Any] = {key: table.get(key, _any) for key in table.rest()}
    kind = _kind(known)
    if kind != sensor.kind:
        raise table.error("preset", f"features {_WHAT[kind]}, of a sensor of kind {sensor.kind}")
    if kind == _IMAGE:
        return _image(table, known, sensor, changes)
    if kind == "imu":
        changes = {"rate": sensor.rate, "axes": sensor.axes, **changes}
    made = changed(known, changes)
    if made.rate != sensor.rate:
        raise table.error("rate", f"the features are for {made.rate} Hz, the sensor has {sensor.rate} Hz")
    if isinstance(made, VibrationSettings) and made.axes != sensor.axes:
        raise table.error("axes", f"the features are of {made.axes} axes, the sensor has {sensor.axes}")
    return made


def _kind(settings: FeatureSettings) -> str:
    if isinstance(settings, ImageSettings):
        return _IMAGE
    return "imu" if isinstance(settings, VibrationSettings) else "audio"


def _image(
    table: TomlTable, known: FeatureSettings, sensor: _Sensor, changes: dict[str, Any]
) -> FeatureSettings:
    for key in changes:
        if key in sensor.frame:
            raise table.error(key, "the sensor says that")
    return changed(known, {**sensor.frame, **changes})


def _any(value: Any) -> Any:
    return value
