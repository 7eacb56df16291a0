"""Files for Visual Studio Code: a build task, completion of names, and debugging with F5.

A board that QEMU simulates is debugged there: a task starts QEMU, which waits for GDB before the first
instruction. On this computer GDB starts the program itself. For a board with a probe, the probe's own
extension is used.
"""

import json
from collections.abc import Iterable
from typing import Any

from crtgen.firmware.project.firmware import FirmwareRequest

__all__ = ["vscode_files"]

_ELF = "${workspaceFolder}/build/firmware"
_BUILD, _QEMU = "build", "QEMU waits for gdb"
_ADDRESS = "localhost:1234"


def vscode_files(firmware: FirmwareRequest, include_dirs: Iterable[str]) -> dict[str, bytes]:
    found = {"tasks": _tasks(firmware), "c_cpp_properties": _names(firmware, include_dirs)}
    if firmware.type not in ("library", "slot") and (_qemu(firmware) or firmware.board.is_host):
        found["launch"] = _launch(firmware)
    return {
        f".vscode/{name}.json": f"{json.dumps(data, indent=2)}\n".encode() for name, data in found.items()
    }


def _qemu(firmware: FirmwareRequest) -> list[str]:
    # The words that start QEMU, which waits for gdb; none if it does not know the board.
    qemu = firmware.board.qemu
    if qemu is None or firmware.type in ("library", "slot"):
        return []
    image = ["-kernel", f"{_ELF}.elf", "-nographic", "-monitor", "none", "-serial", "stdio"]
    return [
        "qemu-system-arm",
        "-machine",
        qemu.machine,
        *qemu.args,
        *image,
        *_SEMIHOSTING,
        "-S",
        "-gdb",
        "tcp::1234",
    ]


_SEMIHOSTING = ("-semihosting-config", "enable=on,target=native")


def _tasks(firmware: FirmwareRequest) -> dict[str, Any]:
    build: dict[str, Any] = {
        "label": _BUILD,
        "type": "shell",
        "command": "cmake -S . -B build -G Ninja && cmake --build build",
        "group": {"kind": "build", "isDefault": True},
        "problemMatcher": "$gcc",
    }
    words = _qemu(firmware)
    tasks = [build]
    if words:
        tasks.append(
            {
                "label": _QEMU,
                "type": "shell",
                "command": f"echo {_QEMU} && {' '.join(words)}",
                "dependsOn": _BUILD,
                "isBackground": True,
                "problemMatcher": {
                    "pattern": {"regexp": "^$"},
                    "background": {"activeOnStart": True, "beginsPattern": "^$", "endsPattern": _QEMU},
                },
            }
        )
    return {"version": "2.0.0", "tasks": tasks}


def _launch(firmware: FirmwareRequest) -> dict[str, Any]:
    one: dict[str, Any] = {
        "name": f"Debug on {firmware.board.name}",
        "type": "cppdbg",
        "request": "launch",
        "cwd": "${workspaceFolder}",
        "MIMode": "gdb",
    }
    if firmware.board.is_host:
        one |= {"program": _ELF, "preLaunchTask": _BUILD}
    else:
        one |= {
            "program": f"{_ELF}.elf",
            "preLaunchTask": _QEMU,
            "miDebuggerPath": "gdb-multiarch",
            "miDebuggerServerAddress": _ADDRESS,
            "stopAtConnect": True,
        }
    return {"version": "0.2.0", "configurations": [one]}


def _names(firmware: FirmwareRequest, include_dirs: Iterable[str]) -> dict[str, Any]:
    core = firmware.board.core
    own: dict[str, Any] = {
        "name": firmware.board.name,
        "includePath": [f"${{workspaceFolder}}/{path}" for path in include_dirs],
        "cStandard": "c11",
        "configurationProvider": "ms-vscode.cmake-tools",
    }
    if not firmware.board.is_host:
        own |= {"compilerPath": "arm-none-eabi-gcc", "compilerArgs": list(core.gcc_flags)}
        own |= {"intelliSenseMode": "gcc-arm"}
    return {"version": 4, "configurations": [own]}
