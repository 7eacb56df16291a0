"""The product of a build."""

from dataclasses import dataclass
from pathlib import Path

from crtgen.firmware.project.manifest import Manifest

__all__ = ["MODELS_IMAGE", "BuiltImage"]

MODELS_IMAGE = "models.elf"
"""The models of a library, linked by themselves in the build folder."""


@dataclass(frozen=True, slots=True, eq=False)
class BuiltImage:
    """Result of a build: ``path`` is the ELF (the archive of a library project), ``project`` its
    directory.
    """

    path: Path
    project: Path
    manifest: Manifest

    @property
    def files(self) -> tuple[Path, ...]:
        """The ELF, and its ``.bin``, ``.hex`` and ``.uf2`` if they exist."""
        others = (self.path.with_suffix(suffix) for suffix in (".bin", ".hex", ".uf2"))
        return (self.path, *(path for path in others if path.is_file()))

    @property
    def board(self) -> str:
        return self.manifest.board

    @property
    def platform(self) -> str:
        return self.manifest.platform

    @property
    def build(self) -> Path:
        return self.project / "build"
