"""Samples of a device become labelled files: of a log, of a line, with gaps; `eval` reads them."""

import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import crtgen
from crtgen.api import Model
from crtgen.base.errors import UsageError
from crtgen.cli.app import app
from crtgen.lab.measure.collected import Collector, check_label
from crtgen.lab.measure.field_log import FieldLine, field_lines
from crtgen.network.ir import Array
from tests.firmware.project.frameworks import run
from tests.support import ROOT, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"


def _line(offset: int, data: bytes, name: str = "digits") -> FieldLine:
    return FieldLine("take", name, offset + len(data), offset, data)


def _text(lines: list[FieldLine]) -> bytes:
    made = b""
    for line in lines:
        text = f"crt take {line.model} {line.total:08x} {line.offset:08x} {line.data.hex()}".encode()
        made += b"[1.5 s] " + text + f" {zlib.crc32(text):08x}\r\n".encode()
    return made


def _collector(streams: bool, length: int | None = None) -> Collector:
    (info,) = (module.info for module in crtgen.load(DIGITS).compile("host").modules)
    return Collector("digits", info.inputs[0], streams, length)


def _clips(collector: Collector, *lines: FieldLine) -> list[Array]:
    return [*collector.add(lines), *collector.rest()]


def test_streams_are_cut_and_have_no_gap() -> None:
    """A sample is a row of 8x8 bytes here; bytes that are missing begin a new clip."""
    row = bytes(range(64))
    lines = [_line(64 * i, row) for i in (0, 1, 2, 4, 5)]
    whole = _collector(True)
    assert [clip.shape for clip in _clips(whole, *lines)] == [(3, 8, 8, 1), (2, 8, 8, 1)]
    assert whole.gaps == 1
    cut = _collector(True, 2)
    assert [clip.shape for clip in _clips(cut, *lines)] == [(2, 8, 8, 1), (2, 8, 8, 1)]
    again = _collector(True)
    assert len(_clips(again, *lines[:2], *lines[:2])) == 2
    assert again.gaps == 0, "it started again"
    assert not _clips(_collector(True), _line(0, row[:40]), _line(0, row, "other"))
    end = (1 << 32) - 64
    assert len(_clips(_collector(True), _line(end, row), _line(0, row))[0]) == 2


def test_a_network_gets_whole_inputs() -> None:
    found = _clips(_collector(False), _line(0, bytes(64)), _line(64, bytes(64)), _line(128, bytes(32)))
    assert [clip.shape for clip in found] == [(1, 8, 8, 1)] * 2


@pytest.mark.parametrize("label", ["", "..", "a/b", ".git"])
def test_labels_are_names_of_folders(label: str) -> None:
    with pytest.raises(UsageError, match="cannot name a folder"):
        check_label(label)


_PROGRAM = """
#include <digits_field.h>
#include <stdio.h>
static const int8_t images[][64] = {DATA};
static void say(void *context, const char *text, uint32_t size)
{
    (void)context;
    printf("%.*s", (int)size, text);
}
int main(void)
{
    const struct crt_field_port port = {.write = say};
    uint32_t position = 0;
    for (uint32_t i = 0; i < sizeof images / sizeof images[0]; i++) {
        crt_field_capture(&port, "digits", &position, images[i], sizeof images[i]);
    }
    return 0;
}
"""


@pytest.mark.cc
def test_what_a_program_sends_is_what_eval_reads(tmp_path: Path) -> None:
    require_tool("make", "apt install make")
    model = crtgen.load(DIGITS)
    assert isinstance(model, Model)
    library = tmp_path / "lib"
    model.compile("host").generate("library", framework="make", record=2).extract(library)
    rng = np.random.default_rng(2)
    images = rng.integers(-128, 128, (12, 1, 8, 8, 1)).astype(np.int8)
    answers = [int(next(iter(model.graph.run([(image,)])))[0].argmax()) for image in images]
    label = max(set(answers), key=answers.count)
    rows = ",".join("{" + ",".join(map(str, image.ravel())) + "}" for image in images)
    (library / "example" / "main.c").write_text(_PROGRAM.replace("DATA", rows))
    run("make", "-j2", "example", where=library)
    (log := tmp_path / "log").write_text("boot\n" + run("build/example.elf", where=library))
    words = ["collect", str(library), "--label", str(label), "-o", str(tmp_path / "data")]
    done = CliRunner().invoke(app, [*words, "--file", str(log)])
    assert done.exit_code == 0, done.output
    assert "12 files of digits, the last one 0012.npy" in done.output
    (tmp_path / "names").write_text("\n".join(map(str, range(10))))
    rated = [
        "eval",
        str(DIGITS),
        str(tmp_path / "data"),
        "--labels",
        str(tmp_path / "names"),
        "--board",
        "host",
    ]
    done = CliRunner().invoke(app, rated)
    assert done.exit_code == 0, done.output
    assert f"{answers.count(label)} of 12 clips" in done.output
    with _device(tmp_path / "line", _text(list(field_lines(log.read_bytes())[0]))) as line:
        done = CliRunner().invoke(app, [*words, "--port", str(line), "--count", "3"])
        assert "3 files of digits, the last one 0015.npy" in done.output, done.output
    clip = np.load(tmp_path / "data" / str(label) / "0013.npy")
    np.testing.assert_array_equal(clip, images[0])
    for more, said in (
        ([], "name a device by --port, or a log by --file"),
        (["--file", str(DIGITS)], "no complete clip of digits arrived"),
        (["--file", str(log), "--model", "kws"], "the library has no model kws"),
    ):
        done = CliRunner().invoke(app, [*words, *more])
        assert done.exit_code == 2
        assert said in done.output


@contextmanager
def _device(line: Path, text: bytes) -> Iterator[Path]:
    """A line on which a device sends a text, in pieces."""
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(line))
        end.listen(1)

        def serve() -> None:
            client, _ = end.accept()
            with client:
                for at in range(0, len(text), 100):
                    client.sendall(text[at : at + 100])
                client.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield line
