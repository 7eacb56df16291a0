"""Libraries: the form of models before they become a project, and the formats in which TVM stores them."""

from typing import TYPE_CHECKING

from crtgen.base.lazy import on_demand

if TYPE_CHECKING:
    from crtgen.firmware.library.exported import ExportedLibrary, read_exported, static_modules
    from crtgen.firmware.library.imported import Linkable, backend_file, import_model
    from crtgen.firmware.library.library import BACKEND_FILE, Library, link
    from crtgen.firmware.library.linked import module_tree
    from crtgen.firmware.library.mlf import (
        Archive,
        CodeFiles,
        MlfModel,
        OperatorLibrary,
        export_time,
        read_archive,
        write_archive,
    )
    from crtgen.firmware.library.module import Module
    from crtgen.firmware.library.own_graph import with_graph_executor
    from crtgen.firmware.library.package import SUFFIXES, Package, load_package
    from crtgen.firmware.library.params import NDArray, read_params, write_params
    from crtgen.firmware.library.stored import (
        FunctionScratch,
        StoredNetwork,
        registry_source,
        runtime_headers,
        store_model,
        stored_network,
    )

__all__ = [
    "BACKEND_FILE",
    "SUFFIXES",
    "Archive",
    "CodeFiles",
    "ExportedLibrary",
    "FunctionScratch",
    "Library",
    "Linkable",
    "MlfModel",
    "Module",
    "NDArray",
    "OperatorLibrary",
    "Package",
    "StoredNetwork",
    "backend_file",
    "export_time",
    "import_model",
    "link",
    "load_package",
    "module_tree",
    "read_archive",
    "read_exported",
    "read_params",
    "registry_source",
    "runtime_headers",
    "static_modules",
    "store_model",
    "stored_network",
    "with_graph_executor",
    "write_archive",
    "write_params",
]

__getattr__ = on_demand(__name__, __file__)
