"""LLVM in place of C: the metadata module, and whole models as objects. Needs the extra ``llvm``.

This file is what everybody imports; those that import llvmlite itself (``llvm_*``) are imported once it is
known to be there.
"""

from importlib.util import find_spec

from crtgen.boards.core import Core
from crtgen.codegen.metadata import Registry, describe
from crtgen.errors import ToolMissingError

__all__ = ["metadata_ir", "metadata_object", "require_llvm"]

_INSTALL = "pip install 'crtgen[llvm]'"


def require_llvm() -> None:
    """Raise ``ToolMissingError`` unless the packages of the extra are installed."""
    for package in ("llvmlite", "ziglang"):
        if find_spec(package) is None:
            raise ToolMissingError(f"{package} is not installed: the target llvm needs it", hint=_INSTALL)


def metadata_ir(registry: Registry, core: Core) -> str:
    """The metadata module of ``registry`` as LLVM IR, verified."""
    require_llvm()
    from crtgen.codegen import llvm_emit, llvm_metadata

    return str(llvm_emit.parse(str(llvm_metadata.metadata_module(describe(registry), core))))


def metadata_object(registry: Registry, core: Core) -> bytes:
    """The same as an object file for ``core``."""
    require_llvm()
    from crtgen.codegen import llvm_emit

    return llvm_emit.emit_object(llvm_emit.parse(metadata_ir(registry, core)), core)
