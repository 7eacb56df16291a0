"""Drives CMake and Ninja over a generated project."""

import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crtgen.base import files
from crtgen.base.child import Command
from crtgen.base.errors import BuildError, UsageError
from crtgen.boards import board_of
from crtgen.firmware.builder.failure import explain_failure
from crtgen.firmware.builder.folder import own_build
from crtgen.firmware.builder.formats import write_formats
from crtgen.firmware.builder.image import MODELS_IMAGE, BuiltImage
from crtgen.firmware.builder.process import follow
from crtgen.firmware.builder.toolchain import Toolchain, find_program, find_toolchain
from crtgen.firmware.builder.west import build_with_west
from crtgen.firmware.project.frameworks import FRAMEWORKS
from crtgen.firmware.project.manifest import Manifest, read_manifest

__all__ = ["BuildRun", "Progress", "build_project", "built_image"]

Progress = Callable[[str], None]
"""Called with the current action: ``building 3/45``."""

TIME_LIMIT = 900.0

# Characters that CMake or Ninja misread in the path of a project.
_NO_PATH = re.compile(r"[\"\\;|\n\r]|\$\(")


def build_project(
    directory: Path | str,
    *,
    toolchain: str | None = None,
    jobs: int = 2,
    progress: Progress = lambda text: None,
) -> BuiltImage:
    """Build the project in ``directory`` into its ``build/``, incrementally.

    If ``build/`` is not exactly as this user's last build left it, it is emptied first (``own_build``). Two
    builds of one project wait for each other. Raises ``UsageError`` for a path in which CMake cannot build,
    ``ToolMissingError``, ``DoesNotFitError`` if the linker runs out of a memory, otherwise ``BuildError``
    with the compiler's first errors. The whole output is in ``build/build.log``.
    """
    root = Path(directory).resolve()
    if found := _NO_PATH.search(str(root)):
        raise UsageError(
            f"CMake cannot build in a path that contains {found[0]!r}",
            where=str(root),
            hint="move the project",
        )
    manifest = read_manifest(root)
    if manifest.unfinished is not None:
        raise UsageError(
            "the project was not written completely", where=str(root), hint="generate the project again"
        )
    framework = manifest.options.framework
    if framework:
        raise UsageError(
            f"the project is a library for {framework}, which builds it",
            where=str(root),
            hint=FRAMEWORKS[framework].use,
        )
    with files.locked(root / manifest.locked), own_build(root):
        _bring_to_the_present(root, manifest)
        if manifest.platform == "zephyr":
            return build_with_west(root, manifest, jobs, progress)
        run = BuildRun(root, find_toolchain(toolchain or manifest.toolchain), manifest, progress)
        run.build.mkdir(exist_ok=True)
        run.log.unlink(missing_ok=True)
        run.make(jobs)
        path = run.build / manifest.artefact
        if not path.is_file():
            raise BuildError(f"the build made no {manifest.artefact}", where=str(root))
        if path.suffix == ".elf":
            write_formats(path, board_of(manifest.board))
        elif manifest.platform == "baremetal" and run.toolchain.name in ("gcc", "picolibc"):
            run.link_models(path)
        return BuiltImage(path, root, manifest)


def built_image(directory: Path | str) -> BuiltImage | None:
    root = Path(directory).resolve()
    manifest = read_manifest(root)
    path = root / "build" / manifest.artefact
    return BuiltImage(path, root, manifest) if path.is_file() else None


def _bring_to_the_present(root: Path, manifest: Manifest) -> None:
    # Files dated in the future, by a clock that was wrong, would make Ninja configure again for ever. What
    # was built in the future may be older than its sources: it goes.
    now = time.time()
    for path in files.inside(root, manifest.files).values():
        if path.is_file() and path.stat().st_mtime > now:
            os.utime(path)
    made = root / "build" / "build.ninja"
    if made.is_file() and made.stat().st_mtime > now:
        shutil.rmtree(root / "build")


@dataclass(frozen=True, slots=True, eq=False)
class BuildRun:
    root: Path
    toolchain: Toolchain
    manifest: Manifest
    progress: Progress

    @property
    def build(self) -> Path:
        return self.root / "build"

    @property
    def ninja(self) -> Path:
        return find_program("ninja", "pip install ninja")

    @property
    def log(self) -> Path:
        return self.build / "build.log"

    @property
    def cmake_file(self) -> Path:
        return self.root / "cmake" / f"{self.toolchain.name}.cmake"

    def is_configured(self) -> bool:
        cache = self.build / "CMakeCache.txt"
        if not cache.is_file() or not (self.build / "build.ninja").is_file():
            return False
        entries = dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read_text(encoding="utf-8"), re.MULTILINE))
        return (
            entries.get("CMAKE_HOME_DIRECTORY") == str(self.root)
            and entries.get("CMAKE_TOOLCHAIN_FILE") == str(self.cmake_file)
            and entries.get("CRTGEN_COMPILER") == str(self.toolchain.program)
        )

    def make(self, jobs: int) -> None:
        if not self.is_configured():
            self.progress("configuring")
            self.configure()
        self.compile(jobs)

    def configure(self) -> None:
        if not self.cmake_file.is_file():
            files = sorted(p.stem for p in (self.root / "cmake").glob("*.cmake"))
            raise UsageError(
                f"the project cannot be built with the toolchain {self.toolchain.name}",
                where=str(self.root),
                hint=f"it has {', '.join(files) or 'none'}",
            )
        (self.build / "CMakeCache.txt").unlink(missing_ok=True)
        shutil.rmtree(self.build / "CMakeFiles", ignore_errors=True)
        self.execute(
            "the configuration",
            [
                find_program("cmake", "pip install cmake"),
                "-S",
                str(self.root),
                "-B",
                str(self.build),
                "-G",
                "Ninja",
                "--no-warn-unused-cli",
                "-DCMAKE_C_ABI_COMPILED=ON",  # what CMake would find out by compiling is not used
                f"-DCMAKE_MAKE_PROGRAM={self.ninja}",
                f"-DCMAKE_TOOLCHAIN_FILE={self.cmake_file}",
                f"-DCRTGEN_COMPILER={self.toolchain.program}",
            ],
        )

    def compile(self, jobs: int) -> None:
        """Let Ninja build what is out of date; it runs CMake if CMake's own files have changed."""
        self.execute("the build", [self.ninja, "-C", self.build, "-j", str(jobs)])

    def link_models(self, library: Path) -> None:
        """Link the models of a library on their own, because only a linked image has the call graph for its
        stack.

        References to the application stay unresolved, and the result is never run. If the linker refuses the
        library, its stack is unknown.
        """
        made = self.build / MODELS_IMAGE
        made.unlink(missing_ok=True)
        roots = [f"-Wl,-u,{model.name}_run" for model in self.manifest.models]
        flags = [*board_of(self.manifest.board).core.gcc_flags, "-nostartfiles", "-Wl,--gc-sections"]
        flags += ["-Wl,--unresolved-symbols=ignore-all", "-Wl,--no-warn-mismatch", *roots]
        flags += [f"-Wl,-e,{self.manifest.models[0].name}_run", str(library), "-lm", "-o", str(made)]
        status, output = follow(
            [self.toolchain.program, *flags],
            what="the link of the models",
            where=self.root,
            environment=self.environment(),
            time_limit=TIME_LIMIT,
            progress=lambda text: None,
        )
        with self.log.open("a", encoding="utf-8") as file:
            file.write(output)
        if status != 0:
            made.unlink(missing_ok=True)

    def execute(self, what: str, command: Command) -> None:
        """Run CMake or Ninja; the output goes into the log, Ninja's steps to the progress."""
        status, output = follow(
            command,
            what=what,
            where=self.root,
            environment=self.environment(),
            time_limit=TIME_LIMIT,
            progress=self.progress,
        )
        with self.log.open("a", encoding="utf-8") as file:
            file.write(output)
        if status != 0:
            raise explain_failure(output, self.log, self.manifest, what)

    def environment(self) -> dict[str, str]:
        """Return the environment: the PATH that the project's CMake files expect, and English messages."""
        path = os.pathsep.join([os.environ.get("PATH", ""), str(self.toolchain.program.parent)])
        named = {variable: str(self.toolchain.program) for variable in self.toolchain.variables}
        return {**os.environ, **named, "PATH": path, "LC_ALL": "C", "NINJA_STATUS": "[%f/%t] "}
