"""``crtgen slots``: shows the slots of a running device."""

from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.console import Console

from crtgen.api.slot.transfer import reason_of, slot_names, slots_of
from crtgen.base import endpoints
from crtgen.base.errors import UsageError
from crtgen.boards import find_board
from crtgen.cli import choices, options
from crtgen.cli.output import Debug, Json, guarded
from crtgen.cli.push import connected
from crtgen.device.rpc.client import SlotPlace, SlotsState

__all__ = ["command"]


@dataclass(frozen=True, slots=True)
class _SlotRow:
    """A slot by name; ``version`` is None without a model, ``state`` is for people."""

    slot: str
    model: str
    version: int | None
    active: bool
    state: str


def command(
    port: Annotated[str, typer.Argument(help="The device's serial port or line.", show_default=False)],
    board: options.Board = "mps2_an386",
    baud: options.Baud = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Start the model that is on trial, and keep it.")
    ] = False,
    revert: Annotated[
        bool, typer.Option("--revert", help="Go back to the model before the one that runs.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Say what a device has in its slots, confirm it or go back.

    Models, versions, which one runs and whether it is on trial. --board knows the slots' names.
    """
    with guarded(as_json, debug) as out:
        if confirm and revert:
            raise UsageError("--confirm and --revert exclude each other", hint="remove one of them")
        found = choices.slotted(find_board(board))
        with out.stage(), connected(port, baud, board) as client:
            slots_of(client)
            if confirm:
                client.slot_call(endpoints.SLOT_START)
                client.slot_call(endpoints.SLOT_CONFIRM)
            if revert:
                client.slot_call(endpoints.SLOT_REVERT)
                client.slot_call(endpoints.SLOT_START)
            state = slots_of(client)
        rows = _rows(state, slot_names(found, state))
        data = {
            "active": next((row.slot for row in rows if row.active), None),
            "trial": state.trial,
            "tries": state.tries,
            "slots": [asdict(row) for row in rows],
        }

        def render(console: Console) -> None:
            width = max(len(row.model) for row in rows)
            for row in rows:
                version = "" if row.version is None else str(row.version)
                console.print(f"{row.slot:4} {row.model:{width}} {version:>4}  {row.state}".rstrip())

        out.result(data, render)


def _rows(state: SlotsState, names: tuple[str, ...]) -> list[_SlotRow]:
    return [
        _SlotRow(
            slot=name,
            model=str(place.model),
            version=None if place.status else place.version,
            active=state.active == number,
            state=_state(state, number, place),
        )
        for number, (name, place) in enumerate(zip(names, state.places, strict=True))
    ]


def _state(state: SlotsState, number: int, place: SlotPlace) -> str:
    if place.status:
        return reason_of(place.status)
    trial = f", on trial, {state.tries} starts left to confirm it" if state.trial and place.is_chosen else ""
    if state.active == number:
        return f"runs{trial}"
    if place.is_chosen:
        return f"runs from the next start on{trial}"
    if state.previous == number and state.active is not None:
        return "the previous one"
    return "usable"
