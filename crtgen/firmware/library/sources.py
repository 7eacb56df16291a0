"""Modules made from files: the functions that a C source or an object offers, and those that it needs."""

import platform
import re
from collections.abc import Iterable

from crtgen.base.errors import ModelError, UnsupportedError
from crtgen.boards import Core
from crtgen.compiler.codegen.names import symbol_stem
from crtgen.compiler.codegen.render import render
from crtgen.firmware.library.elf import read_elf
from crtgen.firmware.library.mlf import CodeFiles
from crtgen.firmware.library.module import CSource, Module, ObjectFile

__all__ = [
    "check_core",
    "check_machine",
    "check_undefined",
    "code_modules",
    "context_source",
    "machine_of",
    "object_module",
    "source_module",
]

_ENTRY = "TVMSystemLibEntryPoint"
_MAIN = "__tvm_main__"
_HEAP = ("malloc", "free")
_CONTEXT = frozenset(
    f"TVM{name}"
    for name in (
        "APISetLastError",
        "BackendAllocWorkspace",
        "BackendFreeWorkspace",
        "BackendGetFuncFromEnv",
        "BackendParallelBarrier",
        "BackendParallelLaunch",
        "FuncCall",
    )
)
_PACKED = re.compile(r"^(?:TVM_DLL )?int(?:32_t)? (\w++)\(([^;{}()]*+)\)\s*+\{", re.MULTILINE)
_TYPE_CODES = re.compile(r"\b(?:type_codes?|arg_type_ids|arg_tcodes)\b")
# Functions that the runtime and the toolchain's libraries define.
_PROVIDED = re.compile(
    r"TVM\w+|__aeabi_\w+|__\w+[sdth]i\d?|__\w+[sd]f\d?|mem(?:cpy|set|move|cmp)|malloc|free|"
    r"(?:a?(?:cos|sin|tan)h?|atan2|exp2?|expm1|log(?:2|10|1p)?|pow|sqrt|cbrt|hypot|erfc?|fabs|fma|fmin|fmax|fmod|"
    r"(?:ll?)?r(?:ound|int)|nearbyint|floor|ceil|trunc|copysign|ldexp)f?"
)


def source_module(name: str, suffix: str, code: str, prefix: str = "") -> CSource:
    """Make a module from a source file. Names that every TVM model defines are compiled as ``<prefix>_...``.

    Heap allocations are replaced by the image's workspace.
    """
    functions = tuple(
        match[1]
        for match in _PACKED.finditer(code)
        if _TYPE_CODES.search(match[2]) and not match[1].startswith("__")
    )
    shared = [word for word in (_ENTRY, _MAIN) if re.search(rf"\b{word}\(", code)]
    renames = [(word, f"{symbol_stem(prefix)}_{word.strip('_')}") for word in shared] if prefix else []
    heap = [(word, f"crt_imported_{word}") for word in _HEAP if re.search(rf"\b{word}\(", code)]
    defines = (*renames, *heap)
    return CSource(name=name, functions=functions, code=code, suffix=suffix, defines=defines)


def object_module(name: str, data: bytes, where: str) -> ObjectFile:
    """Return an object, or a shared library; its functions are in its symbol table."""
    elf = read_elf(data, where)
    functions = tuple(f for f in elf.functions if f != _ENTRY)
    return ObjectFile(name=name, functions=functions, data=data, suffix="so" if elf.is_shared else "o")


def code_modules(code: CodeFiles, prefix: str, where: str) -> tuple[Module, ...]:
    """Return the modules of a model's code, without those that only hold TVM's own registry."""
    sources = [source_module(n, n.rpartition(".")[2], text, prefix) for n, text in code.sources.items()]
    objects = [object_module(n, data, f"{where}: {n}") for n, data in code.objects.items()]
    kept = [s for s in sources if s.functions or _ENTRY not in s.code]
    return (*kept, *(o for o in objects if o.functions or _ENTRY not in read_elf(o.data, where).functions))


def context_source(modules: Iterable[Module], where: str) -> str:
    """Return C code with the pointers through which exported objects call the runtime; empty if there are
    none.
    """
    objects = [m for m in modules if isinstance(m, ObjectFile)]
    names = {name for m in objects for name in read_elf(m.data, f"{where}: {m.name}").context}
    unknown = sorted(names - _CONTEXT)
    if unknown:
        raise ModelError(
            f"the objects of the library call {', '.join(unknown)}, which the runtime does not have",
            where=where,
        )
    return render("tvm_context.c.j2", names=sorted(names)) if names else ""


def machine_of(core: Core) -> str:
    return platform.machine().upper() if core.arch == "host" else "ARM"


def check_core(where: str, name: str, data: bytes, core: Core) -> None:
    check_machine(where, name, data, machine_of(core), core.arch == "host")
    if core.fpu == "none" and read_elf(data, f"{where}: {name}").is_hard_float:
        raise UnsupportedError(f"{name} needs a floating-point unit, which {core.name} lacks", where=where)


def check_machine(where: str, name: str, data: bytes, machine: str, hosted: bool) -> None:
    elf = read_elf(data, f"{where}: {name}")
    name = "it" if name == where else name
    if elf.machine != machine:
        raise UnsupportedError(f"{name} is code for {elf.machine}, not for {machine}", where=where)
    if elf.is_shared and not hosted:
        raise UnsupportedError(
            f"{name} is a linked shared library: its code cannot be linked into a static image",
            where=where,
            hint="export it as .tar, which keeps the objects",
        )


def check_undefined(modules: Iterable[Module], where: str) -> None:
    """Refuse objects with symbols that are defined neither by objects or sources, nor by the runtime or the C
    library.
    """
    needed: dict[str, None] = {}
    defined: set[str] = set()
    text = ""
    for module in modules:
        if isinstance(module, CSource):
            text += module.code
        elif isinstance(module, ObjectFile):
            elf = read_elf(module.data, f"{where}: {module.name}")
            needed |= dict.fromkeys(elf.undefined)
            defined |= {symbol.name for symbol in elf.symbols if symbol.is_defined}
    words = set(re.findall(r"\w+", text))
    missing = [name for name in needed if name not in defined | words and not _PROVIDED.fullmatch(name)]
    if missing:
        raise ModelError(
            f"the objects of the library need symbols that nothing defines: {', '.join(missing)}",
            where=where,
            hint="add the object that defines them to the archive, or compile the model for target c",
        )
