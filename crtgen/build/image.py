"""The product of a build."""

from dataclasses import dataclass
from pathlib import Path

from crtgen.project.manifest import Manifest

__all__ = ["Image"]


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """What was built: ``path`` is the ELF (the archive of a library project), ``project`` its directory."""

    path: Path
    project: Path
    manifest: Manifest

    @property
    def board(self) -> str:
        """Name of the board."""
        return self.manifest.board

    @property
    def platform(self) -> str:
        """``host``, ``baremetal`` or ``zephyr``."""
        return self.manifest.platform

    @property
    def build(self) -> Path:
        """The directory with everything that the build made."""
        return self.project / "build"
