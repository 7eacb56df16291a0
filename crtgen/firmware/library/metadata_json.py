"""``metadata.json``: reads versions 1 to 7, writes version 7 (formats.md, section 6)."""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from crtgen.compiler.codegen.names import symbol_stem
from crtgen.firmware.library.checker import Checker
from crtgen.firmware.library.metadata import (
    Dependency,
    MainFunction,
    MemoryUse,
    ModelMetadata,
    OperatorBuffer,
    OperatorFunction,
    OperatorMetadata,
    Sid,
    TensorSize,
    parse_time,
    time_text,
)

__all__ = ["VERSION", "read_metadata", "write_metadata", "write_operator_metadata"]

VERSION = 7
"""The version that is written, and the last one that exists."""

_NAME = re.compile(r"\w[\w.-]*", re.ASCII)


def read_metadata(text: str, where: str) -> tuple[int, tuple[ModelMetadata, ...] | OperatorMetadata]:
    """Return the version of the file, and its models or, in style ``operator``, its functions."""
    parser = _MetadataParser(where)
    top = parser.document(text)
    if not isinstance(top, dict):
        parser.fail("metadata.json is not an object")
    version = parser.value(top, "version", int, "metadata.json")
    if not 1 <= version <= VERSION:
        parser.fail(f"version {version} of the Model Library Format is unknown; 1 to {VERSION} can be read")
    parser.version = version
    return version, parser.library(top)


class _MetadataParser(Checker):
    version = VERSION

    def library(self, top: dict[str, Any]) -> tuple[ModelMetadata, ...] | OperatorMetadata:
        is_flat = "modules" not in top and (self.version < 7 or "style" in top)
        if is_flat and self.style(top, "metadata.json") == "operator":
            return self.operator_library(top)
        if self.version < 7:
            name = self.value(top, "model_name", str, "metadata.json")
            self.check_names([name])
            return (self.model(top, name),)
        if "style" in top:
            self.fail("it has modules and a style of its own: the styles are mixed")
        modules = self.value(top, "modules", dict, "metadata.json")
        if not modules:
            self.fail("it holds no model")
        models = tuple(self.model(self.table(m, name), name) for name, m in sorted(modules.items()))
        self.check_names([model.model_name for model in models])
        return models

    def table(self, value: Any, what: str) -> dict[str, Any]:
        return self.keys(value, what, frozenset(), tuple(value) if isinstance(value, dict) else ())

    def check_names(self, names: Sequence[str]) -> None:
        # Names become parts of C names: they have to differ there as well.
        seen: dict[str, str] = {}
        for name in names:
            if _NAME.fullmatch(name) is None:
                self.fail(f"{name!r} is not the name of a model")
            if symbol_stem(name) in seen:
                self.fail(f"the models {seen[symbol_stem(name)]} and {name} have the same name in C")
            seen[symbol_stem(name)] = name

    def style(self, table: dict[str, Any], what: str) -> str:
        return self.value(table, "style", str, what) if self.version >= 4 else "full-model"

    def model(self, table: dict[str, Any], name: str) -> ModelMetadata:
        what = f"the model {name}"
        style = self.style(table, what)
        if style != "full-model":
            self.fail(f"{what} has the style {style!r}: only full-model can stand beside others")
        if self.value(table, "model_name", str, what) != name:
            self.fail(f"{what} calls itself {table['model_name']}")
        executor = self.executor(table, what)
        main, operators, sids = self.memory(table, what, executor)
        dependencies = self.items(table.get("external_dependencies", []), "external_dependencies", dict)
        return ModelMetadata(
            model_name=name,
            export_datetime=self.time(table, what),
            target=self.target(table, what),
            executor=executor,
            main=main,
            operators=operators,
            sids=sids,
            dependencies=tuple(self.dependency(d) for d in dependencies),
        )

    def time(self, table: dict[str, Any], what: str) -> datetime:
        text = self.value(table, "export_datetime", str, what)
        try:
            return parse_time(text)
        except ValueError:
            self.fail(f"{text!r} is not a time of the form 2021-01-31 23:59:59Z")

    def target(self, table: dict[str, Any], what: str) -> tuple[str, ...]:
        if self.version >= 6:
            return tuple(self.items(table.get("target"), f"the target of {what}", str))
        targets = self.value(table, "target", dict, what)
        return tuple(self.items([targets[key] for key in sorted(targets)], f"the target of {what}", str))

    def executor(self, table: dict[str, Any], what: str) -> str:
        key = "executors" if self.version >= 5 else "runtimes"
        executors = self.items(self.value(table, key, list, what), key, str)
        if executors not in (["aot"], ["graph"]):
            self.fail(f"{key} of {what} is {executors}; it has to be aot or graph")
        return str(executors[0])

    def memory(
        self, table: dict[str, Any], what: str, executor: str
    ) -> tuple[tuple[MainFunction, ...], tuple[OperatorFunction, ...], tuple[Sid, ...]]:
        if self.version == 1:
            return (), (), self.sids(self.value(table, "memory", list, what))
        memory = self.value(table, "memory", dict, what)
        functions = self.value(memory, "functions", dict, f"the memory of {what}")
        main = self.items(functions.get("main"), "functions.main", dict)
        operators = self.items(functions.get("operator_functions"), "operator_functions", dict)
        sids = self.value(memory, "sids", list, f"the memory of {what}") if executor == "graph" else []
        return tuple(map(self.main, main)), tuple(map(self.operator, operators)), self.sids(sids)

    def sids(self, value: list[Any]) -> tuple[Sid, ...]:
        return tuple(
            Sid(
                self.natural(sid, "storage_id", "a storage"),
                self.natural(sid, "size_bytes", "a storage"),
                self.binding(sid),
            )
            for sid in self.items(value, "sids", dict)
        )

    def binding(self, table: dict[str, Any]) -> str | None:
        if table.get("input_binding") is None:
            return None
        return self.value(table, "input_binding", str, "a storage") or None

    def main(self, table: dict[str, Any]) -> MainFunction:
        what = "functions.main"
        tables = (
            (self.value(table, key, dict, what) if self.version >= 7 else table.get(key, {}))
            for key in ("inputs", "outputs")
        )
        inputs, outputs = (tuple(self.tensor(name, t) for name, t in sizes.items()) for sizes in tables)
        return MainFunction(
            device=self.natural(table, "device", what),
            workspace_size_bytes=self.natural(table, "workspace_size_bytes", what),
            constants_size_bytes=self.natural(table, "constants_size_bytes", what),
            io_size_bytes=self.natural(table, "io_size_bytes", what),
            inputs=inputs,
            outputs=outputs,
        )

    def tensor(self, name: str, value: Any) -> TensorSize:
        table = self.table(value, name)
        return TensorSize(name, self.natural(table, "size", name), self.value(table, "dtype", str, name))

    def operator(self, table: dict[str, Any]) -> OperatorFunction:
        name = self.value(table, "function_name", str, "an operator function")
        uses = self.items(self.value(table, "workspace", list, name), f"the workspace of {name}", dict)
        return OperatorFunction(
            name,
            tuple(
                MemoryUse(self.natural(u, "device", name), self.natural(u, "workspace_size_bytes", name))
                for u in uses
            ),
        )

    def dependency(self, table: dict[str, Any]) -> Dependency:
        keys = ("short_name", "url", "url_type", "version_spec")
        return Dependency(*(self.value(table, key, str, "an external dependency") for key in keys))

    def operator_library(self, top: dict[str, Any]) -> OperatorMetadata:
        what = "metadata.json"
        memory = self.value(top, "memory", dict, what)
        return OperatorMetadata(
            model_name=self.value(top, "model_name", str, what),
            export_datetime=self.time(top, what),
            target=self.target(top, what),
            functions=tuple(
                (name, tuple(map(self.buffer, self.items(buffers, name, dict))))
                for name, buffers in memory.items()
            ),
        )

    def buffer(self, table: dict[str, Any]) -> OperatorBuffer:
        what = "an argument"
        return OperatorBuffer(
            size_bytes=self.natural(table, "size_bytes", what),
            shape=self.naturals(table.get("shape"), f"the shape of {what}"),
            dtype=self.value(table, "dtype", str, what),
            input_binding=self.binding(table),
        )


def write_metadata(models: Sequence[ModelMetadata]) -> str:
    return _text({"modules": {m.model_name: _model(m) for m in models}, "version": VERSION})


def write_operator_metadata(library: OperatorMetadata) -> str:
    """Return the version 7 metadata of an archive in style ``operator``."""
    memory = {name: [_buffer(b) for b in buffers] for name, buffers in library.functions}
    return _text({"version": VERSION, **_head(library, []), "memory": memory, "style": "operator"})


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


def _head(library: ModelMetadata | OperatorMetadata, executors: list[str]) -> dict[str, Any]:
    return {
        "model_name": library.model_name,
        "export_datetime": time_text(library.export_datetime),
        "target": list(library.target),
        "executors": executors,
    }


def _model(model: ModelMetadata) -> dict[str, Any]:
    functions = {
        "main": [_main(main) for main in model.main],
        "operator_functions": [
            {"function_name": f.function_name, "workspace": [_use(use) for use in f.workspace]}
            for f in model.operators
        ],
    }
    result = {**_head(model, [model.executor]), "style": "full-model", "memory": {"functions": functions}}
    if model.executor == "graph":
        result["memory"]["sids"] = [_sid(sid) for sid in model.sids]
    if model.dependencies:
        result["external_dependencies"] = [_dependency(d) for d in model.dependencies]
    return result


def _main(main: MainFunction) -> dict[str, Any]:
    return {
        "device": main.device,
        "workspace_size_bytes": main.workspace_size_bytes,
        "constants_size_bytes": main.constants_size_bytes,
        "io_size_bytes": main.io_size_bytes,
        "inputs": {t.name: {"size": t.size, "dtype": t.dtype} for t in main.inputs},
        "outputs": {t.name: {"size": t.size, "dtype": t.dtype} for t in main.outputs},
    }


def _use(use: MemoryUse) -> dict[str, int]:
    return {"device": use.device, "workspace_size_bytes": use.workspace_size_bytes}


def _sid(sid: Sid) -> dict[str, Any]:
    binding = {"input_binding": sid.input_binding} if sid.input_binding is not None else {}
    return {"storage_id": sid.storage_id, "size_bytes": sid.size_bytes, **binding}


def _dependency(value: Dependency) -> dict[str, str]:
    return {
        "short_name": value.short_name,
        "url": value.url,
        "url_type": value.url_type,
        "version_spec": value.version_spec,
    }


def _buffer(buffer: OperatorBuffer) -> dict[str, Any]:
    return {
        "size_bytes": buffer.size_bytes,
        "shape": list(buffer.shape),
        "dtype": buffer.dtype,
        "input_binding": buffer.input_binding,
    }
