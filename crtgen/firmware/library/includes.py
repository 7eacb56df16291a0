"""Resolves the headers that sources include: the archive's, the runtime's, C's, those of external
libraries.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from crtgen.base.errors import ModelError, UnsupportedError, UsageError
from crtgen.base.resources import runtime_dir
from crtgen.compiler.byoc import Generator, find_generator
from crtgen.compiler.kernels.engine.sources import SourceLibrary
from crtgen.firmware.library.module import CSource, Module

__all__ = ["resolve_includes"]

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]++)[>"]', re.MULTILINE)
# Headers of C, and the one of compilers for Arm.
_C_HEADERS = frozenset(
    (
        *("arm_acle.h", "assert.h", "errno.h", "float.h", "inttypes.h", "limits.h", "math.h", "stdalign.h"),
        *("stdarg.h", "stdbool.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h"),
    )
)
_OWN_TARGETS = ("c", "llvm")


def resolve_includes(
    modules: Iterable[Module],
    headers: Collection[str],
    where: str,
    targets: Iterable[str] = (),
    generators: Sequence[Generator] = (),
) -> tuple[SourceLibrary, ...]:
    """Return the libraries that sources need for headers that nothing else provides.

    ``headers`` are the archive's. ``targets`` are TVM's targets of the model (``cmsis-nn -mcpu=cortex-m4``):
    besides ``generators``, generators of these names are asked for their sources. Refuses C++ and unresolved
    headers.
    """
    sources = [module for module in modules if isinstance(module, CSource)]
    for module in sources:
        if module.suffix in ("cc", "cpp"):
            raise UnsupportedError(f"{module.name} is C++", where=where, hint="export the model as C")
    wanted = dict.fromkeys(header for module in sources for header in _INCLUDE.findall(module.code))
    missing = [h for h in wanted if h not in headers and not _is_header(h)]
    if not missing:
        return ()
    names = [name for name in (t.partition(" ")[0] for t in targets) if name not in _OWN_TARGETS]
    asked, hint = _asked(generators, names)
    code = "\n".join(module.code for module in sources)
    found = tuple(filter(None, (generator.library_for(missing, code) for generator in asked)))
    there = {header for library in found for header in _headers(library)}
    if not there.issuperset(missing):
        library = f"the sources of {' and '.join(names)}" if names else "headers that are not there"
        raise ModelError(
            f"the code of the library needs {library}: {', '.join(h for h in missing if h not in there)}",
            where=where,
            hint=hint or "export the model for target c alone, without the library of these headers",
        )
    return found


def _asked(generators: Sequence[Generator], names: Iterable[str]) -> tuple[list[Generator], str]:
    # The generators to ask, and what those that cannot be made need.
    asked, hint = list(generators), ""
    for name in names:
        if name not in (generator.name for generator in asked):
            try:
                asked.append(find_generator(name))
            except UsageError as error:
                if error.where:
                    raise
                hint = error.hint or ""
    return asked, hint


def _headers(library: SourceLibrary) -> Iterator[str]:
    # Spellings of ``#include`` for the headers of a library.
    for path, _ in library.files:
        for folder in library.include_dirs:
            if PurePosixPath(path).is_relative_to(folder):
                yield PurePosixPath(path).relative_to(folder).as_posix()


def _is_header(name: str) -> bool:
    return name in _C_HEADERS or (runtime_dir() / "include" / name).is_file()
