"""The product of code generation: a module of C and assembly sources with the functions that it registers.

Names that would be unsafe in C or CMake are refused at construction, whether they were generated or come from
an archive or a project's manifest.
"""

import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Literal, TypeAlias

from crtgen.base.contents import Contents
from crtgen.base.errors import CorruptModelError
from crtgen.compiler.codegen.checks import SIZE_LIMIT, check_c_names, check_file, check_sizes, check_word
from crtgen.compiler.codegen.names import PARAM, PLAIN_PARAM, REGISTRY
from crtgen.compiler.kernels.engine.sources import DeviceContext, SourceLibrary
from crtgen.network.ir import DType, Quant, shape_text

__all__ = [
    "Argument",
    "CModule",
    "ExternalModule",
    "Interface",
    "LayerInfo",
    "ModelInfo",
    "OperatorInfo",
    "Param",
    "RegistryFunction",
    "Role",
    "SharedFunction",
    "Written",
    "cycles_of",
]

Role: TypeAlias = Literal["run", "external", "own"]

# A constant expression of C without anything that could end it.
_HANDLE = re.compile(r"[\w &*()>.-]{0,200}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Interface:
    """One input or output of a model: its name in the model, its C identifier, and its type."""

    name: str
    c_name: str
    shape: tuple[int, ...]
    dtype: DType
    quant: Quant | None
    nbytes: int

    def __post_init__(self) -> None:
        check_c_names("the C name of an interface", (self.c_name,))
        check_sizes(nbytes=self.nbytes)
        if any(not 0 < d < SIZE_LIMIT for d in self.shape) or (
            prod(self.shape) * self.dtype.itemsize != self.nbytes
        ):
            raise CorruptModelError(
                f"{self.name!r} is {shape_text(self.shape)} {self.dtype.value} and has {self.nbytes} bytes"
            )


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a registered function: a tensor of ``nbytes`` bytes, or an integer if ``bits`` is 0.

    ``code``, ``bits`` and ``lanes`` are the fields of the elements' ``DLDataType``. An argument that is not
    ``written`` may be a constant.
    """

    nbytes: int
    code: int
    bits: int
    lanes: int
    written: bool = True

    def __post_init__(self) -> None:
        check_sizes(nbytes=self.nbytes)
        check_sizes(256, code=self.code, bits=self.bits)
        check_sizes(65536, lanes=self.lanes)


@dataclass(frozen=True, slots=True)
class RegistryFunction:
    """An entry of the function registry: the name that hosts look up, and the C symbol behind it.

    ``role`` decides its position: ``run`` for models, then ``external`` for code of external code generators,
    then ``own`` for the rest. A function with unknown ``arguments`` (None) can be called within the image,
    but not over the RPC.
    """

    name: str
    symbol: str
    role: Role = "own"
    arguments: tuple[Argument, ...] | None = None

    def __post_init__(self) -> None:
        check_c_names("a function", (self.symbol,))


@dataclass(frozen=True, slots=True)
class Param:
    """A linked parameter: its storage id, the const symbol that holds it, and its size in bytes."""

    sid: int
    symbol: str
    nbytes: int

    def __post_init__(self) -> None:
        check_c_names("a parameter", (self.symbol,))
        check_sizes(sid=self.sid, nbytes=self.nbytes)


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """An operator of the model within a row loop; ``share`` is its fraction of the loop's time.

    The share is an estimate: on a device the loop is measured as a whole.
    """

    name: str
    operator: str
    kernel: str
    macs: int
    share: float

    def __post_init__(self) -> None:
        check_sizes(1 << 63, macs=self.macs)
        if not 0 <= self.share <= 1:
            raise CorruptModelError(f"operator {self.name!r} has {self.share} of its loop")


@dataclass(frozen=True, slots=True)
class Written:
    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: DType

    def __post_init__(self) -> None:
        check_sizes(offset=self.offset, nbytes=prod(self.shape) * self.dtype.itemsize)


@dataclass(frozen=True, slots=True)
class LayerInfo:
    """A layer in the order of execution: node, operator, kernel design, and its symbols.

    A row loop is one layer; ``operators`` are the model's operators in it, otherwise empty. ``function`` is
    shared by layers of the same shape, and empty if no code runs; ``consts`` belong to the layer. ``parts``
    are functions that it calls, possibly shared with other layers. For a subgraph of an external code
    generator, ``entry`` is its function in the registry, ``device`` the pointer to its device. ``cycles`` are
    the core model's estimate of a run, or None. ``writes`` are known for calls of an imported graph.
    """

    name: str
    operator: str
    kernel: str
    macs: int = 0
    function: str = ""
    consts: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    entry: str = ""
    device: str = ""
    operators: tuple[OperatorInfo, ...] = ()
    cycles: int | None = None
    writes: tuple[Written, ...] = ()

    def __post_init__(self) -> None:
        check_c_names(f"layer {self.name!r}", (*self.consts, *self.parts))
        check_c_names(f"layer {self.name!r}", filter(None, (self.function, self.entry)))
        check_sizes(1 << 63, macs=self.macs)
        if _HANDLE.fullmatch(self.device) is None:
            raise CorruptModelError(f"layer {self.name!r}: {self.device!r} is not a pointer to a device")


def cycles_of(layers: Sequence[LayerInfo]) -> int | None:
    known = [layer.cycles for layer in layers if layer.cycles is not None]
    return sum(known) if len(known) == len(layers) else None


@dataclass(frozen=True, slots=True)
class ExternalModule:
    """A model's module from an external code generator: its file, registry entries and constants.

    ``context`` is the device on which the code runs.
    """

    name: str
    context: DeviceContext
    file: str
    functions: tuple[str, ...]
    consts: tuple[str, ...]

    def __post_init__(self) -> None:
        check_word("a module", self.name)
        check_file(self.file)
        check_c_names("an external module", (*self.functions, *self.consts))


@dataclass(frozen=True, slots=True)
class SharedFunction:
    """A kernel's function: its symbol, its prototype without semicolon, and the functions that it calls."""

    symbol: str
    prototype: str
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts about a compiled model for sessions, reports and metadata files.

    ``arena``, ``lower_bound``, ``weights`` and ``state`` (kept from run to run) are bytes, and so are the
    ``parts`` of the arena in other memories: see ``Plan.parts``.
    """

    name: str
    inputs: tuple[Interface, ...]
    outputs: tuple[Interface, ...]
    arena: int
    lower_bound: int
    optimal: bool
    kept_inputs: bool
    weights: int
    macs: int
    layers: tuple[LayerInfo, ...]
    state: int = 0
    parts: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_c_names("a model", (self.name,))
        check_sizes(state=self.state, arena=self.arena, lower_bound=self.lower_bound, weights=self.weights)
        check_sizes(1 << 63, macs=self.macs)


@dataclass(frozen=True, slots=True, eq=False)
class CModule:
    """Generated sources of one model: ``files`` maps a file name to its text.

    ``info`` describes the model, ``functions`` are added to the registry, ``params`` are its linked
    parameters, ``libraries`` are needed to build its sources. ``kernels`` maps keys to the kernel functions
    in it and in the modules beside it; functions with equal keys are the same. ``externals`` are the parts of
    external code generators. ``usage`` is the code with which a program feeds samples or rows; ``<name>_use``
    shows it.
    """

    info: ModelInfo
    files: Mapping[str, str]
    functions: tuple[RegistryFunction, ...]
    params: tuple[Param, ...]
    libraries: tuple[SourceLibrary, ...] = ()
    kernels: Mapping[Hashable, SharedFunction] = field(default_factory=dict)
    externals: tuple[ExternalModule, ...] = ()
    usage: str = ""

    def __post_init__(self) -> None:
        for file in self.files:
            check_file(file)
        for library in self.libraries:
            check_word("a library", library.name)
            for path in (*(path for path, _ in library.files), *library.include_dirs):
                check_file(path)

    @property
    def plain(self) -> "CModule | None":
        """Return the module without the registry and its names; None for imported code, which needs them."""
        registry = f"{self.info.name}{REGISTRY}.c"
        if registry not in self.files:
            return None
        files = Contents.of(self.without({registry}).files)
        renamed = Contents({name: partial(_plain_names, files, name) for name in files})
        return replace(self, files=renamed, functions=(), params=())

    def without(self, names: Collection[str]) -> "CModule":
        entries = Contents.of(self.files).entries
        return replace(self, files=Contents({n: entry for n, entry in entries.items() if n not in names}))


def _plain_names(files: Contents[str], name: str) -> Iterator[str]:
    for piece in files.pieces(name):
        yield piece.replace(PARAM, PLAIN_PARAM)
