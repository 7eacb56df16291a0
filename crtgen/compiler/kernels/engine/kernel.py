"""A kernel: the code of one layer as a template, its constants, and the memory that it needs."""

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
    """Properties of the target for which code is specialised.

    ``optimize`` is ``speed`` or ``size``, ``flag`` the compiler's option. ``code`` and ``constants`` describe
    how the memories of code and constants are read, if the board states it. ``unrolled`` scales the number of
    unrolled loop steps, ``stripe`` limits the memory of a stripe of rows; both serve variants of kernels.
    With two ``cores``, layers are computed in halves. ``expanded``: weights may take several times their size
    in flash. ``coded``: weights may be stored as codes and decoded before use; True for all weights, False
    for those with few distinct values, None for never.
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
        """Return the target as seen after ``code`` and ``constants`` bytes were read once: reads from a cache
        do not wait.
        """
        fits = self.code is not None and code <= self.code.code_cache
        holds = self.constants is not None and constants <= self.constants.data_cache
        if not (fits or holds):
            return self
        return replace(self, code=None if fits else self.code, constants=None if holds else self.constants)

    def of_kernels(self, optimize: str) -> "Target":
        """Return a copy for kernels that are optimised for ``speed`` or ``size``; the compiler flag is
        unchanged.
        """
        return self if optimize == self.optimize else replace(self, optimize=optimize)

    def steps(self, usual: int) -> int:
        """Return the number of loop steps to unroll, if ``usual`` is the design's own choice."""
        return max(int(usual * self.unrolled), min(usual, 1))

    @property
    def of_one_kernel(self) -> "Target":
        """Return a copy for choosing a single kernel: ``balanced`` only makes sense for several, so it
        becomes ``speed``.
        """
        return self.of_kernels("size" if self.optimize == "size" else "speed")


@dataclass(frozen=True, slots=True)
class WeightRows:
    """Position of 8-bit weights within a constant: ``count`` rows of ``length`` bytes, with weights from
    ``first`` to ``end``.

    ``header`` bytes precede the rows. ``halves``: each halfword is 256 times one weight plus another.
    ``pairs``: every other weight of a row belongs to the same channel.
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
    """A constant array that a kernel reads, and the function that packs it.

    ``name`` is its role in the layer (``weights``, ``bias``, ``requant``), ``dtype`` the numpy name of its
    type, ``align`` the alignment in bytes that the kernel needs, ``note`` the comment about its layout above
    the generated array. ``pack`` is called once, and only for the kernel that is chosen. ``rows`` locates
    weights that may be stored as codes.
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
        return cls(name, data.dtype.name, data.shape, lambda: data, align, note)

    def named(self, name: str) -> "Const":
        return replace(self, name=name)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def c_type(self) -> str:
        return {"float32": "float", "bool": "bool"}.get(self.dtype, f"{self.dtype}_t")

    @property
    def data(self) -> Array:
        """The packed array; every access packs it again."""
        made = self.pack()
        if (made.dtype.name, made.shape) != (self.dtype, self.shape):
            raise ValueError(f"{self.name} is {made.dtype.name} {made.shape}, not {self.dtype} {self.shape}")
        return made


@dataclass(frozen=True, slots=True)
class InPlace:
    """Permission for an output to overwrite an input that no later layer reads.

    ``input`` and ``output`` index the node's inputs (constants included) and outputs. The kernel is correct
    if the output starts at least ``lead`` bytes before the input; 0 allows the same address. Without a
    permission the two must not overlap. ``exact``: only the same address is allowed; the kernel then takes
    over the place of its first input, which has the same size.
    """

    input: int = 0
    output: int = 0
    lead: int = 0
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """Byte ranges that one of two cores touches, in each input, in the output, and in the scratch buffer."""

    reads: tuple[tuple[int, int], ...]
    writes: tuple[int, int]
    scratch: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """The code of one layer.

    ``template`` is a file under ``templates/kernels`` (``*.c.j2``); it is rendered with ``k`` = ``view`` (a
    frozen, hashable dataclass that leaves no decisions to the template) and ``name`` = the function's symbol.
    Layers with equal (template, view) share one function, so nothing that differs between such layers may be
    in the view: per-layer arrays belong in ``consts``.

    The function is ``void name(const <T> *x0, ..., <T> *y0, ..., const <C> *c0, ..., uint8_t *scratch)``:
    the node's non-constant inputs in order, its outputs, its consts in order, and the scratch pointer
    only if ``scratch`` > 0. ``<T>`` is the C type of the value, ``<C>`` that of the const's elements.

    ``routines`` are functions in assembly: their symbols reach the template as ``routines``, in order.
    Without a template, the only one is the kernel, with the kernel's parameters.

    A kernel with neither computes nothing: the output *is* the first input, which the planner must lay in
    the same place (reshape). If it ``joins``, each input is where the output has its elements, one after
    another.

    ``parts`` are functions that the kernel calls: their symbols reach the template as ``parts``, in order.
    They are shared as any other; their consts and their scratch are the business of the kernel, which
    passes them on.

    ``scratch`` is bytes of working memory in the arena while the layer runs. ``apart`` is bytes of working
    memory of an NPU in a memory of its own; the function then has a parameter ``uint8_t *apart`` behind
    ``scratch``. ``work`` is what the code does
    in a run; from it ``priced`` finds the ``cost`` for a ``target``, by which designs are compared.
    ``design`` is the name shown to the user.

    ``support`` is C at file scope that kernels share: equal texts are there once. ``libraries`` are built
    with it, and ``includes`` are their headers. ``module`` is that of an external code generator, which has a
    file of its own; None for crtgen's kernels.

    One that is ``fed`` gets its first input by rows: ``int32_t first, int32_t count`` come last, how many
    were there before, and how many ``x0`` has. Its scratch and its output are its own until all are
    there.

    A kernel that ``fails`` returns an ``int32_t``: 0, or the error with which the run ends. ``estimate`` is
    what the tool that made it says of its cycles on a device beside the core.

    With ``shares`` its parts run at the same time, on a core each: they take the time of the longer one.
    """

    design: str
    template: str
    view: Any
    consts: tuple[Const, ...] = ()
    scratch: int = 0
    apart: int = 0
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
    fails: bool = False
    estimate: int | None = None
    joins: bool = False

    @property
    def is_alias(self) -> bool:
        return not (self.template or self.routines)

    @property
    def function(self) -> tuple[Any, ...]:
        """Key of the generated function: kernels with equal keys and equal parts share one function."""
        return self.template, self.view, self.routines

    @property
    def family(self) -> str:
        """Template name without its suffixes; the costs of its blocks are stored under this name."""
        return self.template.removesuffix(".c.j2")

    @property
    def ordered_routines(self) -> tuple[Routine, ...]:
        pipeline = pipeline_of(self.target.core) if self.target else None
        return tuple(scheduled(r, pipeline) for r in self.routines) if pipeline else self.routines

    @property
    def cycles(self) -> float | None:
        """Cycles of one run by the model of the target's core and flash; None for a core without a model."""
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
        if warm.constants is not None:  # those that the cache holds are read once, which has been counted
            once = 0 if runs.calls or self.parts else read
            waits += warm.constants.waits(self.work.constants or once)
        return of_c * pipeline.compiled + cycles(runs, pipeline) + waits + of_parts

    def cycles_on(self, target: Target) -> float:
        """Return the cycles of one run if memories are read as ``target`` describes; 0 without a model."""
        return self._cycles(target, self.cost.instructions, self.cost.code) or 0.0

    @property
    def counted(self) -> float:
        """Instructions of one run that are counted rather than estimated: assembly and parts."""
        return self.work.assembly.instructions + self._of_parts

    @property
    def _of_parts(self) -> float:
        return self._together(part.calls * part.kernel.cost.instructions for part in self.parts)

    def _together(self, of_parts: Iterable[float]) -> float:
        # Parts that run at the same time take as long as the longer one.
        return max(of_parts, default=0.0) if self.shares else sum(of_parts)

    def priced(self, target: Target) -> "Kernel":
        made = estimate(self.family, self.work, target.core, target.flag) if self.template else None
        routines = sum(routine.code_bytes for routine in self.routines)
        instructions = self._of_parts + (made or self.work.assembly).instructions
        code = routines + (made.code if made else 0) + sum(p.kernel.cost.code for p in self.parts)
        waits = target.code is not None or target.constants is not None
        if self.estimate is not None:  # the core waits for the other device
            time: float | None = self.estimate + instructions
        else:
            time = self._cycles(target, instructions, code) if waits else None
        return replace(
            self,
            target=target,
            cost=Cost(
                instructions=instructions,
                code=code,
                constants=sum(const.nbytes for const in self.consts),
                scratch=self.scratch,
                time=time or instructions,
            ),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A function that a kernel calls: ``kernel`` computes ``operator`` for the signature ``sig``, ``calls``
    times per run.
    """

    operator: str
    sig: Signature
    kernel: Kernel
    calls: int = 1

    def cycles(self, warm: Target) -> float:
        """Return the cycles of all calls; ``warm`` describes memory reads when the cache holds the code.

        Only the first call reads code from flash. Reads of cached constants are counted by the calling
        kernel.
        """
        own = self.kernel.target
        if own is None:
            return 0.0
        first = replace(own, constants=own.constants if warm.constants else None)
        later = replace(first, code=own.code if warm.code else None)
        once = self.kernel.cycles_on(first)
        return once + (self.calls - 1) * (once if later == first else self.kernel.cycles_on(later))

    def called(self, calls: int) -> "Part":
        return Part(self.operator, self.sig, self.kernel, calls)
