"""Power recordings: ``.jls`` of a Joulescope, ``.ppk2`` of Nordic's Power Profiler Kit II."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.base.formats.foreign import foreign
from crtgen.base.formats.zips import opened_zip
from crtgen.base.temporary import TemporaryFolder

__all__ = ["jls_means", "ppk2_currents"]

_SIGNALS = ("current", "voltage", "power")
_SAMPLE = np.dtype([("microamperes", "<f4"), ("pins", "<u2")])


def ppk2_currents(path: Path, what: str) -> npt.NDArray[np.float32]:
    """Read samples in microamperes from a ``.ppk2``, a ZIP archive of float32 with 16 bits of digital pins
    each.

    Lost samples are left out. Raises ``UsageError``.
    """
    with opened_zip(path, what, "export it as CSV") as members:
        about = json.loads(members.read("metadata.json"))
        if not isinstance(about, dict) or about.get("formatVersion") not in (1, 2):
            raise ValueError("the recording has a format newer than 2; export it as CSV")
        raw = members.read("session.raw")
        samples = np.frombuffer(raw[: len(raw) - len(raw) % _SAMPLE.itemsize], _SAMPLE)["microamperes"]
        return np.ascontiguousarray(samples[np.isfinite(samples)])


def jls_means(path: Path, what: str) -> Mapping[str, float]:
    """Return the mean of each signal (``current``, ``voltage``, ``power``), in A, V, W.

    The file has statistics for each zoom level, so little of it is read. Raises ``UsageError``.
    """
    try:
        from pyjls import Reader  # type: ignore[import-untyped]
    except ImportError as error:
        hint = "pip install pyjls, or export CSV"
        raise UsageError("reading .jls needs the package pyjls", where=str(path), hint=hint) from error
    with foreign(path, what, "export it as CSV") as spent, TemporaryFolder() as folder:
        copy = folder / "copy.jls"  # pyjls repairs a file that was not closed, in its place
        with files.opened(path, what) as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        with spent.enforced(), Reader(str(copy)) as reader:
            signals = {each.name: each for each in reader.signals.values() if each.name in _SIGNALS}
            return {name: _mean(reader, signal) for name, signal in signals.items()}


def _mean(reader: Any, signal: Any) -> float:
    return float(reader.fsr_statistics(signal.signal_id, 0, signal.length, 1)[0][0])
