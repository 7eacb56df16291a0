"""Files of formats that others defined, behind their doors: samples of each, and what they become."""

import io
import json
import os
import wave
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np

from crtgen import api
from crtgen.base.formats import arrays, pictures, sounds
from crtgen.base.formats.toml_text import parse_toml
from crtgen.boards import board_text, chip_board
from crtgen.device.local_boards import asks_of_map
from crtgen.lab.measure.drift import read_window
from crtgen.lab.measure.labelled import read_arrays, read_recordings
from crtgen.lab.measure.power import mean_power
from crtgen.lab.sweep.store import adopt
from crtgen.network.features.scaler import read_scaler
from crtgen.network.pipeline import read_description
from crtgen.network.pipeline.clusters import read_clusters
from tests.fuzz.engine import Target
from tests.fuzz.mutate import mutate_bytes

__all__ = ["DOORS", "format_targets"]

Reader = Callable[[Path], object]


def _png() -> Iterator[bytes]:
    from PIL import Image

    picture = Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3))
    for form in ("PNG", "JPEG", "BMP", "GIF", "WEBP"):
        for mode in ("RGB", "L"):
            made = io.BytesIO()
            picture.convert(mode).save(made, form, progressive=True)
            yield made.getvalue()


def _wav() -> Iterator[bytes]:
    made = io.BytesIO()
    with wave.open(made, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16000)
        sound.writeframes(bytes(range(200)))
    yield made.getvalue()


def _sound() -> Iterator[bytes]:
    import soundfile  # type: ignore[import-untyped]

    yield from _wav()
    for form in ("FLAC", "OGG", "WAV"):
        made = io.BytesIO()
        soundfile.write(made, np.sin(np.arange(400) / 9).reshape(200, 2), 16000, format=form)
        yield made.getvalue()


def _npz(**held: Any) -> Iterator[bytes]:
    for save in (np.savez, np.savez_compressed):
        made = io.BytesIO()
        save(made, **held)
        yield made.getvalue()


def _npy() -> Iterator[bytes]:
    made = io.BytesIO()
    np.save(made, np.ones((2, 3), np.float32))
    yield made.getvalue()


def _ppk2() -> Iterator[bytes]:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata.json", json.dumps({"formatVersion": 2}))
        archive.writestr("session.raw", np.full(6, 1000, "<f4").tobytes() * 3)
    yield made.getvalue()


def _jls() -> Iterator[bytes]:
    from pyjls import Writer  # type: ignore[import-untyped]

    with TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / "a.jls"
        with Writer(str(path)) as writer:
            writer.source_def(source_id=1, name="s")
            for number, name in enumerate(("current", "voltage"), 1):
                writer.signal_def(signal_id=number, source_id=1, sample_rate=1000, name=name, units="A")
                writer.fsr_f32(number, 0, np.full(1000, 0.5, np.float32))
        yield path.read_bytes()


_PDSC = b"""<?xml version="1.0"?><package><devices><family Dfamily="F"><processor Dcore="Cortex-M4" Dfpu="1"
Dclock="80000000"/><device Dname="DEV1"><memory name="IROM1" start="0x08000000" size="0x100000" access="rx"/>
<memory name="IRAM1" start="0x20000000" size="0x40000" access="rwx"/></device></family></devices></package>"""


def _pack() -> Iterator[bytes]:
    yield _PDSC
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.pdsc", _PDSC)
    yield made.getvalue()


def _chip(path: Path) -> object:
    """What a pack says of a chip, as a file that can be read."""
    named = path.with_suffix(".pack" if path.read_bytes()[:2] == b"PK" else ".pdsc")
    path.rename(named)
    return parse_toml(board_text(chip_board("DEV1", named)), path, "the board")


def _window() -> Iterator[bytes]:
    numbers = {"windows": 1, "alarms": 0, "lasting": 0, "runs": 3, "ends": 0}
    lists = {"distances": [1, 300], "limits": [2, 70000]}
    from crtgen.compiler.codegen.drift import PARTS

    whole: dict[str, Any] = numbers | lists | {part: [1, 2] for part in PARTS}
    yield bytes([0xA0 | len(whole)]) + b"".join(_cbor(key) + _cbor(value) for key, value in whole.items())


def _cbor(value: Any) -> bytes:
    if isinstance(value, list):
        return bytes([0x80 | len(value)]) + b"".join(map(_cbor, value))
    if isinstance(value, str):
        return bytes([0x60 | len(value)]) + value.encode()
    return bytes([value]) if value < 24 else b"\x1a" + value.to_bytes(4, "big")


_MAP = b"""- connected: true
  platform: nrf52840dk
  id: "000123"
  serial: /dev/ttyACM0
  runner: jlink
  baud: 115200
"""
_PIPELINES = (
    b"""[pipeline]
name = "c"
sensor = { kind = "image", format = "rgb565", width = 32, height = 24 }
[features]
preset = "image"
width = 8
height = 8
mean = [1.0]
""",
    b"""[pipeline]
name = "v"
sensor = { kind = "audio", rate = 16000 }
[features]
preset = "mlperf-sww"
bands = 20
""",
)


def _store() -> Iterator[bytes]:
    from crtgen.lab.sweep.store import JobStore
    from tests.lab.sweep.test_store import GOOD, entry

    with TemporaryDirectory(prefix="fuzz-") as folder:
        with JobStore(Path(folder) / "s.db") as store:
            store.begin("x", [entry("a"), entry("b")])
            store.finish([("a", GOOD)])
        yield (Path(folder) / "s.db").read_bytes()


def _loaded(path: Path) -> object:
    read_description(path)
    return api.load(path)


def _adopted(path: Path) -> object:
    with mock.patch.dict(os.environ, {"XDG_DATA_HOME": str(path.parent / "home")}):
        adopt(path)
    return True


DOORS: dict[str, tuple[str, Callable[[], Iterator[bytes]], Reader]] = {
    "pictures": (".png", _png, lambda path: pictures.read_picture(path, (4, 4))),
    "sounds": (".wav", _sound, sounds.read_sound),
    "wav": (".wav", _wav, lambda path: sounds.read_wav(path, 1, 16, 16000)),
    "arrays": (".npz", lambda: _npz(x=np.ones((2, 3)), y=np.arange(2)), lambda path: read_arrays(path, None)),
    "clusters": (".npz", lambda: _npz(centroids=np.ones((2, 3)), radii=np.ones(2)), read_clusters),
    "scalers": (".npz", lambda: _npz(mean=np.ones(3), scale=np.ones(3)), read_scaler),
    "npy": (".npy", _npy, lambda path: arrays.read_array(path, "the array")),
    "tables": (".csv", lambda: iter((b"file,start,stop\na.wav,0,1\nb.wav,,\n",)), read_recordings),
    "power": (".csv", lambda: iter((b"time,current [mA],voltage\n0,1.5,3\n1,2,3\n",)), mean_power),
    "ppk2": (".ppk2", _ppk2, lambda path: mean_power(path, 3.0)),
    "jls": (".jls", _jls, mean_power),
    "packs": (".pdsc", _pack, _chip),
    "windows": (".cbor", _window, lambda path: read_window(path.read_bytes())),
    "maps": (".yaml", lambda: iter((_MAP,)), asks_of_map),
    "pipelines": (".toml", lambda: iter(_PIPELINES), _loaded),
    "stores": (".db", _store, _adopted),
}
"""The suffix of a file, good samples, and a reader that raises only crtgen's own errors."""


def _another(random: Random, seeds: Sequence[bytes]) -> bytes:
    """Bytes, or a word of a text, are another one."""
    data = random.choice(seeds)
    if random.random() < 0.3 or b"=" not in data or data.startswith((b"PK", b"\x89", b"RIFF")):
        return mutate_bytes(random, data, random.choice(seeds))
    words = (b"[[1]]", b"[1, 2, 3]", b'"x"', b"-1", b"0", b"1e999", b"nan", b"true", b"[]", b"{}", b"9" * 12)
    lines = data.splitlines()
    at = random.choice([n for n, line in enumerate(lines) if b"=" in line or b":" in line])
    key, sign, _ = lines[at].partition(b"=" if b"=" in lines[at] else b":")
    lines[at] = key + sign + b" " + random.choice(words)
    return b"\n".join(lines)


def _read(suffix: str, reader: Reader) -> Callable[[bytes, Path], bool]:
    def run(data: bytes, folder: Path) -> bool:
        for old in folder.iterdir():
            if old.is_file():
                old.unlink()
        path = folder / f"a{suffix}"
        path.write_bytes(data)
        with mock.patch("tempfile.tempdir", str(folder)):
            return reader(path) is not False

    return run


def format_targets() -> Iterator[Target]:
    """A fuzzer for each door."""
    for name, (suffix, samples, reader) in DOORS.items():
        yield Target(name, cache(lambda made=samples: tuple(made())), _another, _read(suffix, reader))
