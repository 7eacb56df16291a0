"""Estimates are held against images that are built, advice against what it promises."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from crtgen import api
from crtgen.base.errors import DoesNotFitError, UnsupportedError
from crtgen.boards import Board, find_board, find_core
from crtgen.lab.measure.benchmark import measure_model
from crtgen.lab.measure.fit import FitChoice, Fits
from tests.support import ROOT, model_path, nightly

pytestmark = pytest.mark.models

_LEVELS = ("speed", "balanced", "size")
_ALL = [
    nightly(name, board, optimize)
    for name in ("hello_world_int8", "hello_world_float", "ad01_int8", "kws_int8", "vww_int8", "ic01_int8")
    for board in ("mps2_an385", "mps2_an386", "mps2_an500", "mps2_an505", "mps3_an547")
    for optimize in _LEVELS
]


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("name", "board", "optimize"),
    [("kws_int8", "mps2_an386", "balanced"), *_ALL],
)
def test_an_image_takes_what_was_estimated(name: str, board: str, optimize: str) -> None:
    compiled = api.load(model_path(name)).compile(board, optimize=optimize)
    for kind in ("library", "standalone", "server"):
        expected = compiled.footprint(kind)
        sizes = compiled.generate(kind).build().size.sizes
        assert sizes.ram == expected.ram, kind
        assert abs(sizes.flash - expected.flash) <= max(0.03 * sizes.flash, 512), kind


@pytest.mark.qemu
@pytest.mark.parametrize("core", ["cortex-m0plus", nightly("cortex-m3"), nightly("cortex-m33")])
def test_tiny_models_take_what_was_estimated(core: str) -> None:
    """Within 3 % or 64 bytes: what is around them is most of them."""
    board = replace(find_board("mps2_an385"), core=find_core(core))
    for path in (ROOT / "demo" / "digits.tflite", model_path("hello_world_int8")):
        compiled = api.load(path).compile(board)
        for kind in ("library", "standalone", "server"):
            expected, built = compiled.footprint(kind).flash, compiled.generate(kind).build().size.sizes.flash
            assert abs(expected - built) <= max(0.03 * built, 64), f"{path.stem}, {kind}"


@pytest.mark.qemu
def test_several_models_and_what_is_placed_elsewhere() -> None:
    models = [api.load(model_path(name)) for name in ("hello_world_int8", "ad01_int8")]
    for choices in ({}, {"share_arena": False}, {"pool": 4096, "receive_buffer": 4096}):
        compiled = api.compile(models, "mps3_an547", place={"arena": "dtcm"})
        expected = compiled.footprint("server", **choices)
        sizes = compiled.generate("server", **choices).build().size.sizes
        assert sizes.ram == expected.ram
        assert expected.memories["dtcm"] == expected.arena
        assert expected.memories["ram"] == expected.ram - expected.arena + expected.stack


def _model(name: str) -> api.Model:
    model = api.load(model_path(name))
    assert isinstance(model, api.Model)
    return model


@cache
def _fits() -> Fits:
    """The same object knows what it has compiled for a board's core before."""
    return Fits(_model("vww_int8"))


def _small(flash: int, ram: int) -> Board:
    """The board with Cortex-M4, with less memory."""
    board = find_board("mps2_an386")
    sizes = {"flash": flash, "ram": ram}
    return replace(board, memories=tuple(replace(m, size=sizes[m.name]) for m in board.memories))


def test_the_library_decides() -> None:
    """What does not fit lacks so many bytes; advice is the first other choice that fits."""
    fits = _fits()
    plenty = fits.on(_small(1 << 20, 1 << 20))
    assert (plenty.fits, plenty.advice, plenty.server_short, plenty.server_advice) == (True, "", {}, "")
    needs = plenty.library.ram
    exactly = fits.on(_small(1 << 20, needs))
    assert exactly.fits
    assert exactly.server_short["ram"] > 0
    tight = fits.on(_small(1 << 20, needs - 64))
    assert (tight.fits, tight.short, tight.advice) == (False, {"ram": 64}, "--optimize size")
    assert fits.on(_small(1 << 20, needs - 64), FitChoice("size")).fits
    hopeless = fits.on(_small(16 * 1024, 1 << 20))
    assert hopeless.advice == hopeless.server_advice == ""
    assert hopeless.short["flash"] == hopeless.library.flash - 16 * 1024


def test_advice_for_the_server() -> None:
    fits = _fits()
    needs = fits.on(_small(1 << 20, 96 * 1024)).server  # where the pool has one set of tensors
    ram = needs.ram + needs.stack
    assert fits.on(_small(1 << 20, ram - 1024)).server_advice == "--optimize size"
    assert fits.on(_small(1 << 20, ram - 20 * 1024)).server_advice == "--pool 1024"
    assert fits.on(_small(1 << 20, ram - 20 * 1024), FitChoice(pool=1024)).server_advice == ""


@pytest.mark.parametrize("board", ["bbc_microbit", "disco_l475_iot1"])
def test_what_fits_is_built_for_a_board_that_is_too_small_for_the_server(board: str) -> None:
    model = _model("kws_int8" if board == "bbc_microbit" else "ic01_float32")
    place = {"arena": find_board(board).data}
    found = Fits(model).on(find_board(board), FitChoice(place=place))
    assert found.fits
    assert found.server_short["ram"] > 0
    with pytest.raises(DoesNotFitError):
        model.compile(board, place=place).generate("server")
    model.compile(board, place=place).generate("standalone")


def test_a_server_fits_in_two_memories() -> None:
    """The arena is in both RAMs of the board: no single one has room for it beside the pool."""
    model = _model("ic01_float32")
    found = Fits(model).on(find_board("disco_l475_iot1"))
    assert found.fits
    assert not found.server_short
    assert set(found.report.parts) == {"sram2"}
    assert found.arena == {"ram": found.standalone.arena}  # a standalone image has room for all of it
    model.compile("disco_l475_iot1").generate("server")


def test_advice_names_another_memory() -> None:
    board = find_board("mps3_an547")
    sizes = {"code": 1 << 20, "itcm": 1 << 20, "ram": 80 * 1024, "dtcm": 64 * 1024, "ddr": 0}
    board = replace(board, memories=tuple(replace(m, size=sizes[m.name]) for m in board.memories))
    found = Fits(_model("vww_int8"), executor="graph").on(board)  # whose tables know one arena
    assert found.fits
    assert found.server_advice == "--place arena=dtcm"


def test_time_is_cycles_by_the_clock() -> None:
    fits = Fits(_model("kws_int8"))
    pico, nucleo = fits.on(find_board("rpi_pico")), fits.on(find_board("nucleo_l4r5zi"))
    assert pico.seconds_range == tuple(n * pico.report.cycles_estimated / 125e6 for n in (0.8, 1.2))  # type: ignore[operator]
    assert nucleo.seconds == pytest.approx(1.045 * nucleo.report.cycles_estimated / 120e6)  # type: ignore[operator]
    assert nucleo.seconds < pico.seconds  # type: ignore[operator]


def test_what_cannot_fit_is_refused_before_any_compiler_runs() -> None:
    model = _model("kws_int8")
    tight = model.compile(_small(1 << 20, 20 * 1024))
    with pytest.raises(DoesNotFitError, match=r"ram needs about 20,\d+ bytes, and has 20,480"):
        tight.generate("server")
    tight.generate("server", pool=1024, stack=4096)
    full = model.compile(_small(40 * 1024, 1 << 20))
    with pytest.raises(DoesNotFitError, match=r"flash needs about 5\d,\d+ bytes, and has 40,960"):
        full.generate("server")
    full.generate("standalone")


def test_what_code_needs_is_known_when_it_is_built(tmp_path: Path) -> None:
    model = api.load(model_path("hello_world_int8"))
    with pytest.raises(UnsupportedError, match="not known before a build for this computer"):
        model.compile("host").footprint()
    archive = tmp_path / "model.tar"
    archive.write_bytes(model.compile("mps2_an386").archive())
    with pytest.raises(UnsupportedError, match="code that crtgen did not make"):
        api.load(archive).compile("mps2_an386").footprint()


@pytest.mark.qemu
def test_the_library_is_the_same_in_every_image() -> None:
    """What a budget judges does not depend on what is around the model."""
    compiled = _model("hello_world_int8").compile("mps2_an386")
    library = compiled.generate("library").build().size.sizes
    measured = measure_model(compiled, layers=False)
    (served,) = compiled.generate("server").build().reports
    assert measured.flash_bytes == served.flash_bytes == pytest.approx(library.flash, abs=16)
    assert measured.ram_bytes == served.ram_bytes == library.ram == compiled.footprint("library").ram
    assert measured.image_flash_bytes < served.image_flash_bytes  # type: ignore[operator]


def test_an_image_by_rows_needs_less() -> None:
    fits, board = Fits(_model("vww_int8")), find_board("mps2_an386")
    whole, rows = (fits.on(board, FitChoice(feed=feed)).library for feed in ("", "rows"))
    assert rows.arena < 0.6 * whole.arena


def _small_rt1050(**sizes: int) -> Board:
    board = find_board("mimxrt1050_evk")
    return replace(board, memories=tuple(replace(m, size=sizes.get(m.name, m.size)) for m in board.memories))


def test_a_library_is_spread_over_the_memories_of_a_board_for_zephyr() -> None:
    """Two RAMs have the arena of 880 bytes, for which neither has room."""
    board = _small_rt1050(ram=1024 + 400, dtcm=1024 + 640, ocram=0)
    model = api.load(ROOT / "demo" / "digits.tflite")
    assert isinstance(model, api.Model)
    spread = Fits(model).on(board, FitChoice(place={"arena": "auto"}))
    assert spread.is_spread
    assert spread.is_moved
    assert spread.fits
    assert spread.arena == {"ram": 256, "dtcm": 624}
    assert spread.library.ram == 880


@pytest.mark.models
def test_what_fits_no_single_ram_is_advised_to_be_spread() -> None:
    board = _small_rt1050(ram=5000, dtcm=6500, ocram=0)
    found = Fits(_model("kws_int8")).on(board, FitChoice("ram"))
    assert found.short.keys() == {"ram"}
    assert found.advice == "--place arena=auto"
    assert Fits(_model("kws_int8")).on(board, FitChoice("ram", {"arena": "auto"})).fits
