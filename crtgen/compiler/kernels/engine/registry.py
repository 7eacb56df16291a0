"""Which designs there are for an operator, and which one a layer gets."""

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from math import inf
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar

from crtgen.base.errors import UnsupportedError
from crtgen.boards.core import Core
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.selection import choose
from crtgen.compiler.level import Level, find_level
from crtgen.network.ir import DType, Graph, Node, Op, Signature, Value, shape_text
from crtgen.network.ops.control import ControlFlow
from crtgen.network.ops.scheme import is_packed

__all__ = ["Design", "RegisteredDesign", "applicable", "design", "most_special", "registered", "select"]

Design = Callable[[Any, Signature, Target], Kernel | None]
Feature: TypeAlias = Literal["base", "dsp", "mve", "narrow", "vfp"]
"""What a core has, or lacks: the name of its attribute."""

_D = TypeVar("_D", bound=Design)


@dataclass(frozen=True, slots=True)
class RegisteredDesign:
    """A design of an operator, and what it applies to, as ``design`` registers it."""

    function: Design
    types: tuple[DType, ...]
    needs: Feature | None
    weights: tuple[int, ...] | None
    to: DType | None
    packed: bool

    def applies(self, sig: Signature, core: Core) -> bool:
        """Whether types, constants and core are those that it is for; it may still refuse shapes."""
        if self.types and (sig.x.dtype not in self.types or sig.y.dtype is not (self.to or sig.x.dtype)):
            return False
        if self.needs is not None and not getattr(core, self.needs):
            return False
        if not self.packed and any(is_packed(sig.x, v) for v in sig.inputs[1:]):
            return False
        constant = tuple(i for i, v in enumerate(sig.inputs) if v.is_constant)
        return self.weights is None or constant == self.weights

    def kernel(self, op: Op, sig: Signature, target: Target) -> Kernel | None:
        """The kernel, or None where the design does not apply.

        Designs know ``speed`` and ``size``; one layer alone is balanced as it is for speed.
        """
        if not self.applies(sig, target.core) or (self.needs is not None and _is_bare(op, sig)):
            return None
        kernel = self.function(op, sig, target.of_one_kernel)
        if kernel is not None and kernel.routines and not target.core.thumb:
            raise UnsupportedError(f"{target.core.name} executes no Thumb code, which {kernel.design} is")
        return kernel and kernel.priced(target)


def _is_bare(op: Op, sig: Signature) -> bool:
    """Whether small integers mean themselves where the operator has quantised ones: such only C computes."""
    small = sig.x.dtype in (DType.INT8, DType.INT16) and sig.x.quant is None
    return small and getattr(op, "parameters", None) is not None


_DESIGNS: dict[type, list[RegisteredDesign]] = {}


def _module_of(entry: RegisteredDesign) -> str:
    return entry.function.__module__


_RANKS: Mapping[Feature | None, int] = {"mve": 0, "dsp": 1, "vfp": 1, "base": 1, "narrow": 1, None: 2}
"""In this order, designs of row loops are tried until one is there."""


def design(
    *operators: type,
    types: tuple[DType, ...] = (),
    needs: Feature | None = None,
    weights: tuple[int, ...] | None = (),
    to: DType | None = None,
    packed: bool = False,
) -> Callable[[_D], _D]:
    """Register a function as a design of these operators, or of all with a trait.

    ``types`` are the element types that the first input may have, any if it is empty; the output has the same
    one, or ``to``. ``needs`` is what the core has to have. ``weights`` are the inputs that have to be
    constant, while no other may be; None: any may be. ``packed`` is whether it also knows weights of the
    narrower type that its scheme has. The function gets (operator, signature, target), the target's level is
    ``speed`` or ``size``; it returns the kernel, or None for a shape or numbers that it does not cover.
    """

    def register(function: _D) -> _D:
        for operator in operators:
            entry = RegisteredDesign(function, types, needs, weights, to, packed)
            insort(_DESIGNS.setdefault(operator, []), entry, key=_module_of)
        return function

    return register


@cache
def _load_designs(core: Core | None) -> None:
    """Import the modules with designs: of the packages for a feature, those of what the core has."""
    for package in ("portable", "base", "dsp", "mve", "vfp"):
        if core is None or package == "portable" or getattr(core, package):
            import_module(f"crtgen.compiler.kernels.{package}")


def registered(operator: type[Op], core: Core | None = None) -> tuple[RegisteredDesign, ...]:
    """Every design of an operator, its own and then those of the traits that it has.

    With a ``core``, others may be missing that are for what it has not. Their order is that of their modules'
    names, whatever was imported first.
    """
    _load_designs(core)
    return tuple(entry for kind in operator.__mro__ for entry in _DESIGNS.get(kind, ()))


def applicable(op: Op, sig: Signature, target: Target) -> list[Kernel]:
    """Every kernel that computes ``op`` on ``target``, cheapest first."""
    return _by_time(registered(type(op), target.core), op, sig, target)


def most_special(op: Op, sig: Signature, target: Target) -> list[Kernel]:
    """Those of ``applicable`` that need most of the core: of Helium, or else of what other cores have.

    Only if there is none, those that need nothing: these are hardly ever as fast.
    """
    for rank in sorted({*_RANKS.values()}):
        entries = (entry for entry in registered(type(op), target.core) if _RANKS[entry.needs] == rank)
        if kernels := _by_time(entries, op, sig, target):
            return kernels
    return []


def _by_time(entries: Iterable[RegisteredDesign], op: Op, sig: Signature, target: Target) -> list[Kernel]:
    kernels = [entry.kernel(op, sig, target) for entry in entries]
    return sorted((k for k in kernels if k is not None), key=lambda k: k.cost.time)


def select(
    graph: Graph,
    target: Target,
    fixed: Mapping[str, Kernel] = MappingProxyType({}),
    most: float = inf,
) -> Mapping[str, Kernel]:
    """The kernel for each node, by node name; ``UnsupportedError`` if one has none.

    Nodes in ``fixed`` have theirs from there. Kernels that need more than ``most`` bytes of the arena are
    left out where others need less.

    Together they are the best by the objective of the level: see ``crtgen.compiler.level`` and ``choose``.
    Control flow has no kernels.
    """
    level = find_level(target.optimize)
    nodes = [node for node in graph.nodes if not isinstance(node.op, ControlFlow)]
    candidates = {
        node.name: [fixed[node.name]] if node.name in fixed else _candidates(graph, node, target, level)
        for node in nodes
    }
    sigs = {node.name: graph.signature(node) for node in nodes}
    if most < inf:
        candidates = {name: _within(most, sigs[name], found) for name, found in candidates.items()}
    return choose(candidates, level, lambda name, kernel: _need(sigs[name], kernel))


def _within(most: float, sig: Signature, kernels: Sequence[Kernel]) -> list[Kernel]:
    """The kernels that need no more, or else those that need least."""
    most = max(most, min(_need(sig, kernel) for kernel in kernels))
    return [kernel for kernel in kernels if _need(sig, kernel) <= most]


def _need(sig: Signature, kernel: Kernel) -> int:
    """Bytes in the arena of what a layer reads and writes, as far over each other as may be, and scratch."""
    apart = sum(v.nbytes for v in (*sig.inputs, *sig.outputs) if not v.is_constant)
    saved = max((_saved(sig.inputs[p.input], sig.outputs[p.output], p) for p in kernel.inplace), default=0)
    return apart - saved + kernel.cost.scratch


def _saved(x: Value, y: Value, permit: InPlace) -> int:
    """Bytes that an output saves which overwrites an input."""
    if x.is_constant:
        return 0
    if permit.exact:
        return x.nbytes if x.nbytes == y.nbytes else 0
    return x.nbytes + y.nbytes - max(y.nbytes, x.nbytes + permit.lead)


def _candidates(graph: Graph, node: Node, target: Target, level: Level) -> list[Kernel]:
    sig = graph.signature(node)
    where = f"{graph.name}: {node.name}"
    try:
        kinds = [applicable(node.op, sig, target.of_kernels(kind)) for kind in _kinds(target, level)]
    except ValueError as error:
        raise UnsupportedError(f"{node.op.name}: {error}", where=where) from error
    kernels = [kernel for found in kinds for kernel in found]
    if not kernels:
        types = ", ".join(f"{shape_text(v.shape)} {v.dtype.value}" for v in sig.inputs)
        hint = f"{', '.join(_types(type(node.op)))} can be computed, with constant weights"
        raise UnsupportedError(f"no kernel computes {node.op.name} of {types}", where=where, hint=hint)
    return kernels


def _kinds(target: Target, level: Level) -> tuple[str, ...]:
    """Those of the level; where code is waited for, short loops may be the fastest, too."""
    return level.kernels if target.code is None else tuple(dict.fromkeys((*level.kernels, "size")))


def _types(operator: type[Op]) -> list[str]:
    """The element types that designs of an operator are for."""
    return sorted({t.value for entry in registered(operator) for t in entry.types or tuple(DType)})
