"""``crtgen slot``: builds the image of a model for a slot."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from crtgen.api.slot import Delta, interface_file, make_slot, sign
from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.boards import FLASH_DRIVERS, Board, find_board
from crtgen.cli import choices, options
from crtgen.cli.groups import Compiling, Files, flattened
from crtgen.cli.output import Debug, Json, guarded
from crtgen.compiler.codegen.slot_image import SlotImage

__all__ = ["command"]


@flattened
def command(
    model: Annotated[Path, typer.Argument(help="A model file, or an archive.", show_default=False)],
    compiling: Compiling,
    reading: Files,
    slot: Annotated[str, typer.Option(help="The slot of the board; the board's file names them.")] = "a",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The image; MODEL.slot.")] = None,
    version: Annotated[
        int, typer.Option(min=0, help="Version of the model; firmware may refuse old ones.")
    ] = 1,
    since: Annotated[
        Path | None, typer.Option(help="Write a delta to this older image, if only weights changed.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Sign it with this Ed25519 key (PEM).")] = None,
    header: Annotated[Path | None, typer.Option(help="Write the C header of its inputs and outputs.")] = None,
    toolchain: options.Toolchain = None,
    trust: options.Trust = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make a model's image for a slot.

    The image has code, weights and plan, linked for the slot. `crtgen push` writes it.
    """
    with guarded(as_json, debug) as out:
        path = output or Path(f"{model.stem}.slot")
        for file in filter(None, (path, header)):
            files.check_writable(file)
        old = SlotImage.read(files.read(since, "the older image"), str(since)) if since else None
        with out.stage() as say:
            loaded = reading.load(model, trust)
            compiled = compiling.compile([loaded], say, choices.slotted(find_board(compiling.board)))
            image = make_slot(compiled, slot, version=version, toolchain=toolchain, say=say)
        image = sign(image, key) if key else image
        made = _delta(old, image, compiled.board) if old else image
        files.write(path, made.data)
        if header is not None:
            files.write(header, interface_file(compiled, image).encode())
        data = _about(image) | {"file": str(path), "bytes": len(made.data)}

        def render(console: Console) -> None:
            console.print(
                f"{path}: {image.name} {image.version} for the slot {slot} of {compiled.board.name}"
            )
            share = f", a delta: {len(made.data) / len(image.data):.1%} of the image" if old else ""
            console.print(f"  {len(made.data):,} bytes{share}{', signed' if key else ''}")
            console.print(f"  works in {image.work_size:,} bytes, {image.stack:,} of the stack")
            for role, tensors in (("input", image.inputs), ("output", image.outputs)):
                for tensor in tensors:
                    console.print(f"  {role} {tensor}")
            console.print(f"next: crtgen push {path} --port ...")

        out.result(data, render)


def _delta(old: SlotImage, new: SlotImage, board: Board) -> Delta:
    if old.origin == new.origin:
        hint = "name another one with --slot: the old image is read while the new one is written"
        raise UsageError("both images are for the same slot", hint=hint)
    assert board.slots is not None
    return Delta.between(old, new, max(16, FLASH_DRIVERS[board.slots.driver].write_size))


def _about(image: SlotImage) -> dict[str, Any]:
    return {
        "model": image.name,
        "version": image.version,
        "origin": image.origin,
        "work_bytes": image.work_size,
        "stack_bytes": image.stack,
        "interface": image.interface.hex(),
        "inputs": [str(tensor) for tensor in image.inputs],
        "outputs": [str(tensor) for tensor in image.outputs],
    }
