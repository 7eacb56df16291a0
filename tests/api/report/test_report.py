"""One structure from the plan to the run: each stage adds what it knows."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import crtgen
from crtgen.api.report import Report, arena_map, real_text
from tests.support import ROOT, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"


def planned() -> Report:
    (report,) = crtgen.load(DIGITS).compile("mps2_an386", optimize="speed").reports
    return report


def test_what_a_plan_knows() -> None:
    report = planned()
    assert (report.model, report.board, report.optimize) == ("digits", "mps2_an386", "speed")
    layer = report.layers[2]
    assert (layer.name, layer.operator, layer.macs, layer.weights_bytes) == (
        "conv2d_1",
        "conv2d",
        18432,
        1216,
    )
    assert layer.inputs is not None
    assert layer.inputs[0] == report.layers[1].outputs[0]  # type: ignore[index]
    assert report.arena is not None
    image = next(place for place in report.arena if place.name == "image")
    assert (image.shape, image.first, image.last) == ((1, 8, 8, 1), 0, 1)
    assert max(place.offset + place.nbytes for place in report.arena) == report.arena_bytes
    assert (report.image, report.flash_bytes, report.instructions) == (None, None, None)


def test_a_value_in_a_new_shape_is_the_same_place() -> None:
    places = {place.name: place for place in planned().arena or ()}
    (alias,) = (place for place in places.values() if place.alias_of)
    root = places[alias.alias_of]
    assert (alias.offset, alias.nbytes, alias.first, alias.last) == (
        *(root.offset, root.nbytes),
        *(root.first, root.last),
    )


def test_a_run_and_its_profile_add_their_figures() -> None:
    report = planned().measured(70_000, 0.001).profiled(range(7), range(70, 77))
    assert (report.instructions, report.seconds) == (70_000, 0.001)
    assert [layer.ticks for layer in report.layers] == list(range(7))
    assert [layer.instructions for layer in report.layers] == list(range(70, 77))
    cycles = [layer.cycles_estimated for layer in report.layers]
    assert None not in cycles
    assert sum(n or 0 for n in cycles) == report.cycles_estimated


def test_what_of_a_quantised_network_is_float32() -> None:
    report = planned()
    integers = report.layers
    assert {layer.is_float32 for layer in integers} == {False}
    assert (report.float32_share, real_text(report)) == (0.0, "")
    counts = dict(zip((layer.name for layer in integers), (600, 0, 300, 0, 100, 0, 0), strict=True))
    layers = tuple(
        replace(layer, instructions=counts[layer.name], is_float32=number in (0, 4))
        for number, layer in enumerate(integers)
    )
    mixed = replace(report, layers=layers)
    assert mixed.float32_share == 0.7
    first, last = layers[0], layers[4]
    named = [n.name if n.operator in n.name else f"{n.name} ({n.operator})" for n in (first, last)]
    wanted = f"70 % of the instructions are float32: {named[0]} 60 %, {named[1]} 10 %"
    assert real_text(mixed) == wanted
    estimated = replace(mixed, layers=tuple(replace(a, instructions=None) for a in layers))
    assert real_text(estimated).startswith("about ")


def test_a_network_of_real_numbers_has_no_share_of_them() -> None:
    report = planned()
    real = replace(report, layers=tuple(replace(a, is_float32=True) for a in report.layers))
    assert (real.float32_share, real_text(real)) == (None, "")


def test_tables_call_no_layer_that_computes_nothing() -> None:
    """The graph executor leaves reshapes out; the others are the same layers."""
    (report,) = crtgen.load(DIGITS).compile("mps2_an386", optimize="speed", executor="graph").reports
    named = {layer.name: layer for layer in planned().layers if layer.operator != "reshape"}
    assert [layer.name for layer in report.layers] == list(named)
    assert [layer.weights_bytes for layer in report.layers] == [n.weights_bytes for n in named.values()]
    assert "out" in arena_map(report)


def test_every_key_is_always_there(tmp_path: Path) -> None:
    archive = tmp_path / "digits.tar"
    archive.write_bytes(crtgen.load(DIGITS).compile("host").archive())
    (code,) = crtgen.load(archive).compile("host").reports
    mine, read = planned().to_dict(), code.to_dict()
    assert list(mine) == list(read)
    assert list(mine["layers"][0]) == list(read["layers"][0])
    assert (read["graph"], read["arena"], read["image"], read["flash_bytes"]) == (None, None, None, None)


def test_every_key_is_explained() -> None:
    """docs/report.md has all keys, and no other."""
    summary, _, layer = (ROOT / "docs" / "report.md").read_text().partition("| key of a layer |")
    report = planned().to_dict()
    for text, keys in ((summary.partition("| key |")[2], report), (layer, report["layers"][0])):
        rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
        assert sorted(key for row in rows for key in re.findall(r"`(\w+)`", row)) == sorted(keys)


@pytest.mark.cc
def test_an_image_knows_its_plans_until_it_is_opened_again(tmp_path: Path) -> None:
    require_tool("cc")
    compiled = crtgen.load(DIGITS).compile("host", optimize="size")
    (built,) = compiled.generate().extract(tmp_path).build().reports
    assert built.graph == compiled.reports[0].graph
    assert built.image_flash_bytes == built.to_dict()["image"]["flash"] > (built.flash_bytes or 0) > 2000
    assert sum(layer.code_bytes or 0 for layer in built.layers) > 0
    image = crtgen.open_project(tmp_path).built()
    assert image is not None
    (opened,) = image.reports
    assert (opened.optimize, opened.graph, opened.flash_bytes) == ("size", None, built.flash_bytes)
    assert [layer.code_bytes for layer in opened.layers] == [layer.code_bytes for layer in built.layers]
