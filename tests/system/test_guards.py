"""What is said of a model that goes wrong: its name if it leaves its arena, the layer of a fault."""

import re
from dataclasses import replace

import numpy as np
import pytest

from crtgen import api
from crtgen.base.errors import DeviceFault, RemoteError
from tests.support import ROOT, model_path, nightly, require_tool

BOARDS = ("mps2_an385", "mps2_an386", "mps2_an500", "mps2_an505", "mps2_an521", "mps3_an547")
DIGITS = ROOT / "demo" / "digits.tflite"


def leaving_its_arena(board: str, at: str, executor: str = "aot") -> api.GeneratedProject:
    """A server whose model writes a byte at an index of its arena that is none."""
    generated = api.compile([api.load(DIGITS)], board, executor=executor).generate()
    name = "model/digits.c" if executor == "aot" else "model/digits_graph.c"
    text = generated.project.files[name].decode()
    good = "digits_compute(void)\n{\n"
    assert good in text
    bad = text.replace(good, f"{good}    ((volatile uint8_t *)DIGITS_ARENA)[{at}] ^= 1;\n")
    project = replace(generated.project, sources={**generated.project.sources, name: bad.encode()})
    return replace(generated, project=project)


@pytest.mark.cc
@pytest.mark.parametrize("at", ["-1", "DIGITS_ARENA_BYTES"])
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_a_write_outside_of_the_arena_is_an_exception(at: str, executor: str) -> None:
    require_tool("gcc")
    with leaving_its_arena("host", at, executor).build().run() as session:
        for _ in range(2):
            with pytest.raises(RemoteError, match="wrote outside of the arena of digits"):
                session.infer(np.zeros(session.model().inputs[0].shape, np.int8))


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("board", "at", "side"),
    [
        ("mps2_an386", "-1", "below"),
        ("mps2_an386", "DIGITS_ARENA_BYTES", "above"),
        *(nightly(board, "-1", "below") for board in BOARDS if board != "mps2_an386"),
    ],
)
def test_a_device_reports_it_as_a_fault_and_starts_again(board: str, at: str, side: str) -> None:
    require_tool("arm-none-eabi-gcc")
    require_tool("qemu-system-arm")
    log: list[str] = []
    with leaving_its_arena(board, at).build().run(on_log=log.append) as session:
        with pytest.raises(DeviceFault, match=f"wrote {side} the arena of digits") as caught:
            session.infer(np.zeros(session.model().inputs[0].shape, np.int8))
        fault = caught.value
        assert (fault.kind, fault.model, fault.status) == ("guard", "digits", ())
        assert fault.to_dict()["model"] == "digits"
        assert f"{fault.function} wrote" in fault.message
        assert fault.uptime > 0
        session.client.connect()
        assert session.client.last_fault() is None
        assert session.client.info() is not None
    assert [line for line in log if "wrote outside of the arena of digits" in line] == log


@pytest.mark.qemu
@pytest.mark.models
def test_a_fault_names_the_layer_even_if_others_share_its_function() -> None:
    require_tool("arm-none-eabi-gcc")
    generated = api.load(model_path("kws_int8")).compile("mps2_an386").generate()
    info = generated.project.manifest.models[0]
    function = next(layer.function for layer in info.layers if layer.name == "depthwise_conv2d_2")
    sharing = [layer.name for layer in info.layers if layer.function == function]
    assert len(sharing) == 4
    sources = dict(generated.project.sources)
    for name, content in sources.items():
        text = content.decode(errors="replace")
        if name.endswith(".c") and (start := re.search(rf"void {function}\([^)]*\)\n{{\n", text)):
            broken = 'static int runs;\n    if (runs++ == 2)\n        __asm volatile("udf #0");\n'
            sources[name] = f"{text[: start.end()]}    {broken}{text[start.end() :]}".encode()
    project = replace(generated.project, sources=sources)
    with replace(generated, project=project).build().run() as session:
        with pytest.raises(DeviceFault) as caught:
            session.infer(np.zeros(info.inputs[0].shape, np.int8))
        assert caught.value.function == function
        assert caught.value.layer == sharing[2]
        assert caught.value.callers[0] == "kws_int8_compute"
