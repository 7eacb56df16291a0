"""``crtgen doctor``: lists what is installed, and how to install the rest."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from crtgen.base.errors import ToolMissingError
from crtgen.boards import all_boards, installed_qemu
from crtgen.cli.output import Debug, Json, guarded, table
from crtgen.device.flash import INSTALL
from crtgen.device.run import find_qemu, find_rp2040js
from crtgen.firmware.builder import Toolchain, detect_toolchains, find_program, find_workspace

__all__ = ["ToolCheck", "command"]


@dataclass(frozen=True, slots=True)
class ToolCheck:
    """A tool: its purpose, its path or version (empty if missing), and how to install it."""

    name: str
    purpose: str
    found: str
    install: str
    needed: bool = False


_EXTRAS = {
    "ortools": ("crtgen tune", "pip install 'crtgen[tune]'"),
    "llvmlite": ("--target llvm", "pip install 'crtgen[llvm]'"),
    "west": ("--platform zephyr", "pip install 'crtgen[zephyr]'"),
    "distributed": ("sweep, worker", "pip install 'crtgen[sweep]'"),
    "pyocd": ("flash --runner pyocd", "pip install 'crtgen[pyocd]'"),
    "onnxruntime": ("quantize", "pip install 'crtgen[quantize]'"),
    "pillow": ("run --input with pictures", "pip install 'crtgen[media]'"),
    "soundfile": ("run --input with sound", "pip install 'crtgen[media]'"),
    "vl-convert-python": ("report, view", "pip install 'crtgen[report]'"),
    "cyclonedx-python-lib": ("report --evidence", "pip install 'crtgen[report]'"),
}


def command(as_json: Json = False, debug: Debug = False) -> None:
    """Check this machine: compilers, QEMU, build tools."""
    with guarded(as_json, debug) as out:
        checks = [*_compilers(), *_programs(), _rp2040js(), _zephyr(), *_packages(), *_runners()]
        cross = any(c.found for c in checks if c.purpose == "builds for Cortex-M")
        ready = cross and all(c.found for c in checks if c.needed)
        data = {"ready": ready, "checks": [asdict(c) for c in checks]}

        def render(console: Console) -> None:
            rows = table("tool", "", "for", "")
            for check in checks:
                rows.add_row(check.name, _mark(check), check.purpose, check.found or check.install)
            console.print(rows)
            console.print(
                "ready" if ready else "not ready: install what is missing, and a compiler for Cortex-M"
            )

        out.result(data, render)
        if not ready:
            raise typer.Exit(1)


def _mark(check: ToolCheck) -> Text:
    if check.found:
        return Text("ok", "green")
    return Text("missing", "red") if check.needed else Text("optional", "dim")


def _compilers() -> Iterator[ToolCheck]:
    purpose = {"cc": "builds for this computer"}
    for name, found in detect_toolchains().items():
        use = purpose.get(name, "builds for Cortex-M")
        if isinstance(found, Toolchain):
            yield ToolCheck(name, use, found.version, "")
        else:
            yield ToolCheck(name, use, "", found.hint)


def _programs() -> Iterator[ToolCheck]:
    for name in ("cmake", "ninja"):
        yield _program(name, "builds", partial(find_program, name, f"pip install {name}"))
    check = _program("qemu-system-arm", "simulates boards", find_qemu)
    later = sorted(
        f"{b.name} from {b.later_qemu.release} on" for b in all_boards() if b.later_qemu is not None
    )
    if check.found and later:
        release = ".".join(map(str, installed_qemu()))
        check = replace(check, found=f"{check.found} ({release}; {', '.join(later)})")
    yield check


def _rp2040js() -> ToolCheck:
    try:
        _, folder = find_rp2040js()
    except ToolMissingError as error:
        return ToolCheck("rp2040js", "simulates the Pico", "", error.hint)
    return ToolCheck("rp2040js", "simulates the Pico", str(folder), "")


def _program(name: str, purpose: str, find: Callable[[], Path]) -> ToolCheck:
    try:
        return ToolCheck(name, purpose, str(find()), "", needed=True)
    except ToolMissingError as error:
        return ToolCheck(name, purpose, "", error.hint, needed=True)


def _zephyr() -> ToolCheck:
    # A workspace is of use only with west.
    try:
        release = find_workspace().release
        find_program("west", _EXTRAS["west"][1])
    except ToolMissingError as error:
        return ToolCheck("Zephyr", "--platform zephyr", "", error.hint)
    return ToolCheck("Zephyr", "--platform zephyr", release, "")


def _packages() -> Iterator[ToolCheck]:
    for name, (purpose, install) in _EXTRAS.items():
        try:
            yield ToolCheck(name, purpose, version(name), "")
        except PackageNotFoundError:
            yield ToolCheck(name, purpose, "", install)


def _runners() -> Iterator[ToolCheck]:
    # Programs that write images to boards or debug them.
    for name, install in INSTALL.items():
        if name not in _EXTRAS:
            yield ToolCheck(name, "flash, real boards", shutil.which(name) or "", install)
