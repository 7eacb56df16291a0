"""The CRT metadata module: the contents of an image as const tables.

``describe`` computes it once; this file writes it as C, ``llvm_metadata`` as an LLVM module.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from crtgen.base.errors import UsageError
from crtgen.compiler.codegen.module import Argument, CModule, Interface, ModelInfo, Param, RegistryFunction
from crtgen.compiler.codegen.names import c_string, comment
from crtgen.compiler.codegen.render import render
from crtgen.compiler.codegen.views import dl_type
from crtgen.network.ir import DType

__all__ = [
    "METADATA_FILE",
    "METADATA_VERSION",
    "MetadataModelView",
    "MetadataView",
    "ParameterLookup",
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
_LOOKUP = "_lookup_linked_param"
# The operator of a graph that does nothing; TVM's debug executor times it by this name.
_NOP = "__nop"

_AMBIGUOUS = "lookup_in_several_models"

ROLES = ("run", "external", "own")
"""Roles of functions in the registry: those that run models, those of external generators, the rest."""

_MOST_FUNCTIONS = 0xFFFF
_INTEGER = Argument(0, 0, 0, 0)
# ``CRT_SIGNATURE_UNKNOWN`` of ``crt/registry.h``, instead of the number of arguments.
_UNKNOWN = 0xFFFF
# Likewise, of a function that looks at none: ``CRT_SIGNATURE_ANY``.
_ANY = 0xFFFE
# Added to the index of an argument that is only read: ``CRT_SIGNATURE_READS``.
_READS = 0x8000


@dataclass(frozen=True, slots=True)
class ParameterLookup:
    """The function ``symbol`` finds a model's parameters by id: it covers ``count`` parameters from ``start``
    on.
    """

    symbol: str
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Registry:
    """The registry of an image: functions in the order of the name table, parameters, models.

    Parameters are found by the storage ids of their model, which has a lookup function. Raises ``UsageError``
    unless all names are different and fit the tables.
    """

    functions: tuple[RegistryFunction, ...]
    params: tuple[Param, ...]
    models: tuple[ModelInfo, ...]
    lookups: tuple[ParameterLookup, ...] = ()

    @classmethod
    def of(cls, modules: Sequence[CModule]) -> "Registry":
        """Order the modules' functions by role, then ``_lookup_linked_param``, ``get_c_metadata``, ``__nop``.

        Each model has ``<model>_lookup_linked_param``. The name without prefix belongs to a single model;
        with several it fails with an explanation. The metadata function is ``tvmgen_<model>_get_c_metadata``
        for each model, which TVM v0.14 looks up; older versions look up the name without prefix, which a
        single model gets. Raises ``UsageError`` for a name that the table cannot hold, and for duplicate
        names.
        """
        models = tuple(m.info for m in modules)
        functions = sorted((f for m in modules for f in m.functions), key=lambda f: ROLES.index(f.role))
        lookups = tuple(_lookups(modules))
        if lookups:
            bare = lookups[0].symbol if len(models) == 1 else _AMBIGUOUS
            functions.append(RegistryFunction(_LOOKUP, bare, arguments=(_INTEGER,)))
        for lookup in lookups:
            functions.append(RegistryFunction(lookup.symbol, lookup.symbol, arguments=(_INTEGER,)))
        for model in models:
            symbol = f"{model.name}_get_c_metadata"
            functions.append(RegistryFunction(f"tvmgen_{symbol}", symbol, arguments=()))
        if len(models) == 1:
            functions.append(RegistryFunction("get_c_metadata", functions[-1].symbol, arguments=()))
        functions.append(RegistryFunction(_NOP, "nothing"))
        params = tuple(param for module in modules for param in module.params)
        return cls(tuple(functions), params, models, lookups)

    @property
    def own_symbols(self) -> frozenset[str]:
        described = (f"{m.name}_get_c_metadata" for m in self.models)
        own = (f.symbol for f in self.functions if f.name in (_LOOKUP, _NOP))
        return frozenset({*described, *own, *(lookup.symbol for lookup in self.lookups)})

    def __post_init__(self) -> None:
        for function in self.functions:
            if not function.name or "\0" in function.name:
                what = "contains NUL" if function.name else "is empty"
                raise UsageError(
                    f"the function name {function.name!r} {what}",
                    where=function.symbol,
                    hint="rename the model or the function",
                )
        _refuse_twice("function", (f.name for f in self.functions))
        symbols = [f.symbol for f in self.functions if f.symbol not in self.own_symbols]
        symbols += [*self.own_symbols, *(p.symbol for p in self.params)]
        _refuse_twice("symbol", symbols)
        _refuse_twice("model", (m.name for m in self.models))
        if len(self.functions) > _MOST_FUNCTIONS:
            raise UsageError(
                f"{len(self.functions)} functions are more than {_MOST_FUNCTIONS}",
                hint="split the models over several modules",
            )


def _lookups(modules: Sequence[CModule]) -> Iterable[ParameterLookup]:
    start = 0
    for module in modules:
        if module.params:
            yield ParameterLookup(f"{module.info.name}{_LOOKUP}", start, len(module.params))
        start += len(module.params)


def _refuse_twice(what: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise UsageError(f"the {what} {name} occurs {count} times", hint="give the models distinct names")


def name_table(names: Sequence[str]) -> bytes:
    """Return the names as the registry stores them: count (u16, little-endian), NUL-terminated names, NUL."""
    return len(names).to_bytes(2, "little") + b"".join(n.encode() + b"\0" for n in names) + b"\0"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A ``TVMTensorInfo``; the shape of a scalar is empty."""

    name: str
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class MetadataModelView:
    """A ``TVMMetadata`` and the data that it points to; ``<module>_run`` runs the model.

    It declares no workspace pools, because callers would then have to provide them, while the arena is
    static.
    """

    name: str
    module: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


@dataclass(frozen=True, slots=True)
class MetadataView:
    """The metadata module, independent of the language.

    ``table`` are the names of ``functions``, ``external`` are declarations. ``signatures`` has for each
    function the number of its arguments, followed by an index into ``arguments`` for each. ``ambiguous`` is
    the reason why ``_lookup_linked_param`` fails, empty if it works. ``has_nop`` adds ``__nop``.
    """

    table: bytes
    functions: tuple[RegistryFunction, ...]
    arguments: tuple[Argument, ...]
    signatures: tuple[int, ...]
    external: tuple[RegistryFunction, ...]
    params: tuple[Param, ...]
    lookups: tuple[ParameterLookup, ...]
    ambiguous: str
    has_nop: bool
    models: tuple[MetadataModelView, ...]


def describe(registry: Registry) -> MetadataView:
    found = (replace(a, written=True) for f in registry.functions for a in f.arguments or ())
    arguments = tuple(dict.fromkeys(found))
    names = {f.name for f in registry.functions}
    return MetadataView(
        table=name_table([f.name for f in registry.functions]),
        functions=registry.functions,
        arguments=arguments,
        signatures=tuple(chain.from_iterable(_signature(f, arguments) for f in registry.functions)),
        external=tuple(f for f in registry.functions if f.symbol not in registry.own_symbols),
        params=registry.params,
        lookups=registry.lookups,
        ambiguous=_ambiguous(registry),
        has_nop=_NOP in names,
        models=tuple(_model_view(m, names) for m in registry.models),
    )


def _ambiguous(registry: Registry) -> str:
    if len(registry.models) == 1 or not registry.lookups:
        return ""
    count, first = len(registry.models), registry.lookups[0].symbol
    return f"the image has {count} models; call <model>{_LOOKUP}, such as {first}"


def _signature(function: RegistryFunction, arguments: Sequence[Argument]) -> tuple[int, ...]:
    if function.name == _NOP:
        return (_ANY,)
    if function.arguments is None:
        return (_UNKNOWN,)
    places = (arguments.index(replace(a, written=True)) for a in function.arguments)
    pairs = zip(places, function.arguments, strict=True)
    return (len(function.arguments), *(i if a.written else i | _READS for i, a in pairs))


def _model_view(info: ModelInfo, functions: Collection[str]) -> MetadataModelView:
    prefixed = f"tvmgen_{info.name}"
    return MetadataModelView(
        name=info.name,
        module=prefixed if f"{prefixed}_run" in functions else info.name,
        inputs=tuple(map(_tensor_info, info.inputs)),
        outputs=tuple(map(_tensor_info, info.outputs)),
    )


def _tensor_info(value: Interface) -> TensorInfo:
    return TensorInfo(value.name, value.shape, value.dtype)


def metadata_source(registry: Registry) -> str:
    return render(
        "metadata.c.j2",
        m=describe(registry),
        version=METADATA_VERSION,
        c_string=c_string,
        comment=comment,
        dl_type=dl_type,
    )


def metadata_files(modules: Sequence[CModule]) -> Mapping[str, str]:
    """Return ``crt_metadata.c`` for an image with these modules. Raises the errors of ``Registry.of``."""
    return {METADATA_FILE: metadata_source(Registry.of(modules))}
