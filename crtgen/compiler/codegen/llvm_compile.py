"""Compiles generated C to object files: clang produces bitcode, llvmlite links, optimises and emits one
object.

The clang is Zig's; its LLVM must have llvmlite's major version, since bitcode passes between them. Kernels in
assembly and the code of external code generators become separate objects, made by clang: llvmlite has no
assembler for Arm.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import llvmlite.binding as llvm

from crtgen.base.child import run_to_end
from crtgen.base.errors import BuildError, ToolMissingError
from crtgen.base.resources import runtime_dir
from crtgen.base.temporary import TemporaryFolder
from crtgen.boards.core import Core
from crtgen.compiler.codegen.llvm_emit import emit_object, optimise, parse
from crtgen.compiler.codegen.llvm_metadata import metadata_module
from crtgen.compiler.codegen.llvm_target import triple
from crtgen.compiler.codegen.metadata import Registry, describe
from crtgen.compiler.codegen.names import KERNELS
from crtgen.compiler.kernels import Target
from crtgen.compiler.level import find_level

__all__ = ["LlvmRequest", "check_versions", "compile_objects"]

_CLANG = (sys.executable, "-P", "-m", "ziglang", "cc")  # -P: modules of the current folder are no tools
_COMMON = (
    "-g0",
    "-fno-sanitize=all",
    "-fno-stack-protector",
    "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables",
    "-fomit-frame-pointer",
    "-fno-unroll-loops",
    "-fno-vectorize",
    "-fno-slp-vectorize",
)
_TIME_LIMIT = 300.0
_SHOWN = 5


@dataclass(frozen=True, slots=True, eq=False)
class LlvmRequest:
    """A compilation: C sources and headers by name, the registry if there is one, and the target.

    ``definitions`` are macros, ``include_dirs`` additional folders below the sources. ``apart`` are C files
    of external code generators, which may contain assembly.
    """

    sources: Mapping[str, str]
    registry: Registry | None
    target: Target
    definitions: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    apart: frozenset[str] = frozenset()


def compile_objects(request: LlvmRequest) -> tuple[bytes, dict[str, bytes]]:
    """Return the object of all C code and the metadata, and one for each assembly file and each file in
    ``apart``.

    Raises ``BuildError`` with clang's first errors.
    """
    check_versions()
    with TemporaryFolder() as directory:
        for path, text in request.sources.items():
            file = directory / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        sources = sorted(path for path in request.sources if PurePosixPath(path).suffix in (".c", ".S"))
        assembled = [path for path in sources if path.endswith(".S") or path in request.apart]
        modules = [_bitcode(directory, path, request) for path in sources if path not in assembled]
        if request.registry is not None:
            modules.insert(0, parse(str(metadata_module(describe(request.registry), request.target.core))))
        module, *others = modules
        for other in others:
            _link(module, other)
        optimise(module, request.target.core)
        code = emit_object(parse(_own_sections(module)), request.target.core)
        return code, {path: _assemble(directory, path, request) for path in assembled}


@cache
def check_versions() -> None:
    """Raise ``ToolMissingError`` unless clang and llvmlite have the same major version of LLVM."""
    found = re.search(r"clang version (\d+)", _run(["--version"], Path.cwd()))
    clang, own = int(found[1]) if found else 0, llvm.llvm_version_info[0]
    if clang != own:
        raise ToolMissingError(
            f"ziglang has LLVM {clang}, llvmlite has LLVM {own}: their bitcode is incompatible",
            hint=f"install a ziglang with LLVM {own}, or an llvmlite with LLVM {clang}",
        )


def _target_flags(core: Core) -> list[str]:
    # Target and core. Words may be read from anywhere: clang denies that to freestanding code otherwise.
    # Enumerations are as small as arm-none-eabi-gcc's, whose linker warns of others.
    if core.arch == "host":
        return ["-mcpu=baseline", "-fPIC"]
    unaligned = "-munaligned-access" if core.unaligned else "-mno-unaligned-access"
    return [*core.zig_flags, unaligned, "-fshort-enums", "-meabi", "gnu"]


def _bitcode(directory: Path, path: str, request: LlvmRequest) -> Any:
    # The module of one C file, not yet optimised; ``memcpy`` and the like are known to be the library's.
    # Kernels stay functions of their own, which models share and profiles show.
    how = ["-Xclang", "-disable-llvm-passes", "-emit-llvm"]
    how += ["-finline-hint-functions"] if path.endswith(f"{KERNELS}.c") else []
    module = llvm.parse_bitcode(_clang(directory, path, request, how))
    module.triple = triple(request.target.core)
    module.name = path
    return module


def _assemble(directory: Path, path: str, request: LlvmRequest) -> bytes:
    return _clang(directory, path, request, ["-ffunction-sections", "-fdata-sections"])


def _clang(directory: Path, path: str, request: LlvmRequest, how: Sequence[str]) -> bytes:
    include = runtime_dir() / "include"
    folders = [f"-I{folder}" for folder in (".", *request.include_dirs)] + [f"-I{include}"]
    if request.target.core.arch != "host":
        folders += ["-isystem", str(include / "freestanding")]
    flags = [*_target_flags(request.target.core), *_COMMON, "-std=c11", "-fhosted"]
    flags += [find_level(request.target.optimize).flag]
    flags += ["-Wno-incompatible-pointer-types"]  # in C that TVM generated
    flags += [f"-D{definition}" for definition in request.definitions]
    _run([*flags, *how, *folders, "-c", path, "-o", f"{path}.out"], directory)
    return (directory / f"{path}.out").read_bytes()


def _link(module: Any, other: Any) -> None:
    name = other.name
    try:
        module.link_in(other)
    except RuntimeError as error:
        raise BuildError(f"LLVM cannot link the models: {error}", where=name) from error


def _own_sections(module: Any) -> str:
    """Return the module's IR with a section for each function and constant, like ``-ffunction-sections``.

    The linker can then drop unused ones, and linker scripts can place them by name. Sections named in the
    source are kept. The IR is edited as text, since llvmlite cannot set a section.
    """
    placed = {}
    for value in (*module.functions, *module.global_variables):
        head = next(line for line in str(value).splitlines() if not line.startswith(";"))
        if not value.is_declaration and ' section "' not in head:
            placed[head] = _in_section(head, value)
    return "\n".join(placed.get(line, line) for line in str(module).splitlines())


def _in_section(head: str, value: Any) -> str:
    # The first line of a definition with a section of its own, which comes before the alignment.
    if value.is_function:
        head, section, end = head.removesuffix(" {"), f' section ".text.{value.name}"', " {"
    elif "constant" in head.partition(" global ")[0].split():
        section, end = f', section ".rodata.{value.name}"', ""
    else:
        return head
    if not head.rpartition("align ")[2].isdigit():
        return head + section + end
    rest = head.rpartition("align ")[0].rstrip(", ")
    return rest + section + head[len(rest) :] + end


def _run(arguments: Sequence[str], directory: Path) -> str:
    code, output = run_to_end([*_CLANG, *arguments], directory=directory, time_limit=_TIME_LIMIT)
    if code is None:
        raise BuildError(f"clang took more than {_TIME_LIMIT:.0f} s", log=output)
    if code != 0:
        lines = [line for line in output.splitlines() if "error:" in line] or output.splitlines()
        raise BuildError("\n".join(["clang refuses the generated C", *lines[:_SHOWN]]), log=output)
    return output
