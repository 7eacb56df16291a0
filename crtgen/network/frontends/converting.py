"""Common parts of converters: finding their tables, and properties of an operator."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, ClassVar, Generic, TypeVar

from crtgen.network.frontends.layers import NamedTensor
from crtgen.network.frontends.refusals import NotConstant
from crtgen.network.ir import Array, shape_text

__all__ = ["FileLayer", "all_rows"]

Tensor = TypeVar("Tensor", bound=NamedTensor)


def all_rows(package: str, path: Iterable[str]) -> Mapping[str, Any]:
    modules = [import_module(f"{package}.{found.name}") for found in iter_modules(path)]
    return dict(sorted(item for m in modules for item in getattr(m, "CONVERTERS", {}).items()))


class FileLayer(Generic[Tensor]):
    """An operator of a file with its tensors. Converters raise ``ValueError`` if it is invalid."""

    __slots__ = ()

    longest: ClassVar[int]

    inputs: tuple[Tensor | None, ...]

    @property
    def x(self) -> Tensor:
        return self.tensor(0)

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """All inputs. Raises ``ValueError`` if one is absent."""
        return tuple(self.tensor(i) for i in range(len(self.inputs)))

    def has(self, position: int) -> bool:
        return position < len(self.inputs) and self.inputs[position] is not None

    def tensor(self, position: int) -> Tensor:
        tensor = self.inputs[position] if position < len(self.inputs) else None
        if tensor is None:
            raise ValueError(f"input {position} is missing")
        return tensor

    def constant(self, position: int, role: str) -> Array:
        tensor = self.tensor(position)
        if tensor.data is None:
            raise NotConstant(f"{role} that are computed at run time; supported: constants")
        return tensor.data

    def integers(self, position: int, role: str) -> list[int]:
        data = self.constant(position, role)
        if data.dtype.kind != "i" or data.size > self.longest:
            raise ValueError(f"the {role} are {shape_text(data.shape)} of {data.dtype.name}")
        return [int(i) for i in data.reshape(-1).tolist()]

    def axis(self, number: int, rank: int) -> int:
        """Return an axis index below ``rank``; negative ones count from the last axis."""
        axis = number + rank if number < 0 else number
        if not 0 <= axis < rank:
            raise ValueError(f"there is no axis {number} of {rank}")
        return axis
