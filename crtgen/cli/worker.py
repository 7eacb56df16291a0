"""``crtgen worker``: offers the boards of this computer as workers of a sweep."""

from typing import Annotated

import typer

from crtgen.base.errors import UsageError
from crtgen.cli import options
from crtgen.cli.output import Debug, guarded, note
from crtgen.device.local_boards import LocalBoard, connected_units
from crtgen.lab.sweep.farm import is_clear, serve

__all__ = ["command"]


def command(
    scheduler: Annotated[str, typer.Argument(help="Address or file of Dask's scheduler.")],
    hardware_map: options.HardwareMap = None,
    workers: Annotated[int, typer.Option(min=0, help="Additional workers without a board.")] = 0,
    debug: Debug = False,
) -> None:
    """Lend the boards of this computer to sweeps of a Dask scheduler.

    Each board has a worker of its own, which does one job at a time, under the lock of the board. It ends
    with the scheduler.
    """
    with guarded(as_json=False, debug=debug):
        found = connected_units(hardware_map)
        units = [unit for unit in found if is_clear(unit)]
        for unit in found:
            note(f"{_name(unit)}: {_left_out(unit) or 'at work'}")
        if not units and not workers:
            hint = "name the boards in a hardware map, or bring workers without a board: --workers 1"
            raise UsageError("no connected board can be identified", hint=hint)
        serve(scheduler, units, workers)
        note("the scheduler has ended")


def _name(unit: LocalBoard) -> str:
    return f"{' or '.join(unit.boards) or str(unit.description) or unit.usb} at {unit.port or 'no port'}"


def _left_out(unit: LocalBoard) -> str:
    # Why a board does nothing; empty if it does.
    if len(unit.boards) > 1:
        return "left out, a hardware map has to say which of them it is"
    if not unit.boards:
        return "left out, nobody knows what it is"
    return "" if unit.port else "left out, a hardware map has to name its serial port"
