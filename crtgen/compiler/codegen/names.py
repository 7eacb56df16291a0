"""Names as C identifiers, C strings and comments."""

import re
from collections.abc import Iterable

from crtgen.base.errors import UsageError

__all__ = [
    "ARENA",
    "KERNELS",
    "PARAM",
    "PLAIN_PARAM",
    "REGISTRY",
    "WEIGHTS",
    "arena_macro",
    "arena_symbol",
    "c_identifier",
    "c_string",
    "check_model_name",
    "comment",
    "param_symbol",
    "symbol_stem",
    "unique_identifiers",
]

PARAM = "__tvm_param__"
"""Prefix of the symbols of constants, as in TVM."""

PLAIN_PARAM = "crt_param_"
"""Prefix of constants if no registry needs TVM's names: two underscores are reserved for the compiler."""

ARENA = "_arena"
"""Suffix of the symbols of arenas."""

KERNELS = "_kernels"
WEIGHTS = "_weights"
REGISTRY = "_registry"
"""Suffixes of file names: functions of layers, constants, tables of the registry."""

# Of C and C++, and of GNU C.
_KEYWORDS = re.compile(
    "alignas|alignof|and|and_eq|asm|auto|bitand|bitor|bool|break|case|catch|char|char16_t|char32_t|char8_t|class|"
    "compl|concept|const|const_cast|consteval|constexpr|constinit|continue|co_await|co_return|co_yield|decltype|"
    "default|delete|do|double|dynamic_cast|else|enum|explicit|export|extern|false|float|for|friend|goto|if|inline|"
    "int|long|mutable|namespace|new|noexcept|not|not_eq|nullptr|operator|or|or_eq|private|protected|public|register|"
    "reinterpret_cast|requires|restrict|return|short|signed|sizeof|static|static_assert|static_cast|struct|switch|"
    "template|this|thread_local|throw|true|try|typedef|typeid|typename|typeof|typeof_unqual|union|unsigned|using|"
    "virtual|void|volatile|wchar_t|while|xor|xor_eq"
)

_LONGEST = 48

# Headers of the C library, and those that they include.
_HEADERS = re.compile(
    "alloca|assert|complex|ctype|endian|errno|features|fenv|float|inttypes|iso646|limits|locale|malloc|math|"
    "memory|newlib|reent|sched|setjmp|signal|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|"
    "stdnoreturn|string|strings|tgmath|threads|time|uchar|unistd|wchar|wctype"
)

# Prefixes of the C runtime's files and functions.
_RUNTIME = "crt_"


def check_model_name(name: str) -> None:
    """Raise ``UsageError`` if this cannot be the name of a model's files and symbols."""
    if not name.isidentifier() or not name.isascii():
        raise UsageError(
            f"{name!r} is not a C identifier, so it cannot name a model", hint="use letters and digits"
        )
    if _HEADERS.fullmatch(name):
        raise UsageError(f"a model cannot be called {name}: C has a header {name}.h", hint="rename the file")
    if name.startswith(_RUNTIME):
        raise UsageError(
            f"a model cannot be called {name}: {_RUNTIME} is the C runtime's", hint="rename the file"
        )


def c_identifier(text: str) -> str:
    """Return ``text`` as an identifier of at most 48 characters, valid in C and C++; not necessarily
    unique.
    """
    name = re.sub(r"_+", "_", re.sub(r"[^0-9A-Za-z]", "_", text))[:_LONGEST].strip("_")
    if not name or name[0].isdigit() or _KEYWORDS.fullmatch(name):
        name = f"x_{name}"
    return name


def param_symbol(*words: str) -> str:
    return PARAM + "_".join(words)


def arena_symbol(model: str, part: str = "") -> str:
    return model + ARENA + (f"_{c_identifier(part)}" if part else "")


def arena_macro(model: str, part: str = "") -> str:
    """Return the macro for the address of the first usable byte of a model's arena, after its guard, or of a
    part of it.
    """
    return arena_symbol(model, part).upper()


def symbol_stem(name: str) -> str:
    """Return the prefix of an imported model's symbols: its name, if a symbol can begin with that.

    Unlike an identifier it may be a keyword, since something always follows: ``default_model``.
    """
    return name if name.isidentifier() and name.isascii() else c_identifier(name)


def unique_identifiers(texts: Iterable[str], upper: bool = False) -> dict[str, str]:
    """Return a different identifier for each text; duplicates get ``_2``, ``_3`` ...

    With ``upper`` they are in capitals.
    """
    chosen: dict[str, str] = {}
    taken: set[str] = set()
    for text in texts:
        if text in chosen:
            continue
        base = name = c_identifier(text).upper() if upper else c_identifier(text)
        count = 1
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        taken.add(name)
        chosen[text] = name
    return chosen


def c_string(text: str) -> str:
    return '"' + "".join(map(_escape, text.encode())) + '"'


def _escape(byte: int) -> str:
    plain = 0x20 <= byte < 0x7F and byte not in b'"\\?'
    return chr(byte) if plain else f"\\{byte:03o}"


def comment(text: str) -> str:
    """Return ``text`` on one line, without trigraphs and without anything that begins or ends a comment."""
    line = "".join(c if c.isprintable() and c.isascii() else "_" for c in text)
    return re.sub(r"\?(?=\?)", "? ", line.replace("*/", "* /").replace("/*", "/ *"))
