"""The tables of the functions that layers share when optimising for size."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from crtgen.compiler.kernels.shared.tables import places_in

__all__ = ["DenseTable", "MveSharedView", "SharedDenseView"]


@dataclass(frozen=True, slots=True)
class DenseTable:
    """A fully connected layer's parameters; ``first`` bytes fill the first vector, ``rounds`` more vectors
    follow.
    """

    outputs: int
    zero_point: int
    low: int
    high: int
    rounds: int
    first: int
    multiplier: int
    shift: int


@dataclass(frozen=True, slots=True)
class MveSharedView:
    """Parameter of the function: if outputs are clamped. Everything else is in the table."""

    clamped: bool

    @property
    def at(self) -> Mapping[str, int]:
        return places_in("mve_conv")


@dataclass(frozen=True, slots=True)
class SharedDenseView:
    clamped: bool

    @property
    def at(self) -> dict[str, int]:
        return {f.name: 4 * i for i, f in enumerate(fields(DenseTable))}
