"""Kernels that call other kernels: what they pass on to these, and where the scratch of these is."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Part, Target
from crtgen.compiler.kernels.engine.known import Known
from crtgen.compiler.kernels.engine.registry import most_special
from crtgen.compiler.level import find_level
from crtgen.network.ir import Op, Signature

__all__ = ["Parts", "aligned", "arguments", "assemble", "described", "find_part"]

_ALIGN = 16  # of the parts' scratch
_NEXT = 1.03
"""Times the fastest: what is next to it."""


def find_part(op: Op, sig: Signature, target: Target) -> Part | None:
    """The fastest kernel for an operator, if there is one; but for speed, the smallest next to it.

    Where loops may be of any length, memory counts first.
    """
    level = find_level(target.optimize)
    kinds = level.kernels if level.streams else (target.optimize,)
    found = [kernel for kind in kinds for kernel in most_special(op, sig, target.of_kernels(kind))]
    if not found:
        return None
    if level.streams:
        least = min(kernel.scratch for kernel in found)
        found = sorted((k for k in found if k.scratch == least), key=lambda k: k.cost.time)
    most = found[0].cost.time * (1 if target.optimize == "speed" else _NEXT)
    near = [kernel for kernel in found if kernel.cost.time <= most]
    return Part(op.name, sig, min(near, key=lambda kernel: kernel.cost.code))


class Parts(Known):
    """What loops for ``target`` consist of, each found once: who tries chains asks for it again and again."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        self._numbers: dict[Hashable, int] = {}

    def find(self, op: Op, sig: Signature) -> Part | None:
        """As ``find_part``."""
        return self.once((op, described(sig)), lambda: find_part(op, sig, self.target))

    def number(self, key: Hashable) -> int:
        """What stands for all that is equal, and is looked up faster."""
        return self._numbers.setdefault(key, len(self._numbers))


def described(sig: Signature) -> Hashable:
    """The same for signatures with the same constants that nothing but names of the others tells apart."""
    values = (*sig.inputs, *sig.outputs)
    return tuple(v if v.is_constant else (v.shape, v.dtype, v.quant) for v in values)


def arguments(parts: Sequence[Part]) -> tuple[tuple[str, ...], ...]:
    """What each part is given behind its images: constants, and ``work`` if it has scratch."""
    return tuple(
        (*(_name(number, const) for const in part.kernel.consts), *(["work"] if part.kernel.scratch else []))
        for number, part in enumerate(parts)
    )


def aligned(offset: int) -> int:
    """The offset in scratch from which on parts have theirs."""
    return -(-offset // _ALIGN) * _ALIGN


def assemble(
    design: str,
    template: str,
    view: Any,
    parts: Sequence[Part],
    *,
    begin: int,
    inplace: tuple[InPlace, ...],
    work: Work,
) -> Kernel:
    """The kernel of ``parts`` that share the scratch from offset ``begin`` on."""
    return Kernel(
        design=design,
        template=template,
        view=view,
        consts=tuple(const for number, part in enumerate(parts) for const in _consts(number, part)),
        scratch=begin + max(part.kernel.scratch for part in parts),
        inplace=inplace,
        work=work,
        libraries=tuple(dict.fromkeys(library for part in parts for library in part.kernel.libraries)),
        parts=tuple(parts),
    )


def _consts(number: int, part: Part) -> Iterator[Const]:
    return (const.named(_name(number, const)) for const in part.kernel.consts)


def _name(number: int, const: Const) -> str:
    return f"stage{number}_{const.name}"
