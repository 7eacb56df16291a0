"""The CRT metadata module in C: what an image holds, as const tables (formats.md, sections 2 and 3)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from crtgen.codegen.module import CModule, Function, Interface, ModelInfo, Param
from crtgen.codegen.names import c_string, comment
from crtgen.codegen.render import render
from crtgen.codegen.views import dl_type
from crtgen.errors import UsageError

__all__ = ["METADATA_FILE", "Registry", "metadata_files", "name_table"]

METADATA_FILE = "crt_metadata.c"

_MOST_FUNCTIONS = 0xFFFF


@dataclass(frozen=True, slots=True)
class Registry:
    """What an image registers: functions in the order of the name table, parameters, models.

    Parameters are looked up by storage id; those of a later model are numbered on from the earlier ones'.
    """

    functions: tuple[Function, ...]
    params: tuple[Param, ...]
    models: tuple[ModelInfo, ...]

    @classmethod
    def of(cls, modules: Sequence[CModule]) -> "Registry":
        """The modules' own functions, then ``_lookup_linked_param`` and ``get_c_metadata``.

        The latter is ``<model>_get_c_metadata``, once per model, where there are several. Raises
        ``UsageError`` for a name that the table cannot hold, and for what occurs twice.
        """
        models = tuple(m.info for m in modules)
        functions = [f for m in modules for f in m.functions]
        params = tuple(_number_on(modules))
        if params:
            functions.append(Function("_lookup_linked_param", "crt_lookup_linked_param"))
        for model in models:
            name = "get_c_metadata" if len(models) == 1 else f"{model.name}_get_c_metadata"
            functions.append(Function(name, f"{model.name}_get_c_metadata"))
        registry = cls(tuple(functions), params, models)
        registry.check()
        return registry

    def check(self) -> None:
        """Raise ``UsageError`` unless every name can be told apart and stored."""
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
class TensorInfoView:
    """A ``TVMTensorInfo``, as C; ``shape`` is empty for a scalar."""

    name: str
    shape: str
    rank: int
    dtype: str


@dataclass(frozen=True, slots=True)
class ModelMetadataView:
    """A ``TVMMetadata`` and what it points to; ``arena`` is bytes of the one workspace pool."""

    name: str
    inputs: tuple[TensorInfoView, ...]
    outputs: tuple[TensorInfoView, ...]
    arena: int


@dataclass(frozen=True, slots=True)
class FunctionView:
    """A function of the registry: the name for a comment, and the symbol."""

    name: str
    symbol: str


@dataclass(frozen=True, slots=True)
class MetadataView:
    """The module: ``names`` are the lines of the name table as C, ``external`` what other files define."""

    names: tuple[str, ...]
    functions: tuple[FunctionView, ...]
    external: tuple[FunctionView, ...]
    params: tuple[Param, ...]
    models: tuple[ModelMetadataView, ...]


def metadata_files(modules: Sequence[CModule]) -> Mapping[str, str]:
    """``crt_metadata.c`` of an image with these modules; see ``Registry.of`` for what is refused."""
    registry = Registry.of(modules)
    table = name_table([f.name for f in registry.functions])
    own = {f.symbol for m in modules for f in m.functions}
    functions = tuple(FunctionView(comment(f.name), f.symbol) for f in registry.functions)
    view = MetadataView(
        names=tuple(", ".join(f"0x{b:02x}" for b in table[i : i + 16]) for i in range(0, len(table), 16)),
        functions=functions,
        external=tuple(f for f in functions if f.symbol in own),
        params=registry.params,
        models=tuple(_model_view(m) for m in registry.models),
    )
    return {METADATA_FILE: render("metadata.c.j2", m=view)}


def _model_view(info: ModelInfo) -> ModelMetadataView:
    return ModelMetadataView(
        name=info.name,
        inputs=tuple(map(_tensor_view, info.inputs)),
        outputs=tuple(map(_tensor_view, info.outputs)),
        arena=info.arena,
    )


def _tensor_view(value: Interface) -> TensorInfoView:
    shape = ", ".join(map(str, value.shape))
    return TensorInfoView(c_string(value.name), shape, len(value.shape), dl_type(value.dtype))
