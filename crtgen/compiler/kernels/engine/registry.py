"""Registration of designs, and the choice of one for each layer."""

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
from crtgen.network.ops.scheme import has_narrow_weights

__all__ = ["Design", "RegisteredDesign", "applicable", "design", "most_special", "registered", "select"]

Design = Callable[[Any, Signature, Target], Kernel | None]
Feature: TypeAlias = Literal["base", "dsp", "mve", "narrow", "vfp"]
"""Feature that a design requires: the name of an attribute of ``Core``."""

_D = TypeVar("_D", bound=Design)


@dataclass(frozen=True, slots=True)
class RegisteredDesign:
    function: Design
    types: tuple[DType, ...]
    needs: Feature | None
    weights: tuple[int, ...] | None
    to: DType | None
    narrow_weights: bool
    either: tuple[int, ...] = ()

    def applies(self, sig: Signature, core: Core) -> bool:
        """Return True if types, constants and core meet the requirements; the design may still refuse the
        shape.
        """
        if self.types and (sig.x.dtype not in self.types or sig.y.dtype is not (self.to or sig.x.dtype)):
            return False
        if self.needs is not None and not getattr(core, self.needs):
            return False
        if not self.narrow_weights and any(has_narrow_weights(sig.x, v) for v in sig.inputs[1:]):
            return False
        constant = tuple(i for i, v in enumerate(sig.inputs) if v.is_constant and i not in self.either)
        return self.weights is None or constant == self.weights

    def kernel(self, op: Op, sig: Signature, target: Target) -> Kernel | None:
        """Return the kernel, or None if the design does not apply.

        Designs only know ``speed`` and ``size``; for a single layer, ``balanced`` means ``speed``.
        """
        if not self.applies(sig, target.core) or (self.needs is not None and _is_bare(op, sig)):
            return None
        kernel = self.function(op, sig, target.of_one_kernel)
        if kernel is not None and kernel.routines and not target.core.thumb:
            raise UnsupportedError(
                f"{target.core.name} cannot execute the Thumb code of the design {kernel.design}"
            )
        return kernel and kernel.priced(target)


def _is_bare(op: Op, sig: Signature) -> bool:
    # Plain small integers, for an operator that usually has quantised ones: only the portable C designs take
    # these.
    small = sig.x.dtype in (DType.INT8, DType.INT16) and sig.x.quant is None
    return small and getattr(op, "parameters", None) is not None


_DESIGNS: dict[type, list[RegisteredDesign]] = {}


def _module_of(entry: RegisteredDesign) -> str:
    return entry.function.__module__


# Order in which designs of row loops are tried, until one applies.
_RANKS: Mapping[Feature | None, int] = {"mve": 0, "dsp": 1, "vfp": 1, "base": 1, "narrow": 1, None: 2}


def design(
    *operators: type,
    types: tuple[DType, ...] = (),
    needs: Feature | None = None,
    weights: tuple[int, ...] | None = (),
    to: DType | None = None,
    narrow_weights: bool = False,
    either: tuple[int, ...] = (),
) -> Callable[[_D], _D]:
    """Register a function as a design of the operators, or of all operators with a trait.

    ``types`` are the allowed element types of the first input, any if empty; the output has the same type, or
    ``to``. ``needs`` is a feature of the core. ``weights`` are the indices of the inputs that must be
    constant, all others but those of ``either`` must not be; None accepts any. ``narrow_weights``: the design
    also accepts weights of the scheme's narrower type.

    The function is called with (operator, signature, target), where the target's level is ``speed`` or
    ``size``. It returns a kernel, or None for shapes or values that it does not support.
    """

    def register(function: _D) -> _D:
        for operator in operators:
            entry = RegisteredDesign(function, types, needs, weights, to, narrow_weights, either)
            insort(_DESIGNS.setdefault(operator, []), entry, key=_module_of)
        return function

    return register


@cache
def _load_designs(core: Core | None) -> None:
    # Packages for a feature that the core lacks are not imported.
    for package in ("portable", "base", "dsp", "mve", "vfp"):
        if core is None or package == "portable" or getattr(core, package):
            import_module(f"crtgen.compiler.kernels.{package}")


def registered(operator: type[Op], core: Core | None = None) -> tuple[RegisteredDesign, ...]:
    """Return the designs of an operator: its own, then those of its traits.

    With ``core``, designs for features that it lacks may be omitted. The order is that of the module names.
    """
    _load_designs(core)
    return tuple(entry for kind in operator.__mro__ for entry in _DESIGNS.get(kind, ()))


def applicable(op: Op, sig: Signature, target: Target) -> list[Kernel]:
    return _by_time(registered(type(op), target.core), op, sig, target)


def most_special(op: Op, sig: Signature, target: Target) -> list[Kernel]:
    """Return those kernels of ``applicable`` that use the most specialised feature: Helium, then DSP, FPU,
    Thumb code.

    Portable kernels are returned only if there are no others, since they are hardly ever as fast.
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
    """Choose a kernel for each node, by node name. Raises ``UnsupportedError`` if a node has none.

    The choice is the best for the whole graph by the level's objective: see ``crtgen.compiler.level`` and
    ``choose``. Nodes in ``fixed`` keep the given kernel. Kernels that need more than ``most`` bytes of the
    arena are dropped if others need less. Control flow has no kernels.
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
    # Keeps at least those that need least.
    most = max(most, min(_need(sig, kernel) for kernel in kernels))
    return [kernel for kernel in kernels if _need(sig, kernel) <= most]


def _need(sig: Signature, kernel: Kernel) -> int:
    # Arena bytes of a layer: inputs, outputs (overlaid as far as allowed) and scratch.
    apart = sum(v.nbytes for v in (*sig.inputs, *sig.outputs) if not v.is_constant)
    saved = max((_saved(sig.inputs[p.input], sig.outputs[p.output], p) for p in kernel.inplace), default=0)
    return apart - saved + kernel.cost.scratch


def _saved(x: Value, y: Value, permit: InPlace) -> int:
    # Bytes saved if an output overwrites an input.
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
    # If code is fetched from slow flash, short loops may be fastest, so kernels for size are candidates, too.
    return level.kernels if target.code is None else tuple(dict.fromkeys((*level.kernels, "size")))


def _types(operator: type[Op]) -> list[str]:
    return sorted({t.value for entry in registered(operator) for t in entry.types or tuple(DType)})
