"""``crtgen push``: writes a model into a slot of a running device."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen.api.slot import Delta, push
from crtgen.api.slot.delta import DELTA_MAGIC
from crtgen.api.slot.transfer import slot_names, slots_of
from crtgen.base import endpoints, files
from crtgen.base.errors import UsageError
from crtgen.boards import find_board
from crtgen.cli import choices, options
from crtgen.cli.output import Debug, Json, guarded, on_log
from crtgen.compiler.codegen.slot_image import SlotImage
from crtgen.device.rpc.client import SERIAL, Client
from crtgen.device.run.board import connect_board

__all__ = ["command", "connected"]


def command(
    image: Annotated[Path, typer.Argument(help="An image of `crtgen slot`.", show_default=False)],
    port: options.Port = None,
    baud: options.Baud = None,
    board: options.Board = "mps2_an386",
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Start it and keep it, without a trial.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write an image for a slot to a running device.

    The device checks it. The model runs from the next start on; in RAM, at once.
    """
    with guarded(as_json, debug) as out:
        if port is None:
            hint = "crtgen boards --connected lists what is there"
            raise UsageError("no device is named: use --port", hint=hint)
        found = _read(image)
        with out.stage() as say, connected(port, baud, board) as client:
            done = push(client, found, say=say)
            if confirm and not done.active:
                client.slot_call(endpoints.SLOT_START)
                client.slot_call(endpoints.SLOT_CONFIRM)
            state = slots_of(client)
            active = state.active == done.slot
            name = slot_names(choices.slotted(find_board(board)), state)[done.slot]
        data = {
            "slot": done.slot,
            "name": name,
            "sent_bytes": done.sent,
            "seconds": done.seconds,
            "active": active,
        }

        def render(console: Console) -> None:
            console.print(f"slot {name}: {done.sent:,} bytes sent in {done.seconds:.1f} s")
            how = "its model runs" if active else "its model runs from the next start on, on trial"
            console.print(how)

        out.result(data, render)


def _read(file: Path) -> SlotImage | Delta:
    data = files.read(file, "the image")
    return (Delta if data.startswith(DELTA_MAGIC) else SlotImage).read(data, str(file))


@contextmanager
def connected(port: str, baud: int | None, board: str) -> Iterator[Client]:
    with (
        connect_board(find_board(board), port, baud) as device,
        Client(device.stream, timeouts=SERIAL, on_log=on_log) as client,
    ):
        yield client
