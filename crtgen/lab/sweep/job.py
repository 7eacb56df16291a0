"""A job of a sweep, as a value: a model, a board and a choice of options; and its outcome."""

import json
import os
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from crtgen import api
from crtgen.base import files
from crtgen.base.errors import CrtgenError, DeviceFault, FlashError, LinkError, MismatchError, RemoteError
from crtgen.base.temporary import TemporaryFolder
from crtgen.boards import Board, find_board, name_board
from crtgen.compiler.byoc import read_generator
from crtgen.device.run import Site
from crtgen.device.session import Session
from crtgen.lab.measure.benchmark import measure_model
from crtgen.lab.measure.lock import figures_of, instructions_of_layers, source_of
from crtgen.lab.measure.targets import target_of
from crtgen.lab.measure.verification import Verdict, verify
from crtgen.lab.sweep.address import content_digest, tools_of
from crtgen.network.passes import DEFAULT_PASSES, WITHOUT_FOLDING

__all__ = ["KIND", "Job", "JobOptions", "Outcome", "failure", "own_board", "run_job"]

KIND = "model"
"""Kind of these jobs in the store, which may hold other measurements, too."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options that may differ between jobs of one model and board; names and values are those of commands.

    ``toolchain`` empty means the first one that is found.
    """

    # written by tools/options.py
    optimize: str = "balanced"
    executor: str = "aot"
    fallback: bool = False
    cores: int = 1
    feed: str = ""
    # end
    fold: bool = True
    codegen: tuple[str, ...] = ()
    place: tuple[str, ...] = ()
    toolchain: str = ""

    def label(self) -> str:
        plain = JobOptions(self.optimize)
        changed = {k: v for k, v in asdict(self).items() if v != getattr(plain, k)}
        return ", ".join([self.optimize, *(f"{k} {_text(v)}" for k, v in changed.items())])


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(value) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True, slots=True)
class Job:
    """A model, called ``model`` after its file, for a board.

    Files are identified by the SHA-256 of their contents: the model's ``source``, its ``expect``ed cases and
    the file of an ``own_board``; the last two are empty if there are none. Without expected cases, ``cases``
    random inputs are verified against the reference. ``stack`` is in bytes. ``simulate`` prefers a simulator
    to a connected board. On a real board whose firmware has slots, the model goes into the slot ``push``.
    ``trust`` is the digest of an archive whose code may run; it is not part of the address.
    """

    model: str
    source: str
    board: str
    options: JobOptions = field(default_factory=JobOptions)
    expect: str = ""
    own_board: str = ""
    cases: int = 4
    stack: int | None = None
    simulate: bool = False
    push: str = ""
    trust: str = ""

    @property
    def contents(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.source, self.expect, self.own_board)))

    def tools(self, target: Board) -> tuple[str, ...]:
        """Return the tools that affect its figures on a board, apart from crtgen; see
        ``address.tool_version``.
        """
        return tools_of(target, self.options.toolchain, self.options.codegen, self.simulate)

    def site(self, target: Board) -> Site:
        return Site(simulate=self.simulate and bool(target.simulator))

    def settings(self) -> str:
        """Return all choices as JSON; equal choices give equal text."""
        chosen = {**asdict(self.options), "cases": self.cases, "stack": self.stack, "simulate": self.simulate}
        files_and_place = {"expect": self.expect, "own_board": self.own_board, "push": self.push}
        return json.dumps(chosen | files_and_place, sort_keys=True)

    def digest(self, code: str, toolchain: str) -> str:
        """Return the address of its result: a digest of its inputs, of crtgen's ``code``, and of the
        tools.
        """
        parts = (KIND, self.model, self.source, self.board, self.settings(), code, toolchain)
        return content_digest(json.dumps(parts).encode())


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a job.

    ``figures`` are by metric, ``layers`` are instructions by layer, ``project`` is the digest of everything
    generated. ``error`` is the class of the error, empty if there was none, ``message`` its text, ``log`` the
    output of the failed program, or a traceback. ``seconds`` is the time on the ``worker``.
    """

    figures: Mapping[str, float] = field(default_factory=dict)
    layers: Mapping[str, int] = field(default_factory=dict)
    project: str = ""
    error: str = ""
    message: str = ""
    log: str = ""
    worker: str = ""
    seconds: float = 0.0
    is_elsewhere_better: bool = False
    """True if it failed on the way to a board, so that another board may succeed."""


def failure(error: BaseException) -> Outcome:
    """Return the outcome for an error, with a traceback if crtgen did not raise it."""
    name = type(error).__name__
    if isinstance(error, CrtgenError):
        message = f"{error} ({error.hint})" if error.hint else str(error)
        return Outcome(error=name, message=message, log=error.log, is_elsewhere_better=_is_of_the_way(error))
    log = "".join(traceback.format_exception(error))
    return Outcome(error=name, message=str(error) or name, log=log)


def _is_of_the_way(error: CrtgenError) -> bool:
    # True for errors of the connection, False for answers of the board.
    return isinstance(error, FlashError | LinkError) and not isinstance(error, DeviceFault | RemoteError)


def run_job(job: Job, contents: Mapping[str, bytes], site: Site | None = None) -> Outcome:
    """Compile, build, verify and measure; an error is also an outcome.

    ``contents`` are the files of the job by digest; ``site`` tells how to reach a real board.
    """
    start = time.perf_counter()
    with TemporaryFolder() as folder:
        try:
            found = _measured(job, contents, folder, site)
        except Exception as error:
            found = failure(error)
    message = found.message.replace(f"{folder}{os.sep}", "")
    return replace(found, message=message, seconds=time.perf_counter() - start)


def _measured(job: Job, contents: Mapping[str, bytes], folder: Path, site: Site | None) -> Outcome:
    model = folder / job.model
    files.write(model, contents[job.source], durable=False)
    expect = folder / "expect.npz" if job.expect else None
    if expect is not None:
        files.write(expect, contents[job.expect], durable=False)
    compiled = _compiled(job, model, contents)
    verdicts: list[Verdict] = []

    def check(session: Session) -> None:
        verdicts.extend(verify(session, model, expect, job.cases))

    where = site or job.site(compiled.board)
    if target_of(compiled.board, where) == "board":
        where = replace(where, slot=job.push)
    report = measure_model(
        compiled,
        stack=job.stack,
        toolchain=job.options.toolchain or None,
        site=where,
        check=check,
    )
    digest, _ = source_of(compiled)
    time_of_run = {} if report.seconds is None else {"seconds": report.seconds}
    found = Outcome({**figures_of(report), **time_of_run}, instructions_of_layers(report), digest)
    wrong = [f"{verdict.case}: {verdict.difference}" for verdict in verdicts if verdict.difference]
    if not wrong:
        return found
    message = f"{len(wrong)} of {len(verdicts)} cases differ: {wrong[0]}"
    return replace(found, error=MismatchError.__name__, message=message, log="\n".join(wrong))


def _compiled(job: Job, model: Path, contents: Mapping[str, bytes]) -> api.Compiled:
    options = job.options
    board = own_board(job, contents[job.own_board]) if job.own_board else find_board(job.board)
    return api.load(model, trust=job.trust).compile(
        board,
        # written by tools/options.py
        optimize=options.optimize,
        executor=options.executor,
        fallback=options.fallback,
        cores=options.cores,
        feed=options.feed,
        # end
        passes=DEFAULT_PASSES if options.fold else WITHOUT_FOLDING,
        generators=tuple(map(read_generator, options.codegen)),
        place=dict(pair.partition("=")[::2] for pair in options.place),
    )


@cache
def _boards() -> TemporaryFolder:
    # Files of boards, for as long as this process runs: later stages find them by name.
    return TemporaryFolder()


def own_board(job: Job, content: bytes) -> Board:
    path = _boards().path / f"{job.board}.toml"
    for known in (_known_file(job.board), path):
        if known is not None and known.is_file() and known.read_bytes() == content:
            return name_board(known)
    files.write(path, content, durable=False)
    return name_board(path)


def _known_file(board: str) -> Path | None:
    # The file of a board that is known here.
    try:
        return find_board(board).file
    except CrtgenError:
        return None
