"""What a board does, measured on the board: for those who have one, and tell us.

One image has the demonstration's network and loops, each as a model of its own, whose time the server takes.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from crtgen.api import Generated, Image, load
from crtgen.boards import Board, Serial
from crtgen.codegen.metadata import metadata_files
from crtgen.codegen.module import CModule, Interface, LayerInfo, ModelInfo
from crtgen.codegen.render import render
from crtgen.errors import DeviceFault, LinkError
from crtgen.ir import DType
from crtgen.measure.cases import read_cases
from crtgen.project import Firmware, Options, generate_project
from crtgen.report import Report, reports_of
from crtgen.resources import demo_dir
from crtgen.run import Site
from crtgen.session import Measurement, Session
from crtgen.version import __version__

__all__ = ["Check", "Selftest", "build_selftest", "run_rates", "run_selftest"]

_NETWORK = "digits"
_REPEATED = 64
_ROUNDS = 500
_WORDS = 40_000
"""Instructions of a kind in a loop, how often it runs, and words that a loop reads in all."""

_SMALL, _LARGE, _RAM = 128, 4096, 32
"""Words of what fits into most caches of a flash, of what fits into none, and of a part of the RAM."""

_ECHO = 4096
"""Bytes that go to the device and come back, in parts."""

_SECONDS = 1.0
"""How long the clock is compared with that of this computer."""

_CLOCK_TOLERANCE = 0.03

_RATES = (230_400, 460_800)
_RATE_TOLERANCE = 0.02
"""Rates of the serial port beside that of the board, and how far from one a UART may be."""

_MOST_LOOPS = 400_000_000
"""Of a calibration."""

_WITHOUT_FAULTS = ("rp2040js", "Unicorn")
"""Simulators in which nothing happens where a chip has a fault."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A loop: words that are read, or an instruction that is repeated; without both it uses up the stack."""

    name: str
    what: str
    words: int = 0
    constant: bool = False
    assembly: str = ""
    rounds: int = _ROUNDS
    repeated: int = _REPEATED

    @property
    def count(self) -> int:
        """How often it does what it measures."""
        return self.rounds * (self.words or self.repeated)


_PROBES = (
    Probe("add", "additions of registers", assembly="adds r4, r4, #1"),
    Probe("multiply", "products of registers", assembly="muls r4, r5, r4"),
    Probe("branch", "taken branches", assembly="b 2f\\n2:"),
    Probe("ram", "words of the RAM", _RAM, rounds=_WORDS // _RAM),
    Probe("flash", "words of the flash, few", _SMALL, constant=True, rounds=_WORDS // _SMALL),
    Probe("stream", "words of the flash, many", _LARGE, constant=True, rounds=_WORDS // _LARGE),
    Probe("guard", "a stack without end"),
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: what came out, and whether it is as it should be (None: no verdict)."""

    name: str
    value: float | str | None
    unit: str
    passed: bool | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Selftest:
    """What was seen of a board. ``simulated`` names the simulator; empty is the hardware."""

    board: str
    summary: str
    simulated: str
    version: str
    checks: tuple[Check, ...]
    seen_by: str = ""
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d", time.gmtime()))

    @property
    def passed(self) -> bool:
        return all(check.passed is not False for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def to_page(self) -> str:
        """The same as Markdown."""
        where = f"simulated by {self.simulated}" if self.simulated else "on the board"
        by = f", seen by {self.seen_by}" if self.seen_by else ""
        lines = [
            f"# {self.board}",
            "",
            f"{self.summary}. crtgen {self.version}, {self.date}, {where}{by}.",
            "",
        ]
        lines += ["| check | value | | verdict | |", "|---|---|---|---|---|"]
        for check in self.checks:
            verdict = {True: "as it should be", False: "**wrong**", None: ""}[check.passed]
            lines.append(
                f"| {check.name} | {_shown(check.value)} | {check.unit} | {verdict} | {check.note} |"
            )
        return "\n".join(lines) + "\n"


def _shown(value: float | str | None) -> str:
    if value is None:
        return "not known"
    return value if isinstance(value, str) else f"{value:.4g}"


def build_selftest(
    board: Board, *, rtt: bool = False, say: Callable[[str], None] = lambda text: None
) -> Image:
    """The image: the network, and a model for each loop."""
    compiled = load(demo_dir() / f"{_NETWORK}.tflite").compile(board)
    modules = (*compiled.modules, *map(_module, _PROBES))
    firmware = Firmware(modules, metadata_files(modules), compiled.request, Options("server"))
    project = generate_project(firmware)
    return Generated(project, plans=compiled.plans).build(say=say)


def _module(probe: Probe) -> CModule:
    name = f"selftest_{probe.name}"
    view = {**asdict(probe), "name": name}
    files = {f"{name}{end}": render(f"selftest/probe{end}.j2", v=view) for end in (".c", ".h")}
    x, y = (Interface(n, n, (1, 4), DType.INT8, None, 4) for n in "xy")
    layers = (LayerInfo(probe.name, "Probe", name),)
    return CModule(ModelInfo(name, (x,), (y,), 16, 16, True, True, 0, 0, layers), files, (), ())


def run_selftest(session: Session, board: Board, simulated: str, seen_by: str = "") -> Selftest:
    """All checks, on a session that is open; the last one ends it."""
    return Selftest(
        board.name, board.summary, simulated, __version__, tuple(_checks(session, board, simulated)), seen_by
    )


def run_rates(board: Board, site: Site, say: Callable[[str], None] = lambda text: None) -> tuple[Check, ...]:
    """The serial port at further rates: an image for each that the UART reaches, and bytes there and back."""
    found = []
    for rate in _RATES:
        if board.uart is None or board.is_usb or site.port is not None:
            continue
        uart = replace(board.uart, baud=rate)
        if abs(uart.rate.baud / rate - 1) > _RATE_TOLERANCE:
            continue
        say(f"the serial port at {rate} baud")
        faster = replace(board, uart=uart, serial=Serial(rate))
        try:
            with build_selftest(faster).run(site=replace(site, baud=rate)) as session:
                found.append(replace(_echo(session, faster), name=f"serial port at {rate} baud"))
        except LinkError as error:
            found.append(Check(f"serial port at {rate} baud", None, "bytes a second", False, error.message))
    return tuple(found)


def _checks(session: Session, board: Board, simulated: str) -> Iterator[Check]:
    yield _exact(session)
    yield _clock(session, simulated)
    yield _echo(session, board)
    cost = {probe.name: _per(session, probe) for probe in _PROBES if probe.words or probe.assembly}
    unit = "instructions" if session.counting else "cycles"
    for probe in _PROBES:
        if probe.name in cost:
            yield Check(probe.what, cost[probe.name], f"{unit} each", None)
    small, large = cost["flash"], cost["stream"]
    yield Check("flash: many words to few", large / small if small and large else None, "times", None)
    yield _waiting(board, large, cost["ram"], simulated)
    yield _model(session, board)
    yield _guard(session, simulated)


def _exact(session: Session) -> Check:
    info = session.model(_NETWORK)
    right = total = 0
    for case in read_cases(demo_dir() / f"{_NETWORK}.npz", info.inputs, info.outputs):
        outputs = session.infer(*case.inputs, model=_NETWORK)
        pairs = zip(outputs, case.outputs, strict=True)
        right, total = right + all(np.array_equal(a, b) for a, b in pairs), total + 1
    return Check("network", f"{right} of {total}", "cases exact", right == total)


def _clock(session: Session, simulated: str) -> Check:
    """Ticks of a long and a short loop against this computer's clock: the way there and back cancels out."""
    rate = session.client.ticks_per_second()
    first = session.client.calibrate(1000)
    if rate is None or not first:
        return Check("clock", None, "of what it should be", None, "the firmware cannot tell")
    loops = min(max(2000, round(1000 * rate * _SECONDS / first)), _MOST_LOOPS)
    spans = []
    for count in (1000, loops):
        start = time.monotonic()
        ticks = session.client.calibrate(count) or 0
        spans.append((time.monotonic() - start, ticks))
    (short, few), (long, many) = spans
    ratio = (many - few) / rate / (long - short)
    note = "the clock of a simulator" if simulated else ""
    return Check(
        "clock", ratio, "of this computer's", None if simulated else abs(ratio - 1) < _CLOCK_TOLERANCE, note
    )


def _echo(session: Session, board: Board) -> Check:
    """Bytes to the device's memory and back, in parts that its pool holds."""
    data = np.random.default_rng(7).integers(0, 256, 256, np.uint8)
    right, start = True, time.monotonic()
    with session.client.allocate(data.shape, data.dtype) as tensor:
        for _ in range(_ECHO // data.size):
            tensor.write(data)
            right = right and np.array_equal(tensor.read(), data)
    speed = 2 * _ECHO / (time.monotonic() - start)
    rate = board.serial.baud if board.serial is not None else 0
    note = f"{rate} baud carry {rate // 10} at most" if rate and not board.is_usb else ""
    return Check("serial port", speed, "bytes a second, exact" if right else "bytes a second", right, note)


def _waiting(board: Board, flash: float | None, ram: float | None, simulated: str) -> Check:
    """What a word of the flash costs beyond one of the RAM, and what the board's file has it cost."""
    name, reads = "flash: waiting for a word, many", board.reads(board.code)
    if flash is None or ram is None or simulated:
        return Check(name, None, "cycles", None, "simulators do not wait" if simulated else "")
    said = 4 / reads.width * reads.wait_states if reads is not None else 0.0
    return Check(name, flash - ram, "cycles", None, f"the board's file says {said:.3g}")


def _per(session: Session, probe: Probe) -> float | None:
    """Cycles, or instructions where those are counted, of each of what a loop does."""
    found = _spent(session.measure(1, model=f"selftest_{probe.name}"))
    return None if found is None else found / probe.count


def _spent(measured: Measurement) -> int | None:
    return measured.instructions if measured.instructions is not None else measured.cycles


def _model(session: Session, board: Board) -> Check:
    """The network's cycles as the model of the core has them."""
    info = session.model(_NETWORK)
    report: Report = reports_of([info], board, session.image.manifest.optimize)[0]
    cycles, expected = session.measure(4, model=_NETWORK).cycles, report.cycles_estimated
    if cycles is None or not expected:
        return Check("network: cycles to the model's", None, "times", None, "cycles are not counted here")
    return Check("network: cycles to the model's", cycles / expected, "times", None, f"{cycles} cycles")


def _guard(session: Session, simulated: str) -> Check:
    """A function that calls itself without end has to be a fault of the stack."""
    if simulated in _WITHOUT_FAULTS:
        return Check("stack guard", None, "", None, "this simulator has no faults")
    try:
        session.measure(1, model="selftest_guard")
    except DeviceFault as error:
        return Check("stack guard", "a fault", "", "stack" in error.message, error.message.replace("\n", " "))
    except LinkError as error:
        return Check("stack guard", "no report", "", False, error.message)
    return Check("stack guard", "no fault", "", False)
