#!/usr/bin/env python3
"""Stands in for Arm's Corstone-300 FVP in tests: the FVP's options, but QEMU's mps3-an547 runs the image."""

import os
import shutil
import socket
import sys
from argparse import ArgumentParser
from contextlib import suppress

KNOWN = (
    "mps3_board.visualisation.disable-visualisation",
    *(f"mps3_board.telnetterminal{n}.start_telnet" for n in (0, 1, 2, 5)),
    "mps3_board.telnetterminal0.start_port",
    "mps3_board.telnetterminal0.mode",
    "mps3_board.uart0.out_file",
    "mps3_board.uart0.unbuffered_output",
)


def main() -> None:
    """Read the options as the FVP does, say where the serial port is, and become QEMU."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("-a", "--application", required=True)
    parser.add_argument("-C", "--parameter", action="append", default=[], metavar="INSTANCE.PARAMETER=VALUE")
    arguments = parser.parse_args()
    parameters = dict(entry.split("=", 1) for entry in arguments.parameter)
    unknown = sorted(set(parameters) - set(KNOWN))
    if unknown:
        sys.exit(f"Error: there is no parameter {unknown[0]}")
    print("This is not Arm's FVP: QEMU's mps3-an547 stands in for it.", flush=True)
    port = free_port(int(parameters.get("mps3_board.telnetterminal0.start_port", "5000")))
    raw = parameters.get("mps3_board.telnetterminal0.mode", "telnet") == "raw"
    print(f"telnetterminal0: Listening for serial connection on port {port}", flush=True)
    qemu = shutil.which("qemu-system-arm") or sys.exit("Error: there is no qemu-system-arm")
    line = f"{'tcp' if raw else 'telnet'}:127.0.0.1:{port},server=on,wait=off"
    options = [
        *("-machine", "mps3-an547", "-nographic", "-monitor", "none", "-kernel", arguments.application),
        *("-serial", "stdio" if parameters.get("mps3_board.uart0.out_file") == "-" else line),
    ]
    os.execv(qemu, [qemu, *options])


def free_port(first: int) -> int:
    """The first port from ``first`` on that nobody listens at, as the FVP chooses it."""
    for port in range(first, 65536):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    sys.exit("Error: no port is free")


if __name__ == "__main__":
    main()
