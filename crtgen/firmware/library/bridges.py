"""Bridges between the two calling conventions of TVM's C code: bare pointers and packed arguments.

With a C interface, TVM calls the functions of an external code generator with bare pointers, but some
generators (TVM's own ``ccompiler``) still define them with the packed convention. Without a bridge, such an
archive cannot work.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from crtgen.compiler.codegen.render import render
from crtgen.firmware.library.module import CSource, Module

__all__ = ["Bridge", "bridged"]

_DECLARATION = re.compile(r"^(?:TVM_DLL )?int32_t (\w+)\(((?:\w+\s*\*(?:, )?)+)\);", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Bridge:
    """A function with the packed convention, named ``packed``, that callers pass ``count`` pointers."""

    name: str
    count: int

    @property
    def packed(self) -> str:
        return f"{self.name}_packed"

    @property
    def parameters(self) -> str:
        return ", ".join(f"void *a{i}" for i in range(self.count))


def bridged(modules: Sequence[Module]) -> tuple[tuple[Module, ...], str]:
    """Return the modules with such functions renamed, and the C code of the bridges; empty if none is needed.

    The packed function gets tensors whose only content is their data pointer.
    """
    sources = [m for m in modules if isinstance(m, CSource)]
    packed = {f for m in sources for f in m.functions}
    bridges = {
        match[1]: Bridge(match[1], match[2].count("*"))
        for m in sources
        for match in _DECLARATION.finditer(m.code)
        if match[1] in packed
    }
    chosen = tuple(bridges.values())
    renamed = tuple(_renamed(m, bridges) if isinstance(m, CSource) else m for m in modules)
    return renamed, render("packed_bridges.c.j2", bridges=chosen) if chosen else ""


def _renamed(module: CSource, bridges: dict[str, Bridge]) -> CSource:
    mine = [bridges[f] for f in module.functions if f in bridges]
    return replace(
        module,
        defines=(*module.defines, *((b.name, b.packed) for b in mine)),
        functions=tuple(bridges[f].packed if f in bridges else f for f in module.functions),
    )
