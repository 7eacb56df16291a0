"""C code of a planned model, and the metadata module of an image."""

from typing import TYPE_CHECKING

from crtgen.base.lazy import on_demand

if TYPE_CHECKING:
    from crtgen.compiler.codegen.generate import RUNTIME_VERSION, generate_c, interface_header
    from crtgen.compiler.codegen.metadata import METADATA_FILE, Registry, metadata_files, name_table
    from crtgen.compiler.codegen.module import (
        CModule,
        ExternalModule,
        Interface,
        LayerInfo,
        ModelInfo,
        Param,
        RegistryFunction,
    )

__all__ = [
    "METADATA_FILE",
    "RUNTIME_VERSION",
    "CModule",
    "ExternalModule",
    "Interface",
    "LayerInfo",
    "ModelInfo",
    "Param",
    "Registry",
    "RegistryFunction",
    "generate_c",
    "interface_header",
    "metadata_files",
    "name_table",
]

__getattr__ = on_demand(__name__, __file__)
