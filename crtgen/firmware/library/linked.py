"""The module tree of a linked model: the module that calls the layers imports those of other generators."""

from dataclasses import replace

from crtgen.compiler.codegen import CModule, ExternalModule
from crtgen.compiler.kernels.engine.sources import DeviceContext
from crtgen.firmware.library.imported import Linkable
from crtgen.firmware.library.module import CSource, Module

__all__ = ["module_tree"]


def module_tree(part: Linkable) -> Module:
    """Return the tree. Constants are linked as const data; code without a device of its own is for the
    CPU.
    """
    module = part.module
    imports = part.imports or tuple(_external(module, external) for external in module.externals)
    imports = tuple(replace(m, context=m.context or DeviceContext()) for m in imports)
    elsewhere = {name for m in imports for name in (*m.get_func_names(), *m.get_const_vars())}
    files = {m.name for m in imports}
    return CSource(
        name=module.info.name,
        functions=tuple(f.name for f in module.functions if f.symbol not in elsewhere),
        const_vars=tuple(p.symbol for p in module.params if p.symbol not in elsewhere),
        consts_linked=True,
        imports=imports,
        context=DeviceContext(),
        code="\n".join(text for n, text in module.files.items() if n.endswith(".c") and n not in files),
    )


def _external(module: CModule, external: ExternalModule) -> CSource:
    return CSource(
        name=external.file,
        functions=external.functions,
        const_vars=external.consts,
        consts_linked=True,
        context=external.context,
        code=module.files[external.file],
    )
