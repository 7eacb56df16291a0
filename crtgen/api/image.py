"""From a firmware project to an image on its board: generate, extract, build, run."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from crtgen.api import report
from crtgen.base.errors import BuildError, UsageError
from crtgen.base.temporary import TemporaryFolder
from crtgen.boards import board_of
from crtgen.firmware import builder
from crtgen.firmware.project import Project, read_manifest

if TYPE_CHECKING:  # an image that was built before needs no compiler, and a project no device
    from crtgen.api.report import Report
    from crtgen.compiler.plan import Plan
    from crtgen.device.rpc import Client
    from crtgen.device.run import Site
    from crtgen.device.session import Session

__all__ = ["Extracted", "GeneratedProject", "Image", "Say", "open_project", "require_trust", "silent"]

Say = Callable[[str], None]


def silent(_: str) -> None: ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GeneratedProject:
    """A firmware project in memory; ``untrusted`` names a file whose code is in it and may not be
    compiled.
    """

    project: Project
    untrusted: str = ""
    plans: tuple["Plan", ...] = ()
    """Plans of the models; empty for a project that was generated earlier."""

    def __repr__(self) -> str:
        made = self.project
        return f"<Generated {made.name}, {made.type} for {made.board}: {len(made.files)} files>"

    def extract(self, directory: str | Path, *, force: bool = False) -> "Extracted":
        """Write the project to ``directory``, which has to be empty or an earlier project of crtgen's.

        Files that the user edited are kept (``Extracted.kept``) unless ``force`` is set.
        """
        path = Path(directory)
        kept = self.project.extract(path, force=force)
        return Extracted(path, kept, self.untrusted, self.plans)

    def build(self, *, toolchain: str | None = None, say: Say = silent) -> "Image":
        """Build the project in a temporary directory that lives as long as the image."""
        require_trust(self.untrusted)
        temporary = TemporaryFolder()
        self.project.extract(temporary.path)
        extracted = Extracted(temporary.path, plans=self.plans, _temporary=temporary)
        try:
            return extracted.build(toolchain=toolchain, say=say)
        except BuildError as error:
            if error.log:
                error.hint = "generate the project, then build it: that keeps the whole output"
            raise


@dataclass(frozen=True, slots=True, eq=False)
class Extracted:
    directory: Path
    kept: tuple[str, ...] = ()
    """Generated files that the user edited; they were not overwritten."""
    untrusted: str = ""
    plans: tuple["Plan", ...] = field(default=(), repr=False)
    _temporary: TemporaryFolder | None = field(default=None, repr=False)

    def build(self, *, toolchain: str | None = None, say: Say = silent) -> "Image":
        require_trust(self.untrusted)
        built = builder.build_project(self.directory, toolchain=toolchain, progress=say)
        size = builder.measure(built)
        builder.check_stack(size, built.board)
        return Image(built, size, self.plans, self._temporary)

    def built(self) -> "Image | None":
        """Return the image of the last build; None if there is none."""
        found = builder.built_image(self.directory)
        return Image(found, builder.measure(found), self.plans, self._temporary) if found else None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Image:
    """A built image: an ELF with its sizes and the manifest of its project."""

    built: "builder.BuiltImage"
    size: "builder.SizeReport"
    plans: tuple["Plan", ...] = ()
    _temporary: TemporaryFolder | None = field(default=None, repr=False)
    known: tuple["Report", ...] = ()
    """Reports that were made before."""

    def __repr__(self) -> str:
        sizes = self.size.sizes
        name = self.built.manifest.name
        return f"<Image {name} for {self.board}: flash {sizes.flash:,} bytes, RAM {sizes.ram:,} bytes>"

    @property
    def path(self) -> Path:
        return self.built.path

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the ELF file, and its ``.bin``, ``.hex`` and ``.uf2`` versions if they exist."""
        return self.built.files

    @property
    def board(self) -> str:
        return self.built.board

    @property
    def reports(self) -> tuple["Report", ...]:
        """Return reports of all models; they lack plans if an earlier command generated the project."""
        manifest = self.built.manifest
        return self.known or report.reports_of(
            manifest.models, board_of(manifest.board), manifest.optimize, self.plans, self.size
        )

    def run(
        self,
        *,
        counting: bool = True,
        on_log: Say = silent,
        site: "Site | None" = None,
        prepare: "Callable[[Client], object] | None" = None,
    ) -> "Session":
        """Start the image on its board and connect; leaving the context manager stops it.

        An image for a slot needs a device that is already running at the port of ``site``: once connected,
        ``prepare`` is called and pushes the image.
        """
        from crtgen.device.session import Session

        return Session.start(
            self.built, counting=counting, on_log=on_log, site=site, owner=self, prepare=prepare
        )


def require_trust(where: str) -> None:
    """Raise ``UsageError`` unless the user allowed the code of this archive to be compiled and run."""
    if where:
        raise UsageError(
            "the file holds code, which would be compiled and run",
            where=where,
            hint=f"if you trust who made it: crtgen trust {where}, or --trust; in Python load(trust=True)",
        )


def open_project(directory: str | Path) -> Extracted:
    """Open a project that was generated before. Raises ``UsageError`` if the directory holds none."""
    read_manifest(Path(directory))
    return Extracted(Path(directory))
