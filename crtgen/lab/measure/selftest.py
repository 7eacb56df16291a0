"""Self-test of a board: measurements that owners of real boards can contribute.

One image contains a network and test loops, each as a model of its own, and the server times them.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from crtgen.api import GeneratedProject, Image, Imported, Model, load
from crtgen.api.report import Report, reports_of
from crtgen.base.errors import DeviceFault, DoesNotFitError, LinkClosedError, LinkError, SessionLostError
from crtgen.base.resources import demo_dir
from crtgen.base.version import __version__
from crtgen.boards import Board, Serial
from crtgen.compiler.codegen.metadata import metadata_files
from crtgen.compiler.codegen.module import ModelInfo
from crtgen.device.run import Site
from crtgen.device.session import Session
from crtgen.firmware.project import FirmwareRequest, ProjectOptions, generate_project
from crtgen.lab.measure.cases import read_cases
from crtgen.lab.measure.keywords import NAME as KEYWORDS
from crtgen.lab.measure.keywords import keywords
from crtgen.lab.measure.probes import ENDING, PROBES, Probe, expected, modules
from crtgen.network.ir import Array

__all__ = ["Check", "Selftest", "build_selftest", "run_rates", "run_selftest", "run_watchdog", "watchdog"]

# The largest first: one for which a board has no room gives way to the next.
_NETWORKS = (KEYWORDS, "digits")

# Inputs of the network that has no file of cases.
_CASES = 3

# Fraction of instructions; calling a loop and counting its rounds costs little beside it.
_COUNT_TOLERANCE = 0.01

# Seconds within which a full stack, and a watchdog of a tenth of a second, have to be seen, over USB too.
_LONGEST = 20.0

# Bytes that go to the device and come back, in parts.
_ECHO = 4096

# Seconds for which its clock is compared with this computer's.
_SECONDS = 1.0

_CLOCK_TOLERANCE = 0.03

_RATES = (230_400, 460_800)
# Rates of the serial port beside that of the board, and how far from one a UART may be.
_RATE_TOLERANCE = 0.02

# Of a calibration.
_MOST_LOOPS = 400_000_000

# Simulators in which nothing happens where a chip has a fault.
_WITHOUT_FAULTS = ("rp2040js", "Unicorn")


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its subject, its result, and whether the result is as expected (None: no verdict)."""

    name: str
    value: float | str | None
    unit: str
    passed: bool | None
    note: str = ""
    expected: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.expected if isinstance(self.value, float) and self.expected else None


@dataclass(frozen=True, slots=True)
class Selftest:
    """Results for a board. ``simulated`` names the simulator; empty for hardware."""

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
        return asdict(self)

    def to_page(self) -> str:
        where = f"simulated by {self.simulated}" if self.simulated else "on the board"
        by = f", seen by {self.seen_by}" if self.seen_by else ""
        lines = [
            f"# {self.board}",
            "",
            f"{self.summary}. crtgen {self.version}, {self.date}, {where}{by}.",
            "",
        ]
        lines += ["| check | value | | expected | times | verdict | |", "|---|---|---|---|---|---|---|"]
        for check in self.checks:
            verdict = {True: "as it should be", False: "**wrong**", None: ""}[check.passed]
            compared = (f"{number:.4g}" if number else "" for number in (check.expected, check.ratio))
            cells = (check.name, _shown(check.value), check.unit, *compared, verdict, check.note)
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"


def _shown(value: float | str | None) -> str:
    if value is None:
        return "not known"
    return value if isinstance(value, str) else f"{value:.4g}"


def build_selftest(board: Board, *, say: Callable[[str], None] = lambda text: None) -> Image:
    *larger, least = _NETWORKS
    for network in larger:
        try:
            return _build(board, network, say)
        except DoesNotFitError:
            continue
    return _build(board, least, say)


def _build(board: Board, network: str, say: Callable[[str], None]) -> Image:
    compiled = _network(network).compile(board)
    models = (*compiled.modules, *modules(board))
    firmware = FirmwareRequest(models, metadata_files(models), compiled.request, ProjectOptions("server"))
    return GeneratedProject(generate_project(firmware), plans=compiled.plans).build(say=say)


def _network(name: str) -> Model | Imported:
    return keywords() if name == KEYWORDS else load(demo_dir() / f"{name}.tflite")


def run_selftest(session: Session, board: Board, simulated: str, seen_by: str = "") -> Selftest:
    return Selftest(
        board.name, board.summary, simulated, __version__, tuple(_checks(session, board, simulated)), seen_by
    )


def run_rates(board: Board, site: Site, say: Callable[[str], None] = lambda text: None) -> tuple[Check, ...]:
    """Test the serial port at other rates: one image for each rate that the UART reaches, and bytes sent both
    ways.
    """
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


def run_watchdog(image: Image, board: Board, site: Site) -> Check:
    """Run firmware that hangs, in a session of its own: the watchdog must end it within seconds."""
    if board.watchdog is None:
        return Check("watchdog", None, "", None, "the board's file names none that crtgen has a driver for")
    simulator = board.simulator if site.is_simulated(board) else ""
    if simulator and not board.watchdog.reports and (simulator != "rp2040js" or board.is_usb):
        return Check("watchdog", None, "", None, f"{simulator} shows none of this board")
    with image.run(site=site) as session:
        return watchdog(session)


def watchdog(session: Session) -> Check:
    """Run an endless loop with the watchdog on, and check that it ends with a fault report or a restart."""
    start = time.monotonic()
    try:
        _end(session, 1)
    except DeviceFault as error:
        found = "a fault" if "watchdog" in error.message else ""
        return Check("watchdog", found or "another fault", "", bool(found), error.message.split("\n")[0])
    except (SessionLostError, LinkClosedError):
        seconds = time.monotonic() - start
        return Check("watchdog", "a reset", "", True, f"{seconds:.1f} s after it was started")
    except LinkError as error:
        return Check("watchdog", "no reset", "", False, error.message)
    return Check("watchdog", "no reset", "", False)


def _end(session: Session, way: int) -> None:
    # Run what does not come back: 0 uses up the stack, 1 waits for the watchdog.
    executor = session.client.aot_executor(f"selftest_{ENDING.name}")
    executor.set_input("x", np.full((1, 4), way, np.int8))
    executor.run(timeout=_LONGEST)


def _checks(session: Session, board: Board, simulated: str) -> Iterator[Check]:
    yield _exact(session)
    yield _clock(session, simulated)
    yield _echo(session, board)
    loops = {probe.name: _loop(session, probe, board, simulated) for probe in PROBES}
    yield from loops.values()
    small, large, ram = (_number(loops[name]) for name in ("flash", "stream", "ram"))
    yield Check("flash: many words to few", large / small if small and large else None, "times", None)
    yield _waiting(board, large, ram, simulated)
    yield _model(session, board)
    yield _guard(session, simulated)


def _number(check: Check) -> float | None:
    return check.value if isinstance(check.value, float) else None


def _loop(session: Session, probe: Probe, board: Board, simulated: str) -> Check:
    # Cycles, or instructions where those are counted, of each of what a loop does. As many instructions as
    # were written have to be executed; cycles are for the reader to judge.
    measured = session.measure(1, model=f"selftest_{probe.name}")
    should = expected(probe, board, waits=not simulated)
    if measured.instructions is not None:
        value = measured.instructions / probe.count
        right = abs(value / should.instructions - 1) < _COUNT_TOLERANCE
        return Check(probe.what, value, "instructions each", right, "", should.instructions)
    if measured.cycles is None:
        return Check(probe.what, None, "cycles each", None, "cycles are not counted here", should.cycles)
    return Check(probe.what, measured.cycles / probe.count, "cycles each", None, "", should.cycles)


def _exact(session: Session) -> Check:
    # Cases whose outputs the file of the demonstration has, or else the numpy reference computes.
    name = session.models[0].name
    cases = list(_cases(session.model(name)))
    right = sum(
        all(np.array_equal(a, b) for a, b in zip(session.infer(*x, model=name), y, strict=True))
        for x, y in cases
    )
    note = "" if name == _NETWORKS[0] else f"the board has no room for {_NETWORKS[0]}"
    return Check(f"network {name}", f"{right} of {len(cases)}", "cases exact", right == len(cases), note)


def _cases(info: ModelInfo) -> Iterator[tuple[tuple[Array, ...], tuple[Array, ...]]]:
    if info.name == KEYWORDS:
        random, graph = np.random.default_rng(7), keywords().graph
        inputs: list[tuple[Array, ...]] = [
            (random.integers(-128, 128, info.inputs[0].shape, np.int8),) for _ in range(_CASES)
        ]
        yield from zip(inputs, graph.run(inputs), strict=True)
        return
    for case in read_cases(demo_dir() / f"{info.name}.npz", info.inputs, info.outputs):
        yield case.inputs, case.outputs


def _clock(session: Session, simulated: str) -> Check:
    # Ticks of a long and a short loop against this computer's clock: the way there and back cancels out.
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
    # Bytes to the device's memory and back, in parts that its pool holds.
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
    # Extra cost of a word from flash compared with RAM, measured and by the board's file.
    name, reads = "flash: waiting for a word, many", board.reads(board.code)
    if flash is None or ram is None or simulated:
        return Check(name, None, "cycles", None, "simulators do not wait" if simulated else "")
    said = 4 / reads.width * reads.wait_states if reads is not None else 0.0
    return Check(name, flash - ram, "cycles", None, f"the board's file says {said:.3g}")


def _model(session: Session, board: Board) -> Check:
    # The network's cycles as the model of the core has them.
    info = session.models[0]
    report: Report = reports_of([info], board, session.image.manifest.optimize)[0]
    cycles, expected = session.measure(1, model=info.name).cycles, report.cycles_estimated
    if cycles is None or not expected:
        return Check("network: cycles to the model's", None, "times", None, "cycles are not counted here")
    return Check("network: cycles to the model's", cycles / expected, "times", None, f"{cycles} cycles")


def _guard(session: Session, simulated: str) -> Check:
    # A function that calls itself without end has to be a fault of the stack.
    if simulated in _WITHOUT_FAULTS:
        return Check("stack guard", None, "", None, "this simulator has no faults")
    try:
        _end(session, 0)
    except DeviceFault as error:
        return Check("stack guard", "a fault", "", "stack" in error.message, error.message.replace("\n", " "))
    except LinkError as error:
        return Check("stack guard", "no report", "", False, error.message)
    return Check("stack guard", "no fault", "", False)
