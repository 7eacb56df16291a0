"""The project API of TVM's micro host, which ``tvmc micro`` and ``GeneratedProject`` call.

A folder that has ``microtvm_api_server.py`` but no project is a template, from which projects are made.
"""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crtgen import api
from crtgen.api.tvm.transport import Transport, TransportClosedError
from crtgen.base.errors import UsageError
from crtgen.base.resources import microtvm_dir
from crtgen.boards import find_board
from crtgen.compiler.level import LEVELS
from crtgen.device.flash import write_connected
from crtgen.device.local_boards import choose_unit, connected_units
from crtgen.device.run import Site
from crtgen.firmware.project.manifest import MANIFEST

__all__ = ["OPTIONS", "PROTOCOL", "Handler", "Option"]

PROTOCOL = 1
"""Version of the protocol, which TVM 0.8 to 0.18 speak."""

ARCHIVE = "model.tar"
"""Archive of the models within a project; ``tvmc run`` reads it."""

SCRIPT = "microtvm_api_server.py"

TYPES = {
    "host_driven": "server",
    "server": "server",
    "standalone": "standalone",
    "mlperftiny": "mlperftiny",
}
"""Types of projects. The first is TVM's word for the second."""

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Option:
    """An option in TVM's form: the API methods that require it (``required``) and those that accept it
    (``optional``).
    """

    name: str
    help: str
    type: str = "str"
    choices: tuple[str, ...] | None = None
    default: str | bool | None = None
    required: tuple[str, ...] | None = None
    optional: tuple[str, ...] | None = None


OPTIONS = (
    Option("board", "Name of the board, see crtgen boards.", required=("generate_project",)),
    Option(
        "project_type",
        "What is generated: host_driven is a server for this host.",
        choices=tuple(TYPES),
        default="host_driven",
        optional=("generate_project",),
    ),
    Option(
        "optimize",
        "What the code is for.",
        choices=tuple(LEVELS),
        default="balanced",
        optional=("generate_project",),
    ),
    Option(
        "trust",
        "The archive holds code, which is compiled and run: true if you trust who made it.",
        type="bool",
        default=False,
        optional=("generate_project",),
    ),
    Option("toolchain", "The compiler, see crtgen doctor.", optional=("build",)),
    Option(
        "verbose",
        "Say what is done.",
        type="bool",
        default=False,
        optional=("generate_project", "build", "flash"),
    ),
    Option(
        "simulate",
        "Run in a simulator, also for a board that could be connected.",
        type="bool",
        default=False,
        optional=("flash", "open_transport"),
    ),
    Option("runner", "The program that writes the board.", optional=("flash",)),
    Option(
        "serial_number",
        "How the number of the board's probe starts.",
        optional=("flash", "open_transport"),
    ),
    Option("port", "The serial port of the board.", optional=("open_transport",)),
)


class Handler:
    """Answers requests for the project, or the template, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._transport: Transport | None = None

    def server_info_query(self, tvm_version: str) -> dict[str, Any]:
        """Describe the server; any version of TVM that speaks this protocol is accepted."""
        archive = self._folder / ARCHIVE
        return {
            "platform_name": "crtgen",
            "is_template": not (self._folder / MANIFEST).is_file(),
            "model_library_format_path": str(archive) if archive.is_file() else None,
            "project_options": [asdict(option) for option in OPTIONS],
            "protocol_version": PROTOCOL,
        }

    def generate_project(
        self, model_library_format_path: str, standalone_crt_dir: str, project_dir: str, options: Options
    ) -> None:
        """Make a project from an archive, which is copied into it; TVM's own runtime is not used."""
        kind = str(options.get("project_type") or "host_driven")
        board = options.get("board")
        if kind not in TYPES:
            raise UsageError(f"unknown project type {kind}", hint=f"known: {', '.join(TYPES)}")
        if not board:
            raise UsageError(
                "the option board is missing", hint="for example board=mps2_an386; see crtgen boards"
            )
        archive, folder = Path(model_library_format_path), Path(project_dir)
        model = api.load(archive, trust=_flag(options, "trust"))
        compiled = api.compile([model], str(board), optimize=str(options.get("optimize") or "balanced"))
        made = compiled.generate(TYPES[kind])
        api.require_trust(made.untrusted)
        made.extract(folder)
        shutil.copyfile(archive, folder / ARCHIVE)
        shutil.copyfile(microtvm_dir() / SCRIPT, folder / SCRIPT)

    def build(self, options: Options) -> None:
        api.open_project(self._folder).build(toolchain=_text(options, "toolchain"), say=_say(options))

    def flash(self, options: Options) -> None:
        image, site = self._built(), Site(simulate=_flag(options, "simulate"))
        board = find_board(image.board)
        if board.is_host or site.is_simulated(board):
            return
        serial, runner = _text(options, "serial_number"), _text(options, "runner")
        write_connected(image.path, board, serial=serial, runner=runner, say=_say(options))

    def open_transport(self, options: Options) -> dict[str, Any]:
        """Start the image in its simulator, or connect to the board that runs it since ``flash``."""
        self.close_transport()
        image = self._built()
        site = Site(port=_text(options, "port"), simulate=_flag(options, "simulate"))
        board = find_board(image.board)
        if site.port is None and not board.is_host and not site.is_simulated(board):
            unit = choose_unit(board, connected_units(None), _text(options, "serial_number"))
            site = Site(port=unit.port or None)
        opened = Transport(image, site)
        opened.open()
        self._transport = opened
        return {"timeouts": asdict(opened.timeouts())}

    def close_transport(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def read_transport(self, n: int, timeout_sec: float | None) -> bytes:
        return self._opened().read(n, timeout_sec)

    def write_transport(self, data: bytes, timeout_sec: float | None) -> None:
        self._opened().write(data, timeout_sec)

    def _opened(self) -> Transport:
        if self._transport is None:
            raise TransportClosedError
        return self._transport

    def _built(self) -> api.Image:
        image = api.open_project(self._folder).built()
        if image is None:
            raise UsageError(
                "the project was not built yet", where=str(self._folder), hint="call build first"
            )
        return image


def _text(options: Options, name: str) -> str | None:
    value = options.get(name)
    return str(value) if value else None


def _flag(options: Options, name: str) -> bool:
    # ``tvmc`` gives text, Python whatever the caller has.
    return str(options.get(name, False)).lower() in ("true", "1")


def _say(options: Options) -> api.Say:
    loud = _flag(options, "verbose")
    return (lambda text: print(text, file=sys.stderr)) if loud else (lambda text: None)
