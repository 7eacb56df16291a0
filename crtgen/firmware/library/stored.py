"""crtgen's own models in an archive: data from which exactly the same modules can be restored.

It is in ``crtgen/<model>.json``, a path that the format does not use.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import TypeAdapter, ValidationError

from crtgen.base.errors import CorruptModelError, UnsupportedError, UsageError
from crtgen.base.resources import runtime_dir
from crtgen.boards import Core, find_core
from crtgen.compiler.codegen import CModule, ExternalModule, ModelInfo, Param, RegistryFunction
from crtgen.compiler.codegen.checks import check_sizes, check_word
from crtgen.compiler.kernels.engine.sources import SourceLibrary
from crtgen.firmware.library.datatype import DLDataType
from crtgen.firmware.library.graph_json import read_graph_json
from crtgen.firmware.library.imported import Linkable, storages_of
from crtgen.firmware.library.metadata import (
    Dependency,
    MainFunction,
    MemoryUse,
    ModelMetadata,
    OperatorFunction,
    Sid,
    TensorSize,
)
from crtgen.firmware.library.mlf import EXTERNAL, CodeFiles, MlfModel

__all__ = [
    "FunctionScratch",
    "Stored",
    "StoredLibrary",
    "StoredNetwork",
    "registry_source",
    "restore_model",
    "runtime_headers",
    "store_model",
    "stored_network",
]

_FORMAT = 1
_CPU = 1
_FEATURES = ("dsp", "mve", "unaligned")
_RUNTIME_HEADER = re.compile(r"^#include <(crt/\w+\.h)>", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FunctionScratch:
    function: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class StoredLibrary:
    """Sources needed by the code: files of a library, and which of its folders contain headers."""

    name: str
    files: tuple[str, ...]
    include_dirs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredNetwork:
    """The file from which a model was compiled, by its name in the archive, and the options with which it was
    read.

    See ``crtgen.load`` for the options.
    """

    file: str
    shapes: Mapping[str, tuple[int, ...]]
    io: str
    channels: str

    def __post_init__(self) -> None:
        check_word("the file of a network", self.file)
        for shape in self.shapes.values():
            check_sizes(**{f"length {i}": length for i, length in enumerate(shape)})


@dataclass(frozen=True, slots=True)
class Stored:
    """``files`` maps the name of a file to its name in the archive.

    ``image`` are the names of generated sources that an image contains once.
    """

    format: int
    core: str
    files: Mapping[str, str]
    info: ModelInfo
    functions: tuple[RegistryFunction, ...]
    params: tuple[Param, ...]
    workspace: int | None
    libraries: tuple[StoredLibrary, ...]
    externals: tuple[ExternalModule, ...]
    image: tuple[str, ...] = ()
    network: StoredNetwork | None = None

    def __post_init__(self) -> None:
        check_sizes(workspace=self.workspace or 0)


_ADAPTER = TypeAdapter(Stored)


def store_model(
    part: Linkable,
    core: Core,
    time: datetime,
    operators: Sequence[FunctionScratch] = (),
    text: str = "",
    image: Sequence[str] = (),
    network: tuple[StoredNetwork, bytes] | None = None,
) -> MlfModel:
    """Store one of crtgen's own models in an archive; ``text`` is a readable description of its network.

    ``image`` are sources that an image contains once, stored with the first model of an archive. ``network``
    is the file from which it was compiled. Runtime headers that the code includes are stored, too. In the
    metadata, the workspace is the arena, including inputs and outputs, and the constants are the linked
    parameters.
    """
    module, info = part.module, part.module.info
    names = {n: n for n in module.files if n.endswith(".h")}
    sources = sorted(set(module.files) - set(names))
    names |= {n: f"{info.name}_lib{i}.{n.rpartition('.')[2]}" for i, n in enumerate(sources)}
    external = _external(module.libraries)
    headers = {n: module.files[n] for n in names if n.endswith(".h")}
    code = {names[n]: module.files[n] for n in sources}
    once = {f"{info.name}_lib{i}.c": source for i, source in enumerate(image, len(sources))}
    code |= once
    stored = Stored(
        format=_FORMAT,
        core=core.name,
        files=names,
        info=info,
        functions=module.functions,
        params=module.params,
        workspace=part.workspace,
        libraries=_libraries(module.libraries),
        externals=module.externals,
        image=tuple(once),
        network=network[0] if network else None,
    )
    return MlfModel(
        metadata=_metadata(part, core, time, operators),
        code=CodeFiles(code),
        headers=headers,
        runtime=runtime_headers((*code.values(), *headers.values())),
        relay=text,
        graph_json=part.graph_json,
        own=_ADAPTER.dump_json(stored, indent=1).decode() + "\n",
        external=external,
        network={network[0].file: network[1]} if network else {},
    )


def stored_network(model: MlfModel, where: str) -> tuple[StoredNetwork, bytes] | None:
    """Return the file from which crtgen compiled the model, and its options; None if the archive does not
    contain it.
    """
    stored = _read(model.own, f"{where}: crtgen/{model.name}.json").network if model.own else None
    if stored is None or stored.file not in model.network:
        return None
    return stored, model.network[stored.file]


def registry_source() -> str:
    """Return the runtime's lookup in name tables, which tables of graphs use when an operator fails."""
    return (runtime_dir() / "src" / "crt_registry.c").read_text(encoding="utf-8")


def runtime_headers(texts: Iterable[str]) -> dict[str, str]:
    """Return the headers ``crt/...`` that texts include, directly or indirectly."""
    found: dict[str, str] = {}
    wanted = {name for text in texts for name in _RUNTIME_HEADER.findall(text)}
    while wanted:
        name = wanted.pop()
        found[name] = (runtime_dir() / "include" / name).read_text(encoding="utf-8")
        wanted |= set(_RUNTIME_HEADER.findall(found[name])) - set(found)
    return dict(sorted(found.items()))


def _external(libraries: Sequence[SourceLibrary]) -> dict[str, bytes]:
    # The files of all libraries, by library and path.
    files: dict[str, bytes] = {}
    for library in libraries:
        for path, data in library.files:
            if files.setdefault(f"{library.name}/{path}", data) != data:
                raise UsageError(
                    f"there are two versions of {path}",
                    where=library.name,
                    hint="their contents differ: rename one of them",
                )
    return files


def _libraries(libraries: Sequence[SourceLibrary]) -> tuple[StoredLibrary, ...]:
    # One for each name: kernels may need different files of a library.
    return tuple(
        StoredLibrary(
            name,
            tuple(sorted({path for lib in libraries if lib.name == name for path, _ in lib.files})),
            tuple(dict.fromkeys(d for lib in libraries if lib.name == name for d in lib.include_dirs)),
        )
        for name in dict.fromkeys(library.name for library in libraries)
    )


def restore_model(model: MlfModel, core: Core, where: str) -> Linkable:
    """Restore a stored model; refused if its kernels need features that the core lacks."""
    place = f"{where}: crtgen/{model.name}.json"
    stored = _read(model.own, place)
    if stored.format != _FORMAT:
        raise CorruptModelError(
            f"the archive has format {stored.format}, this crtgen reads format {_FORMAT}", where=place
        )
    _check_core(stored.core, core, where)
    texts = {**model.code.sources, **model.headers}
    if {*stored.files.values(), *stored.image} != set(texts) or stored.info.name != model.name:
        raise CorruptModelError("the network does not fit the code in the archive", where=place)
    files = {name: texts[stored.files[name]] for name in sorted(stored.files)}
    libraries = tuple(_restored(library, model.external, place) for library in stored.libraries)
    try:
        module = CModule(
            stored.info, files, stored.functions, stored.params, libraries, externals=stored.externals
        )
    except CorruptModelError as error:
        raise CorruptModelError(error.message, where=place) from error
    graph = read_graph_json(model.graph_json, f"{where}: graph of {model.name}") if model.graph_json else None
    storages = storages_of(graph, module) if graph else ()
    return Linkable(module, workspace=stored.workspace, graph_json=model.graph_json, storages=storages)


def _read(text: str, where: str) -> Stored:
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise CorruptModelError(f"{first['msg']} ({key})", where=where) from error
    except CorruptModelError as error:
        raise CorruptModelError(error.message, where=where) from error


def _restored(library: StoredLibrary, external: Mapping[str, bytes], where: str) -> SourceLibrary:
    missing = [path for path in library.files if f"{library.name}/{path}" not in external]
    if missing:
        raise CorruptModelError(f"the archive lacks {missing[0]} of {library.name}", where=where)
    files = tuple((path, external[f"{library.name}/{path}"]) for path in library.files)
    return SourceLibrary(library.name, files, library.include_dirs)


def _check_core(name: str, core: Core, where: str) -> None:
    built = find_core(name)
    lacks = [f for f in _FEATURES if getattr(built, f) and not getattr(core, f)]
    if lacks:
        raise UnsupportedError(
            f"the archive was compiled for {name}: {core.name} lacks {', '.join(lacks)}",
            where=where,
            hint="compile the models again, for this board",
        )


def _metadata(
    part: Linkable, core: Core, time: datetime, operators: Sequence[FunctionScratch]
) -> ModelMetadata:
    info = part.module.info
    sizes = read_graph_json(part.graph_json).storage_sizes() if part.graph_json else {}
    tensors = [
        tuple(TensorSize(i.name, i.nbytes, str(DLDataType.of(i.dtype.numpy))) for i in side)
        for side in (info.inputs, info.outputs)
    ]
    main = MainFunction(
        device=_CPU,
        workspace_size_bytes=info.arena,
        constants_size_bytes=sum(param.nbytes for param in part.module.params),
        io_size_bytes=sum(t.size for side in tensors for t in side),
        inputs=tensors[0],
        outputs=tensors[1],
    )
    return ModelMetadata(
        model_name=info.name,
        export_datetime=time,
        target=(f"c -mcpu={core.name}" if core.arch != "host" else "c",),
        executor="graph" if part.graph_json else "aot",
        main=(main,),
        operators=tuple(OperatorFunction(o.function, (MemoryUse(_CPU, o.nbytes),)) for o in operators),
        sids=tuple(Sid(sid, nbytes) for sid, nbytes in sizes.items()),
        dependencies=tuple(
            Dependency(name, f"./{EXTERNAL}{name}", "mlf_path", "*")
            for name in dict.fromkeys(library.name for library in part.module.libraries)
        ),
    )
