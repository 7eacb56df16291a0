"""The library face of crtgen: each product has one method that makes the next.

::

    import crtgen

    model = crtgen.load("kws.tflite")
    image = model.compile(board="mps2_an386").generate().build()
    with image.run() as session:
        y = session.infer(x)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from crtgen import build, frontends
from crtgen.boards import Board, Core, find_board
from crtgen.build import SizeReport, build_project, built_image, check_stack, measure
from crtgen.byoc import Generator, partition
from crtgen.codegen import METADATA_FILE, CModule, generate_c, llvm, metadata_files
from crtgen.errors import BuildError, UsageError
from crtgen.ir import Array, Graph, Value, shape_text
from crtgen.kernels import Target, select
from crtgen.library import (
    SUFFIXES,
    Archive,
    Library,
    Linkable,
    MlfModel,
    Module,
    Package,
    Workspace,
    export_time,
    link,
    load_package,
    module_tree,
    own_graph,
    registry_source,
    store_model,
    write_archive,
)
from crtgen.passes import DEFAULT_PASSES, Hit, Pass, run_passes
from crtgen.plan import Plan, make_plan, stream_rows
from crtgen.project import Firmware, Options, Project, generate_project, read_manifest
from crtgen.run import Site
from crtgen.session import Session
from crtgen.temporary import TemporaryFolder

__all__ = [
    "EXECUTORS",
    "TARGETS",
    "Compiled",
    "Extracted",
    "Generated",
    "Image",
    "Imported",
    "Model",
    "compile",
    "load",
    "open_project",
]

Say = Callable[[str], None]

TARGETS = ("c", "llvm")
"""What a project holds of its models: C sources, or object files that LLVM made."""


EXECUTORS = ("aot", "graph")
"""Who calls the layers: code, or tables."""


def _silent(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Model:
    """A network as its file has it."""

    graph: Graph

    def __repr__(self) -> str:
        return f"<Model {self.name}: {len(self.graph.nodes)} layers>"

    @property
    def name(self) -> str:
        return self.graph.name

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The inputs: name, shape, element type and quantisation."""
        return tuple(self.graph.values[name] for name in self.graph.inputs)

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The outputs, as the inputs."""
        return tuple(self.graph.values[name] for name in self.graph.outputs)

    def summary(self) -> str:
        """Inputs, layers with the shapes of their outputs, and outputs: a line each."""
        rows = [("input", v.name, shape_text(v.shape), v.dtype.value) for v in self.inputs]
        for node in self.graph.nodes:
            made = self.graph.values[node.outputs[0]]
            rows.append((node.op.name, node.name, shape_text(made.shape), made.dtype.value))
        rows += [("output", v.name, shape_text(v.shape), v.dtype.value) for v in self.outputs]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        return "\n".join([repr(self), *lines])

    def compile(
        self,
        board: str = "mps2_an386",
        *,
        optimize: str = "balanced",
        keep_inputs: bool = False,
        exact: bool | None = None,
        passes: Sequence[Pass] = DEFAULT_PASSES,
        generators: Sequence[Generator] = (),
        fallback: bool = False,
    ) -> "Compiled":
        """Choose kernels, plan the memory and generate C for a board; see the function ``compile``."""
        return compile(
            [self],
            board,
            optimize=optimize,
            keep_inputs=keep_inputs,
            exact=exact,
            passes=passes,
            generators=generators,
            fallback=fallback,
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Imported:
    """Models that are code already: those of an archive, or of a library that TVM exported.

    ``trust`` says that the code may be compiled and run.
    """

    package: Package
    trust: bool = False

    def __repr__(self) -> str:
        return f"<Imported {self.name} from {self.package.where}>"

    @property
    def name(self) -> str:
        return self.package.name

    def compile(
        self, board: str | Board = "mps2_an386", *, generators: Sequence[Generator] = ()
    ) -> "Compiled":
        """Make them part of an image for a board; what cannot be is refused by name.

        ``generators`` have the sources of libraries that the code calls.
        """
        return compile([self], board, generators=generators)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Compiled:
    """Models compiled for a board: a module of C for each, in ``parts``, and a plan for each ``Model``."""

    board: Board
    models: tuple[Model | Imported, ...]
    plans: tuple[Plan, ...]
    parts: tuple[Linkable, ...]
    hits: tuple[Hit, ...] = ()

    def __repr__(self) -> str:
        infos = (module.info for module in self.modules)
        models = ", ".join(f"{info.name} (arena {info.arena:,} bytes)" for info in infos)
        return f"<Compiled {models} for {self.board.name}>"

    @property
    def modules(self) -> tuple[CModule, ...]:
        return tuple(part.module for part in self.parts)

    @property
    def untrusted(self) -> str:
        """A file whose code may not be compiled or run; empty if there is none."""
        unknown = (m.package.where for m in self.models if isinstance(m, Imported) and not m.trust)
        return next(unknown, "")

    @property
    def trees(self) -> tuple[Module, ...]:
        """The module tree of each model."""
        return tuple(map(module_tree, self.parts))

    def generate(
        self,
        type: str = "server",
        options: Options | None = None,
        samples: Mapping[str, Sequence[Array]] | None = None,
        platform: str | None = None,
        target: str = "c",
        share_arena: bool | None = None,
    ) -> "Generated":
        """The firmware project, in memory. ``type`` is ``server``, ``standalone`` or ``library``.

        ``platform`` is one of the board's, ``zephyr`` for example; its first one if not given.

        ``samples`` are the built-in inputs of a standalone image by model name; a model without any
        fills its inputs with a pattern, which takes no flash.
        ``target`` is ``c``, or ``llvm`` for a project with the models as object files. With
        ``share_arena`` the models of C share their working memory; the default if there are several.
        """
        options = options or Options()
        library = self._library(target, options, share_arena, with_guard=type == "server")
        firmware = Firmware(
            modules=library.modules,
            metadata=library.files,
            board=self.board,
            type=type,
            options=options,
            samples=samples or {},
            platform=platform or "",
            objects=library.objects,
            shared_arena=library.shared_arena,
            storages=library.storages,
        )
        return Generated(generate_project(firmware), self.untrusted)

    def archive(self) -> bytes:
        """The models as an archive in Model Library Format, version 7; equal models give equal bytes.

        ``SOURCE_DATE_EPOCH`` sets the time in it.
        """
        if len(self.plans) != len(self.parts):
            raise UsageError("models that are code already cannot be archived again")
        time = export_time()
        pairs = zip(self.parts, self.plans, strict=True)
        image = (metadata_files(self.modules)[METADATA_FILE], registry_source())
        models = [
            _stored(part, plan, self.board.core, time, () if i else image)
            for i, (part, plan) in enumerate(pairs)
        ]
        return write_archive(Archive(tuple(models)))

    def _library(self, target: str, options: Options, share_arena: bool | None, with_guard: bool) -> Library:
        if target not in TARGETS:
            raise UsageError(f"unknown target {target}", hint=f"known: {', '.join(TARGETS)}")
        library = link(self.parts, self.board.core, share_arena)
        return library if target == "c" else self._by_llvm(library, options, with_guard)

    def _by_llvm(self, library: Library, options: Options, with_guard: bool) -> Library:
        """Objects for the models' C, with names of kernels, so that they are placed as those are."""
        _require_trust(self.untrusted)
        definitions = ["CRT_PROFILE"] if options.profile else []
        definitions += ["CRT_ARENA_GUARD"] if with_guard else []
        definitions += [f"CRT_SHARED_ARENA={library.shared_arena}"] if library.shared_arena else []
        modules, objects = llvm.compile_modules(
            library.modules, self.board.core, optimize=options.optimize, definitions=definitions
        )
        files = {name: text for name, text in library.files.items() if name != METADATA_FILE}
        return Library(modules, files, {**library.objects, **objects}, library.shared_arena, library.storages)


def _stored(part: Linkable, plan: Plan, core: Core, time: datetime, image: Sequence[str]) -> MlfModel:
    layers = {layer.name: layer.function for layer in part.module.info.layers}
    scratch: dict[str, int] = {}
    for step in plan.steps:
        function = layers.get(step.node.name)
        if function:
            scratch[function] = max(scratch.get(function, 0), step.kernel.scratch)
    operators = [Workspace(function, nbytes) for function, nbytes in scratch.items()]
    return store_model(part, core, time, operators, str(plan.graph), image)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Generated:
    """A firmware project in memory; ``untrusted`` names a file whose code in it may not be compiled."""

    project: Project
    untrusted: str = ""

    def __repr__(self) -> str:
        made = self.project
        return f"<Generated {made.name}, {made.type} for {made.board}: {len(made.files)} files>"

    def extract(self, directory: str | Path, *, force: bool = False) -> "Extracted":
        """Write it to ``directory``, which has to be empty or an earlier project of crtgen's.

        Files that were edited since are kept, see ``Extracted.kept``, unless with ``force``.
        """
        path = Path(directory)
        return Extracted(path, self.project.extract(path, force=force), self.untrusted)

    def build(self, *, toolchain: str | None = None, say: Say = _silent) -> "Image":
        """Build it in a temporary directory that lives as long as the image."""
        _require_trust(self.untrusted)
        temporary = TemporaryFolder()
        self.project.extract(temporary.path)
        try:
            return Extracted(temporary.path, (), "", temporary).build(toolchain=toolchain, say=say)
        except BuildError as error:
            if error.log:
                error.hint = "generate the project, then build it: that keeps the whole output"
            raise


@dataclass(frozen=True, slots=True, eq=False)
class Extracted:
    """A firmware project on disk."""

    directory: Path
    kept: tuple[str, ...] = ()
    """Files that crtgen made earlier and somebody edited: they are as they were."""
    untrusted: str = ""
    """A file whose code in it may not be compiled."""
    _temporary: TemporaryFolder | None = field(default=None, repr=False)

    def build(self, *, toolchain: str | None = None, say: Say = _silent) -> "Image":
        """Build it, or what has changed of it, and measure the image."""
        _require_trust(self.untrusted)
        built = build_project(self.directory, toolchain=toolchain, progress=say)
        size = measure(built)
        check_stack(size, built.board)
        return Image(built, size, self._temporary)

    def built(self) -> "Image | None":
        """What was built of it last, as it is; None if nothing was."""
        found = built_image(self.directory)
        return Image(found, measure(found), self._temporary) if found else None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Image:
    """A built image: an ELF with its sizes and the manifest of its project."""

    built: build.Image
    size: SizeReport
    _temporary: TemporaryFolder | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        sizes = self.size.sizes
        name = self.built.manifest.name
        return f"<Image {name} for {self.board}: flash {sizes.flash:,} bytes, RAM {sizes.ram:,} bytes>"

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
        return Session.start(self.built, counting=counting, on_log=on_log, site=site, owner=self)


def _require_trust(where: str) -> None:
    """Refuse to compile or run the code of an archive unless somebody said that it may be."""
    if where:
        raise UsageError(
            "the file holds code, which would be compiled and run",
            where=where,
            hint="if you trust whoever made it, say --trust, in Python load(..., trust=True)",
        )


def load(
    path: str | Path,
    *,
    params: str | Path | None = None,
    graph: str | Path | None = None,
    trust: bool = False,
) -> Model | Imported:
    """Read a model file, an archive of models, or an exported library.

    Reading, compiling to C and generating run nothing that is in the file. An archive and a library hold
    code: ``trust`` says that it may be compiled and run.

    ``params`` and ``graph`` are the parameters and the graph JSON of an exported library, if they are not
    beside it by name. Raises ``ModelError`` with the place of whatever is wrong with the file.
    """
    file = Path(path)
    if file.name.endswith(SUFFIXES):
        package = load_package(file, Path(params) if params else None, Path(graph) if graph else None)
        return Imported(package, trust)
    if params or graph:
        raise UsageError("parameters and a graph belong to an exported library", where=str(path))
    return Model(frontends.load(file))


def compile(
    models: Sequence[Model | Imported],
    board: str | Board = "mps2_an386",
    *,
    optimize: str = "balanced",
    keep_inputs: bool = False,
    exact: bool | None = None,
    passes: Sequence[Pass] = DEFAULT_PASSES,
    executor: str = "aot",
    generators: Sequence[Generator] = (),
    fallback: bool = False,
    say: Say = _silent,
) -> Compiled:
    """Compile one or several models into one image for a board.

    ``optimize`` is ``speed``, ``size`` or ``balanced``; ``keep_inputs`` keeps the inputs intact during a
    run; ``exact`` forces (or forbids) the exact search for the least arena; ``passes`` rewrite the network
    first, without changing what it computes. ``executor`` is ``aot`` for straight-line calls, or ``graph``
    for tables of calls of packed functions. ``generators`` are external code generators in the order of
    their claims; what none of them does is refused, or with ``fallback`` done by crtgen's own kernels. They
    also have the sources of libraries that imported code calls.
    """
    if executor not in EXECUTORS:
        raise UsageError(f"unknown executor {executor}", hint=f"known: {', '.join(EXECUTORS)}")
    target_board = find_board(board) if isinstance(board, str) else board
    target = Target(target_board.core, optimize)
    plans: list[Plan] = []
    hits: list[Hit] = []
    parts: list[Linkable] = []
    for model in models:
        if isinstance(model, Imported):
            say(f"importing {model.name}")
            parts.extend(model.package.parts(target_board.core, generators))
            continue
        say(f"planning {model.name}")
        graph, found = run_passes(model.graph, passes)
        graph, claimed = partition(graph, generators, fallback=fallback)
        plan = make_plan(graph, select(graph, target), keep_inputs=keep_inputs, exact=exact)
        plan, streamed = stream_rows(plan, target, exact=exact)
        plans.append(plan)
        module = generate_c(plan, graph.name, [part.module for part in parts])
        parts.append(own_graph(plan, module) if executor == "graph" else Linkable(module))
        hits += [*found, *claimed, *streamed]
    names = [part.module.info.name for part in parts]
    if len(set(names)) != len(names):
        raise UsageError(f"two models are called {max(names, key=names.count)}", hint="rename a file")
    files = [name for part in parts for name in part.module.files]
    if len(set(files)) != len(files):
        twice, hint = max(files, key=files.count), "give the models different names"
        raise UsageError(f"two models make a file {twice}", hint=hint)
    return Compiled(target_board, tuple(models), tuple(plans), tuple(parts), tuple(hits))


def open_project(directory: str | Path) -> Extracted:
    """A project that was generated before. Raises ``UsageError`` if the directory holds none."""
    read_manifest(Path(directory))
    return Extracted(Path(directory))
