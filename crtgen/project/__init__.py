"""Generated projects: firmware sources that build without crtgen."""

from typing import TYPE_CHECKING

from crtgen.lazy import on_demand

if TYPE_CHECKING:
    from crtgen.project.firmware import FirmwareRequest
    from crtgen.project.footprint import Footprint, check_footprint
    from crtgen.project.frameworks import FRAMEWORKS, framework_of
    from crtgen.project.generate import generate_project
    from crtgen.project.manifest import Manifest, read_manifest
    from crtgen.project.options import OptionFields, ProjectOptions
    from crtgen.project.project import Project
    from crtgen.project.toolchains import toolchains_of

__all__ = [
    "FRAMEWORKS",
    "FirmwareRequest",
    "Footprint",
    "Manifest",
    "OptionFields",
    "Project",
    "ProjectOptions",
    "check_footprint",
    "framework_of",
    "generate_project",
    "read_manifest",
    "toolchains_of",
]

__getattr__ = on_demand(__name__, __file__)
