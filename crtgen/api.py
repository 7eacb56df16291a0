"""The library face of crtgen: each product has one method that makes the next.

::

    import crtgen

    model = crtgen.load("kws.tflite")
    image = model.compile(board="mps2_an386").generate().build()
    with image.run() as session:
        y = session.infer(x)
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crtgen import build, frontends
from crtgen.boards import Board, find_board
from crtgen.build import SizeReport, build_project, measure
from crtgen.cases import Case, Difference, compare, largest_outputs, random_inputs, read_cases
from crtgen.codegen import CModule, Interface, generate_c, metadata_files
from crtgen.errors import UsageError
from crtgen.ir import Array, Graph
from crtgen.kernels import Target, select
from crtgen.passes import DEFAULT_PASSES, Hit, Pass, run_passes
from crtgen.plan import Plan, make_plan
from crtgen.project import Firmware, Options, Project, generate_project, read_manifest
from crtgen.run import Site
from crtgen.session import Session

__all__ = [
    "Compiled",
    "Extracted",
    "Generated",
    "Image",
    "Model",
    "Verdict",
    "compile",
    "load",
    "open_project",
    "verify",
]

Say = Callable[[str], None]


def _silent(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A network as its file has it."""

    graph: Graph

    @property
    def name(self) -> str:
        return self.graph.name

    def compile(
        self,
        board: str = "mps2_an386",
        *,
        optimize: str = "balanced",
        keep_inputs: bool = False,
        exact: bool | None = None,
        passes: Sequence[Pass] = DEFAULT_PASSES,
    ) -> "Compiled":
        """Choose kernels, plan the memory and generate C for a board; see the function ``compile``."""
        return compile([self], board, optimize=optimize, keep_inputs=keep_inputs, exact=exact, passes=passes)


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """Models compiled for a board: a plan and a module of C for each."""

    board: Board
    models: tuple[Model, ...]
    plans: tuple[Plan, ...]
    modules: tuple[CModule, ...]
    hits: tuple[Hit, ...] = ()

    def generate(
        self,
        type: str = "server",
        options: Options | None = None,
        samples: Mapping[str, Sequence[Array]] | None = None,
        platform: str | None = None,
    ) -> "Generated":
        """The firmware project, in memory. ``type`` is ``server``, ``standalone`` or ``library``.

        ``platform`` is one of the board's, ``zephyr`` for example; its first one if not given.

        ``samples`` are the built-in inputs of a standalone image by model name; random if not given.
        """
        if samples is None and type == "standalone":
            samples = {m.info.name: random_inputs(m.info.inputs, seed=0) for m in self.modules}
        firmware = Firmware(
            self.modules,
            metadata_files(self.modules),
            self.board,
            type,
            options or Options(),
            samples or {},
            platform or "",
        )
        return Generated(generate_project(firmware))


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """A firmware project in memory."""

    project: Project

    def extract(self, directory: str | Path) -> "Extracted":
        """Write it to ``directory``, which has to be empty or an earlier project of crtgen's."""
        path = Path(directory)
        self.project.extract(path)
        return Extracted(path)

    def build(self, *, toolchain: str | None = None, say: Say = _silent) -> "Image":
        """Build it in a temporary directory that lives as long as the image."""
        temporary = tempfile.TemporaryDirectory(prefix="crtgen-")
        self.project.extract(Path(temporary.name))
        return Extracted(Path(temporary.name), temporary).build(toolchain=toolchain, say=say)


@dataclass(frozen=True, slots=True, eq=False)
class Extracted:
    """A firmware project on disk."""

    directory: Path
    _temporary: "tempfile.TemporaryDirectory[str] | None" = field(default=None, repr=False)

    def build(self, *, toolchain: str | None = None, say: Say = _silent) -> "Image":
        """Build it, or what has changed of it, and measure the image."""
        built = build_project(self.directory, toolchain=toolchain, progress=say)
        return Image(built, measure(built), self._temporary)


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """A built image: an ELF with its sizes and the manifest of its project."""

    built: build.Image
    size: SizeReport
    _temporary: "tempfile.TemporaryDirectory[str] | None" = field(default=None, repr=False)

    @property
    def path(self) -> Path:
        """The ELF."""
        return self.built.path

    @property
    def board(self) -> str:
        """Name of the board."""
        return self.built.board

    def run(self, *, counting: bool = True, on_log: Say = _silent, site: Site | None = None) -> Session:
        """Start it on its board and connect; a context manager that stops it again."""
        return Session.start(self.built, counting=counting, on_log=on_log, site=site)


def load(path: str | Path) -> Model:
    """Read a model file. Raises ``ModelError`` with the place of whatever is wrong with it."""
    return Model(frontends.load(Path(path)))


def compile(
    models: Sequence[Model],
    board: str | Board = "mps2_an386",
    *,
    optimize: str = "balanced",
    keep_inputs: bool = False,
    exact: bool | None = None,
    passes: Sequence[Pass] = DEFAULT_PASSES,
    say: Say = _silent,
) -> Compiled:
    """Compile one or several models into one image for a board.

    ``optimize`` is ``speed``, ``size`` or ``balanced``; ``keep_inputs`` keeps the inputs intact during a
    run; ``exact`` forces (or forbids) the exact search for the least arena; ``passes`` rewrite the network
    first, without changing what it computes.
    """
    names = [m.name for m in models]
    if len(set(names)) != len(names):
        raise UsageError(f"two models are called {max(names, key=names.count)}", hint="rename a file")
    target_board = find_board(board) if isinstance(board, str) else board
    target = Target(target_board.core, optimize)
    plans: list[Plan] = []
    hits: list[Hit] = []
    for model in models:
        say(f"planning {model.name}")
        graph, found = run_passes(model.graph, passes)
        plans.append(make_plan(graph, select(graph, target), keep_inputs=keep_inputs, exact=exact))
        hits.extend(found)
    say("generating C")
    modules = tuple(generate_c(plan, plan.graph.name) for plan in plans)
    return Compiled(target_board, tuple(models), tuple(plans), modules, tuple(hits))


def open_project(directory: str | Path) -> Extracted:
    """A project that was generated before. Raises ``UsageError`` if the directory holds none."""
    read_manifest(Path(directory))
    return Extracted(Path(directory))


@dataclass(frozen=True, slots=True)
class Verdict:
    """A case and where the device's output first differs from what is expected, if it does."""

    case: str
    difference: Difference | None


def verify(
    session: Session,
    source: Path,
    expect: Path | None = None,
    cases: int = 4,
    say: Say = _silent,
) -> tuple[Verdict, ...]:
    """Run cases on a device and compare.

    The cases come from the file ``expect``, or are ``cases`` random inputs whose outputs the numpy reference
    of the model ``source`` computes.
    """
    info = session.model()
    if expect is not None:
        chosen = read_cases(expect, info.inputs, info.outputs)
    else:
        chosen = tuple(_reference_case(load(source), info.inputs, seed) for seed in range(cases))
    largest = largest_outputs(chosen)
    verdicts = []
    for case in chosen:
        say(f"verifying {case.name}")
        outputs = session.infer(*case.inputs)
        verdicts.append(Verdict(case.name, compare(info.outputs, case.outputs, outputs, largest)))
    return tuple(verdicts)


def _reference_case(model: Model, interfaces: Sequence[Interface], seed: int) -> Case:
    inputs = random_inputs(interfaces, seed)
    values = model.graph.evaluate(dict(zip(model.graph.inputs, inputs, strict=True)))
    return Case(f"random{seed}", inputs, tuple(values[n] for n in model.graph.outputs))
