"""Recordings of what a board takes: the mean of each kind of file, and files that are none."""

import json
import struct
import zipfile
from pathlib import Path

import pytest

from crtgen.base.errors import UsageError
from crtgen.lab.measure.power import mean_power

TEXTS = {
    "ppk2": ("Timestamp(ms),Current(uA)\n0,1000\n0.01,3000\n", 3.0, 0.006),
    "joulescope": ("time,current,voltage\n0,0.001,3\n1,0.003,5\n", None, 0.009),
    "units": (
        "# made by hand\n#time (s),current (mA),voltage (V),power (mW)\n0,1,3,2\n1,1,3,4\n",
        None,
        0.003,
    ),
    "hpx": (
        "scope,metric,value\ngpio_gated,avg_current_a,0.01\ngpio_gated,avg_power_w,0.02\n"
        "gated_window_0,avg_power_w,0.5\nwhole_capture_window,avg_power_w,0.9\n",
        None,
        0.02,
    ),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_the_mean_of_a_table(kind: str, tmp_path: Path) -> None:
    text, volts, watts = TEXTS[kind]
    file = tmp_path / "recording.csv"
    file.write_text(text)
    assert mean_power(file, volts) == pytest.approx(watts)


def test_the_mean_of_a_ppk2_session(tmp_path: Path) -> None:
    file = tmp_path / "session.ppk2"
    raw = b"".join(struct.pack("<fH", microamperes, 0xFF) for microamperes in (1000.0, float("nan"), 2000.0))
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"metadata": {}, "formatVersion": 2}))
        archive.writestr("session.raw", raw)
    assert mean_power(file, 2.0) == pytest.approx(0.003)


def test_the_mean_of_a_joulescope_session(tmp_path: Path) -> None:
    pyjls = pytest.importorskip("pyjls")
    import numpy as np

    file = tmp_path / "session.jls"
    with pyjls.Writer(str(file)) as writer:
        writer.source_def(source_id=1, name="js220")
        kind = {"signal_type": pyjls.SignalType.FSR, "data_type": pyjls.DataType.F32, "sample_rate": 1000}
        writer.signal_def(3, source_id=1, name="power", units="W", **kind)
        writer.fsr_f32(3, 0, np.linspace(0.01, 0.03, 10_000, dtype=np.float32))
    assert mean_power(file) == pytest.approx(0.02, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", b"time,current\n0,0.1\n", "no voltage"),
        ("a.csv", b"time,current,voltage\n", "no samples"),
        ("a.csv", b"a,b\n1,2\n", "no column"),
        ("a.csv", b"", "no column"),
        ("a.csv", b"power\nmuch\n", "cannot be read"),
        ("a.csv", b"time,power\n1\n", "row 2 has 1 columns"),
        ("a.csv", b"power\n-1\n", "W is impossible for a board"),
        ("a.csv", b"power\nnan\n", "W is impossible for a board"),
        ("a.csv", b"scope,metric,value\n", "avg_power_w"),
        ("a.csv", b"\xff\xfe\x00", "cannot be read"),
        ("a.ppk2", b"no archive", "cannot be read"),
    ],
)
def test_what_is_no_recording(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(UsageError, match=says):
        mean_power(file)


def test_a_recording_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        mean_power(tmp_path / "none.csv")
