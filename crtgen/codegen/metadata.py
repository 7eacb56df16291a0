"""The CRT metadata module: what an image holds, as const tables.

``describe`` says it once; this file writes it in C, ``llvm_metadata`` as an LLVM module.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from crtgen.codegen.module import Argument, CModule, Function, Interface, ModelInfo, Param
from crtgen.codegen.names import c_string, comment
from crtgen.codegen.render import render
from crtgen.codegen.views import dl_type
from crtgen.errors import UsageError
from crtgen.ir import DType

__all__ = [
    "LOOKUP_SYMBOL",
    "METADATA_FILE",
    "METADATA_VERSION",
    "MetadataView",
    "ModelView",
    "Registry",
    "TensorInfo",
    "describe",
    "metadata_files",
    "metadata_source",
    "name_table",
]

METADATA_FILE = "crt_metadata.c"

METADATA_VERSION = 1
"""``TVMMetadata.version``."""
LOOKUP_SYMBOL = "crt_lookup_linked_param"

ROLES = ("run", "external", "own")
"""Functions in the registry: those that run models, those of external code generators, the rest."""

_MOST_FUNCTIONS = 0xFFFF
_INTEGER = Argument(0, 0, 0, 0)
_UNKNOWN = 0xFFFF
"""In place of the number of arguments: ``CRT_SIGNATURE_UNKNOWN`` of ``crt/registry.h``."""


@dataclass(frozen=True, slots=True)
class Registry:
    """What an image registers: functions in the order of the name table, parameters, models.

    Parameters are looked up by storage id; those of a later model are numbered on from the earlier ones'.
    Raises ``UsageError`` unless every name can be told apart and stored.
    """

    functions: tuple[Function, ...]
    params: tuple[Param, ...]
    models: tuple[ModelInfo, ...]

    @classmethod
    def of(cls, modules: Sequence[CModule]) -> "Registry":
        """The modules' functions in the order of their roles, ``_lookup_linked_param``, ``get_c_metadata``.

        The latter is ``<model>_get_c_metadata``, once per model, where there are several. Raises
        ``UsageError`` for a name that the table cannot hold, and for what occurs twice.
        """
        models = tuple(m.info for m in modules)
        functions = sorted((f for m in modules for f in m.functions), key=lambda f: ROLES.index(f.role))
        params = tuple(_number_on(modules))
        if params:
            functions.append(Function("_lookup_linked_param", LOOKUP_SYMBOL, arguments=(_INTEGER,)))
        for model in models:
            name = "get_c_metadata" if len(models) == 1 else f"{model.name}_get_c_metadata"
            functions.append(Function(name, f"{model.name}_get_c_metadata", arguments=()))
        return cls(tuple(functions), params, models)

    def __post_init__(self) -> None:
        for function in self.functions:
            if not function.name or "\0" in function.name:
                what = "contains NUL" if function.name else "is empty"
                raise UsageError(f"the function name {function.name!r} {what}", where=function.symbol)
        _refuse_twice("function", (f.name for f in self.functions))
        symbols = [f.symbol for f in self.functions] + [p.symbol for p in self.params]
        _refuse_twice("symbol", symbols)
        _refuse_twice("model", (m.name for m in self.models))
        if len(self.functions) > _MOST_FUNCTIONS:
            raise UsageError(f"{len(self.functions)} functions are more than {_MOST_FUNCTIONS}")


def _number_on(modules: Sequence[CModule]) -> Iterable[Param]:
    start = 0
    for module in modules:
        for param in module.params:
            yield Param(start + param.sid, param.symbol, param.nbytes)
        start += max((p.sid + 1 for p in module.params), default=0)


def _refuse_twice(what: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise UsageError(f"the {what} {name} occurs {count} times", hint="give the models distinct names")


def name_table(names: Sequence[str]) -> bytes:
    """The names as the registry stores them: count (u16, little-endian), NUL-ended names, NUL."""
    return len(names).to_bytes(2, "little") + b"".join(n.encode() + b"\0" for n in names) + b"\0"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A ``TVMTensorInfo``; the shape of a scalar is empty."""

    name: str
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class ModelView:
    """A ``TVMMetadata`` and what it points to; the one workspace pool is the arena."""

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    pools: tuple[TensorInfo, ...]


@dataclass(frozen=True, slots=True)
class MetadataView:
    """The module, in no language: ``table`` are the names of ``functions``, ``external`` what it declares.

    ``signatures`` has for each function the number of its arguments, then an index into ``arguments`` each.
    """

    table: bytes
    functions: tuple[Function, ...]
    arguments: tuple[Argument, ...]
    signatures: tuple[int, ...]
    external: tuple[Function, ...]
    params: tuple[Param, ...]
    models: tuple[ModelView, ...]


def describe(registry: Registry) -> MetadataView:
    """What the metadata module of ``registry`` holds."""
    arguments = tuple(dict.fromkeys(a for f in registry.functions for a in f.arguments or ()))
    own = {LOOKUP_SYMBOL, *(f"{m.name}_get_c_metadata" for m in registry.models)}
    return MetadataView(
        table=name_table([f.name for f in registry.functions]),
        functions=registry.functions,
        arguments=arguments,
        signatures=tuple(chain.from_iterable(_signature(f, arguments) for f in registry.functions)),
        external=tuple(f for f in registry.functions if f.symbol not in own),
        params=registry.params,
        models=tuple(_model_view(m) for m in registry.models),
    )


def _signature(function: Function, arguments: Sequence[Argument]) -> tuple[int, ...]:
    if function.arguments is None:
        return (_UNKNOWN,)
    return (len(function.arguments), *map(arguments.index, function.arguments))


def _model_view(info: ModelInfo) -> ModelView:
    return ModelView(
        name=info.name,
        inputs=tuple(map(_tensor_info, info.inputs)),
        outputs=tuple(map(_tensor_info, info.outputs)),
        pools=(TensorInfo("arena", (info.arena,), DType.UINT8),),
    )


def _tensor_info(value: Interface) -> TensorInfo:
    return TensorInfo(value.name, value.shape, value.dtype)


def metadata_source(registry: Registry) -> str:
    """The module in C."""
    return render(
        "metadata.c.j2",
        m=describe(registry),
        version=METADATA_VERSION,
        c_string=c_string,
        comment=comment,
        dl_type=dl_type,
    )


def metadata_files(modules: Sequence[CModule]) -> Mapping[str, str]:
    """``crt_metadata.c`` of an image with these modules; see ``Registry.of`` for what is refused."""
    return {METADATA_FILE: metadata_source(Registry.of(modules))}
