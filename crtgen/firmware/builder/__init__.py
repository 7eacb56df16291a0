"""Builds a generated project, and measures the image: sizes and stack."""

from typing import TYPE_CHECKING

from crtgen.base.lazy import on_demand

if TYPE_CHECKING:
    from crtgen.firmware.builder.driver import Progress, build_project, built_image
    from crtgen.firmware.builder.formats import binary, read_content
    from crtgen.firmware.builder.image import BuiltImage
    from crtgen.firmware.builder.layers import LayerSize, layer_sizes
    from crtgen.firmware.builder.report import SizeReport, check_stack, measure
    from crtgen.firmware.builder.size import Group, SizedSymbol, Sizes, read_sizes
    from crtgen.firmware.builder.stack import FunctionStack, StackReport, analyse_stack
    from crtgen.firmware.builder.toolchain import (
        TOOLCHAINS,
        Toolchain,
        detect_toolchains,
        find_program,
        find_toolchain,
    )
    from crtgen.firmware.builder.west import ZephyrWorkspace, find_workspace

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
