"""From a firmware project to an image on its board: what is generated, extracted, built and run."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from crtgen.api import report
from crtgen.base.errors import BuildError, UsageError
from crtgen.base.temporary import TemporaryFolder
from crtgen.boards import find_board
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


def silent(_: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GeneratedProject:
    """A firmware project in memory; ``untrusted`` names a file whose code in it may not be compiled."""

    project: Project
    untrusted: str = ""
    plans: tuple["Plan", ...] = ()
    """The plans of the models, as far as there are any."""

    def __repr__(self) -> str:
        made = self.project
        return f"<Generated {made.name}, {made.type} for {made.board}: {len(made.files)} files>"

    def extract(self, directory: str | Path, *, force: bool = False) -> "Extracted":
        """Write it to ``directory``, which has to be empty or an earlier project of crtgen's.

        Files that were edited since are kept, see ``Extracted.kept``, unless with ``force``.
        """
        path = Path(directory)
        kept = self.project.extract(path, force=force)
        return Extracted(path, kept, self.untrusted, self.plans)

    def build(self, *, toolchain: str | None = None, say: Say = silent) -> "Image":
        """Build it in a temporary directory that lives as long as the image."""
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
    """A firmware project on disk."""

    directory: Path
    kept: tuple[str, ...] = ()
    """Files that crtgen made earlier and somebody edited: they are as they were."""
    untrusted: str = ""
    """A file whose code in it may not be compiled."""
    plans: tuple["Plan", ...] = field(default=(), repr=False)
    _temporary: TemporaryFolder | None = field(default=None, repr=False)

    def build(self, *, toolchain: str | None = None, say: Say = silent) -> "Image":
        """Build it, or what has changed of it, and measure the image."""
        require_trust(self.untrusted)
        built = builder.build_project(self.directory, toolchain=toolchain, progress=say)
        size = builder.measure(built)
        builder.check_stack(size, built.board)
        return Image(built, size, self.plans, self._temporary)

    def built(self) -> "Image | None":
        """What was built of it last, as it is; None if nothing was."""
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
    """The reports, where they were made before."""

    def __repr__(self) -> str:
        sizes = self.size.sizes
        name = self.built.manifest.name
        return f"<Image {name} for {self.board}: flash {sizes.flash:,} bytes, RAM {sizes.ram:,} bytes>"

    @property
    def path(self) -> Path:
        """The ELF."""
        return self.built.path

    @property
    def files(self) -> tuple[Path, ...]:
        """The ELF, and what there is of the same as ``.bin``, ``.hex`` and ``.uf2``."""
        return self.built.files

    @property
    def board(self) -> str:
        """Name of the board."""
        return self.built.board

    @property
    def reports(self) -> tuple["Report", ...]:
        """What is known of each model. A project that was generated before has no plans any more."""
        manifest = self.built.manifest
        return self.known or report.reports_of(
            manifest.models, find_board(manifest.board), manifest.optimize, self.plans, self.size
        )

    def run(
        self,
        *,
        counting: bool = True,
        on_log: Say = silent,
        site: "Site | None" = None,
        prepare: "Callable[[Client], object] | None" = None,
    ) -> "Session":
        """Start it on its board and connect; a context manager that stops it again.

        The image for a slot is run by a device that runs, of which ``site`` has the port: ``prepare`` is
        called when it is connected, and pushes it.
        """
        from crtgen.device.session import Session

        return Session.start(
            self.built, counting=counting, on_log=on_log, site=site, owner=self, prepare=prepare
        )


def require_trust(where: str) -> None:
    """Refuse to compile or run the code of an archive unless somebody said that it may be."""
    if where:
        raise UsageError(
            "the file holds code, which would be compiled and run",
            where=where,
            hint=f"if you trust who made it: crtgen trust {where}, or --trust; in Python load(trust=True)",
        )


def open_project(directory: str | Path) -> Extracted:
    """A project that was generated before. Raises ``UsageError`` if the directory holds none."""
    read_manifest(Path(directory))
    return Extracted(Path(directory))
