"""Building a generated project, and what the image needs: sizes and stack."""

from typing import TYPE_CHECKING

from crtgen.lazy import on_demand

if TYPE_CHECKING:
    from crtgen.build.driver import Progress, build_project, built_image
    from crtgen.build.formats import binary, read_content
    from crtgen.build.image import BuiltImage
    from crtgen.build.layers import LayerSize, layer_sizes
    from crtgen.build.report import SizeReport, check_stack, measure
    from crtgen.build.size import Group, SizedSymbol, Sizes, read_sizes
    from crtgen.build.stack import FunctionStack, StackReport, analyse_stack
    from crtgen.build.toolchain import TOOLCHAINS, Toolchain, detect_toolchains, find_program, find_toolchain
    from crtgen.build.west import ZephyrWorkspace, find_workspace

__all__ = [
    "TOOLCHAINS",
    "BuiltImage",
    "FunctionStack",
    "Group",
    "LayerSize",
    "Progress",
    "SizeReport",
    "SizedSymbol",
    "Sizes",
    "StackReport",
    "Toolchain",
    "ZephyrWorkspace",
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
