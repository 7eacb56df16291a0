"""Power-cycles a board with the command of its hardware map."""

import shlex
import time
from pathlib import Path

from crtgen.base.child import run_to_end
from crtgen.base.errors import LinkError
from crtgen.device.local_boards.lock import board_lock
from crtgen.device.local_boards.unit import LocalBoard

__all__ = ["power_cycle"]

TIME_LIMIT = 60.0
# Seconds within which the board has its serial port again.
_PORT_IS_BACK = 15.0


def power_cycle(unit: LocalBoard) -> None:
    """Run the unit's ``reset`` command, without a shell, and wait for its serial port.

    Raises ``LinkError`` with the command's output if it fails or does not end, or if the port does not come
    back.
    """
    with board_lock(unit.key):
        status, output = run_to_end(shlex.split(unit.reset), time_limit=TIME_LIMIT)
    if status != 0:
        how = f"did not end within {TIME_LIMIT:g} s" if status is None else f"failed with {status}"
        raise LinkError(f"the command that resets the board {how}", where=unit.reset, log=output)
    deadline = time.monotonic() + _PORT_IS_BACK
    while unit.port.startswith("/") and not Path(unit.port).exists():
        if time.monotonic() > deadline:
            raise LinkError("the serial port did not come back after a reset", where=unit.port, log=output)
        time.sleep(0.1)
