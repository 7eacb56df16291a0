"""Bridges between the two ways in which TVM's C calls a function: with bare pointers, or packed.

With a C interface, TVM calls the functions of an external code generator with bare pointers, but some
generators (its own ``ccompiler``) still define them packed. As it stands, such an archive cannot work.
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
    """A function with the packed interface, called ``packed``, that is called with ``count`` pointers."""

    name: str
    count: int

    @property
    def packed(self) -> str:
        return f"{self.name}_packed"

    @property
    def parameters(self) -> str:
        return ", ".join(f"void *a{i}" for i in range(self.count))


def bridged(modules: Sequence[Module]) -> tuple[tuple[Module, ...], str]:
    """Return the modules with such functions renamed, and the C of the bridges; empty if none is needed.

    The packed function gets tensors with data and nothing else.
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
