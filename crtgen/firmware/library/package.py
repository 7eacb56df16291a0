"""Files with models that are already code: archives in Model Library Format, and exported libraries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from crtgen.base import files
from crtgen.base.errors import UnsupportedError, UsageError
from crtgen.base.trust import digest
from crtgen.boards import Core, find_core
from crtgen.compiler.byoc import Generator
from crtgen.compiler.codegen.names import c_identifier
from crtgen.firmware.library.archive import read_tar
from crtgen.firmware.library.exported import ExportedLibrary, read_exported, static_modules
from crtgen.firmware.library.graph_executor import graph_module
from crtgen.firmware.library.graph_json import read_graph_json
from crtgen.firmware.library.imported import (
    Linkable,
    heap_of,
    import_model,
    import_operators,
    registered,
    source_text,
    storages_of,
)
from crtgen.firmware.library.includes import resolve_includes
from crtgen.firmware.library.mlf import Archive, MlfModel, read_archive
from crtgen.firmware.library.module import CSource, ObjectFile
from crtgen.firmware.library.params import NDArray, read_params
from crtgen.firmware.library.sources import check_undefined, context_source, machine_of
from crtgen.firmware.library.stored import restore_model

__all__ = ["SUFFIXES", "Package", "load_package"]

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".so")
"""Ends of the names of such files."""

# The workspace of an exported library, which nowhere says what it allocates, in sizes of its tensors.
_WORKSPACES = 2


@dataclass(frozen=True, slots=True, eq=False)
class Package:
    """A file's models. ``params`` and ``graph_json`` are for an exported library that does not contain them.

    ``digest`` covers everything that was read; see ``crtgen.base.trust``.
    """

    name: str
    where: str
    content: Archive | ExportedLibrary
    digest: str
    params: Mapping[str, NDArray] = field(default_factory=dict)
    graph_json: str = ""

    def parts(self, core: Core, generators: Sequence[Generator] = ()) -> tuple[Linkable, ...]:
        """Return the models for a core. Raises ``UnsupportedError`` naming a part that cannot be linked for
        it.

        ``generators`` have the sources of libraries that imported code calls.
        """
        if isinstance(self.content, ExportedLibrary):
            return (self._exported(self.content, core, generators),)
        if self.content.operators is not None:
            return import_operators(self.content.operators, self.where, generators)
        return tuple(self._model(model, core, generators) for model in self.content.models)

    def _model(self, model: MlfModel, core: Core, generators: Sequence[Generator]) -> Linkable:
        if model.own:
            return restore_model(model, core, self.where)
        imported = import_model(model, self.where, generators)
        if imported.module.libraries:
            _check_buffers(model, core, self.where)
        return imported

    def _exported(self, library: ExportedLibrary, core: Core, generators: Sequence[Generator]) -> Linkable:
        modules = static_modules(library, machine_of(core), core.arch == "host")
        libraries = resolve_includes(modules, (), self.where, (), generators)
        check_undefined(modules, self.where)
        factory = library.factory
        text = self.graph_json or (factory.graph_json if factory is not None else None) or ""
        if not text:
            raise UnsupportedError(
                "the package holds no graph",
                where=self.where,
                hint="name the file with the graph JSON: --graph-json",
            )
        params = self.params or (factory.params if factory is not None else {})
        graph = read_graph_json(text, f"{self.where}: graph")
        executor = graph_module(self.name, graph, params, library.functions)
        prefix = executor.info.name
        files = {f"{prefix}_{Path(m.name).name}": source_text(m) for m in modules if isinstance(m, CSource)}
        context = context_source(modules, self.where)
        files |= {f"{prefix}_context.c": context} if context else {}
        objects = {f"{prefix}_{Path(m.name).name}": m.data for m in modules if isinstance(m, ObjectFile)}
        functions = tuple(registered(self.name, executor, modules))
        module = replace(
            executor, files={**executor.files, **files}, functions=functions, libraries=libraries
        )
        allocates = "TVMBackendAllocWorkspace" in context
        workspace = sum(map(heap_of, modules)) + (_WORKSPACES * executor.info.arena if allocates else 0)
        storages = storages_of(graph, executor)
        return Linkable(module, objects, workspace, imports=modules, storages=storages)


def _check_buffers(model: MlfModel, core: Core, where: str) -> None:
    # Refuse a core for which a library's kernels may need more memory than the archive plans for them.
    cpus = [
        word.removeprefix("-mcpu=") for t in model.metadata.target for word in t.split() if "-mcpu=" in word
    ]
    for built in map(find_core, dict.fromkeys(cpus)):
        if built.mve != core.mve or (core.dsp and not built.dsp):
            raise UnsupportedError(
                f"{model.name} was compiled for {built.name}: its buffers are not those of {core.name}",
                where=where,
                hint="export the model for this core",
            )


def load_package(path: Path, params: Path | None = None, graph: Path | None = None) -> Package:
    """Read and check the models of a file.

    An exported library takes parameters and graph JSON from the files ``params`` and ``graph``, or else from
    ``X.params`` and ``X.graph.json`` beside ``X.tar``, or else from its own blob.
    """
    data = files.read(path)
    name = path.name
    stem = next((name.removesuffix(s) for s in SUFFIXES if name.endswith(s)), path.stem)
    if path.suffix != ".so" and "metadata.json" in read_tar(data, str(path)):
        if params or graph:
            raise UsageError(
                "an archive has its own graph and parameters",
                where=str(path),
                hint="leave --params and --graph out",
            )
        return Package(c_identifier(stem), str(path), read_archive(data, str(path)), digest(data))
    library = read_exported(data, str(path))
    params = params or _beside(path, f"{stem}.params")
    graph = graph or _beside(path, f"{stem}.graph.json")
    weights = files.read(params) if params else None
    text = files.read_text(graph) if graph else ""
    parts = [data, *([weights] if weights is not None else []), *([text.encode()] if text else [])]
    return Package(
        name=c_identifier((library.factory.name if library.factory else "") or stem),
        where=str(path),
        content=library,
        digest=digest(data if len(parts) == 1 else "".join(map(digest, parts)).encode()),
        params=read_params(weights, str(params)) if weights is not None else {},
        graph_json=text,
    )


def _beside(path: Path, name: str) -> Path | None:
    found = path.with_name(name)
    return found if found.is_file() else None
