"""``crtgen record``: reads the last runs that a device remembers."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console

from crtgen import api
from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.base.files import check_writable
from crtgen.cli.groups import Connecting, flattened
from crtgen.cli.output import Debug, Json, guarded, on_log
from crtgen.compiler.codegen.module import ModelInfo
from crtgen.firmware.project.manifest import Manifest, read_manifest
from crtgen.lab.measure.drift import read_window
from crtgen.lab.measure.field_log import read_field_log
from crtgen.lab.measure.recording import RecordedRun, read_memory, runs_of, write_recording, write_sds

__all__ = ["command"]


@flattened
def command(
    directory: Annotated[
        Path, typer.Argument(help="A project or a library made with --record.", show_default=False)
    ],
    connecting: Connecting,
    file: Annotated[
        Path | None, typer.Option(help="Read a log of crt_field_send, or a file of crt_record_dump.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model to use, if the image has several.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The cases, .npz.")] = Path("recorded.npz"),
    cbor: Annotated[Path | None, typer.Option(help="Write the counts of firmware made with --watch.")] = None,
    sds: Annotated[
        Path | None, typer.Option(help="Also write the runs into this folder, in Arm's SDS format.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Read what a device remembers of its last runs.

    Runs before a reset or a fault are kept, too. crtgen replay repeats them.
    """
    with guarded(as_json, debug) as out:
        if sds is not None:
            files.make_directory(sds)
        for path in filter(None, (output, cbor, sds / "records.sds" if sds else None)):
            check_writable(path)
        if file is not None:
            info, runs, counted = _logged(directory, model, file)
        else:
            with out.stage() as say:
                info, runs, counted = _asked(directory, model, connecting, say)
        if cbor is not None and counted is None:
            raise UsageError("the firmware does not count inputs", hint="generate it with --watch FILE")
        if not runs:
            hint = "let it run, then record again by the same --port; without one a new device is started"
            raise UsageError(f"{info.name} did not run yet: there is nothing to write", hint=hint)
        write_recording(output, info, runs)
        written = [output, *(write_sds(sds, info, runs) if sds else ())]
        unfinished = sum(not run.outputs for run in runs)
        window = read_window(counted) if counted else None
        if cbor is not None and counted is not None:
            files.write(cbor, counted)
            written.append(cbor)
        data = {
            "model": info.name,
            "runs": len(runs),
            "unfinished": unfinished,
            "files": [str(f) for f in written],
            "drift": asdict(window) if window else None,
        }

        def render(console: Console) -> None:
            if window is not None:
                console.print(f"{window.alarms} of {window.windows} windows of runs are beyond a limit")
                console.print(f"  {window.lasting} of the last 16 are unusual: seven are an alarm")
            console.print(f"{output}: {len(runs)} runs of {info.name}")
            if unfinished:
                console.print(f"  {unfinished} did not come to an end: the device stopped in them")

        out.result(data, render)


_Found: TypeAlias = tuple[ModelInfo, tuple[RecordedRun, ...], bytes | None]


def _asked(directory: Path, model: str | None, connecting: Connecting, say: api.Say) -> _Found:
    # What a device with a server remembers; without a port, one that starts now.
    project = api.open_project(directory)
    manifest = read_manifest(directory)
    if manifest.type == "library":
        hint = "read what it sent with --file LOG: docs/field.md"
        raise UsageError("a library has no server that --port could ask", where=str(directory), hint=hint)
    image = (project.built() if connecting.port else None) or project.build(say=say)
    _check_model(image.built.manifest, model)
    with image.run(counting=False, on_log=on_log, site=connecting.site()) as session:
        info = session.model(model)
        memory, box = session.recording(info.name)
        return info, read_memory(memory, info, box.runs, box.state_bytes), session.drift(info.name)


def _logged(directory: Path, model: str | None, file: Path) -> _Found:
    # What a device wrote to a log or a file.
    manifest = read_manifest(directory)
    _check_model(manifest, model)
    info = next(each for each in manifest.models if model in (None, each.name))
    log = read_field_log(file, info.name)
    memory = log.boxes[info.name]
    return info, read_memory(memory, info, runs_of(memory, info), info.state), log.counts.get(info.name)


def _check_model(manifest: Manifest, model: str | None) -> None:
    # Refuse a model that is not in the firmware, as one that was pushed into a slot.
    names = [info.name for info in manifest.models]
    if model is not None and model not in names:
        hint = f"the project has {', '.join(names)}; a model that was pushed into a slot has no black box"
        raise UsageError(f"there is no black box of {model}", hint=hint)
