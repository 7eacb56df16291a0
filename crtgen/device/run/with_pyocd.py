"""The host's end of RTT on stdin and stdout: ``python -m crtgen.device.run.with_pyocd --target T --address
A``.

Standard input goes to the chip's memory; data from the chip go to standard output.
"""

import os
import select
import sys
import time
from argparse import ArgumentParser
from typing import Any, Protocol

__all__ = ["RttChannels", "main", "pump"]

_CHUNK = 4096
_IDLE = 0.001
# Seconds in which firmware has to have started.
_STARTS = 5.0


class RttChannels(Protocol):
    up_channels: Any
    down_channels: Any


def pump(channels: RttChannels, source: int, sink: int) -> None:
    """Copy bytes both ways until the descriptor ``source`` ends."""
    up, down = channels.up_channels[0], channels.down_channels[0]
    waiting = b""
    while True:
        came = up.read()
        if came:
            os.write(sink, came)
        if not waiting and select.select([source], [], [], 0 if came else _IDLE)[0]:
            waiting = os.read(source, _CHUNK)
            if not waiting:
                return
        if waiting:
            waiting = waiting[down.write(waiting) :]


def main() -> int:
    """Return 0 once standard input has ended; 127 without pyOCD, 1 without a probe or if the chip has no
    RTT.
    """
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--probe")
    parser.add_argument("--address", required=True, type=lambda text: int(text, 0))
    arguments = parser.parse_args()
    try:
        from pyocd.core.exceptions import RTTError
        from pyocd.core.helpers import ConnectHelper
        from pyocd.debug.rtt import RTTControlBlock
    except ImportError:
        print("pyocd is not installed, or knows no RTT: pip install 'pyocd>=0.36'", file=sys.stderr)
        return 127
    session = ConnectHelper.session_with_chosen_probe(
        blocking=False,
        unique_id=arguments.probe,
        target_override=arguments.target,
        connect_mode="attach",
        auto_open=False,
    )
    if session is None:
        print("no probe", file=sys.stderr)
        return 1
    with session:
        block = RTTControlBlock.from_target(session.target, address=arguments.address)
        deadline = time.monotonic() + _STARTS
        while not block.up_channels:
            try:
                block.start()
            except RTTError as error:
                if time.monotonic() > deadline:
                    print(f"the chip has no RTT at {arguments.address:#x}: {error}", file=sys.stderr)
                    return 1
                time.sleep(_IDLE)
        pump(block, sys.stdin.fileno(), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
