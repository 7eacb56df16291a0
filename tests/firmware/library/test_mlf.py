"""Model Library Format archives: written and read back, damaged, and those that TVM wrote."""

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtgen.base.errors import CorruptModelError, UsageError
from crtgen.firmware.library.archive import read_tar, write_tar
from crtgen.firmware.library.graph_json import read_graph_json
from crtgen.firmware.library.metadata import (
    MainFunction,
    ModelMetadata,
    OperatorBuffer,
    OperatorMetadata,
    TensorSize,
)
from crtgen.firmware.library.metadata_json import read_metadata
from crtgen.firmware.library.mlf import (
    Archive,
    CodeFiles,
    MlfModel,
    OperatorLibrary,
    export_time,
    read_archive,
    write_archive,
)
from crtgen.firmware.library.params import NDArray
from tests.firmware.library.graphs import foo, text
from tests.support import models_dir

TIME = datetime(2021, 3, 4, 5, 6, 7, tzinfo=UTC)
WEIGHTS = NDArray(np.array([1, 2, 3], np.int16))


def model(name: str, executor: str = "aot", outputs: tuple[str, ...] = ("y",)) -> MlfModel:
    sizes = tuple(TensorSize(output, 8, "int8") for output in outputs)
    return MlfModel(
        metadata=ModelMetadata(name, TIME, ("c",), executor, (MainFunction(1, 16, 6, 12, (), sizes),)),
        code=CodeFiles(
            {f"{name}_lib0.c": "int a;\n", f"{name}_lib1.S": "nop\n"}, {f"{name}_lib2.o": b"\x7fELF"}
        ),
        headers={f"tvmgen_{name}.h": "#pragma once\n"},
        params={"w": WEIGHTS},
        relay=f"def @{name}",
        graph_json=text(foo()) if executor == "graph" else "",
    )


TWO = Archive((model("kws"), model("ad01", "graph")))
DATA = write_archive(TWO)


def changed(**files: Any) -> bytes:
    """``DATA`` with some files replaced, or left out where the value is None."""
    new = read_tar(DATA, "x") | {
        path.replace("__", "/").replace("_dot_", "."): v for path, v in files.items()
    }
    return write_tar({path: data for path, data in new.items() if data is not None}, 0)


def test_the_files_of_version_7() -> None:
    assert list(read_tar(DATA, "x")) == [
        "codegen/host/include/tvmgen_ad01.h",
        "codegen/host/include/tvmgen_kws.h",
        "codegen/host/lib/ad01_lib2.o",
        "codegen/host/lib/kws_lib2.o",
        "codegen/host/src/ad01_lib0.c",
        "codegen/host/src/ad01_lib1.S",
        "codegen/host/src/kws_lib0.c",
        "codegen/host/src/kws_lib1.S",
        "executor-config/graph/ad01.graph",
        "metadata.json",
        "parameters/ad01.params",
        "parameters/kws.params",
        "src/ad01.relay",
        "src/kws.relay",
    ]


def test_round_trip() -> None:
    back = read_archive(DATA, "x")
    assert back.version == 7
    for model, original in zip(back.models, sorted(TWO.models, key=lambda m: m.name), strict=True):
        assert model.metadata == original.metadata
        assert model.code.sources == original.code.sources
        assert model.code.objects == original.code.objects
        assert (model.headers, model.relay, model.graph_json) == (
            original.headers,
            original.relay,
            original.graph_json,
        )
        assert model.params["w"].array.tolist() == [1, 2, 3]
    assert write_archive(back) == DATA


def test_the_same_models_give_the_same_digest() -> None:
    again = write_archive(Archive((model("ad01", "graph"), model("kws"))))
    assert hashlib.sha256(again).hexdigest() == hashlib.sha256(DATA).hexdigest()


def test_operators() -> None:
    metadata = OperatorMetadata("add", TIME, ("c",), (("add", (OperatorBuffer(2, (2,), "int8"),)),))
    library = OperatorLibrary(metadata, CodeFiles({"lib0.c": "int f;\n"}), {"tir-1.txt": "# tir"})
    data = write_archive(Archive(operators=library))
    back = read_archive(data, "x").operators
    assert back is not None
    assert (back.metadata, back.code.sources, back.tir) == (
        metadata,
        {"lib0.c": "int f;\n"},
        {"tir-1.txt": "# tir"},
    )
    assert write_archive(Archive(operators=back)) == data


def test_the_time_of_the_export(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert export_time() == datetime(1970, 1, 2, tzinfo=UTC)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(UsageError, match="yesterday"):
        export_time()
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    before = datetime.now(UTC).replace(microsecond=0)
    assert before <= export_time() <= datetime.now(UTC)


def test_old_versions_have_other_names() -> None:
    memory = {"functions": {"main": [], "operator_functions": []}, "sids": []}
    metadata = {
        "version": 2,
        "model_name": "net",
        "export_datetime": "2021-03-04 05:06:07Z",
        "memory": memory,
        "target": {"1": "c"},
        "runtimes": ["graph"],
    }
    files = {
        "metadata.json": json.dumps(metadata).encode(),
        "codegen/host/src/lib1.c": b"int b;",
        "codegen/host/src/lib0.c": b"int a;",
        "relay.txt": b"def @main",
        "runtime-config/graph/graph.json": text(foo()).encode(),
    }
    archive = read_archive(write_tar(files, 0), "x")
    (model,) = archive.models
    assert (archive.version, list(model.code.sources), model.relay) == (2, ["lib0.c", "lib1.c"], "def @main")
    assert model.graph_json == text(foo())


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (("Identity",), ("Identity",)),
        (("output0", "output1", "output10", "output2"), ("output0", "output1", "output2", "output10")),
        (("boxes", "scores"), ()),
    ],
)
def test_the_order_of_outputs(outputs: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert model("m", outputs=outputs).output_names == expected


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"metadata_dot_json": None}, "no metadata.json"),
        ({"codegen__host__src__zz_lib0_dot_c": b""}, "zz_lib0.c belongs to no model"),
        ({"codegen__host__src__lib0_dot_c": b""}, "lib0.c belongs to no model"),
        ({"codegen__host__src__README": b""}, "README belongs to no model"),
        ({"executor-config__graph__ad01_dot_graph": None}, "no graph for ad01"),
        ({"codegen__host__src__kws_lib0_dot_c": b"\xff"}, "not UTF-8"),
        ({"parameters__kws_dot_params": b"\0" * 8}, "not a parameter file"),
        ({"metadata_dot_json": b"{}"}, "no key 'version'"),
    ],
)
def test_what_is_wrong_is_said(files: dict[str, Any], reason: str) -> None:
    with pytest.raises(CorruptModelError, match=reason):
        read_archive(changed(**files), "x")


def test_a_model_without_code() -> None:
    bare = {path: data for path, data in read_tar(DATA, "x").items() if "kws_lib" not in path}
    with pytest.raises(CorruptModelError, match="no code for kws"):
        read_archive(write_tar(bare, 0), "x")


@pytest.mark.parametrize("models", [(), (model("a"), model("a")), (model("a-b"), model("a_b"))])
def test_models_that_cannot_be_in_one_archive(models: tuple[MlfModel, ...]) -> None:
    with pytest.raises(UsageError, match="different names"):
        write_archive(Archive(models))


def archives() -> list[Path]:
    return sorted((models_dir().parent / "mlf").glob("*.tar"))


@pytest.mark.models
def test_what_tvm_wrote_is_read_and_written_without_loss() -> None:
    paths = archives()
    assert len(paths) == 21
    for path in paths:
        data = path.read_bytes()
        files, again = (
            read_tar(data, path.name),
            read_tar(write_archive(read_archive(data, path.name)), path.name),
        )
        assert json.loads(again.pop("metadata.json")) == json.loads(files.pop("metadata.json")), path.name
        assert again == files, path.name


@pytest.mark.models
def test_the_metadata_that_tvm_wrote() -> None:
    folder = models_dir().parent / "mlf"
    archive = read_archive((folder / "multi_kwsaot_ad01graph_c.tar").read_bytes(), "multi")
    ad01, kws = archive.models
    assert (ad01.name, ad01.metadata.executor, len(ad01.params), ad01.headers) == ("ad01", "graph", 23, {})
    assert (kws.name, kws.metadata.executor, len(kws.params)) == ("kws", "aot", 0)
    assert list(kws.headers) == ["tvmgen_kws.h"]
    assert kws.metadata.main[0].inputs == (TensorSize("input_1", 490, "int8"),)
    assert ad01.output_names == ("Identity",)
    operator = read_archive((folder / "operator_add_c.tar").read_bytes(), "operator").operators
    assert operator is not None
    assert operator.metadata.functions == (
        (
            "add",
            (
                OperatorBuffer(2, (2,), "int8"),
                OperatorBuffer(1, (1,), "int8"),
                OperatorBuffer(2, (2,), "int8"),
            ),
        ),
    )
    assert list(operator.tir) == ["tir-1.txt"]


@pytest.mark.models
def test_storages_in_the_metadata_are_those_of_the_graph() -> None:
    """Only their numbers: the sizes that TVM v0.14 records there are those of other storages."""
    models = [m for p in archives() for m in read_archive(p.read_bytes(), p.name).models if m.graph_json]
    assert len(models) == 12
    for model in models:
        sizes = read_graph_json(model.graph_json).storage_sizes()
        assert {sid.storage_id for sid in model.metadata.sids} == set(sizes)


@pytest.mark.models
def test_a_truncated_archive_of_tvm() -> None:
    data = (models_dir().parent / "mlf" / "synth_add_c_graph.tar").read_bytes()
    end = max(i for i in range(0, len(data), 512) if any(data[i : i + 512])) + 512
    for size in range(0, end + 1024, 128):
        with pytest.raises(CorruptModelError):
            read_archive(data[:size], "x")
    assert read_metadata(read_tar(data[: end + 1024], "x")["metadata.json"].decode(), "x")[0] == 7
