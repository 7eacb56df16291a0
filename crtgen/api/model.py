"""Reads models, and compiles them for a board."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from crtgen.api.compiled import Compiled, part_of
from crtgen.api.image import Say, silent
from crtgen.api.source import Source
from crtgen.base import budget
from crtgen.base.errors import CrtgenError, UnsupportedError, UsageError
from crtgen.base.files import seen
from crtgen.base.temporary import TemporaryFolder
from crtgen.base.trust import is_allowed
from crtgen.boards import Board, find_board
from crtgen.compiler.byoc import partition
from crtgen.compiler.plan import Plan, check_fit, plan_model, with_waits
from crtgen.compiler.request import Request, RequestFields
from crtgen.compiler.tuned import find_tuned
from crtgen.firmware.library import (
    SUFFIXES,
    Archive,
    Linkable,
    Package,
    StoredNetwork,
    load_package,
    stored_network,
)
from crtgen.network import frontends
from crtgen.network.ir import DType, Graph, Value, shape_text
from crtgen.network.passes import Rewrite, channels_last, run_passes, slide, with_io
from crtgen.network.pipeline import PIPELINE, JoinedPipeline, join, read_description

__all__ = ["Imported", "Model", "compile", "load", "load_network"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Model:
    """A network as it is in its file. ``notes`` say how crtgen interpreted the file."""

    graph: Graph
    notes: tuple[str, ...] = ()
    source: Source | None = None
    """Its file, if the network was read from that file alone."""
    pipeline: JoinedPipeline | None = None
    """The steps before and after the network, if the file is a pipeline from samples to events."""

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
        return tuple(self.graph.values[name] for name in self.graph.outputs)

    def summary(self) -> str:
        """Describe the inputs, the layers with their output shapes, and the outputs, one per line."""
        rows = [("input", v.name, shape_text(v.shape), v.dtype.value) for v in self.inputs]
        for node in self.graph.nodes:
            made = self.graph.values[node.outputs[0]]
            rows.append((node.op.name, node.name, shape_text(made.shape), made.dtype.value))
        rows += [("output", v.name, shape_text(v.shape), v.dtype.value) for v in self.outputs]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        return "\n".join([repr(self), *lines])

    def on(self, board: Board) -> "Model":
        """Return the model for a board: the features of a pipeline use arithmetic that suits the board's
        core.
        """
        if self.pipeline is None:
            return self
        pipeline = self.pipeline.on(fpu=board.core.fpu != "none")
        return replace(self, graph=pipeline.graph, pipeline=pipeline)

    def compile(self, board: str | Board = "mps2_an386", **choices: Unpack[RequestFields]) -> Compiled:
        """Choose kernels, plan the memory and generate C for a board; see the function ``compile``."""
        return compile([self], board, **choices)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Imported:
    """Models that are already code: those of an archive, or of a library that TVM exported.

    ``trust`` says that the code may be compiled and run.
    """

    package: Package
    trust: bool = False

    def __repr__(self) -> str:
        return f"<Imported {self.name} from {self.package.where}>"

    @property
    def name(self) -> str:
        return self.package.name

    def networks(self) -> tuple[Model, ...]:
        """Return the networks that crtgen stored with an archive of its own."""
        content = self.package.content
        models = content.models if isinstance(content, Archive) else ()
        found = [stored_network(model, self.package.where) for model in models]
        with TemporaryFolder() as folder:
            try:
                return tuple(_stored(folder, *network) for network in found if network is not None)
            except CrtgenError as error:
                error.where = error.where.replace(str(folder), f"{self.package.where}: crtgen")
                raise

    def compile(self, board: str | Board = "mps2_an386", **choices: Unpack[RequestFields]) -> Compiled:
        """Add the models to an image for a board. Raises ``UnsupportedError`` naming the options that do not
        apply to code.
        """
        return compile([self], board, **choices)


def _stored(folder: Path, network: StoredNetwork, data: bytes) -> Model:
    file = folder / network.file
    file.write_bytes(data)
    loaded = load(file, shapes=network.shapes, io=network.io, channels=network.channels)
    assert isinstance(loaded, Model), "a file is stored that held a network"
    return Model(loaded.graph, loaded.notes)


def load_network(path: str | Path, model: str | None = None, **options: Any) -> Model:
    """Read the network of a model file, or a network of an archive of crtgen's: the only one, or the one of
    ``model``.

    ``options`` are those of ``load``. Raises ``UnsupportedError`` for code without its network.
    """
    loaded = load(path, **options)
    if isinstance(loaded, Model):
        return loaded
    found = [network for network in loaded.networks() if model in (None, network.name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(
            f"the archive holds {len(found)} networks, expected one",
            where=str(path),
            hint="name the file of one",
        )
    raise UnsupportedError(
        "the archive holds code without its network", where=str(path), hint="name the .tflite or .onnx file"
    )


def load(
    path: str | Path,
    *,
    params: str | Path | None = None,
    graph: str | Path | None = None,
    trust: bool | str = False,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    io: str = "",
    channels: str = "",
) -> Model | Imported:
    """Read a model file, a pipeline, an archive of models, or an exported library.

    Reading, compiling to C and generating run nothing from the file. An archive or a library holds code:
    ``trust`` says that this code may be compiled and run. ``trust="sha256:..."`` says so for the file of this
    digest only; another file is then an error. ``crtgen trust`` gives the same permission.

    ``params`` and ``graph`` are the parameters and the graph JSON of an exported library; by default they are
    looked for in files of the same name beside it. ``shapes`` sets input shapes by name, for another batch
    size or for dimensions that the file leaves open. ``io`` (``int8`` or ``uint8``) sets the type of
    quantised inputs and outputs. ``channels="last"`` makes images of an ONNX model ``[N, H, W, C]``. Raises
    ``ModelError`` with the place of an error in the file.
    """
    file = Path(path)
    if file.suffix == PIPELINE:
        if params or graph or shapes or io or channels:
            raise UsageError(
                "a pipeline file already says what its network gets",
                where=str(path),
                hint="leave --shape, --io, --channels, --params and --graph out",
            )
        return _pipeline(file)
    if file.name.endswith(SUFFIXES):
        if shapes or io or channels:
            raise UsageError(
                "the inputs and outputs of compiled code cannot be changed",
                where=str(path),
                hint="leave --shape, --io and --channels out, or name the file that it was made of",
            )
        with budget.spending(str(path)):
            package = load_package(file, Path(params) if params else None, Path(graph) if graph else None)
        if isinstance(trust, str) and trust not in ("", package.digest):
            hint = f"if you trust whoever changed it: crtgen trust {path}"
            raise UsageError(
                f"the file is not the one that was trusted: its digest is {package.digest}",
                where=str(path),
                hint=hint,
            )
        return Imported(package, bool(trust) or is_allowed(package.digest))
    if params or graph:
        raise UsageError(
            "parameters and a graph belong to an exported library",
            where=str(path),
            hint="leave --params and --graph out",
        )
    with seen() as files:
        read = frontends.load(file, shapes=shapes or {})
    made = _channels_last(read, file, channels) if channels else read
    made = with_io(made, _byte_type(io)) if io else made
    whole = file.absolute()
    alone = files.keys() == {str(whole)}
    source = Source(whole, files[str(whole)], dict(shapes or {}), io, channels) if alone else None
    return Model(made, read.notes, source)


def _channels_last(graph: Graph, file: Path, channels: str) -> Graph:
    if channels != "last":
        raise UsageError(f"unknown order of channels {channels}", hint="known: last")
    if file.suffix != ".onnx":
        raise UsageError(
            "the images of this network already have their channels last",
            where=str(file),
            hint="leave --channels out",
        )
    return channels_last(graph)


def _pipeline(file: Path) -> Model:
    with budget.spending(str(file)):
        description = read_description(file)
        network = None if description.network is None else frontends.load(description.network)
        gate = None if description.beside is None else frontends.load(description.beside.network)
        pipeline = join(description, network, gate)
    notes = () if network is None else network.notes
    return Model(pipeline.graph, notes, pipeline=pipeline)


def _byte_type(io: str) -> DType:
    if io not in ("int8", "uint8"):
        raise UsageError(f"unknown type of inputs and outputs {io}", hint="known: int8, uint8")
    return DType(io)


def compile(
    models: Sequence[Model | Imported],
    board: str | Board = "mps2_an386",
    *,
    say: Say = silent,
    **choices: Unpack[RequestFields],
) -> Compiled:
    """Compile one or several models into one image for a board.

    ``choices`` are the other fields of ``crtgen.compiler.request.Request``: ``optimize``, ``executor`` and so
    on. They apply to everything that is derived from the models later, from projects to reports.
    """
    request = Request(find_board(board) if isinstance(board, str) else board, **choices)
    graphs = [model.graph for model in models if isinstance(model, Model)]
    held = sum(v.nbytes for graph in graphs for v in graph.values.values() if v.data is not None)
    with budget.spending(", ".join(model.name for model in models), held):
        return _compiled(models, request, say)


def _compiled(models: Sequence[Model | Imported], request: Request, say: Say) -> Compiled:
    plans: list[Plan] = []
    rewrites: list[Rewrite] = []
    parts: list[Linkable] = []
    pipelines: list[JoinedPipeline | None] = []
    whole = _whole(models, request)
    if request.feed:
        _check_feed(models)
    for model in models:
        if isinstance(model, Imported):
            say(f"importing {model.name}")
            parts.extend(model.package.parts(request.board.core, request.generators))
            continue
        say(f"planning {model.name}")
        model = model.on(request.board)
        plan, found = _plan(model.graph, replace(request, sliding=None) if model.name in whole else request)
        plan = with_waits(plan, {"": request.arena_reads})
        plans.append(plan)
        rewrites += [*found, *([whole[model.name]] if model.name in whole else [])]
        pipelines.append(model.pipeline)
        if model.pipeline is not None and request.executor != "aot":
            raise UsageError(
                f"a pipeline has no {request.executor} executor", where=model.name, hint="use aot"
            )
        parts.append(part_of(plan, model.name, request, parts, model.pipeline))
    _refuse_twins(parts)
    constants = sum(param.nbytes for part in parts for param in part.module.params)
    largest = max((part.module.info.arena for part in parts), default=0)  # one arena may serve all
    check_fit(request.board, request.place, largest, constants, spreads=request.spreads)
    unknown = (m.package.where for m in models if isinstance(m, Imported) and not m.trust)
    sources = tuple(model.source for model in models if isinstance(model, Model))
    return Compiled(
        request, tuple(plans), tuple(parts), tuple(rewrites), next(unknown, ""), sources, tuple(pipelines)
    )


def _plan(graph: Graph, request: Request) -> tuple[Plan, list[Rewrite]]:
    # A model from its graph to its plan, and every rewrite on the way.
    graph, found = run_passes(graph, request.passes)
    slid: tuple[Rewrite, ...] = ()
    if request.sliding is not None:
        graph, slid = slide(graph, request.sliding, frugal=request.optimize == "size")
    tuned = find_tuned(request.tuned, graph.name, request.board.name, request.optimize)
    on_core = tuned.on_core(graph) if tuned else frozenset()
    graph, claimed = partition(graph, request.generators, fallback=request.fallback, on_core=on_core)
    plan, looped = plan_model(
        graph,
        request.target,
        keep_inputs=request.keep_inputs,
        fixed=tuned.kernels(graph, request.target, request.constants_reads) if tuned else {},
        feed=request.feed,
        in_place=request.executor == "aot",
    )
    return plan, [*found, *slid, *claimed, *looped]


def _whole(models: Sequence[Model | Imported], request: Request) -> dict[str, Rewrite]:
    # The models of several that cannot slide, with why. Raises ``UsageError`` if there is none that can.
    found: dict[str, Rewrite] = {}
    for model in models if request.sliding is not None else ():
        try:
            _check_slides(model, request, alone=len(models) == 1)
        except UsageError as error:
            if len(found) == len(models) - 1:
                raise
            found[model.name] = Rewrite("slide", model.name, f"it runs on whole windows: {error.message}")
    return found


def _check_slides(model: Model | Imported, request: Request, *, alone: bool) -> None:
    if isinstance(model, Imported):
        raise UsageError(
            "compiled code cannot slide",
            where=model.name,
            hint="slide the .tflite or .onnx that it was made of",
        )
    if model.pipeline is not None:
        hint = "leave --sliding out"
        raise UsageError("a pipeline already slides, by its own hop", where=model.name, hint=hint)
    if not alone and request.sliding is not None:
        graph, _ = run_passes(model.graph, request.passes)
        slide(graph, request.sliding, frugal=request.optimize == "size")


def _check_feed(models: Sequence[Model | Imported]) -> None:
    # Raise ``UsageError`` unless there is one model, and that is a network.
    hint = "leave --feed out"
    if len(models) != 1:
        text = "of several models none can be fed by rows: a run of another one would overwrite them"
        raise UsageError(text, where=", ".join(model.name for model in models), hint=hint)
    (model,) = models
    if isinstance(model, Imported):
        raise UsageError("compiled code cannot be fed by rows", where=model.name, hint=hint)
    if model.pipeline is not None:
        raise UsageError("a pipeline gets samples, not rows of an image", where=model.name, hint=hint)


def _refuse_twins(parts: Sequence[Linkable]) -> None:
    # Raise ``UsageError`` if two models have one name, or files of one name.
    names = [part.module.info.name for part in parts]
    if len(set(names)) != len(names):
        raise UsageError(f"two models are called {max(names, key=names.count)}", hint="rename a file")
    files = [name for part in parts for name in part.module.files]
    if len(set(files)) != len(files):
        twice, hint = max(files, key=files.count), "give the models different names"
        raise UsageError(f"two models make a file {twice}", hint=hint)
