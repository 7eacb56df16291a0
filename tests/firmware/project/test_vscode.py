"""A project's files for Visual Studio Code: their commands are run as the editor runs them."""

import json
import shlex
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from crtgen import api
from tests.support import ROOT, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"


def settings(folder: Path, name: str) -> Any:
    return json.loads((folder / ".vscode" / f"{name}.json").read_text())


@pytest.mark.qemu
def test_f5_builds_starts_qemu_and_stops_in_main(tmp_path: Path) -> None:
    require_tool("qemu-system-arm")
    gdb = require_tool("gdb-multiarch")
    api.load(DIGITS).compile("mps2_an386").generate("standalone").extract(tmp_path)
    build, start = settings(tmp_path, "tasks")["tasks"]
    (launch,) = settings(tmp_path, "launch")["configurations"]
    assert (launch["preLaunchTask"], start["dependsOn"]) == (start["label"], build["label"])
    assert (launch["miDebuggerPath"], launch["miDebuggerServerAddress"]) == (
        "gdb-multiarch",
        "localhost:1234",
    )
    subprocess.run(build["command"], shell=True, cwd=tmp_path, check=True, timeout=240, capture_output=True)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    said, _, command = start["command"].partition(" && ")
    assert said == f"echo {start['problemMatcher']['background']['endsPattern']}"
    command = command.replace("${workspaceFolder}", str(tmp_path)).replace("1234", str(port))
    with subprocess.Popen(shlex.split(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as qemu:
        try:
            orders = [
                "set tcp connect-timeout 60",
                f"target remote localhost:{port}",
                "break main",
                "continue",
            ]
            words = [gdb, "--batch", *(w for order in (*orders, "bt") for w in ("-ex", order))]
            program = launch["program"].replace("${workspaceFolder}", str(tmp_path))
            done = subprocess.run([*words, program], capture_output=True, text=True, timeout=120, check=False)
        finally:
            qemu.kill()
    assert "#0  main () at" in done.stdout, done.stdout + done.stderr


def test_paths_and_flags_are_those_of_the_build(tmp_path: Path) -> None:
    api.load(DIGITS).compile("nucleo_l4r5zi").generate("library").extract(tmp_path)
    (names,) = settings(tmp_path, "c_cpp_properties")["configurations"]
    assert "-mcpu=cortex-m4" in names["compilerArgs"]
    assert all(
        (tmp_path / path.removeprefix("${workspaceFolder}/")).is_dir() for path in names["includePath"]
    )
    assert not (tmp_path / ".vscode" / "launch.json").exists()
    (build,) = settings(tmp_path, "tasks")["tasks"]
    assert build["group"] == {"kind": "build", "isDefault": True}
