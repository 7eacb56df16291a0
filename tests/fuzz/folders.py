"""Folders as somebody else made them, in which a person types a command without any option.

Each clone is made of a seed, with settings, boards, maps, programs, leftovers and links, some bad. Its
commands run in one process, ``python -m tests.fuzz.folders BASE SEED COUNT``, which the kernel watches
(``tests.fuzz.kernel``): Python's own audit hook sees nothing of what SQLite removes or a library starts.
crtgen's own programs are not started: each that would be is looked at. A tool of this computer with the
arguments that crtgen chose is what the person asked for; anything that the folder chose is a finding.
"""

import json
import os
import shutil
import struct
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import typer
from typer.testing import CliRunner

from crtgen import api
from crtgen.base import trust
from crtgen.base.child import Child
from crtgen.base.errors import ToolMissingError, UsageError
from crtgen.boards import installed_qemu
from crtgen.cli.app import app
from crtgen.lab.measure.quantization import onnx_runtime
from crtgen.lab.sweep.store import JobStore
from tests.fuzz.engine import EscapedError, Outcome
from tests.fuzz.kernel import escapes, traced
from tests.support import ROOT

__all__ = ["COMMANDS", "fuzz_folders"]

CANARY = "pwned"
"""Part of every path, program and address that a folder could want to be used."""

COMMANDS = (
    ("inspect",),
    ("run",),
    ("run", "--board", "bench"),
    ("run", "digits.tflite", "--board", "boards/bench.toml"),
    ("run", "digits.tflite", "--board", "rpi_pico", "--simulate"),
    ("verify",),
    ("verify", "--board", "bench"),
    ("prove",),
    ("eval", "digits.tflite", "digits.npz"),
    ("eval", "digits.tflite", "clips", "--board", "host"),
    ("fit", "digits.tflite"),
    ("generate",),
    ("generate", "--force"),
    ("generate", "digits.tflite", "firmware"),
    ("build",),
    ("flash",),
    ("monitor",),
    ("record",),
    ("collect", "firmware", "--label", "yes", "--file", "recorded.npz"),
    ("replay", "recorded.npz", "digits.tflite"),
    ("check",),
    ("check", "--update"),
    ("test",),
    ("bench", "digits.tflite"),
    ("tune",),
    ("report", "digits.tflite"),
    ("view", "digits.tflite", "--no-browser"),
    ("quantize", "digits.tflite", "--calibrate", "clips", "-o", "digits_int8.onnx"),
    ("compile", "digits.tflite"),
    ("slot",),
    ("push", "digits.slot"),
    ("slots",),
    ("migrate", "digits.tar"),
    ("sweep",),
    ("worker",),
    ("boards", "--connected"),
    ("boards", "--chip", "DEV1", "--pack", "a.pack"),
    ("doctor",),
    ("selftest",),
    ("init",),
    ("trust",),
    ("trust", "sweep.db"),
    ("trust", "firmware"),
    ("run", "--hardware-map", "map.yml", "--board", "nrf52840dk"),
    ("flash", "firmware", "--hardware-map", "map.yml"),
)
_STATE = {"generate", "build", "firmware", "sweep", "tune", "sweep.db"}
"""Words of commands that take what was there."""

_OUTSIDE = (
    ".git/config",
    "hooks/post-checkout",
    f"../{CANARY}",
    f"/tmp/{CANARY}",
    f"link/{CANARY}",
    f"a/../../{CANARY}",
    "link",
)
_PROGRAMS = (f"./{CANARY}.sh", f"bin/{CANARY}", f"{CANARY}", f"/tmp/{CANARY}.sh", f"FVP_{CANARY}")
_LINES = (f"socket://{CANARY}:1", f"spy:///dev/null?file={CANARY}", f"tcp://{CANARY}:8786", f"/tmp/{CANARY}")
_OPTIONS: dict[str, Any] = {
    **dict.fromkeys(
        ("output", "junit", "dir", "store", "evidence", "report", "core-dump", "lock", "export"), _OUTSIDE
    ),
    **dict.fromkeys(("fvp-path", "cmsis-nn", "tune", "expect"), _PROGRAMS),
    "input": ("photo.png", f"./{CANARY}.sh"),
    "hardware-map": ("map.yml",),
    "key": ("key.pem", "link/victim/key"),
    **dict.fromkeys(
        ("data", "power", "baseline", "drift", "watch", "calibrate"), ("photo.png", "clips", "link")
    ),
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


def fuzz_folders(*, seed: int, inputs: int = 0, seconds: float = 0.0) -> Outcome:
    """Type commands in clones, so many or for so long: every command in turn, a new clone for each."""
    outcome = Outcome()
    end = time.monotonic() + seconds
    while not outcome.inputs or (not inputs and time.monotonic() < end):
        with TemporaryDirectory(prefix="fuzz-") as base:
            _round(Path(base).resolve(), seed, outcome, inputs or len(COMMANDS))
        seed += 1
    return outcome


def _round(base: Path, seed: int, outcome: Outcome, count: int) -> None:
    mine = base / "mine"
    mine.mkdir()
    homes = {
        name: str(mine) for name in ("HOME", "TMPDIR", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME")
    }
    command = [sys.executable, "-m", "tests.fuzz.folders", str(base), str(seed), str(count)]
    log = traced(command, base / "log", {**os.environ, **homes, "PYTHONDONTWRITEBYTECODE": "1"}, ROOT)
    for line in (base / "said.jsonl").read_text().splitlines():
        number, accepted, wrong = json.loads(line)
        outcome.inputs += 1
        outcome.accepted += accepted
        if wrong:
            outcome.found.setdefault(wrong.splitlines()[-1], (f"{seed} {number}".encode(), wrong))
    for place, escape in escapes(log, base / "clones", mine):
        number = Path(place).name.removeprefix("clone-")
        said = f"{escape}, in {place}: crtgen {' '.join(COMMANDS[int(number) % len(COMMANDS)])}"
        outcome.found.setdefault(escape, (f"{seed} {number}".encode(), said))
    for path, content in _VICTIMS.items():
        file = base / "victim" / path
        if not file.exists() or file.read_text() != content:
            outcome.found.setdefault(path, (str(seed).encode(), f"the person's {path} was changed"))


_VICTIMS = {
    "key": "a key of the person",
    "CMakeCache.txt": "another build",
    "CMakeFiles/a": "of another build",
}


def _type_commands(base: Path, seed: str, count: int) -> None:
    """Within the process that is watched: everything that is not a command is before the first ``chdir``."""
    clones = base / "clones"
    clones.mkdir()
    for path, content in _VICTIMS.items():
        (base / "victim" / path).parent.mkdir(parents=True, exist_ok=True)
        (base / "victim" / path).write_text(content)
    _warm_up()
    leftovers = Leftovers(base)
    for number in range(count):
        command = COMMANDS[number % len(COMMANDS)]
        make_folder(Random(f"{seed} {number}"), clones / f"clone-{number}", leftovers, command)
    with (base / "said.jsonl").open("w") as said:
        for number in range(count):
            place = clones / f"clone-{number}"
            os.chdir(place)
            accepted, wrong = _typed(COMMANDS[number % len(COMMANDS)], place, base / "mine")
            said.write(json.dumps((number, accepted, wrong)) + "\n")
            said.flush()
    os.chdir(clones)


def _typed(command: tuple[str, ...], place: Path, mine: Path) -> tuple[bool, str]:
    try:
        with _watched(place, mine):
            result = CliRunner().invoke(app, [*command], catch_exceptions=False)
        assert "Traceback" not in result.output, result.output
    except (Exception, EscapedError):
        return False, f"crtgen {' '.join(command)}\n{traceback.format_exc()}"
    return result.exit_code == 0, ""


def _warm_up() -> None:
    """Load what looks for its libraries by the linker when it is loaded."""
    for module in ("soundfile", "PIL.Image", "pyjls", "distributed", "numpy"):
        with suppress(ImportError):
            import_module(module)
    with suppress(UsageError):
        onnx_runtime()
    installed_qemu()


class Leftovers:
    """State that somebody else's crtgen made, once for all clones."""

    def __init__(self, base: Path) -> None:
        self.victim = base / "victim"
        self.store, self.project = base / "theirs.db", base / "theirs"
        with mock.patch.dict(os.environ, {"XDG_DATA_HOME": str(base / "somebody")}):
            with JobStore(self.store) as store:
                store.begin("x", [])
            compiled = api.load(ROOT / "demo" / "digits.tflite").compile("mps2_an386")
            compiled.generate("server").extract(self.project)

    def journal(self) -> bytes:
        """A hot journal, for which SQLite removes the file that it names."""
        magic, name = bytes.fromhex("d9d505f920a163d7"), os.fsencode(self.victim / "key")
        pages = self.store.stat().st_size // 4096
        head = (magic + struct.pack(">5I", 0, 1234, pages, 512, 4096)).ljust(512, b"\0")
        check = sum(struct.unpack(f"{len(name)}b", name)) & 0xFFFFFFFF
        page = 0x40000000 // 4096 + 1
        return head + struct.pack(">I", page) + name + struct.pack(">II", len(name), check) + magic


def make_folder(random: Random, folder: Path, leftovers: Leftovers, command: tuple[str, ...]) -> None:
    """A clone with the demonstration's model, settings, boards, maps, programs and links, some bad.

    State that a command takes is there for it. Half of the clones have settings that nobody has to allow, so
    that commands go on to the rest; others ask for something, mostly by an option of the command.
    """
    has_state = bool(_STATE & {*command})
    is_quiet = random.random() < (0.9 if has_state else 0.5)
    (folder / "boards").mkdir(parents=True)
    (folder / ".git" / "hooks").mkdir(parents=True)
    shutil.copy(ROOT / "demo" / "digits.tflite", folder)
    (folder / "link").symlink_to(folder.parent.parent, target_is_directory=True)
    (folder / "hooks").symlink_to(".git/hooks", target_is_directory=True)
    for program in (f"{CANARY}.sh", CANARY, f"bin/{CANARY}", f"node_modules/rp2040js/{CANARY}"):
        file = folder / program
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\ntouch /tmp/{CANARY}\n")
        file.chmod(0o755)
    (folder / "node_modules" / "rp2040js" / "package.json").write_text('{"main": "pwned"}')
    for module in ("ziglang", "crtgen", "multiprocessing"):
        (folder / module).mkdir()
        (folder / module / "__init__.py").write_text(f"open('/tmp/{CANARY}', 'w')\n")
    (folder / "crtgen.toml").write_text(_settings(random, command[0], is_quiet))
    (folder / "boards" / "bench.toml").write_text(_board(random, is_quiet))
    (folder / "map.yml").write_text(_map(random))
    (folder / "sweep.toml").write_text(_sweep(random, is_quiet))
    _data(folder)
    if random.random() < 0.6 or has_state:
        _project(random, folder / "firmware", leftovers)
    if random.random() < 0.6 or has_state:
        _store(random, folder, leftovers, has_state)
    for name in random.sample(_WRITTEN_HERE, random.choice((0, 0, 2, len(_WRITTEN_HERE)))):
        if not (folder / name).exists():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).symlink_to(leftovers.victim / random.choice(("key", "new", ".")))


_WRITTEN_HERE = (
    *("crtgen.lock.json", "report.html", "recorded.npz", "digits.slot", "digits.tar", "digits.npz"),
    *(
        "crtgen.tune.json",
        "counterexample.npz",
        "core.elf",
        "digits.h",
        "digits_int8.onnx",
        "evidence/data",
    ),
    *(".crtgen.toml.crtgen-new", ".crtgen.lock.json.crtgen-new", ".report.html.crtgen-new", ".github"),
)
"""Names that commands write to without being told."""


def _data(folder: Path) -> None:
    """Files beside the model, that are not what they are called."""
    postscript = f"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n(%pipe%touch /tmp/{CANARY}) (w) file\n"
    for name in ("photo.png", "clips/0/a.png", "clips/0/b.wav"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(postscript)
    (folder / "a.pack").write_text("<package/>")
    (folder / "key.pem").write_text("no key")


def _project(random: Random, firmware: Path, leftovers: Leftovers) -> None:
    """Somebody's project, with what CMake, Ninja and Zephyr would take from around it."""
    kind = random.randrange(5)
    if kind == 0:
        firmware.symlink_to(leftovers.victim, target_is_directory=True)
        return
    if kind == 1:
        firmware.mkdir()
        (firmware / "project.json").write_text("{}")
    else:
        shutil.copytree(leftovers.project, firmware)
    (firmware / "CMakeLists.txt").write_text(f"execute_process(COMMAND touch /tmp/{CANARY})\n")
    (firmware / "Kconfig").write_text(f"X := $(shell,touch /tmp/{CANARY})\n")
    if kind == 2:
        (firmware / "build").symlink_to(leftovers.victim, target_is_directory=True)
        return
    (firmware / "build").mkdir()
    (firmware / "build" / "build.ninja").write_text(f"rule x\n command = touch /tmp/{CANARY}\nbuild all: x\n")
    (firmware / "build" / "CMakeFiles").symlink_to(leftovers.victim / "CMakeFiles")
    cache = f"CMAKE_HOME_DIRECTORY:INTERNAL={firmware}\nCMAKE_PROJECT_INCLUDE:FILEPATH=/tmp/{CANARY}.cmake\n"
    (firmware / "build" / "CMakeCache.txt").write_text(cache)


def _store(random: Random, folder: Path, leftovers: Leftovers, is_taken: bool) -> None:
    """Somebody's store, with a journal; or links in its place, or where SQLite writes beside it."""
    store = folder / "sweep.db"
    if random.random() < 0.8 or is_taken:
        shutil.copy(leftovers.store, store)
        (folder / "sweep.db-journal").write_bytes(leftovers.journal())
    else:
        end = random.choice(("", "-journal", "-wal", "-shm"))
        (folder / f"sweep.db{end}").symlink_to(leftovers.victim / "key")
    if random.random() < 0.5:
        trust.claim(store)  # the person's own, and a pull brought the rest


def _settings(random: Random, command: str, is_quiet: bool) -> str:
    if is_quiet:
        return 'boards = ["mps2_an386"]\n[[model]]\nfile = "digits.tflite"\n'
    own = _options_of(command) & _OPTIONS.keys()
    chosen = random.sample(sorted(own if own and random.random() < 0.8 else _OPTIONS), 1)
    lines = [f"{key} = {json.dumps(random.choice(_OPTIONS[key]))}" for key in chosen]
    boards = random.choice((["host"], ["bench"], ["mps2_an386"], ["boards/bench.toml"], ["rpi_pico"]))
    models = [f'[[model]]\nfile = "{random.choice(("digits.tflite",) * 9 + ("bin", "link"))}"']
    return "\n".join([*lines, f"boards = {json.dumps(boards)}", *models, ""])


def _options_of(command: str) -> set[str]:
    group: Any = typer.main.get_command(app)
    names = (option for each in group.commands[command].params for option in each.opts)
    return {name.removeprefix("--") for name in names if name.startswith("--")}


def _board(random: Random, is_quiet: bool) -> str:
    text = (ROOT / "boards" / "mps2_an386.toml").read_text()
    before, _, after = text.partition("[qemu]")
    kind = 5 if is_quiet else random.randrange(6)
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


def _sweep(random: Random, is_quiet: bool) -> str:
    extra = (
        ""
        if is_quiet
        else random.choice(("", f'scheduler = "{CANARY}"', f'codegen = [["cmsis-nn:path=./{CANARY}"]]'))
    )
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
        mock.patch("crtgen.device.run.streams.SerialStream.__init__", connect),
        mock.patch("crtgen.device.run.streams.SocketStream.connect", connect),
        mock.patch("crtgen.lab.sweep.farm.connected", connect),
        mock.patch("crtgen.lab.sweep.run.local_cluster", _no_cluster),
        mock.patch("crtgen.cli.report.render_page", return_value="a page"),  # charts want much memory
    )
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


def _no_cluster(*args: Any, **options: Any) -> None:
    raise ToolMissingError("no worker is started here", hint="it is a test")


if __name__ == "__main__":
    _type_commands(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
