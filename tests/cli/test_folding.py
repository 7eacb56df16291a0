"""``crtgen generate``: the certificate of the channels that were removed."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crtgen.cli.app import app
from tests.support import model_path


def generate(tmp_path: Path, *options: str) -> str:
    arguments = ["generate", str(model_path("vww_int8")), str(tmp_path / "project"), "--board", "host"]
    done = CliRunner().invoke(app, [*arguments, *options])
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.models
def test_the_certificate_is_in_the_json(tmp_path: Path) -> None:
    folded = json.loads(generate(tmp_path, "--json"))["folded"]
    by_node = {layer["node"]: layer for layer in folded}
    assert len(by_node) == 18
    for layer in folded:
        channels = [removed["channel"] for removed in layer["removed"]]
        assert channels == sorted(set(channels))
        assert all(removed["low"] <= removed["high"] for removed in layer["removed"])
    last = by_node["conv2d_13"]
    assert {removed["value"] for removed in last["removed"]} == {-128}
    assert (last["macs_before"], last["weight_bytes_before"]) == (9 * 256 * 256, 256 * 256 + 4 * 256)
    assert sum(layer["macs_before"] - layer["macs_after"] for layer in folded) == 7_489_664 - 3_737_870


@pytest.mark.models
def test_it_is_explained_and_can_be_left_out(tmp_path: Path) -> None:
    text = generate(tmp_path, "--explain")
    assert "fold channels: conv2d_5: 4 of 64 channels are constant and go; " in text
    without = json.loads(generate(tmp_path, "--no-fold", "--json"))
    assert without["folded"] == []
    assert not any("fold channels" in rewrite for rewrite in without["rewrites"])
