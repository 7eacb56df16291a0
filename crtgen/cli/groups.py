"""Option groups: a command's parameter that is a dataclass expands to its fields."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from crtgen import api
from crtgen.base.errors import UsageError
from crtgen.base.files import seen
from crtgen.boards import CR2032, Board, Duty, Energy, find_board
from crtgen.cli import choices, kept, options
from crtgen.cli.output import note
from crtgen.compiler.codegen.drift import DriftReference
from crtgen.compiler.codegen.module import ModelInfo
from crtgen.firmware.project import read_manifest
from crtgen.lab.settings import trust_of
from crtgen.network.ir import Array

if TYPE_CHECKING:
    from crtgen.api.report import Report
    from crtgen.compiler.request import RequestFields
    from crtgen.device.run import Site
    from crtgen.firmware.project import OptionFields

__all__ = [
    "Battery",
    "Building",
    "Coding",
    "Compiling",
    "Connecting",
    "Files",
    "Generating",
    "Loaded",
    "flattened",
]


@dataclass(frozen=True, slots=True)
class Coding:
    """Options that decide a model's code, whatever the board.

    Every command that compiles takes all of them, so that the settings in ``crtgen.toml`` hold for each: the
    code that is verified is the code that is shipped.
    """

    # written by tools/options.py
    optimize: options.Optimize = "balanced"
    executor: options.Executor = "aot"
    keep_inputs: options.KeepInputs = False
    fallback: options.Fallback = False
    cores: options.Cores = 1
    feed: options.Feed = ""
    # end
    codegen: options.Codegen = None
    cmsis_nn: options.CmsisNn = None
    npu: options.Npu = ""
    npu_driver: options.NpuDriver = ""
    fold: options.Fold = True
    sliding: options.Slides = None
    tune: options.Tune = None

    def request(self, place: Sequence[str] = ()) -> "RequestFields":
        found: RequestFields = {
            # written by tools/options.py
            "optimize": self.optimize,
            "executor": self.executor,
            "keep_inputs": self.keep_inputs,
            "fallback": self.fallback,
            "cores": self.cores,
            "feed": self.feed,
            # end
            "passes": choices.passes(self.fold),
            "generators": choices.generators(self.codegen, self.cmsis_nn, self.npu, self.npu_driver),
            "place": choices.places(place),
            "sliding": choices.sliding(self.sliding),
            "tuned": choices.tuned(self.tune),
        }
        if self.npu:
            found["fallback"] = True
        return found

    def compile_for(
        self,
        models: "Sequence[api.Model | api.Imported]",
        board: Board | str,
        say: api.Say,
        place: Sequence[str] = (),
    ) -> "api.Compiled":
        # Importing the compiler takes most of a second, which a model that was kept does not need.
        from crtgen.compiler.byoc import THE_BOARDS

        for line in self.notes(models):
            note(line)
        compiled = api.compile(models, board, say=say, **self.request(place))
        npu = compiled.board.npu
        if self.npu not in ("", THE_BOARDS) and npu is not None and npu.config != self.npu:
            name = compiled.board.name
            note(f"the NPU of {name} is an {npu.config}: only simulators run what is for {self.npu}")
        for plan in compiled.plans if self.npu else ():
            if all(step.kernel.estimate is None for step in plan.all_steps()):
                note(f"{plan.graph.name}: the NPU takes none of its layers; generate --explain says why")
        return compiled

    def notes(self, models: "Sequence[api.Model | api.Imported]") -> tuple[str, ...]:
        known = (model for model in models if isinstance(model, api.Model))
        return tuple(f"{model.name}: {line}" for model in known for line in model.notes)


@dataclass(frozen=True, slots=True)
class Compiling(Coding):
    board: options.Board = "mps2_an386"

    def compile(
        self,
        models: "Sequence[api.Model | api.Imported]",
        say: api.Say,
        board: Board | None = None,
        place: Sequence[str] = (),
    ) -> "api.Compiled":
        """Compile for ``board``, or for the board that the options name."""
        return self.compile_for(models, board or self.board, say, place)


@dataclass(frozen=True, slots=True)
class Battery:
    every: options.Every = None
    cell: options.Cell = CR2032
    power: options.Power = None
    volts: options.Volts = None

    def days(self, board: Board, report: "Report") -> float | None:
        """Return the battery life in days; None if the period or the energy of a run is unknown."""
        if self.every is None or board.energy is None or report.energy_uj is None:
            return None
        return Duty(self.every, self.cell).days(board.energy, report.energy_uj, board.clock)

    def to_dict(self, board: Board, report: "Report") -> dict[str, float | bool | None]:
        """Return the days for JSON, with the power that the chip is assumed to take asleep."""
        energy = board.energy
        return {
            "days": self.days(board, report),
            "sleep_uw": energy.asleep_uw if energy else None,
            "sleep_is_assumed": energy is not None and energy.sleep_uw is None,
        }

    def asleep(self, boards: Sequence[Board]) -> Iterator[str]:
        """Return a line for each board with its sleep power, if battery life was asked for."""
        for board in boards if self.every is not None else ():
            if board.energy is not None:
                yield f"days on {board.name}: {board.energy.asleep}"

    def boards(self, boards: Sequence[Board]) -> list[Board]:
        """Return the boards; recorded power applies if there is only one. Raises ``UsageError`` for
        contradictory options.
        """
        for name, value in (("--every", self.every), ("--cell", self.cell), ("--volts", self.volts)):
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"{name} {value:g} is not above 0", hint=f"give {name} a positive number")
        if self.power is None:
            return list(boards)
        from crtgen.lab.measure.power import mean_power

        if len(boards) != 1 or not boards[0].clock:
            raise UsageError("--power needs one board with a known clock", hint="name it by --board")
        (board,) = boards
        measured = Energy.of_power(mean_power(self.power, self.volts), board.clock, self.power.name)
        sleeps = board.energy.sleep_uw if board.energy else None
        return [replace(board, energy=replace(measured, sleep_uw=sleeps))]


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A network, and the files that were read, with their SHA-256."""

    model: "api.Model"
    read: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Files:
    shape: options.Shape = None
    params: options.ParamsFile = None
    graph_json: options.GraphFile = None
    io: options.Io = ""
    channels: options.Channels = ""

    def load(self, path: Path, trust: bool = False) -> "api.Model | api.Imported":
        return api.load(path, trust=trust or trust_of(path), **self._options())

    def load_network(self, path: Path) -> "api.Model":
        return api.load_network(path, **self._options())

    def loaded(self, path: Path) -> Loaded:
        with seen() as read:
            model = self.load_network(path)
        return Loaded(model, read)

    def _options(self) -> dict[str, Any]:
        return {
            "params": self.params,
            "graph": self.graph_json,
            "shapes": choices.shapes(self.shape),
            "io": self.io,
            "channels": self.channels,
        }


@dataclass(frozen=True, slots=True)
class Generating:
    platform: options.Platform = None
    target: options.Target = "c"
    place: options.Place = None
    profile: options.Profile = False
    rtt: options.Rtt = False
    slots: options.Slots = False
    record: options.Record = 0
    stack: options.Stack = None
    pool: options.Pool = None
    receive: options.Receive = None

    def generate(
        self,
        compiled: "api.Compiled",
        type: str = "server",
        samples: Mapping[str, Sequence[Array]] | None = None,
        share_arena: bool | None = None,
        registry: bool = False,
        framework: str = "",
        watched: Mapping[str, DriftReference] = MappingProxyType({}),
        slot: str = "",
    ) -> api.GeneratedProject:
        options = self.options(share_arena, registry, framework, slot)
        return compiled.generate(type, samples=samples, watched=watched, **options)

    def options(
        self, share_arena: bool | None = None, registry: bool = False, framework: str = "", slot: str = ""
    ) -> "OptionFields":
        pool, blocks = choices.pool_size(self.pool)
        return {
            "platform": self.platform or "",
            "target": self.target,
            "share_arena": share_arena,
            "registry": registry,
            "framework": framework,
            "stack": self.stack,
            "pool": pool,
            "blocks": blocks,
            "receive_buffer": self.receive,
            "profile": self.profile,
            "rtt": self.rtt,
            "slots": self.slots,
            "slot": slot,
            "record": self.record,
        }


@dataclass(frozen=True, slots=True)
class Building:
    toolchain: options.Toolchain = None
    directory: options.Directory = None
    trust: options.Trust = False

    def image(
        self,
        source: Path,
        files: Files,
        compiling: Compiling,
        generating: Generating,
        say: api.Say,
        check: Callable[[Sequence[ModelInfo]], object] = lambda models: None,
        site: "Site | None" = None,
        with_plans: bool = False,
        loaded: "Loaded | None" = None,
    ) -> api.Image:
        """Return the server image of a file with models, or of a generated project.

        ``check`` may refuse the models before anything is built; a missing board of ``site`` is reported even
        earlier. A project's running image is used as it was built. An image that was kept for the same file
        and options is used, too, unless its plans are needed. A model that is already ``loaded`` is not read
        again. If the site has a slot, the image is for that slot.
        """
        runs, slot = site is not None and site.port is not None, site.slot if site is not None else ""
        if source.is_dir():
            if slot:
                raise UsageError("a project already has its firmware", where=str(source), hint="push a model")
            manifest = read_manifest(source)
            if site is not None:
                replace(site, rtt=manifest.options.rtt).check(find_board(manifest.board))
            check(manifest.models)
            project = api.open_project(source)
            if runs and (built := project.built()):
                return built
            say("building")
            return project.build(toolchain=self.toolchain, say=say)
        if site is not None:
            replace(site, rtt=generating.rtt).check(find_board(compiling.board))
        say(f"reading {source.name}")
        entry = None if slot else self._entry(source, files, compiling, generating)
        if entry is not None and not with_plans and (found := entry.find()):
            check(found.built.manifest.models)
            return found
        with seen() as read:
            model = files.load(source, self.trust) if loaded is None else loaded.model
            compiled = compiling.compile([model], say, place=generating.place or ())
        api.require_trust(compiled.untrusted)
        check([module.info for module in compiled.modules])
        generated = generating.generate(compiled, "slot" if slot else "server", slot=slot)
        say("building")
        if self.directory is None:
            image = generated.build(toolchain=self.toolchain, say=say)
            if entry is not None and image.plans:
                read |= loaded.read if loaded is not None else {}
                entry.keep(image, read, compiling.notes([model]), self.toolchain)
            return image
        project = generated.extract(self.directory)
        for path in project.kept:
            note(f"kept: {path}, which was edited; crtgen generate --force overwrites it")
        return project.build(toolchain=self.toolchain, say=say)

    def _entry(
        self, source: Path, files: Files, compiling: Compiling, generating: Generating
    ) -> kept.KeptImage | None:
        # None if the image depends on more than options and files that are read.
        board = find_board(compiling.board)
        elsewhere = (
            compiling.codegen
            or compiling.cmsis_nn
            or compiling.npu
            or self.directory
            or generating.target != "c"
        )
        if elsewhere or board.platform(generating.platform) == "zephyr":
            return None
        return kept.entry(board, self.toolchain, source.absolute(), files, compiling, generating)


@dataclass(frozen=True, slots=True)
class Connecting:
    fvp_path: options.FvpPath = None
    port: options.Port = None
    baud: options.Baud = None
    serial: options.Serial = None
    runner: options.Runner = None
    hardware_map: options.HardwareMap = None
    simulate: options.Simulate = False
    push: options.Push = None

    def site(self) -> "Site":
        from crtgen.device.run import Site

        return Site(
            self.fvp_path,
            self.port,
            self.baud,
            self.serial,
            self.runner,
            self.hardware_map,
            simulate=self.simulate,
            slot=self.push or "",
        )


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(command)
    annotations = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    groups = {name: a for name, a in annotations.items() if isinstance(a, type) and is_dataclass(a)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name in groups:
            members = fields(groups[name])
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters += [
                inspect.Parameter(f.name, kind, default=f.default, annotation=f.type) for f in members
            ]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def flat(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{f.name: values.pop(f.name) for f in fields(group)})
        command(**values)

    flat.__dict__["__signature__"] = signature.replace(parameters=parameters)
    flat.__annotations__ = {p.name: p.annotation for p in parameters}
    return flat
