"""Contents of which long ones are made while they are read."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import crtgen
from crtgen.base.contents import Contents
from crtgen.network.ir import DType, Graph, Node, Quant, Value
from crtgen.network.ops import FullyConnected
from crtgen.network.ops.case import int8s, weights_and_bias
from tests.support import ROOT, nightly

CALLS: list[str] = []


def made() -> Iterator[str]:
    CALLS.append("long")
    yield from ("one ", "two ", "three")


def test_a_long_content_is_made_each_time_it_is_read() -> None:
    CALLS.clear()
    contents = Contents[str]({"short": "text", "long": made})
    assert dict(contents) == {"short": "text", "long": "one two three"}
    assert list(contents.pieces("long")) == ["one ", "two ", "three"]
    assert len(CALLS) == 2


def test_what_does_not_read_makes_nothing() -> None:
    CALLS.clear()
    contents = Contents[str]({"short": "text", "long": made})
    assert ("long" in contents, "other" in contents, len(contents), list(contents)) == (
        True,
        False,
        2,
        ["short", "long"],
    )
    assert Contents[str]({**contents.entries, "long": "new"})["long"] == "new"
    assert Contents.of(contents) is contents
    assert CALLS == []


def test_pieces_are_joined_as_what_they_are() -> None:
    contents = Contents[bytes]({"one": lambda: [b"a"], "two": lambda: [b"a", b"b"]})
    assert (contents["one"], contents["two"]) == (b"a", b"ab")
    with pytest.raises(KeyError):
        contents["none"]


def board_of(core: str, folder: Path) -> Path:
    """A board with plenty of flash."""
    text = (ROOT / "boards" / "mps2_an386.toml").read_text()
    file = folder / "large.toml"
    file.write_text(text.replace('core = "cortex-m4"', f'core = "{core}"').replace('"4 MiB"', '"16 MiB"'))
    return file


def dense(layers: int, channels: int) -> Graph:
    """Fully connected layers, one after the other."""
    last = int8s("input", (1, channels), 0.05, -3)
    values, nodes = [last], []
    for number in range(layers):
        constants = weights_and_bias(f"l{number}", last, (channels, channels), 0, True)
        constants = [replace(c, name=f"l{number}_{c.name}") for c in constants]
        out = Value(f"v{number}", (1, channels), DType.INT8, Quant.tensor(0.05, -3))
        inputs = (last.name, *(c.name for c in constants))
        nodes.append(Node(f"l{number}", FullyConnected(), inputs, (out.name,)))
        values += [*constants, out]
        last = out
    return Graph.build("dense", values, nodes, ["input"], [last.name])


@pytest.mark.parametrize(
    ("core", "layers", "bytes_each"),
    [
        nightly("host", 6, 4),
        nightly("cortex-m3", 4, 3),
        ("cortex-m4", 4, 3),
        nightly("cortex-m55", 4, 3),
    ],
)
def test_a_project_takes_little_memory_beside_its_weights(
    tmp_path: Path, core: str, layers: int, bytes_each: int
) -> None:
    board = "host" if core == "host" else str(board_of(core, tmp_path))
    crtgen.Model(dense(1, 8)).compile(board).generate().project.extract(tmp_path / "small")
    graph = dense(layers, 1024)
    tracemalloc.start()
    try:
        project = crtgen.Model(graph).compile(board).generate().project
        project.extract(tmp_path / "large")
        project.extract(tmp_path / "large")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    weights = project.manifest.models[0].weights
    text = (tmp_path / "large" / "model" / "dense_weights.c").stat().st_size
    found = weights > layers << 20, text > bytes_each * weights, peak < 3 * weights
    assert found == (True, True, True), peak / weights
