"""Models compiled for a board, and what they are turned into: firmware projects and archives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Unpack

from crtgen.api import report
from crtgen.api.image import GeneratedProject, require_trust
from crtgen.api.source import Source
from crtgen.base.errors import UnsupportedError, UsageError
from crtgen.boards import Board, Core, stand_in
from crtgen.compiler.codegen import METADATA_FILE, CModule, generate_c, llvm, metadata_files
from crtgen.compiler.codegen.drift import DriftReference
from crtgen.compiler.plan import (
    FreeMemory,
    Plan,
    check_fit,
    faster_memory,
    place_constants,
    spread_arena,
    with_waits,
)
from crtgen.compiler.request import Request
from crtgen.compiler.tuned import find_tuned
from crtgen.firmware.library import (
    Archive,
    FunctionScratch,
    Library,
    Linkable,
    MlfModel,
    Module,
    export_time,
    link,
    module_tree,
    registry_source,
    store_model,
    with_graph_executor,
    write_archive,
)
from crtgen.firmware.project import (
    FirmwareRequest,
    Footprint,
    OptionFields,
    ProjectOptions,
    check_footprint,
    generate_project,
)
from crtgen.firmware.project.footprint import footprint
from crtgen.firmware.project.options import TARGETS
from crtgen.firmware.project.pattern import pattern
from crtgen.network.ir import Array
from crtgen.network.passes import Rewrite
from crtgen.network.pipeline import JoinedPipeline

if TYPE_CHECKING:
    from crtgen.api.report import Report

__all__ = ["Compiled", "part_of"]

_SPARE = 1024  # bytes of each memory that constants and parts of the arena leave free
_ALIGN = 16  # the greatest alignment of a part


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Compiled:
    """Models compiled with the options of ``request``: ``parts`` has a C module for each ``Model``, and a
    memory plan.

    ``untrusted`` is a file whose code may not be compiled or run; it is empty if there is none. ``pipelines``
    are the processing steps around the networks, by plan. ``resident`` maps a plan to the layers whose
    constants an image copies to RAM, and to the memory of each; it is empty before ``placed``.
    """

    request: Request
    plans: tuple[Plan, ...]
    parts: tuple[Linkable, ...]
    rewrites: tuple[Rewrite, ...] = ()
    untrusted: str = ""
    sources: tuple[Source | None, ...] = ()
    pipelines: tuple[JoinedPipeline | None, ...] = ()
    resident: tuple[Mapping[str, str], ...] = ()

    def __repr__(self) -> str:
        infos = (module.info for module in self.modules)
        models = ", ".join(f"{info.name} (arena {info.arena:,} bytes)" for info in infos)
        return f"<Compiled {models} for {self.board.name}>"

    @property
    def board(self) -> Board:
        return self.request.board

    @property
    def stand_in(self) -> "Compiled | None":
        """Compile the same kernels and plan for an emulator with the board's core, or return None if no
        emulator has it.
        """
        board, placed = stand_in(self.board), self.placed()
        if board is None:
            return None
        return replace(placed, request=replace(self.request, board=board, place={})).as_it_is

    @property
    def as_it_is(self) -> "Compiled":
        """Return a copy whose constants stay in flash: ``placed`` will move none of them to RAM."""
        return replace(self, resident=tuple({} for _ in self.plans))

    @property
    def resident_bytes(self) -> dict[str, int]:
        """Bytes of constants that an image copies to RAM, by memory."""
        found: dict[str, int] = {}
        for plan, memories in zip(self.plans, self.resident, strict=False):
            for step in plan.steps:
                if (memory := memories.get(step.name)) is not None:
                    found[memory] = found.get(memory, 0) + step.kernel.cost.constants
        return found

    @property
    def modules(self) -> tuple[CModule, ...]:
        return tuple(part.module for part in self.parts)

    @property
    def reports(self) -> tuple["Report", ...]:
        infos = [module.info for module in self.modules]
        return report.reports_of(infos, self.board, self.request.optimize, self.plans)

    @property
    def trees(self) -> tuple[Module, ...]:
        return tuple(map(module_tree, self.parts))

    def generate(
        self,
        type: str = "server",
        *,
        samples: Mapping[str, Sequence[Array]] | None = None,
        watched: Mapping[str, DriftReference] | None = None,
        **options: Unpack[OptionFields],
    ) -> GeneratedProject:
        """Generate the firmware project, in memory. ``type`` is one of
        ``crtgen.firmware.project.options.TYPES``.

        ``options`` are the other fields of ``crtgen.firmware.project.Options``: ``platform``, ``target`` and
        so on. ``samples`` are the built-in inputs of a standalone image by model name; a model without
        samples fills its inputs with a pattern, which takes no flash. ``watched`` maps a model's name to its
        usual inputs, measured by ``crtgen.lab.measure.drift.make_reference``; a server then counts how its
        inputs differ.
        """
        placed = self.placed(type, **options)
        firmware = placed._firmware(ProjectOptions(type, **options), samples or {}, watched or {})
        if not firmware.is_laid_out:
            arena = max((info.arena for info in firmware.models), default=0)
            check_fit(self.board, self.request.place, arena, 0)
        if placed._is_estimated(firmware):
            check_footprint(firmware, placed.plans)
        return GeneratedProject(generate_project(firmware), self.untrusted, placed.plans)

    def placed(self, type: str = "server", **options: Unpack[OptionFields]) -> "Compiled":
        """Return the models with arenas and constants in the memories that an image of this type uses for
        them.

        On a board with several RAMs, each value goes to the memory in which the core waits least and that has
        room: see ``crtgen.compiler.plan.spread``. Constants for which layers would wait in flash are copied
        to RAM that the image leaves free: see ``crtgen.compiler.plan.resident``. The option ``place``
        overrides both. Libraries and images for slots or Zephyr are returned unchanged, because others lay
        out their memory; the arena of a library is still spread over several RAMs if the request says so.
        """
        if self.resident:
            return self
        open_options: OptionFields = {**options, "target": "c"}  # sizes of C are estimated
        spread = self.spread(type, **options)
        firmware = spread._firmware(ProjectOptions(type, **open_options), {})
        if not firmware.is_laid_out or not spread._is_estimated(firmware):
            return spread
        return spread._with_constants(firmware)

    def spread(self, type: str = "server", **options: Unpack[OptionFields]) -> "Compiled":
        """Return the models with their arenas in the memories that an image of this type uses for them.

        Constants are not moved: ``placed`` does that, too.
        """
        open_options: OptionFields = {**options, "target": "c"}
        firmware = self._firmware(ProjectOptions(type, **open_options), {})
        rams = [memory for memory in self.board.memories if memory.kind == "ram"]
        can = firmware.is_spread and len(rams) > 1 and not any(plan.parts for plan in self.plans)
        if not can or not self._is_estimated(firmware):
            return self
        free = self._free(firmware)
        arenas = _arenas(firmware)
        main = replace(free[self.board.data], nbytes=free[self.board.data].nbytes + arenas)
        others = [memory for name, memory in free.items() if name != self.board.data and memory.nbytes > 0]
        if name := faster_memory(self.plans, arenas, main, others):
            return self._in_memory(name, main, arenas) if firmware.is_laid_out else self
        return self if firmware.shared_arena else self._in_several(main, others, arenas)

    def _in_memory(self, name: str, main: FreeMemory, arenas: int) -> "Compiled":
        request = replace(self.request, place={**self.request.place, "arena": name})
        plans = [with_waits(plan, {"": request.arena_reads}) for plan in self.plans]
        waits = [sum(step.waits for plan in each for step in plan.steps) for each in (self.plans, plans)]
        saved = f"a run takes {waits[0] - waits[1]:,.0f} cycles less by estimate"
        reach = self.board.memory(name).reach
        note = Rewrite(
            "place the arena", name, f"{arenas:,} bytes are there{reach}, not in {main.name}; {saved}"
        )
        return replace(self._with_plans(plans), request=request, rewrites=(*self.rewrites, note))

    def _in_several(self, main: FreeMemory, others: Sequence[FreeMemory], arenas: int) -> "Compiled":
        plans, rewrites, left = list[Plan](), list[Rewrite](), list(others)
        for plan in self.plans:
            own = replace(main, nbytes=main.nbytes - (arenas - plan.arena))
            made, notes = spread_arena(plan, own, left)
            arenas -= plan.arena - made.arena
            left = [
                replace(m, nbytes=m.nbytes - made.parts[m.name].size - _ALIGN) if m.name in made.parts else m
                for m in left
            ]
            plans.append(made)
            rewrites += notes
        if not rewrites:
            return self
        return replace(self._with_plans(plans), rewrites=(*self.rewrites, *rewrites))

    def _with_plans(self, plans: Sequence[Plan]) -> "Compiled":
        parts: list[Linkable] = []
        for plan, part, pipeline in zip(plans, self.parts, self.pipelines, strict=True):
            parts.append(part_of(plan, part.module.info.name, self.request, parts, pipeline))
        return replace(self, plans=tuple(plans), parts=tuple(parts))

    def _free(self, firmware: FirmwareRequest) -> dict[str, FreeMemory]:
        # The RAMs of the board with the bytes that the image leaves free.
        # A library may take all but its arenas, which are counted as an image's.
        needs = footprint(firmware, self.plans).memories or {self.board.data: _arenas(firmware)}
        return {
            m.name: FreeMemory(
                m.name, firmware.usable(m) - needs.get(m.name, 0) - _SPARE, self.board.reads(m.name)
            )
            for m in self.board.memories
            if m.kind == "ram"
        }

    def _with_constants(self, firmware: FirmwareRequest) -> "Compiled":
        request = self.request
        if "weights" in request.place or request.target.constants is None:
            return self
        free = [memory for memory in self._free(firmware).values() if memory.nbytes > 0]
        entries = [
            find_tuned(request.tuned, plan.graph.name, self.board.name, request.optimize)
            for plan in self.plans
        ]
        tuned = [entry.memories if entry is not None else {} for entry in entries]
        found = place_constants(self.plans, request.target, free, tuned)
        if not any(each.memories for each in found):
            return self.as_it_is  # nobody has to look again
        return replace(
            self._with_plans([each.plan for each in found]),
            rewrites=(*self.rewrites, *(note for each in found for note in each.rewrites)),
            resident=tuple(each.memories for each in found),
        )

    def footprint(self, type: str = "server", **options: Unpack[OptionFields]) -> Footprint:
        """Estimate the size of an image of this project type before any compiler runs.

        Raises ``UnsupportedError`` for this computer, and for code that crtgen did not generate.
        """
        placed = self.placed(type, **options)
        firmware = placed._firmware(ProjectOptions(type, **options), {})
        if not placed._is_estimated(firmware):
            what = "this computer" if self.board.is_host else "code that crtgen did not make"
            raise UnsupportedError(f"sizes are not known before a build for {what}", where=firmware.name)
        return footprint(firmware, placed.plans)

    def _is_estimated(self, firmware: FirmwareRequest) -> bool:
        sized = all(generator.sized for generator in self.request.generators)
        own = len(self.plans) == len(self.parts) and sized
        return own and not firmware.board.is_host and firmware.type != "slot"

    def _firmware(
        self,
        options: ProjectOptions,
        samples: Mapping[str, Sequence[Array]],
        watched: Mapping[str, DriftReference] = MappingProxyType({}),
    ) -> FirmwareRequest:
        library = self._library(options)
        return FirmwareRequest(
            modules=library.modules,
            metadata=library.files,
            request=self.request,
            options=options,
            samples=samples,
            watched=watched,
            expected=self._on_pattern() if options.framework else {},
            objects=library.objects,
            shared_arena=library.shared_arena,
            storages=library.storages,
            resident=self._resident(library.modules),
        )

    def _resident(self, modules: Sequence[CModule]) -> dict[str, tuple[str, ...]]:
        # The symbols of constants by the memory that they are copied to.
        where: dict[str, str] = {}
        for module, memories in zip(modules, self.resident, strict=False):
            for layer in module.info.layers:
                if (memory := memories.get(layer.name)) is not None:
                    where |= {symbol: memory for symbol in layer.consts if symbol not in where}
        return {
            memory: tuple(symbol for symbol, there in where.items() if there == memory)
            for memory in dict.fromkeys(where.values())
        }

    def _on_pattern(self) -> dict[str, Sequence[Array]]:
        # Reference outputs of each model for the built-in pattern.
        pairs = zip(self.parts, self.plans, strict=False)
        infos = [(part.module.info, plan.graph) for part, plan in pairs]
        return {info.name: next(iter(graph.run([pattern(info)]))) for info, graph in infos}

    def archive(self) -> bytes:
        """Return an archive of the models in Model Library Format, version 7. Equal models give equal bytes.

        A network that was read from one file is stored with the archive; ``Imported.networks`` reads it
        again. ``SOURCE_DATE_EPOCH`` sets the archive's time.
        """
        if len(self.plans) != len(self.parts):
            raise UsageError(
                "models that are already compiled cannot be archived again",
                hint="keep the archive that they came from",
            )
        time = export_time()
        rows = zip(self.parts, self.plans, self.sources, strict=True)
        image = (metadata_files(self.modules)[METADATA_FILE], registry_source())
        models = [
            _stored(part, plan, source, self.board.core, time, () if i else image)
            for i, (part, plan, source) in enumerate(rows)
        ]
        return write_archive(Archive(tuple(models)))

    def _library(self, options: ProjectOptions) -> Library:
        if options.target not in TARGETS:
            raise UsageError(f"unknown target {options.target}", hint=f"known: {', '.join(TARGETS)}")
        registry = options.registry or options.type != "library"
        library = link(self.parts, self.board.core, options.share_arena, registry)
        return library if options.target == "c" else self._by_llvm(library, options)

    def _by_llvm(self, library: Library, options: ProjectOptions) -> Library:
        # Objects for the models' C, with names of kernels, so that they are placed as those are.
        require_trust(self.untrusted)
        definitions = ["CRT_PROFILE"] if options.profile else []
        definitions += ["CRT_ARENA_GUARD"] if options.type == "server" else []
        definitions += [f"CRT_SHARED_ARENA={library.shared_arena}"] if library.shared_arena else []
        modules, objects = llvm.compile_modules(library.modules, self.request.target, definitions=definitions)
        files = {name: text for name, text in library.files.items() if name != METADATA_FILE}
        return Library(modules, files, {**library.objects, **objects}, library.shared_arena, library.storages)


def _arenas(firmware: FirmwareRequest) -> int:
    return firmware.shared_arena or sum(info.arena for info in firmware.models)


def part_of(
    plan: Plan, name: str, request: Request, beside: Sequence[Linkable], pipeline: JoinedPipeline | None
) -> Linkable:
    """Return the code of a model that has a plan, for the executor that the request names.

    ``beside`` are the models before this one in the image; it may call their functions.
    """
    module = generate_c(plan, name, [part.module for part in beside], request.board.core, pipeline)
    return with_graph_executor(plan, module) if request.executor == "graph" else Linkable(module)


def _stored(
    part: Linkable, plan: Plan, source: Source | None, core: Core, time: datetime, image: Sequence[str]
) -> MlfModel:
    layers = {layer.name: layer.function for layer in part.module.info.layers}
    scratch: dict[str, int] = {}
    for step in plan.steps:
        function = layers.get(step.name)
        if function:
            scratch[function] = max(scratch.get(function, 0), step.kernel.scratch)
    operators = [FunctionScratch(function, nbytes) for function, nbytes in scratch.items()]
    network = source.stored(part.module.info.name) if source is not None else None
    return store_model(part, core, time, operators, str(plan.graph), image, network)
