"""LLVM instead of C: the metadata module, and whole models as object files. Needs the extra ``llvm``.

Any module may import this file; the modules that need llvmlite (``llvm_*``) are imported only after checking
that it is installed.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import PurePosixPath

from crtgen.base.errors import ToolMissingError
from crtgen.boards.core import Core
from crtgen.compiler.codegen.metadata import Registry, describe
from crtgen.compiler.codegen.module import CModule
from crtgen.compiler.codegen.names import KERNELS
from crtgen.compiler.kernels import Target

__all__ = ["compile_modules", "metadata_ir", "metadata_object", "require_llvm"]

_INSTALL = "pip install 'crtgen[llvm]'"


def require_llvm() -> None:
    """Raise ``ToolMissingError`` unless the packages of the extra are installed."""
    for package in ("llvmlite", "ziglang"):
        if find_spec(package) is None:
            raise ToolMissingError(f"{package} is not installed: the target llvm needs it", hint=_INSTALL)


def metadata_ir(registry: Registry, core: Core) -> str:
    require_llvm()
    from crtgen.compiler.codegen import llvm_emit, llvm_metadata

    return str(llvm_emit.parse(str(llvm_metadata.metadata_module(describe(registry), core))))


def metadata_object(registry: Registry, core: Core) -> bytes:
    require_llvm()
    from crtgen.compiler.codegen import llvm_emit

    return llvm_emit.emit_object(llvm_emit.parse(metadata_ir(registry, core)), core)


def compile_modules(
    modules: Sequence[CModule],
    target: Target,
    *,
    definitions: Sequence[str] = (),
) -> tuple[tuple[CModule, ...], dict[str, bytes]]:
    """Compile the models' C, with macro ``definitions``, and their metadata module to objects for ``target``.

    If no model has functions for the registry, there is no metadata module. ``<models>_kernels.o`` has
    everything except functions in assembly (``<model>_asm_kernels.o``) and code of external code generators.
    The returned modules keep only their interfaces.
    """
    require_llvm()
    from crtgen.compiler.codegen.llvm_compile import LlvmRequest, compile_objects

    sources = {name: text for module in modules for name, text in module.files.items()}
    libraries = [library for module in modules for library in module.libraries]
    for library in libraries:
        headers = ((path, data) for path, data in library.files if path.endswith(".h"))
        sources |= {f"{library.name}/{path}": data.decode("utf-8", "replace") for path, data in headers}
    folders = dict.fromkeys(f"{lib.name}/{folder}" for lib in libraries for folder in lib.include_dirs)
    registry = Registry.of(modules) if any(module.functions for module in modules) else None
    request = LlvmRequest(sources, registry, target, tuple(definitions), tuple(folders))
    code, assembled = compile_objects(request)
    objects = {f"{'_'.join(module.info.name for module in modules)}{KERNELS}.o": code}
    objects |= {f"{PurePosixPath(path).stem}.o": data for path, data in assembled.items()}
    return tuple(map(_without_c, modules)), objects


def _without_c(module: CModule) -> CModule:
    return module.without({name for name in module.files if name.endswith((".c", ".S", "_internal.h"))})
