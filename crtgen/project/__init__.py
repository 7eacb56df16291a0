"""Generated projects: firmware sources that build without crtgen."""

from crtgen.project.firmware import Firmware
from crtgen.project.footprint import Footprint, check_footprint, footprint
from crtgen.project.frameworks import FRAMEWORKS, framework_of
from crtgen.project.generate import generate_project, toolchains_of
from crtgen.project.manifest import Manifest, read_manifest
from crtgen.project.options import OptionFields, Options
from crtgen.project.pattern import pattern
from crtgen.project.project import Project

__all__ = [
    "FRAMEWORKS",
    "Firmware",
    "Footprint",
    "Manifest",
    "OptionFields",
    "Options",
    "Project",
    "check_footprint",
    "footprint",
    "framework_of",
    "generate_project",
    "pattern",
    "read_manifest",
    "toolchains_of",
]
