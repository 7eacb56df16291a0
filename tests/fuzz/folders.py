"""Folders as somebody else made them, in which a person types a command without any option.

An input is the seed of a folder. Programs are not started: each that would be is looked at. A tool of this
computer with the arguments that crtgen chose is what the person asked for; anything that the folder chose is
a finding. What is opened, connected to or written is watched by the engine.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from typer.testing import CliRunner

from crtgen.child import Child
from crtgen.cli.app import app
from crtgen.errors import ToolMissingError
from tests.fuzz.engine import EscapedError, Target, allowing
from tests.support import ROOT

__all__ = ["folder_target", "make_folder"]

CANARY = "pwned"
"""Part of every path, program and address that a folder could want to be used."""

_COMMANDS = (
    ("inspect",),
    ("run",),
    ("run", "--board", "bench"),
    ("run", "digits.tflite", "--board", "boards/bench.toml"),
    ("run", "digits.tflite", "--board", "rpi_pico", "--simulate"),
    ("verify",),
    ("verify", "--board", "bench"),
    ("fit", "digits.tflite"),
    ("generate",),
    ("build",),
    ("flash",),
    ("monitor",),
    ("check",),
    ("check", "--update"),
    ("test",),
    ("bench", "digits.tflite"),
    ("tune",),
    ("report", "digits.tflite"),
    ("compile", "digits.tflite"),
    ("sweep",),
    ("boards", "--connected"),
    ("init",),
    ("trust",),
    ("run", "--hardware-map", "map.yml", "--board", "nrf52840dk"),
    ("flash", "firmware", "--hardware-map", "map.yml"),
)
_OUTSIDE = (f"../{CANARY}", f"/tmp/{CANARY}", f"link/{CANARY}", f"a/../../{CANARY}", "link")
_PROGRAMS = (f"./{CANARY}.sh", f"bin/{CANARY}", f"{CANARY}", f"/tmp/{CANARY}.sh", f"FVP_{CANARY}")
_LINES = (f"socket://{CANARY}:1", f"spy:///dev/null?file={CANARY}", f"tcp://{CANARY}:8786", f"/tmp/{CANARY}")
_OPTIONS: dict[str, Any] = {
    **dict.fromkeys(
        ("output", "junit", "dir", "store", "evidence", "report", "core-dump", "lock", "export"), _OUTSIDE
    ),
    **dict.fromkeys(("fvp-path", "cmsis-nn", "tune", "expect", "input"), _PROGRAMS),
    "hardware-map": ("map.yml",),
    **dict.fromkeys(("port", "scheduler", "gdb-server"), _LINES),
    "trust": (True, f"sha256:{'0' * 64}"),
    "codegen": ([f"cmsis-nn:path=./{CANARY}"], [f"{CANARY}"], ["cmsis-nn"]),
    "runner": ("west", "openocd", "pyocd", "gdb", CANARY),
    "serial": (f"0 ; exec touch {CANARY}", "--help"),
    "toolchain": ("gcc", "zig", CANARY),
    "simulate": (True,),
    "optimize": ("speed", CANARY),
}
_QEMU: tuple[list[str], ...] = (
    ["-netdev", f"tap,id=n0,ifname=x,script=./{CANARY},downscript=no"],
    ["-chardev", f"file,id=f,path=/tmp/{CANARY}"],
    ["-semihosting-config", "enable=on,target=native"],
    ["-global", f"x.y={CANARY}"],
    ["-cpu", f"cortex-m4,x={CANARY}"],
    ["-D", CANARY],
    ["-seed", "1"],
    [],
)


def folder_target() -> Target:
    """The fuzzer of folders."""
    return Target("folders", lambda: (b"3", b"11"), _another, _type_a_command)


def _another(random: Random, seeds: object) -> bytes:
    return random.randbytes(8).hex().encode()


def _type_a_command(data: bytes, folder: Path) -> bool:
    random = Random(data)
    place, mine = folder / "clone", folder / "mine"
    with allowing():
        shutil.rmtree(place, ignore_errors=True)
        mine.mkdir(exist_ok=True)
        make_folder(random, place)
    command = random.choice(_COMMANDS)
    with allowing(place, mine), _watched(place, mine), ExitStack() as stack:
        stack.callback(os.chdir, Path.cwd())
        os.chdir(place)
        result = CliRunner().invoke(app, [*command], catch_exceptions=False)
    assert "Traceback" not in result.output, result.output
    return result.exit_code == 0


def make_folder(random: Random, folder: Path) -> None:
    """A clone with the demonstration's model, settings, boards, maps, programs and links, some bad."""
    (folder / "boards").mkdir(parents=True)
    (folder / ".git").mkdir()
    shutil.copy(ROOT / "demo" / "digits.tflite", folder)
    (folder / "link").symlink_to(folder.parent.parent, target_is_directory=True)
    for program in (f"{CANARY}.sh", CANARY, f"bin/{CANARY}", f"node_modules/rp2040js/{CANARY}"):
        file = folder / program
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\ntouch /tmp/{CANARY}\n")
        file.chmod(0o755)
    (folder / "node_modules" / "rp2040js" / "package.json").write_text('{"main": "pwned"}')
    for module in ("ziglang", "crtgen", "multiprocessing"):
        (folder / module).mkdir()
        (folder / module / "__init__.py").write_text(f"open('/tmp/{CANARY}', 'w')\n")
    (folder / "crtgen.toml").write_text(_settings(random))
    (folder / "boards" / "bench.toml").write_text(_board(random))
    (folder / "map.yml").write_text(_map(random))
    (folder / "sweep.toml").write_text(_sweep(random))
    if random.random() < 0.3:
        firmware = folder / "firmware"
        if random.random() < 0.5:
            firmware.symlink_to(folder.parent / "elsewhere", target_is_directory=True)
        else:
            firmware.mkdir()
            (firmware / "CMakeLists.txt").write_text(f"execute_process(COMMAND touch /tmp/{CANARY})\n")
            (firmware / "project.json").write_text("{}")
    if random.random() < 0.5:
        (folder / "sweep.db").symlink_to(folder.parent / "victim.db")


def _settings(random: Random) -> str:
    chosen = random.sample(sorted(_OPTIONS), random.choice((0, 1, 1, 2)))
    lines = [f"{key} = {json.dumps(random.choice(_OPTIONS[key]))}" for key in chosen]
    boards = random.choice((["host"], ["bench"], ["mps2_an386"], ["boards/bench.toml"], ["rpi_pico"]))
    models = [f'[[model]]\nfile = "{random.choice(("digits.tflite",) * 9 + ("bin", "link"))}"']
    return "\n".join([*lines, f"boards = {json.dumps(boards)}", *models, ""])


def _board(random: Random) -> str:
    text = (ROOT / "boards" / "mps2_an386.toml").read_text()
    before, _, after = text.partition("[qemu]")
    kind = random.randrange(6)
    if kind == 0:
        return f'{before}[fvp]\nprogram = "{random.choice(_PROGRAMS)}"\n'
    machine = random.choice(("mps2-an386", f"mps2-an386,firmware={CANARY}", f"-D{CANARY}"))
    if kind == 1:
        return f'{before}[qemu]\nmachine = "{machine}"\nargs = {json.dumps(random.choice(_QEMU))}\n'
    if kind == 2:
        script = random.choice((f"{CANARY}.cfg", f"board/../{CANARY}.cfg", f"board/{CANARY}.cfg", "-c exec"))
        flash = f'[flash]\nrunners = ["openocd"]\nopenocd = ["{script}"]\n[serial]\n'
        return f"{before}{flash}"
    return f"{before}[qemu]{after}"


def _map(random: Random) -> str:
    entry: dict[str, Any] = {"connected": True, "platform": random.choice(("nrf52840dk", "bench"))}
    for key, values in (
        ("reset", (f"./{CANARY}.sh", f"touch /tmp/{CANARY}")),
        ("gdb_server", (f"{CANARY}:3333", f"| ./{CANARY}.sh")),
        ("serial", _LINES),
        ("id", (f"0 ; exec touch {CANARY}", f"--{CANARY}")),
        ("runner", ("gdb", "openocd", CANARY)),
    ):
        if random.random() < 0.4:
            entry[key] = random.choice(values)
    return json.dumps([entry])


def _sweep(random: Random) -> str:
    extra = random.choice(("", f'scheduler = "{CANARY}"', f'codegen = [["cmsis-nn:path=./{CANARY}"]]'))
    return f'models = ["digits.tflite"]\nboards = ["host"]\n{extra}\n'


@contextmanager
def _watched(folder: Path, mine: Path) -> Iterator[None]:
    """Programs are looked at instead of started. The person's own files are in ``mine``."""

    def start(self: Child, command: Any, **options: Any) -> None:
        words = [os.fspath(word) for word in command]
        # What crtgen writes of the model is below a temporary folder; the folder's own words are the canary.
        chosen = [word for word in words if CANARY in word]
        place = Path(words[0]).resolve()
        own = [word for word in words if "build" in word or "crtgen-work" in word]
        if chosen or place.is_relative_to(folder.resolve()):
            raise EscapedError(f"a program of the folder: {words}")
        if Path(words[0]).name == "cmake" and any(str(folder / "firmware") in word for word in own):
            raise EscapedError(f"a project of the folder: {words}")
        if words[0] == sys.executable and words[1] != "-P" and options.get("directory") is None:
            raise EscapedError(f"Python beside modules of the folder: {words}")
        raise ToolMissingError("no program is started here", hint="it is a test")

    def connect(*args: Any, **options: Any) -> None:
        raise EscapedError(f"a connection: {args}")

    patches = (
        mock.patch.object(Child, "__init__", start),
        mock.patch("crtgen.run.streams.SerialStream.__init__", connect),
        mock.patch("crtgen.run.streams.SocketStream.connect", connect),
        mock.patch("crtgen.sweep.farm.connected", connect),
        mock.patch("crtgen.sweep.run.local_cluster", _no_cluster),
        mock.patch("crtgen.cli.report.render_page", return_value="a page"),  # charts want much memory
        mock.patch("tempfile.tempdir", str(mine)),
        mock.patch.dict(os.environ, {"XDG_DATA_HOME": str(mine), "XDG_RUNTIME_DIR": str(mine)}),
    )
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


def _no_cluster(*args: Any, **options: Any) -> None:
    raise ToolMissingError("no worker is started here", hint="it is a test")
