"""Generated projects: firmware sources that build without crtgen."""

from crtgen.project.firmware import TYPES, Firmware
from crtgen.project.generate import generate_project
from crtgen.project.manifest import Manifest, Options, read_manifest
from crtgen.project.project import Project

__all__ = ["TYPES", "Firmware", "Manifest", "Options", "Project", "generate_project", "read_manifest"]
