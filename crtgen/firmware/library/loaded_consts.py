"""Constants that a start-up step would load, as const data beside the code that uses them.

The C code that TVM writes for an external code generator declares, in a part for C++ compilers, an array
``<symbol>_consts`` that a loader fills; functions read ``<symbol>_consts[i]->data``. Here the C++ part is
omitted, and the array is defined in C.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from crtgen.compiler.codegen.names import c_identifier, param_symbol
from crtgen.compiler.codegen.render import render
from crtgen.firmware.library.c_names import c_bytes
from crtgen.firmware.library.module import CSource, Module
from crtgen.firmware.library.params import NDArray

__all__ = ["with_loaded_consts"]

_ONLY_CXX = re.compile(r"^#ifdef __cplusplus\n(?:(?!#)[^\n]*\n|#include[^\n]*\n)*#endif\n?", re.MULTILINE)
_CHECK = re.compile(r'^[ \t]*+ICHECK\(!(\w+)_consts\.empty\(\)\) << "[^"\n]*";\n', re.MULTILINE)
_USE = re.compile(r"\b(\w+)_consts\b(?:\[(\d{1,9})\]->data\b)?")
_CXX = re.compile(r"::|\bICHECK|\btemplate\b|__cplusplus")


def with_loaded_consts(
    module: Module, users: Mapping[str, Sequence[str]], arrays: Mapping[str, NDArray]
) -> Module:
    """Return the module with its constants linked; the module itself if its C code does not have TVM's form
    for them.

    ``users`` maps each symbol to the names of its constants, in order; ``arrays`` has the constants.
    """
    mine = {symbol: users[symbol] for symbol in module.functions if users.get(symbol)}
    if not isinstance(module, CSource) or not mine:
        return module
    code = _ONLY_CXX.sub("", module.code)
    code = _CHECK.sub(lambda found: "" if found[1] in mine else found[0], code)
    uses: dict[str, list[str]] = {symbol: [] for symbol in mine}
    for symbol, use in _USE.findall(code):
        if symbol in uses:
            uses[symbol].append(use)
    for symbol, names in mine.items():
        if not uses[symbol] or any(not use or int(use) >= len(names) for use in uses[symbol]):
            return module
    if _CXX.search(code):
        return module
    used = dict.fromkeys(name for names in mine.values() for name in names)
    symbols = {name: param_symbol(c_identifier(name)) for name in used}
    head = render(
        "loaded_consts.c.j2",
        arrays=[(symbols[name], c_bytes(arrays[name].array.tobytes())) for name in used],
        users=[(symbol, [symbols[name] for name in names]) for symbol, names in mine.items()],
    )
    return replace(module, code=head + code, const_vars=tuple(symbols.values()), consts_linked=True)
