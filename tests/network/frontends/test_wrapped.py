"""Models inside sources, archives and bundles."""

import json
import re
import time
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crtgen.base.errors import UnsupportedError, UsageError
from crtgen.cli.app import app
from crtgen.network import frontends
from crtgen.network.frontends import unwrap
from tests.support import ROOT

MODEL = (ROOT / "demo" / "digits.tflite").read_bytes()
ONNX = (ROOT / "demo" / "digits.onnx").read_bytes()


def source(data: bytes = MODEL, name: str = "g_model", dump: str = "0x{:02x}") -> str:
    lines = [", ".join(dump.format(b) for b in data[i : i + 12]) for i in range(0, len(data), 12)]
    return (
        f"alignas(16) const unsigned char {name}[] DATA_ALIGN_ATTRIBUTE = {{\n  "
        + ",\n  ".join(lines)
        + "\n};\n"
    )


def zipped(path: Path, **members: bytes | str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("_DOT_", "."), content)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("model_data.cc", "#include <x.h>\nunsigned int g_model_len = 4;\n" + source()),
        ("xxd.h", source(name="model_tflite", dump="0x{:02X}").replace("alignas(16) const ", "")),
        ("decimal.c", source(dump="{}").replace("[] ", "[4096] /* bytes = */ ")),
        (
            "two.cpp",
            "const unsigned char image[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};\n" + source() + "// = {0x1}\n",
        ),
    ],
)
def test_arrays_of_c(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    found = unwrap(path)
    assert (found.data, found.kind) == (MODEL, ".tflite")
    assert name in found.where
    graph = frontends.load(path)
    assert str(graph).partition("\n")[2] == str(frontends.load_tflite(MODEL)).partition("\n")[2]


def test_archives_and_bundles(tmp_path: Path) -> None:
    plain = zipped(tmp_path / "model.zip", models__a_DOT_tflite=MODEL, README="hello")
    assert (unwrap(plain).data, unwrap(plain).where) == (MODEL, "models/a.tflite")
    assert unwrap(zipped(tmp_path / "b.task", net_DOT_onnx=ONNX)).kind == ".onnx"
    assert frontends.load(tmp_path / "b.task").inputs
    header = "#define EI_CLASSIFIER_TFLITE_LARGEST_ARENA_SIZE 4321\n"
    export = zipped(
        tmp_path / "ei.zip",
        model_DASH_parameters__model_metadata_DOT_h=header,
        **{"tflite-model__tflite_learn_3_DOT_cpp": source(name="tflite_learn_3")},
    )
    found = unwrap(export)
    assert (found.data, found.arena_bytes) == (MODEL, 4321)
    done = CliRunner().invoke(app, ["inspect", str(export)])
    assert re.search(r"arena of 4,321 bytes there: 3,[0-9]+ saved", done.stdout), done.stdout
    data = json.loads(CliRunner().invoke(app, ["inspect", str(export), "--json"]).stdout)
    assert data["inside"]["arena_bytes"] == 4321


def test_an_arena_in_the_source(tmp_path: Path) -> None:
    path = tmp_path / "main.cc"
    path.write_text("constexpr int kTensorArenaSize = 2000;\n" + source())
    assert unwrap(path).arena_bytes == 2000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.cc", b"int main() {}", "no array of bytes that is one"),
        ("a.cc", b"\xff\xfe", "no array of bytes that is one"),
        ("a.cc", source(b"1234TFL3" + bytes(8)).replace("0x31", "0x131").encode(), "no array of bytes"),
        (
            "a.h",
            (source() + source(name="other")).encode(),
            "the file holds 2 models: the array g_model of a.h, the array",
        ),
        ("a.zip", b"PK\x03\x04", "the archive cannot be read"),
        ("a.task", b"", "the archive cannot be read"),
    ],
)
def test_what_holds_no_model(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        frontends.load(path)


def test_archives_that_serve_no_purpose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = zipped(tmp_path / "eon.zip", **{"tflite-model__tflite_learn_5_compiled_DOT_cpp": "int x;"})
    with pytest.raises(UsageError, match="code of the EON compiler only") as caught:
        unwrap(compiled)
    assert "without the EON compiler" in caught.value.hint
    with pytest.raises(UsageError, match=r"the file holds 2 models: a\.tflite, b\.tflite"):
        unwrap(zipped(tmp_path / "two.zip", a_DOT_tflite=MODEL, b_DOT_tflite=MODEL))
    bomb = zipped(tmp_path / "bomb.zip", a_DOT_tflite=bytes(1 << 20))
    monkeypatch.setattr("crtgen.base.budget._memory", 1 << 19)
    with pytest.raises(
        UnsupportedError, match=r"a\.tflite makes 1,0[\d,]+ bytes in all; 524,288 may be taken"
    ):
        unwrap(bomb)


@pytest.mark.parametrize(
    "text",
    [
        b"/*" * 500_000,
        b"/*/" * 300_000,
        b"x[" * 500_000,
        b"x[x]" * 200_000 + b"={}" * 100_000,
        b"={1," * 250_000,
    ],
    ids=["comments", "slashes", "brackets", "declarations", "numbers"],
)
def test_a_megabyte_that_looks_like_c_takes_no_time(tmp_path: Path, text: bytes) -> None:
    """What is quadratic would take hours of the processor; what is linear a fraction of a second."""
    path = tmp_path / "a.c"
    path.write_bytes(text)
    start = time.process_time()
    with pytest.raises(UsageError, match="no array of bytes that is one"):
        unwrap(path)
    assert time.process_time() - start < 30


def test_millions_of_comments(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", a_DOT_c=b"/*" * 3_000_000)
    with pytest.raises(UnsupportedError, match="leaving out comments takes 1,500,000,000 operations"):
        unwrap(path)


def test_text_of_an_archive_stays_bytes(tmp_path: Path) -> None:
    """One character beyond Latin-1 makes four bytes of each one in Python's text."""
    path = zipped(tmp_path / "a.zip", a_DOT_c="\U0001f600".encode() + b" " * (32 << 20))
    tracemalloc.start()
    with pytest.raises(UsageError, match="no array"):
        unwrap(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * (32 << 20)


def test_names_in_an_archive_are_no_paths(tmp_path: Path) -> None:
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../../tmp/evil.tflite", MODEL)
    before = set(tmp_path.parent.rglob("*"))
    assert frontends.load(path).inputs
    assert set(tmp_path.parent.rglob("*")) == before


def test_damaged_archives_are_errors(tmp_path: Path) -> None:
    whole = zipped(tmp_path / "w.zip", a_DOT_tflite=MODEL, b_DOT_c=source()).read_bytes()
    path = tmp_path / "d.zip"
    for place in range(0, len(whole), 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        try:
            unwrap(path)
        except UsageError:
            continue
