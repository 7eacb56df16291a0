"""Generated projects: firmware sources that build without crtgen."""

from typing import TYPE_CHECKING

from crtgen.base.lazy import on_demand

if TYPE_CHECKING:
    from crtgen.firmware.project.firmware import FirmwareRequest
    from crtgen.firmware.project.footprint import Footprint, check_footprint
    from crtgen.firmware.project.frameworks import FRAMEWORKS, framework_of
    from crtgen.firmware.project.generate import generate_project
    from crtgen.firmware.project.manifest import Manifest, read_manifest
    from crtgen.firmware.project.options import OptionFields, ProjectOptions
    from crtgen.firmware.project.project import Project
    from crtgen.firmware.project.toolchains import toolchains_of

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
