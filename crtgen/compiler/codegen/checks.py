"""Checks of names and sizes in modules and projects, from any source.

Everything that is written unquoted to C, CMake, a linker script or a path is checked here.
"""

import re
from collections.abc import Iterable

from crtgen.base.errors import CorruptModelError
from crtgen.base.files import relative_path

__all__ = ["check_c_names", "check_file", "check_sizes", "check_word"]

SIZE_LIMIT = 1 << 32
"""Limit of any size in bytes; no device has as much memory."""

_C_NAME = re.compile(r"[A-Za-z_]\w{0,254}", re.ASCII)
_FILE = re.compile(r"[\w./+-]{1,400}", re.ASCII)
_WORD = re.compile(r"[\w.+-]{1,400}", re.ASCII)


def check_c_names(what: str, names: Iterable[str]) -> None:
    """Raise ``CorruptModelError`` unless each name is a C identifier."""
    for name in names:
        if _C_NAME.fullmatch(name) is None:
            raise CorruptModelError(f"{what}: {name!r} is not a C identifier")


def check_file(path: str) -> None:
    """Raise ``CorruptModelError`` unless it is a relative path of letters, digits and ``_.+-``.

    Such a path has no special meaning to CMake, Ninja, a compiler or a shell.
    """
    try:
        usual = relative_path(path) == path
    except ValueError as error:
        raise CorruptModelError(f"the file {error}") from error
    if not usual or _FILE.fullmatch(path) is None or path.startswith("-"):
        raise CorruptModelError(f"no generated file may be called {path!r}")


def check_word(what: str, text: str) -> None:
    """Raise ``CorruptModelError`` unless it is one word of letters, digits and ``_.+-``."""
    if _WORD.fullmatch(text) is None:
        raise CorruptModelError(f"{what}: {text!r} may have letters, digits and _.+- only")


def check_sizes(limit: int = SIZE_LIMIT, **sizes: int) -> None:
    """Raise ``CorruptModelError`` unless each is a valid size or count, below the limit."""
    for what, size in sizes.items():
        if not 0 <= size < limit:
            raise CorruptModelError(f"{what} is {size}: it has to be from 0 to {limit - 1}")
