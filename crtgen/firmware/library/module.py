"""Modules: the parts of a library before it is linked.

A module offers functions, imports other modules, and may need constants. Two properties decide how it is used
(formats.md, section 2): a *DSO-exportable* module can be compiled or linked; a *CRT-exportable* one also
needs no start-up step that loads constants.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from crtgen.compiler.kernels.engine.sources import DeviceContext
from crtgen.firmware.library.datatype import DLDataType
from crtgen.firmware.library.params import NDArray

__all__ = [
    "CSource",
    "ConstLoader",
    "DeviceContext",
    "DeviceFunction",
    "DeviceSource",
    "ExecutorFactory",
    "JsonModule",
    "LlvmModule",
    "MergedModule",
    "Module",
    "ObjectFile",
]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Module:
    """Base of all kinds of modules. A module is identified as an object, not by its content.

    ``name`` is for messages and file names. ``functions`` are those that it offers; ``symbol`` is the
    function for which a code generator made it. ``const_vars`` are the constants that it needs;
    ``consts_linked`` says that they are already const data. ``context`` is the device, None if the file does
    not name it.
    """

    type_key: ClassVar[str] = ""
    is_dso_exportable: ClassVar[bool] = False

    name: str
    functions: tuple[str, ...] = ()
    symbol: str = ""
    const_vars: tuple[str, ...] = ()
    consts_linked: bool = False
    imports: "tuple[Module, ...]" = ()
    context: DeviceContext | None = None

    @property
    def key(self) -> str:
        return self.type_key

    @property
    def is_crt_exportable(self) -> bool:
        """True if it can be part of a static C runtime unchanged."""
        return self.is_dso_exportable and not (self.const_vars and not self.consts_linked)

    def get_func_names(self) -> tuple[str, ...]:
        return self.functions

    def get_symbol(self) -> str:
        """Return the function for which a code generator made it; empty if there is none."""
        return self.symbol

    def get_const_vars(self) -> tuple[str, ...]:
        return self.const_vars


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CSource(Module):
    """C (or C++) source; ``suffix`` is ``c``, ``cc``, ``cpp`` or ``S``; ``defines`` are macros to define."""

    type_key: ClassVar[str] = "c"
    is_dso_exportable: ClassVar[bool] = True
    code: str
    suffix: str = "c"
    defines: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LlvmModule(Module):
    type_key: ClassVar[str] = "llvm"
    is_dso_exportable: ClassVar[bool] = True
    content: str | bytes


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ObjectFile(Module):
    """A relocatable object, or a static library; ``suffix`` is ``o``, ``a`` or, once linked, ``so``."""

    type_key: ClassVar[str] = "static_library"
    is_dso_exportable: ClassVar[bool] = True
    data: bytes
    suffix: str = "o"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MergedModule(Module):
    type_key: ClassVar[str] = "_lib"
    is_dso_exportable: ClassVar[bool] = True
    members: tuple[Module, ...] = ()

    @property
    def is_crt_exportable(self) -> bool:
        return all(m.is_crt_exportable for m in self.members)

    def get_func_names(self) -> tuple[str, ...]:
        return tuple(f for m in self.members for f in m.get_func_names())

    def get_const_vars(self) -> tuple[str, ...]:
        return tuple(c for m in self.members for c in m.get_const_vars())


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ConstLoader(Module):
    """Arrays that a start-up step would pass to imported modules; ``users`` maps each symbol to its array
    names.

    ``loader_key`` is ``const_loader``, or ``metadata`` in older libraries.
    """

    arrays: Mapping[str, NDArray]
    users: Mapping[str, tuple[str, ...]]
    loader_key: str = "const_loader"

    @property
    def key(self) -> str:
        return self.loader_key


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExecutorFactory(Module):
    """Data from which an executor is created: graph JSON (None for AOT), parameters, model name."""

    graph_json: str | None
    params: Mapping[str, NDArray]

    @property
    def key(self) -> str:
        return "AotExecutorFactory" if self.graph_json is None else "GraphExecutorFactory"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JsonModule(Module):
    """A subgraph in an external code generator's own representation."""

    generator: str
    graph_json: str

    @property
    def key(self) -> str:
        return self.generator


@dataclass(frozen=True, slots=True)
class DeviceFunction:
    """Launch information of a kernel: its name, argument types and launch parameters."""

    name: str
    arg_types: tuple[DLDataType, ...] = ()
    launch_params: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DeviceSource(Module):
    """Source or binary for another device (``cuda``, ``opencl``...), in the given ``format``."""

    device: str
    format: str
    kernels: Mapping[str, DeviceFunction]
    data: bytes

    @property
    def key(self) -> str:
        return self.device
