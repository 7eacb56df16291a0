"""A plugin for pytest: firmware as a fixture, on three targets.

::

Each test that uses ``firmware`` runs on this computer (``host``), in an emulator of the board or of its core
(``emulator``), and with ``--crtgen-target board`` on a connected board. ``dut`` runs any image: since it is
built for one board, it runs in that board's emulator, or on the board.

    def test_shell(dut):
        board = dut("build/zephyr/zephyr.elf", board="nucleo_l4r5zi")
        board.write("version\\n")
        board.expect(r"^Zephyr version (\\d+)")

Each test that asks for ``firmware`` runs on this computer (``host``), in an emulator of the board or of its
core (``emulator``), and with ``--crtgen-target board`` on a board that is connected. ``dut`` runs an image of
anybody's making: it is built for one board, so it runs in the emulator of that, or on the board.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from crtgen.api import Image
    from crtgen.api.report import Report
    from crtgen.boards import Board
    from crtgen.device.run import Dut
    from crtgen.device.session import Session
    from crtgen.network.ir import Array

__all__ = ["Firmware"]

_TARGETS = ("host", "emulator", "board")
_BOARD = "mps2_an386"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("crtgen", "models on Cortex-M")
    group.addoption(
        "--crtgen-target",
        action="append",
        choices=_TARGETS,
        help="where tests with firmware run; host and emulator if not given",
    )
    group.addoption("--crtgen-board", help=f"the board of tests that name none; else {_BOARD}")
    group.addoption("--crtgen-port", help="the serial port of a board that runs the image already")
    group.addoption("--crtgen-hardware-map", type=Path, help="what is connected, as Zephyr's twister has it")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "firmware" in metafunc.fixturenames:
        targets = metafunc.config.getoption("--crtgen-target") or _TARGETS[:2]
        metafunc.parametrize("firmware", list(dict.fromkeys(targets)), indirect=True)
    if "dut" in metafunc.fixturenames:
        chosen = [target for target in metafunc.config.getoption("--crtgen-target") or () if target != "host"]
        metafunc.parametrize("dut", list(dict.fromkeys(chosen)) or ["emulator"], indirect=True)


@dataclass(eq=False)
class Firmware:
    """A model on a board: built when this object is created, started on first use."""

    path: Path
    target: str
    board: "Board"
    image: "Image"
    _start: "Callable[[Image], Session]" = field(repr=False)
    _session: "Session | None" = field(default=None, repr=False)

    @property
    def session(self) -> "Session":
        """The session with the running image, which ends with the test."""
        if self._session is None:
            self._session = self._start(self.image)
        return self._session

    @property
    def report(self) -> "Report":
        (report,) = self.image.reports
        return report

    @property
    def flash_bytes(self) -> int:
        """Bytes of flash for the model's code and constants, as in a library, without the rest of the
        firmware.
        """
        flash = self.report.flash_bytes
        assert flash is not None
        return flash

    @property
    def ram_bytes(self) -> int:
        """Bytes of RAM that the model needs as a library: arena and states, without the stack."""
        return self.report.ram_bytes

    @property
    def instructions(self) -> int | None:
        """Instructions of an inference; None if the device does not count them."""
        return self.session.measure().instructions

    def infer(self, *inputs: "Array") -> "tuple[Array, ...]":
        return self.session.infer(*inputs)

    def verify(self, expect: str | Path | None = None, cases: int = 4) -> None:
        """Fail unless every case has the expected outputs: cases of a file, or random inputs with the
        reference's outputs.
        """
        from crtgen.lab.measure.verification import verify

        verdicts = verify(self.session, self.path, Path(expect) if expect else None, cases)
        wrong = [f"{v.case}: {v.difference}" for v in verdicts if v.difference]
        if wrong:
            pytest.fail(f"{self.path.name} on {self.board.name}\n" + "\n".join(wrong), pytrace=False)


@pytest.fixture
def firmware(request: pytest.FixtureRequest) -> Iterator[Callable[..., Firmware]]:
    """Return a function ``firmware(path, board=None, **options)`` that builds a model for the target; options
    as of ``compile``.
    """
    from crtgen import api
    from crtgen.device.run import Site
    from crtgen.lab.settings import trust_of

    config, target = request.config, request.param
    site = Site(
        port=config.getoption("--crtgen-port"), hardware_map=config.getoption("--crtgen-hardware-map")
    )
    with ExitStack() as stack:

        def start(image: "Image") -> "Session":
            return stack.enter_context(image.run(site=site if target == "board" else Site(simulate=True)))

        def make(path: str | Path, board: str | None = None, **options: Any) -> Firmware:
            wanted = _board(target, board or config.getoption("--crtgen-board") or _BOARD, site)
            loaded = api.load(path, trust=trust_of(Path(path)))
            image = loaded.compile(wanted, **options).generate("server").build()
            return Firmware(Path(path), target, wanted, image, start)

        yield make


@pytest.fixture
def dut(request: pytest.FixtureRequest) -> "Iterator[Callable[..., Dut]]":
    """Return a function ``dut(image, board=None)`` that starts an ELF file on the target; its output can be
    expected.
    """
    from crtgen.device.run import Dut, Site, start_device

    config, target = request.config, request.param
    site = Site(
        port=config.getoption("--crtgen-port"), hardware_map=config.getoption("--crtgen-hardware-map")
    )
    with ExitStack() as stack:

        def make(image: str | Path, board: str | None = None) -> Dut:
            wanted = _own_board(target, board or config.getoption("--crtgen-board") or _BOARD, site)
            where = site if target == "board" else Site(simulate=True)
            device = start_device(Path(image), wanted, counting=False, site=where)
            stack.enter_context(device)
            return Dut(device)

        yield make


def _own_board(target: str, name: str, site: Any) -> "Board":
    # The board of an image that is built for it, and for no other; a test that has none is skipped.
    from crtgen.boards import find_board

    board = find_board(name)
    if target == "emulator" and not board.simulator:
        pytest.skip(f"nothing simulates {board.name}: --crtgen-target board")
    return _board(target, name, site)


def _board(target: str, name: str, site: Any) -> "Board":
    # The board of a target; a test that has none is skipped.
    from crtgen.boards import find_board, stand_in
    from crtgen.device.local_boards import is_connected

    wanted = find_board(name)
    if target == "host":
        return find_board("host")
    if target == "board":
        if site.port is None and not is_connected(wanted, site.hardware_map):
            pytest.skip(f"no {wanted.name} is connected")
        return wanted
    found = wanted if wanted.simulator else stand_in(wanted)
    if found is None:
        pytest.skip(f"no emulator has a {wanted.core.name}")
    return found
