"""Kernels that call other kernels: the arguments that they pass on, and the scratch buffers of the
callees.
"""

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
# A smaller kernel is preferred if it takes at most this many times as long as the fastest.
_NEXT = 1.03


def find_part(op: Op, sig: Signature, target: Target) -> Part | None:
    """Return the fastest kernel for an operator, or None; for speed, the smallest of those that are nearly as
    fast.

    If loops may have any length, memory has priority.
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
    """Cache of the parts found for one target; the search for row loops requests the same ones repeatedly."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        self._numbers: dict[Hashable, int] = {}

    def find(self, op: Op, sig: Signature) -> Part | None:
        return self.once((op, described(sig)), lambda: find_part(op, sig, self.target))

    def number(self, key: Hashable) -> int:
        """Return a small integer that identifies ``key``, because it can be hashed faster."""
        return self._numbers.setdefault(key, len(self._numbers))


def described(sig: Signature) -> Hashable:
    """Return a key that is equal for signatures that only differ in the names of non-constant values."""
    values = (*sig.inputs, *sig.outputs)
    return tuple(v if v.is_constant else (v.shape, v.dtype, v.quant) for v in values)


def arguments(parts: Sequence[Part]) -> tuple[tuple[str, ...], ...]:
    """Return the arguments of each part apart from its images: constants, and ``work`` if it has scratch."""
    return tuple(
        (*(_name(number, const) for const in part.kernel.consts), *(["work"] if part.kernel.scratch else []))
        for number, part in enumerate(parts)
    )


def aligned(offset: int) -> int:
    """Round an offset in the scratch buffer up to the alignment of parts."""
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
    """Build a kernel from ``parts``, which share the scratch buffer from offset ``begin`` on."""
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
