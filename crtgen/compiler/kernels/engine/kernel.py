"""A kernel: one layer's code as a template, the constants it is specialised by, and the memory it needs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from crtgen.boards.board import FlashReads
from crtgen.boards.core import HOST, Core
from crtgen.compiler.kernels.asm import Routine, cycles, pipeline_of, scheduled, waiting
from crtgen.compiler.kernels.engine.cost import Cost, Work, estimate
from crtgen.compiler.kernels.engine.sources import ModuleOf, SourceLibrary
from crtgen.compiler.level import find_level
from crtgen.network.ir import Array, Signature

__all__ = [
    "Const",
    "InPlace",
    "Kernel",
    "Part",
    "Share",
    "Target",
    "WeightRows",
]


@dataclass(frozen=True, slots=True)
class Target:
    """What code is generated for: the core, whether speed or size matters, and the option of compilers.

    ``code`` and ``constants`` are how the memories are read that hold code and constants, where the board
    says. ``unrolled`` and ``stripe`` are for variants of kernels: how many times as many steps of a loop are
    written out as by itself, and how many times as much memory a stripe of rows may take. On two ``cores``
    layers are computed in halves. ``expanded``: weights may take several times
    their flash, as the level says. ``coded``: weights may be codes that are decoded before they are used:
    True, all; False, those of few values; None, none.
    """

    core: Core = HOST
    optimize: str = "balanced"
    flag: str = ""
    code: FlashReads | None = None
    constants: FlashReads | None = None
    unrolled: float = 1.0
    stripe: float = 1.0
    cores: int = 1
    expanded: bool | None = None
    coded: bool | None = False

    def __post_init__(self) -> None:
        level = find_level(self.optimize)
        object.__setattr__(self, "flag", self.flag or level.flag)
        if self.expanded is None:
            object.__setattr__(self, "expanded", level.expanded)

    def __hash__(self) -> int:
        return hash((self.core.name, self.optimize, self.flag))

    def kept(self, code: float, constants: float) -> "Target":
        """The same once so many bytes of code and constants are read: what a cache holds does not wait."""
        fits = self.code is not None and code <= self.code.code_cache
        holds = self.constants is not None and constants <= self.constants.data_cache
        return replace(self, code=None if fits else self.code, constants=None if holds else self.constants)

    def of_kernels(self, optimize: str) -> "Target":
        """The same for kernels that are for ``speed`` or for ``size``; the compiler is told what it was."""
        return self if optimize == self.optimize else replace(self, optimize=optimize)

    def steps(self, usual: int) -> int:
        """How many steps of a loop are written out where usually it is so many."""
        return max(int(usual * self.unrolled), min(usual, 1))

    @property
    def of_one_kernel(self) -> "Target":
        """The same for a single kernel, which is for speed or for size: alone, balanced is speed."""
        return self.of_kernels("size" if self.optimize == "size" else "speed")


@dataclass(frozen=True, slots=True)
class WeightRows:
    """Where weights of a byte are in a constant: from ``first`` to ``end`` in rows of ``length`` bytes.

    ``header`` bytes are in front of the ``count`` rows. ``halves``: halfwords are 256 times a weight, and
    another one. ``pairs``: every other weight of a row is of the same channel.
    """

    count: int
    length: int
    first: int
    end: int
    header: int = 0
    halves: bool = False
    pairs: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Const:
    """An array that a kernel reads: what it will be, and how it is packed.

    ``name`` is the role within the layer (``weights``, ``bias``, ``requant``), ``dtype`` numpy's name of its
    type, ``align`` the alignment in bytes that the kernel needs, ``note`` what the comment above the array
    says of its layout. ``pack`` makes the array; it is called for kernels that are chosen, once. ``rows`` are
    said of weights that may be coded.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    pack: Callable[[], Array]
    align: int = 4
    note: str = ""
    rows: WeightRows | None = None

    @classmethod
    def of(cls, name: str, data: Array, align: int = 4, note: str = "") -> "Const":
        """An array that is there already."""
        return cls(name, data.dtype.name, data.shape, lambda: data, align, note)

    def named(self, name: str) -> "Const":
        """The same in another role."""
        return replace(self, name=name)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def c_type(self) -> str:
        """C's type of an element."""
        return {"float32": "float", "bool": "bool"}.get(self.dtype, f"{self.dtype}_t")

    @property
    def data(self) -> Array:
        """The packed array; each call packs it."""
        made = self.pack()
        if (made.dtype.name, made.shape) != (self.dtype, self.shape):
            raise ValueError(f"{self.name} is {made.dtype.name} {made.shape}, not {self.dtype} {self.shape}")
        return made


@dataclass(frozen=True, slots=True)
class InPlace:
    """An output may overwrite an input that nothing reads later.

    ``input`` and ``output`` count the node's inputs, constants included, and its outputs. The kernel is
    right when the output starts at least ``lead`` bytes before the input: 0 is the same address (or before
    it). Without such a permit the two must not overlap at all. ``exact`` asks for the same address and
    nothing else: such a kernel takes over its first input's place, of the same size, where nothing else
    reads it.
    """

    input: int = 0
    output: int = 0
    lead: int = 0
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """What one of two cores touches: bytes from and to, of each input, of the output, and of the scratch."""

    reads: tuple[tuple[int, int], ...]
    writes: tuple[int, int]
    scratch: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """The code of one layer.

    ``template`` is a file under ``templates/kernels`` (``*.c.j2``); it is rendered with
    ``k`` = ``view`` (a frozen, hashable dataclass without any decision left to make) and ``name`` = the
    function's symbol. Layers with equal (template, view) share one function, so nothing that differs
    between such layers may be in the view: per-layer arrays go into ``consts``.

    The function is ``void name(const <T> *x0, ..., <T> *y0, ..., const <C> *c0, ..., uint8_t *scratch)``:
    the node's non-constant inputs in order, its outputs, its consts in order, and the scratch pointer
    only if ``scratch`` > 0. ``<T>`` is the C type of the value, ``<C>`` that of the const's elements.

    ``routines`` are functions in assembly: their symbols reach the template as ``routines``, in order.
    Without a template, the only one is the kernel, with the kernel's parameters.

    A kernel with neither computes nothing: the output *is* the first input, which the planner must lay in
    the same place (reshape).

    ``parts`` are functions that the kernel calls: their symbols reach the template as ``parts``, in order.
    They are shared as any other; their consts and their scratch are the business of the kernel, which
    passes them on.

    ``scratch`` is bytes of working memory in the arena while the layer runs. ``work`` is what the code does
    in a run; from it ``priced`` finds the ``cost`` for a ``target``, by which designs are compared.
    ``design`` is the name shown to the user.

    ``support`` is C at file scope that kernels share: equal texts are there once. ``libraries`` are built
    with it, and ``includes`` are their headers. ``module`` is that of an external code generator, which has a
    file of its own; None for crtgen's kernels.

    One that is ``fed`` gets its first input by rows: ``int32_t first, int32_t count`` come last, how many
    were there before, and how many ``x0`` has. Its scratch and its output are its own until all are
    there.

    With ``shares`` its parts run at the same time, on a core each: they take the time of the longer one.
    """

    design: str
    template: str
    view: Any
    consts: tuple[Const, ...] = ()
    scratch: int = 0
    inplace: tuple[InPlace, ...] = ()
    work: Work = field(default_factory=Work)
    target: Target | None = None
    cost: Cost = field(default_factory=Cost)
    includes: tuple[str, ...] = field(default=())
    support: str = ""
    libraries: tuple[SourceLibrary, ...] = ()
    parts: tuple["Part", ...] = ()
    routines: tuple[Routine, ...] = ()
    module: ModuleOf | None = None
    shares: tuple[Share, ...] = ()
    fed: bool = False

    @property
    def is_alias(self) -> bool:
        """Whether the output is the input, and no code runs."""
        return not (self.template or self.routines)

    @property
    def function(self) -> tuple[Any, ...]:
        """What its code is: kernels of which this is equal share a function, if their parts do."""
        return self.template, self.view, self.routines

    @property
    def family(self) -> str:
        """The template without its endings, by which the figures of its blocks are kept."""
        return self.template.removesuffix(".c.j2")

    @property
    def ordered_routines(self) -> tuple[Routine, ...]:
        """The routines with their instructions in the best order for the target."""
        pipeline = pipeline_of(self.target.core) if self.target else None
        return tuple(scheduled(r, pipeline) for r in self.routines) if pipeline else self.routines

    @property
    def cycles(self) -> float | None:
        """Of a run, by the model of the target's core and flash; None for a core without a model."""
        if self.target is None or self.module is not None:
            return None
        return self._cycles(self.target, self.cost.instructions, self.cost.code)

    def _cycles(self, target: Target, instructions: float, code: float) -> float | None:
        pipeline = pipeline_of(target.core)
        if pipeline is None:
            return None
        of_c = instructions - self.counted
        runs = self.work.assembly
        read = sum(const.nbytes for const in self.consts)
        warm = target.kept(code, read)
        of_parts = self._together(part.cycles(warm) for part in self.parts)
        waits = waiting(runs, pipeline, target.code, target.constants, code, read)
        if target.constants is not None:
            once = 0 if runs.calls or self.parts else read
            waits += target.constants.waits(self.work.constants or once)
        return of_c * pipeline.compiled + cycles(runs, pipeline) + waits + of_parts

    def cycles_on(self, target: Target) -> float:
        """Of a run where memories are read as the target has it; 0 without a model."""
        return self._cycles(target, self.cost.instructions, self.cost.code) or 0.0

    @property
    def counted(self) -> float:
        """Instructions of a run that are known: of assembly and of parts."""
        return self.work.assembly.instructions + self._of_parts

    @property
    def _of_parts(self) -> float:
        return self._together(part.calls * part.kernel.cost.instructions for part in self.parts)

    def _together(self, of_parts: Iterable[float]) -> float:
        """What the parts take: of the longer one where they run at the same time."""
        return max(of_parts, default=0.0) if self.shares else sum(of_parts)

    def priced(self, target: Target) -> "Kernel":
        """The kernel with its cost."""
        made = estimate(self.family, self.work, target.core, target.flag) if self.template else None
        routines = sum(routine.code_bytes for routine in self.routines)
        instructions = self._of_parts + (made or self.work.assembly).instructions
        code = routines + (made.code if made else 0) + sum(p.kernel.cost.code for p in self.parts)
        waits = target.code is not None or target.constants is not None
        return replace(
            self,
            target=target,
            cost=Cost(
                instructions=instructions,
                code=code,
                constants=sum(const.nbytes for const in self.consts),
                scratch=self.scratch,
                time=(self._cycles(target, instructions, code) if waits else None) or instructions,
            ),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A function within a kernel: ``kernel`` for the ``operator`` of that name with the signature ``sig``.

    It is called ``calls`` times in a run.
    """

    operator: str
    sig: Signature
    kernel: Kernel
    calls: int = 1

    def cycles(self, warm: Target) -> float:
        """Of all calls, with memories ``warm``: the first one reads code that a cache keeps for the others.

        Constants that a cache keeps are read by the kernel that the part is of.
        """
        own = self.kernel.target
        if own is None:
            return 0.0
        first = replace(own, constants=own.constants if warm.constants else None)
        later = replace(first, code=own.code if warm.code else None)
        once = self.kernel.cycles_on(first)
        return once + (self.calls - 1) * (once if later == first else self.kernel.cycles_on(later))

    def called(self, calls: int) -> "Part":
        """The same, called so many times."""
        return Part(self.operator, self.sig, self.kernel, calls)
