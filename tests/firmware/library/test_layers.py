"""Layers of imported graphs: the same code on this computer is the reference."""

from dataclasses import replace
from pathlib import Path

import pytest

import crtgen
from crtgen.api import Imported
from crtgen.lab.measure.cases import read_cases
from crtgen.lab.measure.layers import verify_against_host
from tests.support import models_dir, require_tool

pytestmark = [pytest.mark.models, pytest.mark.cc]


def _archive(name: str) -> Path:
    path = models_dir().parent / "mlf" / f"{name}.tar"
    if not path.exists():
        pytest.skip("the reference archives are not there")
    return path


def test_a_broken_call_of_an_imported_graph_is_named() -> None:
    """Every other process computes on this computer, too: what differs is what somebody changed."""
    require_tool("gcc")
    path = _archive("ad01_c_graph_link")
    loaded = crtgen.load(path, trust=True)
    assert isinstance(loaded, Imported)
    compiled = loaded.compile("host")
    (module,) = compiled.modules
    layers = module.info.layers
    assert all(layer.writes for layer in layers)
    third = layers[2]
    (name,) = [name for name in module.files if name.endswith("_graph.c")]
    text = module.files[name]
    done = "        CRT_LAYER_TIMED(i);\n"
    assert text.count(done) == 1
    harm = f"        if (i == 2) {{ AD01_ARENA[{third.writes[0].offset} + 5] ^= 1; }}\n"
    part = replace(
        compiled.parts[0],
        module=replace(module, files={**module.files, name: text.replace(done, harm + done)}),
    )
    broken = replace(compiled, parts=(part,))
    info = module.info
    cases = read_cases(path.with_suffix(".npz"), info.inputs, info.outputs, "")
    whole = compiled.generate(profile=True).build()
    with whole.run() as host, whole.run() as same, broken.generate(profile=True).build().run() as other:
        assert not any(v.wrong for v in verify_against_host(same, host, info.name, cases[:1]))
        verdicts = verify_against_host(other, host, info.name, cases[:1])
    first = next(verdict for verdict in verdicts if verdict.wrong)
    assert first.layer == third.name
    assert first.wrong is not None
    assert (first.wrong.count, first.wrong.steps) == (1, first.wrong.steps)
