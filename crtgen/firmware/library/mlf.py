"""Model Library Format archives: reads versions 1 to 7, writes version 7 (formats.md, section 6)."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from crtgen.base.errors import CorruptModelError, UsageError
from crtgen.compiler.codegen.names import symbol_stem
from crtgen.firmware.library.archive import read_tar, write_tar
from crtgen.firmware.library.metadata import ModelMetadata, OperatorMetadata
from crtgen.firmware.library.metadata_json import (
    VERSION,
    read_metadata,
    write_metadata,
    write_operator_metadata,
)
from crtgen.firmware.library.params import NDArray, read_params, write_params

__all__ = [
    "EXTERNAL",
    "Archive",
    "CodeFiles",
    "MlfModel",
    "OperatorLibrary",
    "export_time",
    "read_archive",
    "write_archive",
]

_SRC, _LIB, _INCLUDE = "codegen/host/src/", "codegen/host/lib/", "codegen/host/include/"
_RUNTIME, _OWN = "crt/", "crtgen/"
EXTERNAL = f"{_SRC}external/"
"""Folder of the sources that a model's code is built with, with a subfolder for each library."""
_CODE = re.compile(r"(?:(?P<model>.+)_)?lib\d+\.(?:c|cc|cpp|S|o)", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class CodeFiles:
    """Files by name: sources (C, C++, assembly) and objects."""

    sources: Mapping[str, str] = field(default_factory=dict)
    objects: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class MlfModel:
    """One model of an archive.

    Names in ``code`` are ``<model>_libN.c`` (or ``.cc``, ``.cpp``, ``.S``, ``.o``), those in ``headers``
    begin with ``tvmgen_<model>`` or ``<model>``. ``graph_json`` is empty unless the executor is ``graph``.
    ``runtime`` are headers of crtgen's runtime, ``crt/...``, which all models share. ``own`` is for crtgen
    alone: see ``stored``. ``external`` are the files of libraries that the metadata lists as dependencies in
    the archive's folder ``EXTERNAL``, by library and path. ``network`` is the file that crtgen compiled, if
    there is one.
    """

    metadata: ModelMetadata
    code: CodeFiles
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, NDArray] = field(default_factory=dict)
    relay: str = ""
    graph_json: str = ""
    runtime: Mapping[str, str] = field(default_factory=dict)
    own: str = ""
    external: Mapping[str, bytes] = field(default_factory=dict)
    network: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.metadata.model_name

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs in order; empty if there are several and the metadata does not tell their
        order.

        TVM sorts the names as text, which preserves the order only of ``output0``, ``output1``...
        """
        names = [t.name for main in self.metadata.main[:1] for t in main.outputs]
        if len(names) == 1 or all(re.fullmatch(r"output\d+", name) for name in names):
            return tuple(sorted(names, key=lambda n: (len(n), n)))
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class OperatorLibrary:
    """An archive in style ``operator``: ``tir`` maps a file name to the text of its functions in TIR."""

    metadata: OperatorMetadata
    code: CodeFiles
    tir: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Archive:
    """Content of an archive: models, or operators; ``version`` is the format version that was read."""

    models: tuple[MlfModel, ...] = ()
    operators: OperatorLibrary | None = None
    version: int = VERSION


def export_time() -> datetime:
    """Return the time to write into an archive: ``SOURCE_DATE_EPOCH`` if it is set, otherwise now, in UTC."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch is None:
        return datetime.now(UTC).replace(microsecond=0)
    try:
        return datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"SOURCE_DATE_EPOCH is {epoch!r}", hint="set it to seconds since 1970") from error


def read_archive(data: bytes, where: str) -> Archive:
    """Return the archive after checking all of it; nothing is written to disk."""
    files = read_tar(data, where)
    if "metadata.json" not in files:
        raise CorruptModelError(
            "the archive has no metadata.json, so it is not in Model Library Format", where=where
        )
    reader = _ArchiveReader(files, where)
    version, library = read_metadata(reader.text("metadata.json"), where)
    if isinstance(library, OperatorMetadata):
        reader.own_code({""})
        return Archive(operators=reader.operators(library), version=version)
    names = {m.model_name for m in library}
    folders = tuple(folder for m in library for folder in _folders(m))
    reader.own_code({*names, ""} if len(names) == 1 else names, folders)
    return Archive(tuple(reader.model(m, names) for m in library), version=version)


class _ArchiveReader:
    def __init__(self, files: Mapping[str, bytes], where: str) -> None:
        self.files = files
        self.where = where

    def text(self, path: str) -> str:
        try:
            return self.files[path].decode()
        except UnicodeDecodeError as error:
            raise CorruptModelError(f"{path} is not UTF-8", where=self.where) from error

    def own_code(self, models: set[str], folders: tuple[str, ...] = ()) -> None:
        # Refuse code that belongs neither to a model nor to a dependency, which has a folder.
        for path in self.files:
            if path.startswith((_SRC, _LIB)) and _owner(path) not in models and not path.startswith(folders):
                raise CorruptModelError(f"{path} belongs to no model of metadata.json", where=self.where)

    def code(self, name: str) -> CodeFiles:
        mine = sorted((p for p in self.files if _owner(p) in (name, "")), key=lambda p: (len(p), p))
        if not mine:
            raise CorruptModelError(f"there is no code for {name}", where=self.where)
        return CodeFiles(
            sources={p.removeprefix(_SRC): self.text(p) for p in mine if not p.endswith(".o")},
            objects={p.removeprefix(_LIB): self.files[p] for p in mine if p.endswith(".o")},
        )

    def model(self, metadata: ModelMetadata, names: set[str]) -> MlfModel:
        name = metadata.model_name
        graphs = ("executor-config/graph/graph.json", "runtime-config/graph/graph.json")
        graph = self.first(f"executor-config/graph/{name}.graph", *graphs)
        if metadata.executor == "graph" and not graph:
            raise CorruptModelError(f"there is no graph for {name}", where=self.where)
        params = f"parameters/{name}.params"
        return MlfModel(
            metadata=metadata,
            code=self.code(name),
            headers=self.headers(name, names),
            params=read_params(self.files[params], f"{self.where}: {params}") if params in self.files else {},
            relay=self.first(f"src/{name}.relay", "src/relay.txt", "relay.txt"),
            graph_json=graph if metadata.executor == "graph" else "",
            runtime=self.headers("", names),
            own=self.first(f"{_OWN}{name}.json"),
            external={
                p.removeprefix(EXTERNAL): data
                for p, data in self.files.items()
                if p.startswith(_folders(metadata))
            },
            network={
                p.removeprefix(_OWN): data
                for p, data in self.files.items()
                if p.startswith(f"{_OWN}{name}.") and p != f"{_OWN}{name}.json"
            },
        )

    def headers(self, name: str, models: set[str]) -> dict[str, str]:
        paths = (p.removeprefix(_INCLUDE) for p in sorted(self.files) if p.startswith(_INCLUDE))
        return {p: self.text(_INCLUDE + p) for p in paths if _header_owner(p, models) == name}

    def operators(self, metadata: OperatorMetadata) -> OperatorLibrary:
        tir = {p.removeprefix("src/"): self.text(p) for p in sorted(self.files) if p.startswith("src/tir-")}
        return OperatorLibrary(metadata, self.code(""), tir)

    def first(self, *paths: str) -> str:
        return next((self.text(path) for path in paths if path in self.files), "")


def _folders(metadata: ModelMetadata) -> tuple[str, ...]:
    # The folders below ``EXTERNAL`` of what a model depends on.
    inside = (d.url.removeprefix("./") for d in metadata.dependencies if d.url_type == "mlf_path")
    return tuple(f"{url}/" for url in inside if url.startswith(EXTERNAL))


def _owner(path: str) -> str | None:
    # The model that a file of code names, "" if it names none; None for what is not code.
    name = path.removeprefix(_SRC).removeprefix(_LIB)
    match = _CODE.fullmatch(name) if name != path else None
    return None if match is None else match["model"] or ""


def _header_owner(name: str, models: set[str]) -> str | None:
    # The model that a header belongs to; "" for those of the runtime.
    if name.startswith(_RUNTIME):
        return ""
    bare = name.removeprefix("tvmgen_")
    return max((m for m in models if bare.startswith(m)), key=len, default=None)


def write_archive(archive: Archive) -> bytes:
    """Write a tar of version 7. Equal archives give equal bytes; entries have the time of the export."""
    if archive.operators is not None:
        library = archive.operators
        files = {f"src/{name}": text.encode() for name, text in library.tir.items()}
        files |= _code_files(library.code)
        files["metadata.json"] = write_operator_metadata(library.metadata).encode()
        return write_tar(files, int(library.metadata.export_datetime.timestamp()))
    models = sorted(archive.models, key=lambda m: m.name)
    names = [symbol_stem(model.name) for model in models]
    if not names or len(set(names)) != len(names):
        raise UsageError(
            f"an archive needs models with different names; these are {names}",
            hint="give each model its own --name",
        )
    files = {path: data for model in models for path, data in _model_files(model).items()}
    files["metadata.json"] = write_metadata([m.metadata for m in models]).encode()
    data = write_tar(files, max(int(m.metadata.export_datetime.timestamp()) for m in models))
    read_archive(data, "the archive to write")
    return data


def _code_files(code: CodeFiles) -> dict[str, bytes]:
    sources = {_SRC + name: text.encode() for name, text in code.sources.items()}
    return sources | {_LIB + name: data for name, data in code.objects.items()}


def _model_files(model: MlfModel) -> dict[str, bytes]:
    files = _code_files(model.code)
    headers = {**model.headers, **model.runtime}
    files |= {_INCLUDE + name: text.encode() for name, text in headers.items()}
    files[f"parameters/{model.name}.params"] = write_params(model.params)
    files[f"src/{model.name}.relay"] = model.relay.encode()
    if model.graph_json:
        files[f"executor-config/graph/{model.name}.graph"] = model.graph_json.encode()
    files |= {EXTERNAL + name: data for name, data in model.external.items()}
    if model.own:
        files[f"{_OWN}{model.name}.json"] = model.own.encode()
    files |= {_OWN + name: data for name, data in model.network.items()}
    return files
