"""Building a generated project, and what the image needs: sizes and stack."""

from typing import TYPE_CHECKING

from crtgen.lazy import on_demand

if TYPE_CHECKING:
    from crtgen.build.driver import Progress, build_project, built_image
    from crtgen.build.formats import binary, read_content
    from crtgen.build.image import Image
    from crtgen.build.layers import LayerSize, layer_sizes
    from crtgen.build.report import SizeReport, check_stack, measure
    from crtgen.build.size import Group, Sizes, Symbol, read_sizes
    from crtgen.build.stack import Frame, StackReport, analyse_stack
    from crtgen.build.toolchain import TOOLCHAINS, Toolchain, detect_toolchains, find_program, find_toolchain
    from crtgen.build.west import Workspace, find_workspace

__all__ = [
    "TOOLCHAINS",
    "Frame",
    "Group",
    "Image",
    "LayerSize",
    "Progress",
    "SizeReport",
    "Sizes",
    "StackReport",
    "Symbol",
    "Toolchain",
    "Workspace",
    "analyse_stack",
    "binary",
    "build_project",
    "built_image",
    "check_stack",
    "detect_toolchains",
    "find_program",
    "find_toolchain",
    "find_workspace",
    "layer_sizes",
    "measure",
    "read_content",
    "read_sizes",
]

__getattr__ = on_demand(__name__, __file__)
