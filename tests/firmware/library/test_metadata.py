"""metadata.json: every version read, version 7 written, and what is wrong named."""

import copy
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from crtgen.base.errors import CorruptModelError
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
    time_text,
)
from crtgen.firmware.library.metadata_json import read_metadata, write_metadata, write_operator_metadata

TIME = datetime(2021, 3, 4, 5, 6, 7, tzinfo=UTC)
SIDS = [{"storage_id": 0, "size_bytes": 4, "input_binding": "x"}, {"storage_id": 1, "size_bytes": 8}]
MAIN = {"device": 1, "workspace_size_bytes": 10, "constants_size_bytes": 20, "io_size_bytes": 30}
OPERATOR = {"function_name": "f", "workspace": [{"device": 1, "workspace_size_bytes": 40}]}
DEPENDENCY = {"short_name": "crt", "url": "./runtime", "url_type": "mlf_path", "version_spec": "0.14"}
FLAT = {"model_name": "net", "export_datetime": "2021-03-04 05:06:07Z"}
FUNCTIONS = {"main": [MAIN], "operator_functions": [OPERATOR]}


def full() -> dict[str, Any]:
    """One graph model in version 7."""
    main = {
        **MAIN,
        "inputs": {"x": {"size": 4, "dtype": "int8"}},
        "outputs": {"y": {"size": 8, "dtype": "int16"}},
    }
    model = {
        **FLAT,
        "target": ["c -keys=cpu"],
        "executors": ["graph"],
        "style": "full-model",
        "external_dependencies": [DEPENDENCY],
        "memory": {"sids": SIDS, "functions": {"main": [main], "operator_functions": [OPERATOR]}},
    }
    return copy.deepcopy({"version": 7, "modules": {"net": model}})


def version(number: int) -> dict[str, Any]:
    """The same model as version ``number`` wrote it."""
    memory = {"sids": SIDS, "functions": FUNCTIONS}
    executors = "executors" if number >= 5 else "runtimes"
    document: dict[str, Any] = {"version": number, **FLAT, executors: ["graph"]}
    document["memory"] = SIDS if number == 1 else memory
    document["target"] = ["c -keys=cpu"] if number >= 6 else {"1": "c -keys=cpu"}
    if number >= 4:
        document["style"] = "full-model"
    if number >= 6:
        document["external_dependencies"] = [DEPENDENCY]
    return copy.deepcopy(document)


MODEL = ModelMetadata(
    model_name="net",
    export_datetime=TIME,
    target=("c -keys=cpu",),
    executor="graph",
    main=(MainFunction(1, 10, 20, 30, (TensorSize("x", 4, "int8"),), (TensorSize("y", 8, "int16"),)),),
    operators=(OperatorFunction("f", (MemoryUse(1, 40),)),),
    sids=(Sid(0, 4, "x"), Sid(1, 8)),
    dependencies=(Dependency("crt", "./runtime", "mlf_path", "0.14"),),
)
ADD = OperatorMetadata(
    "add", TIME, ("c",), (("add", (OperatorBuffer(2, (2,), "int8"), OperatorBuffer(1, (), "int8", "b"))),)
)


def test_reads_version_7() -> None:
    assert read_metadata(json.dumps(full()), "x") == (7, (MODEL,))


def test_writes_what_it_reads() -> None:
    assert json.loads(write_metadata([MODEL])) == full()
    assert read_metadata(write_metadata([MODEL]), "x") == (7, (MODEL,))
    assert read_metadata(write_operator_metadata(ADD), "x") == (7, ADD)


@pytest.mark.parametrize("number", range(1, 7))
def test_reads_the_old_versions(number: int) -> None:
    read, models = read_metadata(json.dumps(version(number)), "x")
    assert read == number
    assert isinstance(models, tuple)
    (model,) = models
    assert (model.model_name, model.export_datetime, model.target) == ("net", TIME, ("c -keys=cpu",))
    assert (model.executor, model.sids) == ("graph", MODEL.sids)
    assert model.main == (() if number == 1 else (MainFunction(1, 10, 20, 30),))
    assert model.operators == (() if number == 1 else MODEL.operators)
    assert model.dependencies == (MODEL.dependencies if number >= 6 else ())


def test_old_targets_are_ordered_by_device() -> None:
    document = version(3)
    document["target"] = {"2": "cuda", "1": "c"}
    _, models = read_metadata(json.dumps(document), "x")
    assert isinstance(models, tuple)
    assert models[0].target == ("c", "cuda")


def test_aot_has_no_storages() -> None:
    document = full()
    document["modules"]["net"]["executors"] = ["aot"]
    del document["modules"]["net"]["memory"]["sids"]
    _, models = read_metadata(json.dumps(document), "x")
    assert isinstance(models, tuple)
    assert (models[0].executor, models[0].sids) == ("aot", ())
    assert json.loads(write_metadata(models)) == document


@pytest.mark.parametrize("number", [0, 8, -1, 700])
def test_unknown_versions(number: int) -> None:
    with pytest.raises(CorruptModelError, match=f"version {number} .* 1 to 7"):
        read_metadata(json.dumps({**full(), "version": number}), "x")


@pytest.mark.parametrize(
    "path",
    [
        ("version",),
        ("modules",),
        *(
            ("modules", "net", key)
            for key in ("model_name", "export_datetime", "executors", "style", "memory")
        ),
        ("modules", "net", "memory", "sids"),
        ("modules", "net", "memory", "functions"),
        *(("modules", "net", "memory", "functions", "main", 0, key) for key in (*MAIN, "inputs", "outputs")),
        ("modules", "net", "memory", "functions", "operator_functions", 0, "function_name"),
        ("modules", "net", "memory", "functions", "operator_functions", 0, "workspace"),
        ("modules", "net", "memory", "sids", 0, "storage_id"),
        ("modules", "net", "memory", "sids", 1, "size_bytes"),
        ("modules", "net", "external_dependencies", 0, "url_type"),
    ],
)
def test_a_missing_key_is_named(path: tuple[Any, ...]) -> None:
    document: Any = full()
    target = document
    for step in path[:-1]:
        target = target[step]
    del target[path[-1]]
    with pytest.raises(CorruptModelError, match=f"has no key '{path[-1]}'"):
        read_metadata(json.dumps(document), "x")


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("model_name", "other", "the model net calls itself other"),
        ("style", "operator", "only full-model can stand beside others"),
        ("style", "half-model", "half-model"),
        ("executors", ["vm"], "it has to be aot or graph"),
        ("executors", ["aot", "graph"], "it has to be aot or graph"),
        ("export_datetime", "yesterday", "not a time of the form"),
        ("target", {"1": "c"}, "target of the model net"),
    ],
)
def test_values_that_cannot_be(key: str, value: Any, reason: str) -> None:
    document = full()
    document["modules"]["net"][key] = value
    with pytest.raises(CorruptModelError, match=reason):
        read_metadata(json.dumps(document), "x")


def test_mixed_styles() -> None:
    with pytest.raises(CorruptModelError, match="styles are mixed"):
        read_metadata(json.dumps({**full(), "style": "operator"}), "x")


def test_names_that_clash() -> None:
    document = full()
    other = copy.deepcopy(document["modules"]["net"])
    document["modules"] |= {"a-b": {**other, "model_name": "a-b"}, "a_b": {**other, "model_name": "a_b"}}
    with pytest.raises(CorruptModelError, match="a-b and a_b have the same name in C"):
        read_metadata(json.dumps(document), "x")


def test_names_that_occur_twice() -> None:
    model = json.dumps(full()["modules"]["net"])
    with pytest.raises(CorruptModelError, match="'net' occurs twice"):
        read_metadata(f'{{"version": 7, "modules": {{"net": {model}, "net": {model}}}}}', "x")


@pytest.mark.parametrize("name", ["", "../evil", "a/b", ".hidden", "a b", "é"])
def test_names_that_are_no_file_names(name: str) -> None:
    document = full()
    document["modules"] = {name: {**document["modules"]["net"], "model_name": name}}
    with pytest.raises(CorruptModelError, match="not the name of a model"):
        read_metadata(json.dumps(document), "x")
    with pytest.raises(CorruptModelError, match="not the name of a model"):
        read_metadata(json.dumps({**version(5), "model_name": name}), "x")


def test_no_models() -> None:
    with pytest.raises(CorruptModelError, match="holds no model"):
        read_metadata('{"version": 7, "modules": {}}', "x")


def test_times_are_utc() -> None:
    assert (
        time_text(datetime(2021, 3, 4, 7, 6, 7, tzinfo=timezone(timedelta(hours=2))))
        == "2021-03-04 05:06:07Z"
    )


def test_inputs_keep_their_order() -> None:
    sizes = tuple(TensorSize(name, 1, "int8") for name in ("z", "a", "m"))
    model = ModelMetadata("net", TIME, ("c",), "aot", (MainFunction(1, 0, 0, 3, sizes, sizes),))
    _, models = read_metadata(write_metadata([model]), "x")
    assert models == (model,)
