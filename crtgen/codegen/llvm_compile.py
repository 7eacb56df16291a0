"""Generated C to one object file: clang makes bitcode of it, llvmlite links, optimises and emits.

The clang is Zig's; its LLVM has to be of llvmlite's major version, since bitcode passes between them. Kernels
with assembly inside C functions are the exception to the last step: llvmlite has no assembler for Arm, so
clang emits the object, from the module that llvmlite has linked and optimised, and optimises nothing itself.
"""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import llvmlite.binding as llvm

from crtgen.boards.core import Core
from crtgen.codegen.llvm_emit import emit_object, optimise, parse
from crtgen.codegen.llvm_metadata import metadata_module
from crtgen.codegen.llvm_target import triple
from crtgen.codegen.metadata import Registry, describe
from crtgen.errors import BuildError, ToolMissingError
from crtgen.resources import runtime_dir

__all__ = ["LlvmRequest", "check_versions", "compile_object"]

_CLANG = (sys.executable, "-m", "ziglang", "cc")
_LEVEL = {"size": "-Os", "balanced": "-O2", "speed": "-O3"}
_COMMON = (
    "-g0",
    "-fno-sanitize=all",
    "-fno-stack-protector",
    "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables",
    "-fomit-frame-pointer",
)
_NOT_PLACED = r'^(?![^\n]* section ")'
_FUNCTION = re.compile(_NOT_PLACED + r"(define [^\n]*?@([\w.]+)\([^\n]*?)( align \d+)? \{$", re.MULTILINE)
_CONSTANT = re.compile(
    _NOT_PLACED + r"(@([\w.]+) = (?!external )(?:[a-z_]+ )*constant [^\n]*?)((?:, align \d+)?)$", re.MULTILINE
)
_TIME_LIMIT = 300.0
_SHOWN = 5


@dataclass(frozen=True, slots=True, eq=False)
class LlvmRequest:
    """What is to be compiled: C sources and headers by name, the registry, and for which core.

    ``definitions`` are macros, ``include_dirs`` further folders below the sources.
    """

    sources: Mapping[str, str]
    registry: Registry
    core: Core
    optimize: str = "balanced"
    definitions: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()


def compile_object(request: LlvmRequest) -> bytes:
    """The object file. Raises ``BuildError`` with clang's first errors."""
    check_versions()
    with TemporaryDirectory(prefix="crtgen-llvm-") as name:
        directory = Path(name)
        for path, text in request.sources.items():
            file = directory / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        modules = [_bitcode(directory, path, request) for path in sorted(_c_files(request.sources))]
        module = parse(str(metadata_module(describe(request.registry), request.core)))
        for other in modules:
            _link(module, other)
        optimise(module, request.core, request.optimize)
        text = _own_sections(str(module))
        if _has_assembly(text):
            return _emitted_by_clang(directory, text, request)
        return emit_object(parse(text), request.core, request.optimize)


@cache
def check_versions() -> None:
    """Raise ``ToolMissingError`` unless clang and llvmlite are of one major version of LLVM."""
    found = re.search(r"clang version (\d+)", _run(["--version"], Path.cwd()))
    clang, own = int(found[1]) if found else 0, llvm.llvm_version_info[0]
    if clang != own:
        raise ToolMissingError(
            f"ziglang has LLVM {clang}, llvmlite has LLVM {own}: bitcode does not pass between them",
            hint=f"install a ziglang with LLVM {own}, or an llvmlite with LLVM {clang}",
        )


def _c_files(sources: Sequence[str] | Mapping[str, str]) -> list[str]:
    return [path for path in sources if PurePosixPath(path).suffix == ".c"]


def _target_flags(core: Core) -> list[str]:
    """Target and core. Words may be read from anywhere: clang denies that to freestanding code otherwise.

    Enumerations are as small as arm-none-eabi-gcc's, whose linker warns of others.
    """
    if core.arch == "host":
        return ["-mcpu=baseline", "-fPIC"]
    unaligned = "-munaligned-access" if core.unaligned else "-mno-unaligned-access"
    return [*core.zig_flags, unaligned, "-fshort-enums"]


def _bitcode(directory: Path, path: str, request: LlvmRequest) -> Any:
    """The module of one C file, not yet optimised; ``memcpy`` and the like are known to be the library's."""
    include = runtime_dir() / "include"
    folders = [f"-I{folder}" for folder in (".", *request.include_dirs)] + [f"-I{include}"]
    if request.core.arch != "host":
        folders += ["-isystem", str(include / "freestanding")]
    flags = ["-std=c11", "-fhosted", _LEVEL[request.optimize], "-Xclang", "-disable-llvm-passes"]
    flags += ["-Wno-incompatible-pointer-types"]  # in C that TVM generated
    flags += [f"-D{definition}" for definition in request.definitions]
    output = f"{path}.bc"
    _run(
        [*_target_flags(request.core), *_COMMON, *flags, *folders, "-emit-llvm", "-c", path, "-o", output],
        directory,
    )
    module = llvm.parse_bitcode((directory / output).read_bytes())
    module.triple = triple(request.core)
    module.name = path
    return module


def _link(module: Any, other: Any) -> None:
    name = other.name
    try:
        module.link_in(other)
    except RuntimeError as error:
        raise BuildError(f"LLVM cannot link the models: {error}", where=name) from error


def _own_sections(text: str) -> str:
    """A section for each function and constant, as ``-ffunction-sections`` and ``-fdata-sections`` make them.

    The linker can then leave out what nobody calls, and linker scripts can place what they name. What the
    source itself has put into a section stays there.
    """
    text = _FUNCTION.sub(r'\1 section ".text.\2"\3 {', text)
    return _CONSTANT.sub(r'\1, section ".rodata.\2"\3', text)


def _has_assembly(text: str) -> bool:
    return re.search(r'\basm (?:sideeffect |alignstack |unwind )*"', text) is not None


def _emitted_by_clang(directory: Path, text: str, request: LlvmRequest) -> bytes:
    (directory / "linked.bc").write_bytes(parse(text).as_bitcode())
    flags = [_LEVEL[request.optimize], "-Xclang", "-disable-llvm-passes"]
    _run([*_target_flags(request.core), *_COMMON, *flags, "-c", "linked.bc", "-o", "linked.o"], directory)
    return (directory / "linked.o").read_bytes()


def _run(arguments: Sequence[str], directory: Path) -> str:
    """Run clang; what it printed."""
    try:
        done = subprocess.run(
            [*_CLANG, *arguments], cwd=directory, capture_output=True, text=True, timeout=_TIME_LIMIT
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"clang took more than {_TIME_LIMIT:.0f} s") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error:" in line] or done.stderr.splitlines()
        raise BuildError("\n".join(["clang refuses the generated C", *lines[:_SHOWN]]), log=done.stderr)
    return done.stdout + done.stderr
