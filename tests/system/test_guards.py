"""The guards of an arena: a model that writes outside of its own is found out, by name."""

from dataclasses import replace

import numpy as np
import pytest

from crtgen import api
from crtgen.errors import RemoteError
from tests.support import ROOT, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"


@pytest.mark.cc
@pytest.mark.parametrize("at", ["-1", "digits_arena_bytes"])
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_a_write_outside_of_the_arena_is_an_exception(at: str, executor: str) -> None:
    require_tool("gcc")
    generated = api.compile([api.load(DIGITS)], "host", executor=executor).generate()
    name = "model/digits.c" if executor == "aot" else "model/digits_graph.c"
    text = generated.project.files[name].decode()
    good = "digits_compute(void)\n{\n"
    assert good in text
    bad = text.replace(good, f"{good}    ((volatile uint8_t *)digits_arena)[{at}] ^= 1;\n")
    project = replace(generated.project, sources={**generated.project.sources, name: bad.encode()})
    with replace(generated, project=project).build().run() as session:
        for _ in range(2):
            with pytest.raises(RemoteError, match="wrote outside of the arena of digits"):
                session.infer(np.zeros(session.model().inputs[0].shape, np.int8))
