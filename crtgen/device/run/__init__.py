"""Runs firmware in QEMU, in FVPs, as host processes and on real boards, and connects to it."""

from crtgen.device.run.board import SerialDevice
from crtgen.device.run.device import Finished, RunningDevice
from crtgen.device.run.expect import Dut
from crtgen.device.run.fvp import find_fvp, start_fvp
from crtgen.device.run.host import run_on_host, start_host
from crtgen.device.run.printed import read_to_end
from crtgen.device.run.qemu import find_qemu, start_qemu
from crtgen.device.run.rp2040 import find_rp2040js
from crtgen.device.run.start import Device, Site, run_standalone, start_device

__all__ = [
    "Device",
    "Dut",
    "Finished",
    "RunningDevice",
    "SerialDevice",
    "Site",
    "find_fvp",
    "find_qemu",
    "find_rp2040js",
    "read_to_end",
    "run_on_host",
    "run_standalone",
    "start_device",
    "start_fvp",
    "start_host",
    "start_qemu",
]
