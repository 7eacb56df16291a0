"""Power of a running board, from an instrument's recording.

Formats are ``.jls`` and CSV of a Joulescope, ``.ppk2`` and CSV of Nordic's Power Profiler Kit II, and
``power_summary.csv`` of Ambiq's hpx. The mean is over the whole file: before exporting, select the part in
which the model runs.
"""

import re
from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

import numpy as np

from crtgen.base import budget, files
from crtgen.base.errors import UsageError
from crtgen.base.formats.foreign import foreign
from crtgen.base.formats.recordings import jls_means, ppk2_currents
from crtgen.base.formats.tables import rows_of

__all__ = ["mean_power"]

_SCALES = {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9}
_COLUMN = re.compile(r"^#?\s*(current|voltage|power)\s*(?:[\[(]?\s*([mnuµ]?)[AVW]\s*[\])]?)?$", re.IGNORECASE)


def mean_power(path: Path, volts: float | None = None) -> float:
    """Return the mean power of a recording, in watts; ``volts`` is needed if it has only currents.

    Raises ``UsageError`` for another kind of file, for one without samples, or if ``volts`` is missing.
    """
    with budget.spending(str(path)) as spent:
        if not path.exists():
            raise UsageError("there is no such file", where=str(path), hint="check the path")
        if path.stat().st_size > budget.memory_limit():
            hint = f"export less of it, or crtgen --limit-memory {path.stat().st_size} allows it"
            raise UsageError("the recording is too large", where=str(path), hint=hint)
        read = {".jls": _jls, ".ppk2": _ppk2}.get(path.suffix.lower(), _csv)
        with foreign(path, "the recording"):
            watts = read(path, volts)
        spent.check()
    if not 0 < watts < 1e3:
        raise UsageError(
            f"a mean of {watts:g} W is impossible for a board",
            where=str(path),
            hint="name the unit in the file's header, and check its sign",
        )
    return watts


def _times(amperes: float, volts: float | None, path: Path) -> float:
    if volts is None:
        hint = "say what the board was supplied with: --volts 3.0"
        raise UsageError("the recording has currents, and no voltage", where=str(path), hint=hint)
    return amperes * volts


def _csv(path: Path, volts: float | None) -> float:
    with files.opened(path, "the recording") as binary:
        rows = rows_of(_data(TextIOWrapper(binary, encoding="utf-8-sig", newline="")))
        header = [name.strip() for name in next(rows, [])]
        if header == ["scope", "metric", "value"]:
            return _hpx(rows)
        columns = dict(_columns(header))
        if "power" in columns:
            return _mean(rows, [columns["power"]])
        if "current" not in columns:
            named = ", ".join(header[:6]) or "nothing"
            raise ValueError(f"no column has a current or a power, its first line has {named}")
        if "voltage" in columns:
            return _mean(rows, [columns["current"], columns["voltage"]])
        return _times(_mean(rows, [columns["current"]]), volts, path)


def _data(file: TextIO) -> Iterator[str]:
    # Without blank lines and those of a comment; a header may follow ``#``.
    for line in file:
        text = line.strip()
        if text and (not text.startswith("#") or _COLUMN.match(text.split(",")[-1].strip())):
            yield text.lstrip("# ") + "\n"


def _columns(header: Iterable[str]) -> Iterator[tuple[str, tuple[int, float]]]:
    # By quantity: the column, and the factor of its unit.
    for index, name in enumerate(header):
        if match := _COLUMN.match(name):
            yield match[1].lower(), (index, _SCALES[(match[2] or "").lower()])


def _mean(rows: Iterable[list[str]], columns: list[tuple[int, float]]) -> float:
    # The mean of the products of some columns.
    count, total = 0, 0.0
    for line, row in enumerate(rows, 2):
        product = 1.0
        for index, scale in columns:
            if index >= len(row):
                raise ValueError(f"row {line} has {len(row)} columns")
            product *= scale * float(row[index])
        total += product
        count += 1
    if not count:
        raise ValueError("the recording has no samples")
    return total / count


def _hpx(rows: Iterable[list[str]]) -> float:
    # The mean power of the window that the firmware marked, or of all of the recording.
    known = {row[0]: float(row[2]) for row in rows if len(row) == 3 and row[1] == "avg_power_w"}
    marked = [scope for scope in known if scope != "whole_capture_window" and not scope[-1].isdigit()]
    if not known:
        raise ValueError("the file has no avg_power_w")
    return known[marked[0] if marked else next(iter(known))]


def _ppk2(path: Path, volts: float | None) -> float:
    samples = ppk2_currents(path, "the recording")
    if not samples.size:
        raise ValueError("the recording has no samples")
    return _times(float(samples.mean(dtype=np.float64)) * 1e-6, volts, path)


def _jls(path: Path, volts: float | None) -> float:
    means = jls_means(path, "the recording")
    if "power" in means:
        return means["power"]
    if "current" not in means:
        raise ValueError("the recording has no signal of current or power")
    return _times(means["current"], volts or means.get("voltage"), path)
