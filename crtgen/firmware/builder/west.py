"""Builds a Zephyr project with west, in the available workspace."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crtgen.base.errors import BuildError, ToolMissingError
from crtgen.boards import find_board
from crtgen.firmware.builder.failure import explain_failure
from crtgen.firmware.builder.image import BuiltImage
from crtgen.firmware.builder.process import follow
from crtgen.firmware.builder.toolchain import find_program
from crtgen.firmware.project.manifest import Manifest

__all__ = ["ZephyrWorkspace", "build_with_west", "find_workspace"]

TIME_LIMIT = 900.0
_NO_HAL = re.compile(r"fatal error: \S+\.dtsi?: No such file")
_GCC = "arm-none-eabi-gcc"
_SDKS = ("zephyr-sdk*", ".local/zephyr-sdk*", ".local/opt/zephyr-sdk*", "bin/zephyr-sdk*", "opt/zephyr-sdk*")


@dataclass(frozen=True, slots=True)
class ZephyrWorkspace:
    """A Zephyr workspace: Zephyr's own directory, and its release, such as (3, 7, 0)."""

    zephyr: Path
    version: tuple[int, ...]

    @property
    def top(self) -> Path:
        return self.zephyr.parent

    @property
    def release(self) -> str:
        return ".".join(map(str, self.version))

    def environment(self) -> dict[str, str]:
        """Return the environment for west and Zephyr's CMake files, with a toolchain if no variable selects
        one.
        """
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        variables = {**os.environ, "PATH": path, "ZEPHYR_BASE": str(self.zephyr), "LC_ALL": "C"}
        gcc = shutil.which(_GCC, path=path)
        chosen = "ZEPHYR_TOOLCHAIN_VARIANT" in variables or "ZEPHYR_SDK_INSTALL_DIR" in variables
        if not chosen and gcc and not _has_sdk():
            variables["ZEPHYR_TOOLCHAIN_VARIANT"] = "gnuarmemb"
            variables["GNUARMEMB_TOOLCHAIN_PATH"] = str(Path(gcc).parent.parent)
        return variables

    def exports(self) -> tuple[str, ...]:
        """Return shell lines that set the variables that a plain ``west build`` needs and the environment
        lacks.
        """
        chosen = self.environment()
        names = ("ZEPHYR_BASE", "ZEPHYR_TOOLCHAIN_VARIANT", "GNUARMEMB_TOOLCHAIN_PATH")
        missing = (name for name in names if name in chosen and name not in os.environ)
        return tuple(f"export {name}={shlex.quote(chosen[name])}" for name in missing)


def find_workspace() -> ZephyrWorkspace:
    """Return the workspace of ``$ZEPHYR_BASE``, or ``~/zephyrproject``. Raises ``ToolMissingError``."""
    named = os.environ.get("ZEPHYR_BASE")
    zephyr = Path(named) if named else Path.home() / "zephyrproject" / "zephyr"
    file = zephyr / "VERSION"
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ToolMissingError(
            "there is no Zephyr workspace",
            where=str(zephyr),
            hint="set ZEPHYR_BASE to Zephyr's directory, or `west init ~/zephyrproject` and `west update`",
        ) from error
    numbers = dict(re.findall(r"^(\w+) *= *(\d+)$", text, re.MULTILINE))
    try:
        version = tuple(int(numbers[key]) for key in ("VERSION_MAJOR", "VERSION_MINOR", "PATCHLEVEL"))
    except KeyError as error:
        hint = "ZEPHYR_BASE names the directory of a Zephyr tree: check it"
        raise ToolMissingError(f"Zephyr's file VERSION has no {error}", where=str(file), hint=hint) from error
    return ZephyrWorkspace(zephyr.resolve(), version)


def build_with_west(root: Path, manifest: Manifest, jobs: int, progress: Callable[[str], None]) -> BuiltImage:
    """Build the project in ``root`` into its ``build/``. Raises the errors of ``build_project``."""
    workspace = find_workspace()
    if manifest.type == "library":
        raise BuildError(
            "a Zephyr library is built by its application",
            where=manifest.name,
            hint="include its crtgen.cmake in an application's CMakeLists.txt",
        )
    west = find_program("west", "pip install west")
    root = root.resolve()
    build = root / "build"
    log = build / "build.log"
    board = find_board(manifest.board).zephyr_name(workspace.version)
    if not _is_configured(build, root, board):
        shutil.rmtree(build, ignore_errors=True)
    progress("configuring")
    # West looks for the workspace, whose manifest names programs, from where it is run, else in ZEPHYR_BASE.
    status, output = follow(
        [
            *(west, "-z", workspace.zephyr, "build", "-b", board, "-d", build, "-p", "never"),
            *(f"-o=-j{jobs}", root),
        ],
        directory=workspace.top,
        what="the build",
        where=root,
        environment=workspace.environment(),
        time_limit=TIME_LIMIT,
        progress=progress,
    )
    build.mkdir(exist_ok=True)
    log.write_text(output, encoding="utf-8")
    if status != 0:
        error = explain_failure(output, log, manifest, "the build")
        if _NO_HAL.search(output):
            error.hint = "the board needs a module that the workspace has not: run `west update` there"
        raise error
    path = build / manifest.artefact
    if not path.is_file():
        raise BuildError(f"the build made no {manifest.artefact}", where=str(root))
    return BuiltImage(path, root, manifest)


def _is_configured(build: Path, root: Path, board: str) -> bool:
    # True if the build directory was configured for this place and this board.
    cache = build / "CMakeCache.txt"
    if not cache.is_file() or not (build / "build.ninja").is_file():
        return False
    entries = dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read_text(encoding="utf-8"), re.MULTILINE))
    return (
        entries.get("CMAKE_HOME_DIRECTORY") == str(root)
        and entries.get("CMAKE_CACHEFILE_DIR") == str(build)
        and board in (entries.get("BOARD"), entries.get("CACHED_BOARD"))
    )


def _has_sdk() -> bool:
    # True if the Zephyr SDK is where Zephyr looks for it: then no variables are needed.
    places = (Path.home(), Path("/opt"), Path("/usr/local"))
    return any(next(place.glob(pattern), None) for place in places for pattern in _SDKS)
