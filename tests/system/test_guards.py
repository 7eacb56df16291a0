"""What is said of a model that goes wrong: its name if it leaves its arena, the layer of a fault."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crtgen import api
from crtgen.base.errors import DeviceFault, RemoteError
from crtgen.boards import Board
from tests.firmware.project.crowded import CROWDED, DIGITS, crowded
from tests.support import model_path, nightly, require_tool

BOARDS = ("mps2_an385", "mps2_an386", "mps2_an500", "mps2_an505", "mps2_an521", "mps3_an547")


def leaving_its_arena(
    board: str | Board, at: str, executor: str = "aot", arena: str = "DIGITS_ARENA", **options: Any
) -> api.GeneratedProject:
    """A server whose model writes a byte at an index of its arena that is none."""
    generated = api.compile([api.load(DIGITS)], board, executor=executor).generate(**options)
    name = "model/digits.c" if executor == "aot" else "model/digits_graph.c"
    text = generated.project.files[name].decode()
    good = "digits_compute(void)\n{\n"
    assert good in text
    bad = text.replace(good, f"{good}    ((volatile uint8_t *){arena})[{at}] ^= 1;\n")
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
@pytest.mark.parametrize("at", ["-1", "SIZE"])
@pytest.mark.parametrize("part", ["", "dtcm", "ddr"])
def test_each_part_of_an_arena_has_guards(part: str, at: str) -> None:
    """The arena is in three memories, and the overrun is reported with the name of the part."""
    require_tool("arm-none-eabi-gcc")
    require_tool("qemu-system-arm")
    arena = f"DIGITS_ARENA_{part.upper()}".strip("_")
    end = f"{arena}_SIZE" if part else "DIGITS_ARENA_BYTES"
    board = crowded("server", dtcm=1280, ddr=4096)
    generated = leaving_its_arena(board, end if at == "SIZE" else at, arena=arena, **CROWDED)
    assert set(generated.project.manifest.models[0].parts) == {"dtcm", "ddr"}
    whole = f"the part {part} of the arena of digits" if part else "the arena of digits"
    side = "below" if at == "-1" else "above"
    log: list[str] = []
    with generated.build().run(on_log=log.append) as session:
        with pytest.raises(DeviceFault, match=f"wrote {side} {whole}"):
            session.infer(np.zeros(session.model().inputs[0].shape, np.int8))
        session.client.connect()
        assert session.client.last_fault() is None
    assert [line for line in log if f"wrote outside of {whole}" in line] == log


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
