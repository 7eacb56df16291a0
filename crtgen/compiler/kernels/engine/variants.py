"""All kernels of a layer: each design in each variant, under names that are stable between versions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import applicable
from crtgen.network.ir import Op, Signature

__all__ = ["VARIANTS", "Candidate", "candidates", "is_coded"]

VARIANTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "speed": {"optimize": "speed"},
        "size": {"optimize": "size"},
        "short": {"optimize": "speed", "unrolled": 0.5},
        "shorter": {"optimize": "speed", "unrolled": 0.25},
        "long": {"optimize": "speed", "unrolled": 2.0},
        "longer": {"optimize": "speed", "unrolled": 4.0},
        "low": {"optimize": "speed", "stripe": 0.5},
        "high": {"optimize": "speed", "stripe": 2.0},
        "coded": {"optimize": "speed", "coded": True},
        "coded small": {"optimize": "size", "coded": True},
    }
)
"""Changes of the target that each variant makes: speed or size, unrolling, stripe height, coded weights."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A kernel, its design's name and its variant, the first in ``VARIANTS`` that yields this kernel.

    If several designs have the same name, the variants of all except the first end with a number.
    """

    design: str
    variant: str
    kernel: Kernel

    @property
    def key(self) -> tuple[str, str]:
        return self.design, self.variant


def candidates(op: Op, sig: Signature, target: Target, coded: bool = False) -> tuple[Candidate, ...]:
    """Return all distinct kernels of a layer, independent of the target's level.

    ``coded``: include kernels that decode weights with any number of distinct values.
    """
    found: dict[tuple[str, str], Candidate] = {}
    seen = set()
    for variant, changes in VARIANTS.items():
        if is_coded(variant) and not coded:
            continue
        for kernel in applicable(op, sig, replace(target, expanded=True, **changes)):
            if (content := content_of(kernel)) not in seen:
                seen.add(content)
                name = next(n for n in _numbered(variant) if (kernel.design, n) not in found)
                found[kernel.design, name] = Candidate(kernel.design, name, kernel.priced(target))
    return tuple(found.values())


def is_coded(variant: str) -> bool:
    return bool(VARIANTS.get(variant.rstrip(" 0123456789"), {}).get("coded"))


def _numbered(variant: str) -> Iterator[str]:
    yield variant
    number = 2
    while True:
        yield f"{variant} {number}"
        number += 1


def content_of(kernel: Kernel) -> tuple[Any, ...]:
    """Return a key that distinguishes the kernels of a layer: code, arguments and memory."""
    consts = tuple((const.name, const.dtype, const.shape) for const in kernel.consts)
    parts = tuple(content_of(part.kernel) for part in kernel.parts)
    return kernel.function, consts, kernel.scratch, parts
