"""The structure of a report, and its JSON form."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil, inf
from typing import Any

from crtgen.compiler.codegen.module import Interface, OperatorInfo
from crtgen.compiler.plan import ArenaPart, ArenaSlot
from crtgen.firmware.builder import SizeReport
from crtgen.network.ir import DType

__all__ = ["ArenaPlace", "Report", "ReportedLayer"]


@dataclass(frozen=True, slots=True)
class ArenaPlace:
    """A place in the arena: offset and length in bytes, and the steps in which it holds its data.

    ``first`` and ``last`` are steps, counted from 1; 0 is before the first step, and the number of steps plus
    one is after the last. ``dtype`` and ``shape`` are the value's; scratch memory has neither, and has the
    name of its layer. ``alias_of`` is the value of which this one is a view with another shape. ``part``
    names the part of the arena if it is in another memory.
    """

    name: str
    offset: int
    nbytes: int
    first: int
    last: int
    shape: tuple[int, ...] = ()
    dtype: DType | None = None
    alias_of: str = ""
    part: str = ""

    @property
    def is_scratch(self) -> bool:
        return self.dtype is None

    def to_dict(self) -> dict[str, Any]:
        return {
            "shape": list(self.shape),
            "dtype": self.dtype.value if self.dtype else None,
            "offset": self.offset,
            "bytes": self.nbytes,
            "first": self.first,
            "last": self.last,
            "part": self.part,
        }


@dataclass(frozen=True, slots=True)
class ReportedOperator:
    """An operator of the model; ``ticks``, ``instructions`` and cycles as in ``ReportedLayer``.

    An operator within a row loop gets its estimated share of the loop's measurement.
    """

    name: str
    operator: str
    kernel: str
    macs: int
    ticks: int | None = None
    instructions: int | None = None
    cycles_estimated: int | None = None


@dataclass(frozen=True, slots=True)
class ReportedLayer:
    """A layer; sizes in bytes, None where unknown.

    From the plan: ``inputs`` and ``outputs`` (names of values), the ``shape`` of the first output, whether
    the layer computes in float32, ``weights_bytes`` (its constants as the model has them), ``scratch``, and
    ``instructions_estimated``, by which kernels are chosen. From a built image: ``code_bytes`` of its
    function and parts, the number of layers that share them, the ``constants_bytes`` that are packed for it,
    and its ``stack_bytes``. From a profile of a run: ``ticks`` of the device's timer and, where the device
    counts them, ``instructions``. ``cycles_estimated`` exists for cores with a cycle model; it includes flash
    waits where the board describes its flash. ``npu_cycles`` is Vela's estimate for a layer on an NPU,
    and ``core_cycles`` is the cycle model's for the same layer on the core. ``loop`` are the operators of a
    row loop.
    """

    name: str
    operator: str
    kernel: str
    function: str
    macs: int
    inputs: tuple[str, ...] | None = None
    outputs: tuple[str, ...] | None = None
    shape: tuple[int, ...] | None = None
    is_float32: bool | None = None
    weights_bytes: int | None = None
    instructions_estimated: int | None = None
    scratch: ArenaSlot | None = None
    code_bytes: int | None = None
    shared_by: int | None = None
    constants_bytes: int | None = None
    stack_bytes: int | None = None
    ticks: int | None = None
    instructions: int | None = None
    cycles_estimated: int | None = None
    npu_cycles: int | None = None
    core_cycles: int | None = None
    loop: tuple[OperatorInfo, ...] = ()

    @property
    def scratch_bytes(self) -> int:
        return self.scratch.size if self.scratch else 0

    @property
    def operators(self) -> tuple[ReportedOperator, ...]:
        figures = (self.ticks, self.instructions, self.cycles_estimated)
        if not self.loop:
            return (ReportedOperator(self.name, self.operator, self.kernel, self.macs, *figures),)
        found = []
        for o in self.loop:
            shares = (None if n is None else round(o.share * n) for n in figures)
            found.append(ReportedOperator(o.name, o.operator, o.kernel, o.macs, *shares))
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        scratch = self.scratch
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "inputs": None if self.inputs is None else list(self.inputs),
            "outputs": None if self.outputs is None else list(self.outputs),
            "shape": None if self.shape is None else list(self.shape),
            "scratch": None
            if scratch is None
            else {"offset": scratch.offset, "bytes": scratch.size, "part": scratch.part},
            "operators": [asdict(operator) for operator in self.operators],
        }


_STRUCTURED = ("inputs", "outputs", "shape", "scratch", "loop")
_PLAIN = tuple(name for name in ReportedLayer.__slots__ if name not in _STRUCTURED)


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Everything known about a model on a board; sizes in bytes, None where unknown.

    ``state_bytes`` are kept between runs, outside the arena. From the plan: the ``graph`` as text, and the
    places in the ``arena`` and of the ``states``; ``parts`` are the pieces of the arena in other memories.
    From a built image: the sizes of its parts. From a run: ``instructions`` and ``cycles`` (if the device
    counts them) and ``seconds`` of an inference. ``cycles_estimated`` is the sum over the layers; real chips
    with this core took ``silicon`` times as many. ``pj_per_cycle`` is the energy of a cycle, in picojoules.
    ``flash_bytes`` are the models' code and constants, in any firmware; ``image_flash_bytes`` is the whole
    image.
    """

    model: str
    board: str
    optimize: str
    inputs: tuple[Interface, ...]
    outputs: tuple[Interface, ...]
    macs: int
    weights_bytes: int
    arena_bytes: int
    arena_lower_bound: int
    arena_optimal: bool
    layers: tuple[ReportedLayer, ...]
    graph: str | None = None
    arena: tuple[ArenaPlace, ...] | None = None
    state_bytes: int = 0
    states: tuple[ArenaPlace, ...] | None = None
    image: SizeReport | None = None
    instructions: int | None = None
    cycles: int | None = None
    cycles_estimated: int | None = None
    seconds: float | None = None
    pj_per_cycle: float | None = None
    silicon: float = 1.0
    flash_bytes: int | None = None
    parts: Mapping[str, ArenaPart] = field(default_factory=dict)

    @property
    def ram_bytes(self) -> int:
        """Bytes of RAM that the model needs in any firmware: arena with its parts, and states, without the
        stack.
        """
        return self.arena_bytes + sum(part.size for part in self.parts.values()) + self.state_bytes

    @property
    def image_flash_bytes(self) -> int | None:
        """Code, constants, and the initial values of variables in the image."""
        return self.image.sizes.flash if self.image else None

    @property
    def image_ram_bytes(self) -> int | None:
        """Bytes of variables in the image, including the arena but not the stack."""
        return self.image.sizes.ram if self.image else None

    @property
    def stack_bytes(self) -> int | None:
        """Bytes of stack that the image needs in the worst case."""
        return self.image.stack.worst if self.image and self.image.stack else None

    @property
    def energy_uj(self) -> int | None:
        """Microjoules of an inference, rounded up, from counted cycles if known, otherwise from estimated
        ones.
        """
        if self.pj_per_cycle is None or (self.cycles is None and self.cycles_estimated is None) or self.npu:
            return None  # nobody says what an NPU takes
        expected = self.silicon * (self.cycles_estimated or 0)
        return ceil(self.pj_per_cycle * (expected if self.cycles is None else self.cycles) / 1e6)

    @property
    def npu(self) -> dict[str, int] | None:
        """Calls of the NPU, their multiplications and their cycles by Vela's estimate; None without an NPU.

        The entries ``slower_...`` are about calls that the core would compute in fewer cycles: how many there
        are, and the cycles of both. The NPU's clock may differ from the core's.
        """
        calls = [layer for layer in self.layers if layer.npu_cycles is not None]
        if not calls:
            return None
        cycles = sum(layer.npu_cycles or 0 for layer in calls)
        slower = [layer for layer in calls if (layer.core_cycles or inf) < (layer.npu_cycles or 0)]
        return {
            "calls": len(calls),
            "macs": sum(layer.macs for layer in calls),
            "cycles_by_vela": cycles,
            "slower_calls": len(slower),
            "slower_cycles_by_vela": sum(layer.npu_cycles or 0 for layer in slower),
            "slower_cycles_on_core": sum(layer.core_cycles or 0 for layer in slower),
        }

    @property
    def costs(self) -> tuple[int, ...]:
        """Instructions of each layer: measured if all are, else estimated; 0 if unknown."""
        for found in (
            [layer.instructions for layer in self.layers],
            [layer.instructions_estimated for layer in self.layers],
        ):
            known = tuple(n for n in found if n is not None)
            if len(known) == len(found):
                return known
        return (0,) * len(self.layers)

    @property
    def float32_share(self) -> float | None:
        """Fraction of the instructions that is float32, for networks that have integer layers with weights;
        None for others.
        """
        quantised = any(layer.macs and layer.is_float32 is False for layer in self.layers)
        total = sum(self.costs)
        if not quantised or not total:
            return None
        return sum(c for a, c in zip(self.layers, self.costs, strict=True) if a.is_float32) / total

    def measured(self, instructions: int | None, seconds: float, cycles: int | None = None) -> "Report":
        return replace(self, instructions=instructions, cycles=cycles, seconds=seconds)

    def profiled(
        self,
        ticks: Sequence[int],
        instructions: Sequence[int] | None = None,
    ) -> "Report":
        nothing = [None] * len(self.layers)
        rows = zip(self.layers, ticks, instructions or nothing, strict=True)
        layers = (replace(a, ticks=t, instructions=i) for a, t, i in rows)
        return replace(self, layers=tuple(layers))

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON. Every key is always present; unknown values are None."""
        arena, states = (
            None if places is None else {p.name: p.to_dict() for p in places if not p.is_scratch}
            for places in (self.arena, self.states)
        )
        return {
            "model": self.model,
            "board": self.board,
            "optimize": self.optimize,
            "inputs": [_interface(i) for i in self.inputs],
            "outputs": [_interface(o) for o in self.outputs],
            **{name: getattr(self, name) for name in _FIGURES},
            "npu": self.npu,
            "layers": [layer.to_dict() for layer in self.layers],
            "graph": self.graph,
            "arena": arena,
            "arena_parts": {
                name: {"bytes": part.size, "lower_bound": part.lower_bound, "optimal": part.optimal}
                for name, part in self.parts.items()
            },
            "states": states,
            "image": _image(self.image) if self.image else None,
        }


_FIGURES = (
    "macs",
    "weights_bytes",
    "arena_bytes",
    "arena_lower_bound",
    "arena_optimal",
    "state_bytes",
    "float32_share",
    "ram_bytes",
    "flash_bytes",
    "image_ram_bytes",
    "image_flash_bytes",
    "stack_bytes",
    "instructions",
    "cycles",
    "cycles_estimated",
    "seconds",
    "energy_uj",
)


def _interface(interface: Interface) -> dict[str, Any]:
    quant = interface.quant
    return {
        "name": interface.name,
        "shape": list(interface.shape),
        "dtype": interface.dtype.value,
        "scale": quant.scale if quant and quant.axis is None else None,
        "zero_point": quant.zero_point if quant and quant.axis is None else None,
    }


def _image(size: SizeReport) -> dict[str, Any]:
    # The image by parts, without its symbols, which are many.
    return {name: value for name, value in size.to_dict().items() if name != "symbols"}
