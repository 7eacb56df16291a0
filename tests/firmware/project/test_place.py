"""Arena, weights and kernels in memories of their own, and constants in what RAM is left."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

import crtgen
from benchmarks.networks import mobilenet_v2
from crtgen.api import Model
from crtgen.base.errors import UsageError
from crtgen.boards import Board, find_board
from crtgen.proof.checker import prove
from crtgen.proof.printed import lines_of
from tests.firmware.project.crowded import CROWDED, DIGITS, crowded
from tests.support import ROOT, model_path, nightly, require_tool, symbol_table


def addresses(path: Path) -> dict[str, int]:
    with path.open("rb") as file:
        return {s.name: s["st_value"] & ~1 for s in symbol_table(ELFFile(file)).iter_symbols()}


@pytest.mark.qemu
def test_parts_lie_where_they_were_placed_and_compute_the_same() -> None:
    require_tool("qemu-system-arm")
    place = {"arena": "dtcm", "weights": "dtcm", "kernels": "itcm"}
    compiled = crtgen.load(DIGITS).compile("mps3_an547", place=place)
    image = compiled.generate().build()
    plain = crtgen.load(DIGITS).compile("mps3_an547").generate().build()
    found = addresses(image.path)
    weights = [v for n, v in found.items() if n.startswith("__tvm_param__")]
    kernels = [found[layer.function] for layer in compiled.modules[0].info.layers if layer.function]
    assert 0x20000000 <= found["digits_arena"] < 0x20080000
    assert weights
    assert all(0x20000000 <= address < 0x20080000 for address in weights)
    assert all(address < 0x80000 for address in kernels if address)
    constants = sum(layer.constants for layer in image.size.layers["digits"])
    assert image.size.sizes.data - plain.size.sizes.data == pytest.approx(constants, abs=64)
    with image.run() as session:
        (y,) = session.infer(np.load(ROOT / "demo" / "digit.npz")["image"])
    np.testing.assert_array_equal(y, np.load(ROOT / "demo" / "digits.npz")["case7_output0"])


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"stack": "dtcm"}, "stack cannot be placed"),
        ({"arena": "sram"}, "has no memory sram"),
        ({"arena": "itcm"}, "the arena is written, but itcm is flash"),
    ],
)
def test_what_cannot_be_placed_is_refused(place: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        crtgen.load(DIGITS).compile("mps3_an547", place=place)


def test_nothing_is_placed_elsewhere() -> None:
    place = {"arena": "ram"}
    with pytest.raises(UsageError, match="host: the board has no memory ram") as caught:
        crtgen.load(DIGITS).compile("host", place=place)
    assert "it is for bare metal" in caught.value.hint
    with pytest.raises(UsageError, match="mps2_an385: --place is not supported on the platform zephyr"):
        crtgen.load(DIGITS).compile("mps2_an385", place=place).generate(platform="zephyr")
    with pytest.raises(UsageError, match="mps2_an385: --place needs a linker script"):
        crtgen.load(DIGITS).compile("mps2_an385", place=place).generate("library")


def constants_at(image: crtgen.Image) -> dict[str, int]:
    return {n: at for n, at in addresses(image.path).items() if n.startswith("__tvm_param__")}


@pytest.mark.qemu
def test_constants_that_the_core_would_wait_for_are_in_ram() -> None:
    require_tool("qemu-system-arm")
    board = find_board("netduinoplus2")
    ram = board.memory("ram")
    compiled = crtgen.load(DIGITS).compile(board)
    placed = compiled.placed()
    symbols = {
        symbol
        for layer in placed.modules[0].info.layers
        if layer.name in placed.resident[0]
        for symbol in layer.consts
    }
    assert symbols
    image = compiled.generate().build()
    assert {n for n, at in constants_at(image).items() if ram.origin <= at < ram.end} == symbols
    assert image.size.sizes.data + image.size.sizes.bss == compiled.footprint().ram
    (report,) = image.reports
    assert report.cycles_estimated == placed.reports[0].cycles_estimated
    assert (report.cycles_estimated or 0) < (compiled.reports[0].cycles_estimated or 0)
    assert any("are copied there at the start" in str(note) for note in placed.rewrites)
    with image.run() as session:
        (y,) = session.infer(np.load(ROOT / "demo" / "digit.npz")["image"])
    np.testing.assert_array_equal(y, np.load(ROOT / "demo" / "digits.npz")["case7_output0"])


@pytest.mark.parametrize("kind", ["server", "standalone"])
def test_weights_that_are_placed_stay_where_they_are(kind: str) -> None:
    compiled = crtgen.load(DIGITS).compile("netduinoplus2", place={"weights": "flash"})
    assert compiled.placed(kind) is compiled
    assert "weights_ram" not in compiled.generate(kind).project.files["platform/linker.ld"].decode()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("library", {}),
        ("library", {"framework": "arduino"}),
        ("slot", {"slot": "a"}),
        ("standalone", {"platform": "zephyr"}),
    ],
)
def test_others_lay_out_their_memory_themselves(kind: str, options: Any) -> None:
    board = "rpi_pico" if kind == "slot" else "nucleo_l4r5zi"
    compiled = crtgen.load(DIGITS).compile(board)
    assert compiled.placed().resident
    assert compiled.placed(kind, **options) is compiled


SIZED = {"pool": 4096, "stack": 4096}
"""Options whose defaults would be smaller for a smaller RAM."""


def small(model: crtgen.Model, options: Mapping[str, Any], fields: Mapping[str, Any]) -> Board:
    """A Pico whose RAM has room for half of the constants beside an image with these options."""
    board = find_board("rpi_pico")
    needs = model.compile(board, **fields).as_it_is.footprint(**options)
    size = (needs.memories["ram"] + needs.weights // 2) // 256 * 256
    memories = tuple(replace(m, size=size) if m.name == "ram" else m for m in board.memories)
    return replace(board, memories=memories)


@pytest.mark.models
@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({}, {}),
        ({"record": 4}, {}),
        ({"rtt": True}, {}),
        nightly({"profile": True}, {}),
        ({"target": "llvm"}, {}),
        ({"share_arena": False}, {"keep_inputs": True}),
        nightly({}, {"executor": "graph"}),
        ({}, {"cores": 2}),
        ({}, {"place": {"kernels": "ram"}}),
        nightly({}, {"optimize": "size"}),
    ],
)
def test_a_small_ram_is_filled_and_never_overfilled(options: Any, fields: Any) -> None:
    """The estimate knows the RAM that each option takes: the linker finds room for all."""
    model, options = crtgen.load(model_path("ad01_int8")), {**SIZED, **options}
    assert isinstance(model, crtgen.Model)
    compiled = model.compile(small(model, options, fields), **fields)
    placed = compiled.placed(**options)
    assert 0 < len(placed.resident[0]) < len([1 for layer in placed.modules[0].info.layers if layer.consts])
    image = compiled.generate(**options).build()
    used = image.size.sizes.data + image.size.sizes.bss + SIZED["stack"]
    assert used <= compiled.board.ram


@pytest.mark.qemu
def test_an_arena_in_two_memories_computes_the_same() -> None:
    require_tool("qemu-system-arm")
    compiled = crtgen.load(DIGITS).compile(crowded("server"))
    placed = compiled.placed(**CROWDED)
    (part,) = placed.plans[0].parts.values()
    image = compiled.generate(**CROWDED).build()
    found = addresses(image.path)
    assert 0x20000000 <= found["digits_arena_dtcm"] < 0x20001000
    assert found["digits_arena"] >= 0x21000000
    assert image.size.sizes.ram == placed.footprint(**CROWDED).ram
    assert placed.footprint(**CROWDED).memories["dtcm"] == part.size + 32  # its guards
    assert image.reports[0].ram_bytes == placed.plans[0].arena + part.size
    with image.run() as session:
        (y,) = session.infer(np.load(ROOT / "demo" / "digit.npz")["image"])
    np.testing.assert_array_equal(y, np.load(ROOT / "demo" / "digits.npz")["case7_output0"])


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("vww_int8", {"ram": 39, "dtcm": 24, "ddr": 0}),
        ("kws_int8", {"ram": 20, "dtcm": 2, "ddr": 4}),
        ("ic01_int8", {"ram": 30, "dtcm": 8, "ddr": 16}),
    ],
)
def test_networks_in_two_and_three_memories(name: str, sizes: Mapping[str, int]) -> None:
    """RAMs of few KiB, of which no one has room for the arena."""
    require_tool("qemu-system-arm")
    board = find_board("mps3_an547")
    memories = tuple(replace(m, size=sizes.get(m.name, m.size >> 10) << 10) for m in board.memories)
    compiled = crtgen.load(model_path(name)).compile(replace(board, memories=memories, slots=None))
    options: Any = {"pool": 4096, "stack": 2048, "receive_buffer": 2048}
    placed = compiled.placed(**options)
    assert placed.plans[0].parts
    image = compiled.generate(**options).build()
    assert image.size.sizes.ram == placed.footprint(**options).ram
    cases = np.load(model_path(name).with_suffix(".npz"))
    with image.run() as session:
        for case in range(2):
            (y,) = session.infer(cases[f"case{case}_input0"])
            np.testing.assert_array_equal(y, cases[f"case{case}_output0"])


def _with_memories_of(machine: str, name: str) -> Board:
    """A simulated board whose RAM is cut into those of a real one, which are read as there."""
    board, real = find_board(machine), find_board(name)
    at, memories = board.memory(board.data).origin, []
    for memory in real.memories:
        if memory.kind == "ram":
            size = min(memory.size, 1 << 20)
            memories.append(replace(memory, origin=at, size=size))
            at += size
    assert at <= board.memory(board.data).end
    flash = replace(board.memory(board.code), reads=real.reads(real.code))
    return replace(board, memories=(flash, *memories), data=real.data, slots=None)


@pytest.mark.qemu
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("machine", "name", "parts"),
    [("mps2_an500", "mimxrt1050_evk", {"dtcm", "ocram"}), ("mps2_an505", "pico_plus2", {"psram"})],
)
def test_mobilenet_v2_in_the_memories_of_a_board(machine: str, name: str, parts: set[str]) -> None:
    """An image of 224 x 224 and 3.5 MB of weights, with the arena in several memories."""
    require_tool("qemu-system-arm")
    model = Model(mobilenet_v2())
    compiled = model.compile(_with_memories_of(machine, name), optimize="speed")
    placed = compiled.placed()
    assert set(placed.plans[0].parts) == parts
    image = np.random.default_rng(1).integers(-128, 128, (1, 224, 224, 3), np.int8)
    ((expected,),) = model.graph.run([[image]])
    with compiled.generate().build().run() as session:
        (y,) = session.infer(image)
    assert np.unique(expected).size > 10
    np.testing.assert_array_equal(y, expected)


@pytest.mark.qemu
def test_an_arena_in_two_memories_is_proven() -> None:
    require_tool("arm-none-eabi-gcc")
    compiled = crtgen.load(DIGITS).compile(crowded("standalone"))
    assert compiled.placed("standalone", **CROWDED).plans[0].parts
    image = compiled.generate("standalone", **CROWDED).build()  # removed with its object
    proof = prove(image.path, DIGITS)
    assert proof.is_proven, lines_of(proof)


def test_a_library_has_a_part_for_another_memory_on_request() -> None:
    """The header has its size, the README its section, and a linker script gives it a memory."""
    board = find_board("mps3_an547")
    arena = crtgen.load(DIGITS).compile(board).plans[0].arena
    sizes = {"ram": 1024 + arena * 3 // 4, "dtcm": 4096, "ddr": 0}
    small = replace(board, memories=tuple(replace(m, size=sizes.get(m.name, m.size)) for m in board.memories))
    compiled = crtgen.load(DIGITS).compile(small, place={"arena": "auto"})
    files = compiled.generate("library").project.files
    texts = {name: files[name].decode() for name in files if name.endswith((".h", "README.md"))}
    header = next(text for name, text in texts.items() if name.endswith("digits.h"))
    assert "#define DIGITS_ARENA_DTCM_SIZE" in header
    assert "B in .bss.digits_arena_dtcm |" in texts["README.md"]
    assert not crtgen.load(DIGITS).compile(small).placed("library").plans[0].parts
    with pytest.raises(UsageError, match="--place arena=auto uses several RAMs"):
        compiled.generate("slot", slot="a")
    with pytest.raises(UsageError, match="needs the memories of a board, and host has none"):
        crtgen.load(DIGITS).compile("host", place={"arena": "auto"})


@pytest.mark.models
def test_a_library_for_a_board_that_zephyr_starts_uses_its_memories() -> None:
    """What is used most goes from the SDRAM to the DTCM and the OCRAM."""
    board = find_board("mimxrt1050_evk")
    small = {"dtcm": 8 << 10, "ocram": 16 << 10}
    board = replace(board, memories=tuple(replace(m, size=small.get(m.name, m.size)) for m in board.memories))
    compiled = crtgen.load(model_path("vww_int8")).compile(board, place={"arena": "auto"})
    placed = compiled.placed("library")
    assert set(placed.plans[0].parts) == {"dtcm", "ocram"}
    before, after = (each.reports[0].cycles_estimated or 0 for each in (compiled, placed))
    assert after < 0.98 * before


@pytest.mark.models
def test_an_arena_moves_to_the_memory_without_waits() -> None:
    """Figures of docs/cycles.md; whoever names a memory gets it."""
    model = crtgen.load(model_path("vww_int8"))
    compiled = model.compile("nucleo_h743zi")
    placed = compiled.placed()
    assert placed.request.place == {"arena": "dtcm"}
    assert any(
        "28,692 bytes are there (reached by core, MDMA only), not in ram" in str(note)
        for note in placed.rewrites
    )
    before, after = (each.reports[0].cycles_estimated or 0 for each in (compiled, placed))
    assert (before, after) == (4_153_566, 3_998_453)
    assert placed.footprint().memories["dtcm"] == 28_692 + 32
    named = model.compile("nucleo_h743zi", place={"arena": "ram"}).placed()
    assert named.request.place == {"arena": "ram"}
