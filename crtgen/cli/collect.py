"""``crtgen collect``: writes samples of a running device into labelled files."""

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen.base import files
from crtgen.base.errors import LinkTimeoutError, UsageError
from crtgen.boards import board_of
from crtgen.cli import options
from crtgen.cli.output import Debug, Json, guarded
from crtgen.compiler.codegen.module import ModelInfo
from crtgen.device.run.board import connect_board
from crtgen.firmware.project.manifest import Manifest, read_manifest
from crtgen.lab.measure.collected import Collector, check_label, write_clip
from crtgen.lab.measure.field_log import FieldLine, field_lines

__all__ = ["command"]

_TURN = 0.2  # seconds without a byte after which the time is looked at
_DAY = 86_400.0


def command(
    library: Annotated[
        Path, typer.Argument(help="The generated library in the firmware.", show_default=False)
    ],
    label: Annotated[str, typer.Option(help="What the samples are: the name of their folder.")],
    port: options.Port = None,
    baud: options.Baud = None,
    file: Annotated[Path | None, typer.Option(help="Read a log instead of a device.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of all labels.")] = Path("data"),
    length: Annotated[
        int | None, typer.Option(min=1, help="Samples of a file; default: all that follow each other.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after this many files.")] = None,
    seconds: Annotated[float | None, typer.Option(help="End after this many seconds.")] = None,
    model: Annotated[str | None, typer.Option(help="The model to use, if the library has several.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write samples of a running device into labelled files.

    Its firmware calls crt_field_capture. crtgen eval and your training can read the files. Ctrl-C ends it.
    """
    with guarded(as_json, debug) as out:
        check_label(label)
        if (port is None) == (file is None):
            raise UsageError(
                "name a device by --port, or a log by --file", hint="crtgen boards --connected lists ports"
            )
        manifest = read_manifest(library)
        info = _model(manifest, model)
        streams = any(path.endswith(f"{info.name}_pipeline.h") for path in manifest.files)
        collector = Collector(info.name, info.inputs[0], streams, length)
        written = []
        with out.stage() as say:
            lines = _logged(file) if file else _received(manifest.board, str(port), baud, seconds or _DAY)
            clips = (clip for some in lines for clip in collector.add(some))
            try:
                for clip in islice(clips, count):
                    written.append(write_clip(output / label, clip))
                    say(f"{written[-1]}")
            except KeyboardInterrupt:
                pass
            if count is None or len(written) < count:
                written += [write_clip(output / label, clip) for clip in collector.rest()]
        if not written:
            hint = "build the firmware with crt_field_capture: docs/field.md"
            raise UsageError(f"no complete clip of {info.name} arrived", where=str(file or port), hint=hint)
        data = {"model": info.name, "label": label, "files": list(map(str, written)), "gaps": collector.gaps}

        def render(console: Console) -> None:
            console.print(
                f"{output / label}: {len(written)} files of {info.name}, the last one {written[-1].name}"
            )
            if collector.gaps:
                console.print(f"  bytes were lost {collector.gaps} times: a new file began there")

        out.result(data, render)


def _model(manifest: Manifest, name: str | None) -> ModelInfo:
    for info in manifest.models:
        if name in (None, info.name):
            return info
    known = ", ".join(info.name for info in manifest.models)
    raise UsageError(f"the library has no model {name}", hint=f"it has {known}")


def _logged(file: Path) -> Iterator[list[FieldLine]]:
    yield list(field_lines(files.read(file, "the log"))[0])


def _received(board: str, port: str, baud: int | None, seconds: float) -> Iterator[list[FieldLine]]:
    # Whole lines, as they come.
    end, held = time.monotonic() + seconds, b""
    with connect_board(board_of(board), port, baud) as device:
        while time.monotonic() < end:
            try:
                held += device.stream.read(_TURN)
            except LinkTimeoutError:
                continue
            whole, newline, held = held.rpartition(b"\n")
            yield list(field_lines(whole + newline)[0])
