"""A small file that stands for much is refused before a library takes the memory; other formats as well."""

import io
import struct
import wave
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from crtgen.base import budget
from crtgen.base.errors import CrtgenError, UnsupportedError, UsageError
from crtgen.base.formats.arrays import read_array, read_arrays
from crtgen.base.formats.cbor import parse_cbor
from crtgen.base.formats.pictures import read_picture
from crtgen.base.formats.sounds import read_sound
from crtgen.base.formats.tables import read_table
from crtgen.base.formats.xml_text import parse_xml
from crtgen.base.formats.yaml_text import parse_yaml
from crtgen.base.formats.zips import opened_zip
from crtgen.lab.measure.drift import read_window
from tests.fuzz.engine import Target, run_one
from tests.fuzz.formats import DOORS

_ROOM = 500 << 20
"""Address space beyond what Python has: the limit of 384 MiB, and what allocators map."""


def refused(tmp_path: Path, name: str, data: bytes, read: Callable[[Path], object], match: str) -> None:
    """Reading it is an error of ours, within a little more than the memory limit."""
    said: list[CrtgenError] = []

    def run(data: bytes, folder: Path) -> bool:
        path = folder / name
        path.write_bytes(data)
        try:
            read(path)
        except CrtgenError as error:
            said.append(error)
            raise
        return True

    target = Target("one", lambda: (data,), lambda random, seeds: data, run, seconds=20, room=_ROOM)
    assert run_one(target, data, tmp_path) == (False, "")
    with pytest.raises(CrtgenError, match=match):
        raise said[0]


def png(width: int, height: int, rows: int = 1) -> bytes:
    """A grey picture, of which only the first rows are there."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    pixels = zlib.compress(bytes(rows * (width + 1)))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def webp(width: int, height: int) -> bytes:
    """The head of a picture with an alpha channel, which libwebp allocates when it is opened."""
    body = b"VP8X" + struct.pack("<II", 10, 0x10)
    body += (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body += b"VP8L" + struct.pack("<IBI", 5, 0x2F, (width - 1) | (height - 1) << 14) + b"\0"
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


@pytest.mark.parametrize(
    "data",
    [
        png(12000, 12000),
        png(60_000_000, 1),
        png(1, 60_000_000, 60_000_000 // 9),
        webp(8000, 8000),
        webp(16383, 16383),
    ],
    ids=["large", "wide", "tall", "webp", "the largest webp"],
)
def test_pixels_are_counted_before_they_are_decoded(tmp_path: Path, data: bytes) -> None:
    pytest.importorskip("PIL")
    refused(
        tmp_path,
        "a.png",
        data,
        lambda path: read_picture(path, (96, 96)),
        r"pixels makes [\d,]+ bytes in all",
    )


def test_a_picture_of_a_phone_is_read(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    path = tmp_path / "a.png"
    path.write_bytes(png(4000, 3000, 3000))
    pixels, size = read_picture(path, (4, 3))
    assert (pixels.shape, size) == ((3, 4, 3), (4000, 3000))


@pytest.mark.parametrize(
    "data",
    [
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n(pwned) (w) file\n",
        b"\xc5\xd0\xd3\xc6" + bytes(60),  # PostScript with a preview
        b"II*\0" + bytes(60),
        b"P6 8 8 255 " + bytes(192),
        b"\0\0\1\0" + bytes(60),
        b"8BPS" + bytes(60),
        b"<svg/>",
        b"RIFF\0\0\0\0AVI " + bytes(60),
    ],
)
def test_other_pictures_are_not_tried(tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostScript would start Ghostscript, whatever the name of the file says."""
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(image, "open", lambda *args, **options: pytest.fail("Pillow guesses"))
    for name in ("photo.png", "photo.jpg", "photo.webp"):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UsageError, match="the file is not a PNG, JPEG, BMP, GIF or WebP"):
            read_picture(tmp_path / name, (8, 8))


def test_one_form_is_not_read_as_another(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    (tmp_path / "a.png").write_bytes(b"BM" + png(8, 8)[2:])
    with pytest.raises(UsageError, match="the picture cannot be read"):
        read_picture(tmp_path / "a.png", (8, 8))


def flac(frames: int, channels: int = 2) -> bytes:
    """The head of a FLAC, which claims how long it is, and nothing behind it."""
    bits = 4096 << 112 | 4096 << 96 | 16000 << 44 | (channels - 1) << 41 | 15 << 36 | frames
    return b"fLaC\x80\0\0\x22" + bits.to_bytes(18, "big") + bytes(16)


def wav(channels: int, frames: int) -> bytes:
    made = io.BytesIO()
    with wave.open(made, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(1)
        sound.setframerate(16000)
        sound.writeframes(bytes(channels * frames))
    return made.getvalue()


def test_a_sound_takes_what_it_has_and_not_what_it_claims(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    refused(
        tmp_path,
        "a.flac",
        flac((1 << 36) - 1, 8),
        lambda path: samples(path)[10**9],
        "the sound cannot be read|IndexError",
    )


def samples(path: Path) -> list[float]:
    found, _ = read_sound(path)
    if not len(found):
        raise UsageError("the sound cannot be read: it has no frames")
    return list(found)


def test_frames_are_counted(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(tmp_path / "a.flac", np.zeros((2 << 20, 2), np.int16), 8000)
    budget.limit_memory(16 << 20)
    try:
        with pytest.raises(UnsupportedError, match=r"samples makes [\d,]+ bytes in all"):
            read_sound(tmp_path / "a.flac")
    finally:
        budget.limit_memory()


def test_many_channels_are_mixed_a_part_at_a_time(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    (tmp_path / "a.wav").write_bytes(wav(1000, 3))
    found, rate = read_sound(tmp_path / "a.wav")
    assert (len(found), rate) == (3, 16000)


@pytest.mark.parametrize("start", [b".snd", b"FORM", b"ID3\4", b"caff", b"RIFX", b"NIST"])
def test_other_sounds_are_not_tried(tmp_path: Path, start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    soundfile = pytest.importorskip("soundfile")
    monkeypatch.setattr(soundfile, "SoundFile", lambda *args, **options: pytest.fail("libsndfile guesses"))
    (tmp_path / "a.wav").write_bytes(start + bytes(100))
    with pytest.raises(UsageError, match="the file is not a WAV, FLAC or Ogg"):
        read_sound(tmp_path / "a.wav")


def zipped(content: bytes, method: int) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr("x.npy", content)
    return made.getvalue()


def claiming(data: bytes, size: int) -> bytes:
    """An archive whose directory says that its member has that size."""
    changed = bytearray(data)
    struct.pack_into("<I", changed, data.rindex(b"PK\1\2") + 24, size)
    return bytes(changed)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_python_inflates_without_a_bound_is_refused(tmp_path: Path, method: int) -> None:
    (tmp_path / "a.npz").write_bytes(zipped(bytes(1 << 20), method))
    with pytest.raises(UsageError, match=r"x\.npy is compressed in another way than by deflate"):
        read_arrays(tmp_path / "a.npz", "the arrays")


def test_inflated_bytes_are_counted(tmp_path: Path) -> None:
    data = claiming(zipped(bytes(64 << 20), zipfile.ZIP_DEFLATED), 500 << 20)
    refused(
        tmp_path, "a.npz", data, lambda path: read_arrays(path, "it"), r"x\.npy makes [\d,]+ bytes in all"
    )


def test_members_that_say_less_than_they_hold_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(claiming(zipped(bytes(1 << 20), zipfile.ZIP_DEFLATED), 1000))
    with pytest.raises(UsageError, match="the zip cannot be read"), opened_zip(path, "the zip") as found:
        found.read("x.npy")


@pytest.mark.parametrize(
    "shape", [(1 << 40,), (10**12, 10**12), (-1, -4), (2, 3, 4), (0, 10**30), (True,), ("x",)], ids=str
)
def test_a_header_that_lies(tmp_path: Path, shape: tuple[object, ...]) -> None:
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + bytes(16)
    refused(tmp_path, "a.npy", data, lambda path: read_array(path, "the array"), "the array cannot be read")


@pytest.mark.parametrize("kind", ["O", "S4", "U1", "V8", "M8[s]", "f4,i4"])
def test_arrays_of_anything_but_numbers(tmp_path: Path, kind: str) -> None:
    np.save(tmp_path / "a.npy", np.zeros(2, kind))
    with pytest.raises(UsageError, match="the file is not an array of numbers"):
        read_array(tmp_path / "a.npy", "the array")


def test_a_device_cannot_nest() -> None:
    """1,200 bytes of one-element arrays were a RecursionError."""
    for data in (
        b"\x81" * 1200 + b"\0",
        b"\xa1\x61a" * 500 + b"\0",
        b"\x9a\xff\xff\xff\xff",
        b"\x7a\xff\xff\xff\xff",
        b"",
    ):
        with pytest.raises(ValueError, match=r"nested too deeply|end too early"):
            parse_cbor(data)
        with pytest.raises(CrtgenError, match="the counts of the device cannot be read"):
            read_window(data)
    assert parse_cbor(b"\xa1\x61a\x82\x01\x19\x01\x00") == {"a": [1, 256]}


def test_text_that_stands_for_more(tmp_path: Path) -> None:
    aliases = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(9)
    )
    with pytest.raises(UsageError, match="the YAML has an alias"):
        parse_yaml(aliases, tmp_path, "the map")
    for text in (
        "!!int ''",
        "!!bool x",
        "!!timestamp 'x'",
        "!!binary x",
        "? [a]\n: b",
        "[" * 1100,
        "!!python/object:os.x {}",
    ):
        with pytest.raises(UsageError, match="the map cannot be read"):
            parse_yaml(text, tmp_path, "the map")
    entities = b'<!DOCTYPE a [<!ENTITY b "x">]><a>&b;</a>'
    for data in (entities, entities.decode().encode("utf-16")):
        with pytest.raises(UsageError, match="the pack declares entities, or is not UTF-8"):
            parse_xml(data, tmp_path, "the pack")
    for data in (b'<?xml version="1.0" encoding="x-nothing"?><a/>', b"<a><b></a>", b""):
        with pytest.raises(UsageError, match="the pack cannot be read"):
            parse_xml(data, tmp_path, "the pack")


def test_cells_are_counted(tmp_path: Path) -> None:
    budget.limit_memory(16 << 20)
    try:
        (tmp_path / "a.csv").write_text(",\n" * 200_000)
        with pytest.raises(UnsupportedError, match="cells makes"):
            read_table(tmp_path / "a.csv", "the table")
    finally:
        budget.limit_memory()
    (tmp_path / "a.csv").write_text('"' + "x" * 200_000)
    with pytest.raises(UsageError, match="the table cannot be read: field larger than field limit"):
        read_table(tmp_path / "a.csv", "the table")


def test_a_recording_is_not_repaired_in_its_place(tmp_path: Path) -> None:
    """pyjls writes to a file that was not closed."""
    pytest.importorskip("pyjls")
    suffix, seeds, reader = DOORS["jls"]
    (whole,) = seeds()
    path = tmp_path / f"a{suffix}"
    for size in range(len(whole) // 2, len(whole), 397):
        path.write_bytes(whole[:size])
        with suppress(UsageError):
            reader(path)
        assert path.read_bytes() == whole[:size]
