"""A request for firmware: models, their compilation, and the program around them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from crtgen.base.errors import UsageError
from crtgen.boards import Board, Memory
from crtgen.compiler.byoc import ARM_DRIVER, DRIVERS, ETHOS_U
from crtgen.compiler.codegen.drift import DriftReference
from crtgen.compiler.codegen.module import CModule, ModelInfo
from crtgen.compiler.plan import NPU_PART
from crtgen.compiler.request import Request
from crtgen.firmware.library import BACKEND_FILE
from crtgen.firmware.project.mlperftiny import BenchmarkView, benchmark
from crtgen.firmware.project.options import RECEIVE_LEAST, TYPES, ProjectOptions, receive_buffer_of, stack_of
from crtgen.network.ir import Array

__all__ = ["FirmwareRequest"]

_SERVER_MODELS = 8  # CRT_SERVER_MODELS of crt/server.h
_SERVER_INPUTS = 32  # the bits of inputs_set in crt/server.h
_BLOCKS = 32  # CRT_POOL_BLOCKS of crt/pool.h
_ALIGN = 16  # CRT_POOL_ALIGN of crt/pool.h

# Bytes of the pool for what a host allocates beside tensors of the models.
_SLACK = 1024

# Bytes of the largest pool that nobody asked for.
_LARGEST = 64 * 1024

# Bytes of RAM that are left to the server, and to Zephyr, before there is a second set of tensors.
_BESIDE = 16 * 1024


def _most(needs: Sequence[Sequence[int]]) -> int:
    # Bytes of the pool for the largest of some sets of blocks.
    return max((sum(-(-size // _ALIGN) * _ALIGN for size in need) for need in needs), default=0)


# Letters, of which names of files are made that every system takes.
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True, eq=False)
class FirmwareRequest:
    """Models compiled with the options of ``request``, and the kind of program around them.

    ``metadata`` are the files of the metadata module (name to text), which lists ``modules`` in order.
    ``options`` that are None are decided here. ``samples`` maps a model's name to one array per input, for a
    standalone program; a model without samples runs on a pattern. ``expected`` has each model's outputs on
    ``pattern``, for a library with a framework. ``watched`` maps a model's name to its usual inputs, for all
    models or for none. ``objects`` are compiled code of the models, by file name. ``shared_arena`` is the
    size of the arena that all models share; 0 if each has its own. ``storages`` are the sizes of the blocks
    that a host allocates if it runs the graph itself, by model. ``resident`` are the symbols of constants
    that start-up copies to RAM, by memory.
    """

    modules: Sequence[CModule]
    metadata: Mapping[str, str]
    request: Request
    options: ProjectOptions = field(default_factory=ProjectOptions)
    samples: Mapping[str, Sequence[Array]] = field(default_factory=dict)
    expected: Mapping[str, Sequence[Array]] = field(default_factory=dict)
    watched: Mapping[str, DriftReference] = field(default_factory=dict)
    objects: Mapping[str, bytes] = field(default_factory=dict)
    shared_arena: int = 0
    storages: Sequence[Sequence[int]] = ()
    resident: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        is_library = self.options.type == "library"
        platform = self.board.platform(self.options.platform or None, library=is_library)
        object.__setattr__(self, "options", replace(self._sized(self.options), platform=platform))
        if self.type not in TYPES:
            raise UsageError(f"unknown project type {self.type}", hint=f"known: {', '.join(TYPES)}")
        if not self.modules:
            raise UsageError("a project needs a model", where=self.board.name, hint="name a model")
        if self.receive_buffer < RECEIVE_LEAST:
            raise UsageError(
                f"a receive buffer of {self.receive_buffer} B is too small",
                hint=f"it needs at least {RECEIVE_LEAST} B",
            )
        if self.request.place or self.request.spreads_library:
            self._check_place()
        self._check_extras()
        if self.type == "server":
            self._check_server()
        if self.type == "mlperftiny":
            self._check_benchmark()
        if self.stack % 8 or self.pool % _ALIGN or not self.pool or not self.blocks:
            raise UsageError(
                "the stack must be a multiple of 8 B, the pool one of 16 B, with a block or more",
                hint="for example --stack 2048 --pool 4096",
            )

    @property
    def board(self) -> Board:
        return self.request.board

    @property
    def type(self) -> str:
        return self.options.type

    @property
    def platform(self) -> str:
        return self.options.platform

    @property
    def is_laid_out(self) -> bool:
        """True if the project has its own linker script, which decides the address of each part."""
        return self.platform == "baremetal" and self.type not in ("library", "slot")

    def usable(self, memory: Memory) -> int:
        """Return the bytes of a memory that the image may use: those before its slots, if it has any."""
        return self.board.free(memory) if self.options.slots else memory.size

    @property
    def listens(self) -> bool:
        return self.type in ("server", "mlperftiny")

    @property
    def has_npu(self) -> bool:
        libraries = (library.name for module in self.modules for library in module.libraries)
        return ETHOS_U in libraries

    @property
    def uses_arms_driver(self) -> bool:
        """True if the NPU is used through ethos-u-core-driver."""
        files = (file for module in self.modules for library in module.libraries for file, _ in library.files)
        return any(file.endswith(DRIVERS[ARM_DRIVER].source) for file in files)

    @property
    def benchmark(self) -> BenchmarkView | None:
        return benchmark(self.models, self.board.name) if self.type == "mlperftiny" else None

    @property
    def stack(self) -> int:
        return self.options.stack or 0

    @property
    def receive_buffer(self) -> int:
        return self.options.receive_buffer or 0

    @property
    def pool(self) -> int:
        return self.options.pool or 0

    @property
    def blocks(self) -> int:
        return self.options.blocks or 0

    def _sized(self, options: ProjectOptions) -> ProjectOptions:
        # With a pool that holds all inputs and outputs of any model, or all storages of any graph. Where RAM
        # allows it holds the inputs and outputs twice: a loop of a host makes new tensors before it frees
        # those of the last turn. Stack and receive buffer are a share of a small RAM.
        ram, receive = self.board.ram, options.receive_buffer
        blocks = _BLOCKS + max(map(len, self.storages), default=0)
        sized = replace(
            options,
            stack=stack_of(ram) if options.stack is None else options.stack,
            receive_buffer=receive_buffer_of(ram) if receive is None else receive,
            blocks=blocks if options.blocks is None else options.blocks,
        )
        return sized if options.pool is not None else replace(sized, pool=self._pool_of(sized))

    def _pool_of(self, options: ProjectOptions) -> int:
        # Bytes of the pool where nobody says otherwise.
        tensors = [[i.nbytes for i in (*info.inputs, *info.outputs)] for info in self.models]
        one = _most(tensors)
        needed = min(max(one, _most(self.storages)) + _SLACK, _LARGEST)
        arenas = self.shared_arena or sum(info.arena for info in self.models)
        beside = arenas * ("arena" not in self.request.place) + sum(info.state for info in self.models)
        beside += sum(
            size for part, size in self.parts.items() if self.memory_of_part(part) == self.board.data
        )
        buffers = (options.stack or 0) + (options.receive_buffer or 0)
        left = self.board.ram - beside - buffers - _BESIDE
        twice = min(2 * one + _SLACK, _LARGEST)
        return max(needed, twice) if not self.board.ram or twice <= left else needed

    @property
    def is_spread(self) -> bool:
        """True if arenas are placed in whichever RAMs have room: always for images, on request for
        libraries.
        """
        in_library = self.type == "library" and self.platform == "baremetal" and self.request.spreads_library
        return self.request.spreads and (self.is_laid_out or in_library)

    def memory_of_part(self, part: str) -> str:
        if part == NPU_PART:
            return self.request.place.get("npu", self.board.data)
        return part if any(memory.name == part for memory in self.board.memories) else self.board.data

    @property
    def parts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for info in self.models:
            for part, size in info.parts.items():
                found[part] = found.get(part, 0) + size
        return found

    def _check_place(self) -> None:
        where, hint = self.board.name, "leave it out, or generate a program for bare metal"
        if self.platform != "baremetal":
            raise UsageError(
                f"--place is not supported on the platform {self.platform}", where=where, hint=hint
            )
        if self.type == "slot" and self.request.spreads_library:
            raise UsageError(
                "--place arena=auto uses several RAMs, and a slot's arena is in one",
                where=where,
                hint="leave it out, or name a memory",
            )
        if self.type == "library" and set(self.request.place) - {"npu"}:
            raise UsageError(
                "--place needs a linker script, which a library does not have", where=where, hint=hint
            )

    def _check_benchmark(self) -> None:
        if self.platform == "zephyr":
            hint = "bare metal: --platform baremetal"
            raise UsageError("mlperftiny does not support Zephyr", where=self.board.name, hint=hint)
        benchmark(self.models, self.board.name)

    def _check_extras(self) -> None:
        # Options that only some programs support.
        if self.options.record and self.type not in ("server", "standalone", "library"):
            hint = "servers, standalone images and libraries have one"
            raise UsageError(f"a {self.type} has no black box", hint=hint)
        if self.watched and self.type not in ("server", "library"):
            hint = "generate it without --watch"
            raise UsageError("only servers and libraries support --watch", hint=hint)
        if self.options.rtt:
            self._check_rtt()
        if self.options.slots or self.type == "slot":
            self._check_slots()
        if self.has_npu:
            self._check_npu()
        if self.request.cores == 2:
            self._check_cores()
        if self.request.feed:
            self._check_feed()

    def _check_npu(self) -> None:
        # Firmware for a board needs the NPU's address; a library leaves that to the program.
        where = self.board.name
        if self.type == "library" or not (self.board.memories or self.board.is_host):
            return  # a core without a board has libraries only
        if (self.platform == "zephyr") != self.uses_arms_driver:
            message, hint = "on Zephyr the NPU is used by Arm's driver", "--npu-driver arm"
            if self.uses_arms_driver:
                message = "nothing here brings Arm's driver of the NPU"
                hint = "--type library or --platform zephyr; or leave --npu-driver out"
            raise UsageError(message, where=where, hint=hint)
        if self.platform == "zephyr":
            return
        if self.board.npu is None:
            hint = "leave --npu out, add [npu] to the board's file, or --type library"
            raise UsageError("the board has no NPU", where=where, hint=hint)
        place, npu = self.request.place, self.board.npu
        places: tuple[tuple[str, str], ...] = (
            ("arena", place.get("arena", self.board.data)),
            ("weights", place.get("weights", self.board.code)),
        )
        if self.type == "slot":
            places = self._memories_of_slot()
        if "npu" in place:
            places += (("scratch memory of the NPU", place["npu"]),)
        for part, memory in places:
            if npu.reaches and memory not in npu.reaches:
                raise UsageError(
                    f"the NPU does not reach the memory {memory}, in which the {part} would be",
                    where=where,
                    hint=f"it reaches {', '.join(npu.reaches)}: "
                    f"--place {part.split()[-1].lower()}={npu.reaches[-1]}",
                )

    def _memories_of_slot(self) -> tuple[tuple[str, str], ...]:
        # Where a slot has its arena and its weights.
        slots = self.board.slots
        if slots is None:
            return ()
        work = next(m.name for m in self.board.memories if m.origin <= slots.work < m.end)
        return ("arena", work), ("weights", slots.find(self.options.slot).memory)

    def _check_cores(self) -> None:
        # The second core must be started by this project, or by the program that uses the library.
        where = self.board.name
        if self.type == "slot" or self.platform == "zephyr" or self.options.framework:
            hint = "without --cores, or --type library"
            raise UsageError(
                "two cores are supported in bare-metal firmware and plain libraries only",
                where=where,
                hint=hint,
            )
        if self.type != "library" and not self.board.second_core:
            hint = "a library leaves that to your program: --type library"
            raise UsageError(
                "the board's file describes no second core equal to the first", where=where, hint=hint
            )

    def _check_feed(self) -> None:
        # An image that comes by rows is nowhere whole.
        where, hint = self.models[0].name, "leave --feed or that out"
        if self.options.record:
            text = "--record keeps whole inputs, and this one comes by rows"
            raise UsageError(text, where=where, hint=hint)
        if self.watched:
            text = "--watch counts whole inputs, and this one comes by rows"
            raise UsageError(text, where=where, hint=hint)
        if self.type == "slot":
            text = "firmware hands whole inputs to a slot, and this one comes by rows"
            raise UsageError(text, where=where, hint="leave --feed out")

    def _check_slots(self) -> None:
        if self.board.is_host:
            text = "a slot holds machine code of a Cortex-M, and this is portable C"
            raise UsageError(
                text, where=self.board.name, hint="remove --slots, or name a board that has them"
            )
        if self.board.slots is None:
            hint = "docs/slots.md says how a board's file names them"
            raise UsageError("the board has no slots", where=self.board.name, hint=hint)
        if self.type == "slot":
            self.board.slots.find(self.options.slot)
            if len(self.modules) != 1:
                raise UsageError(
                    "a slot holds one model", where=self.options.slot, hint="make one slot image per model"
                )
            return
        if self.type == "library":
            return
        if (self.type, self.platform) != ("server", "baremetal"):
            where = f"{self.type}, {self.platform}"
            hint = "remove --slots, or use --type server or library"
            raise UsageError("--slots requires a bare-metal server or a library", where=where, hint=hint)
        if len(self.modules) == _SERVER_MODELS:
            raise UsageError(
                f"a server holds at most {_SERVER_MODELS} models, including the one in a slot",
                hint="leave one out",
            )

    def _check_rtt(self) -> None:
        # RTT needs a probe that can read the memory and sees the same bytes as the core.
        where, board = self.board.name, self.board
        if self.type != "server" or self.platform != "baremetal":
            raise UsageError("RTT needs a server on bare metal", where=where, hint="leave --rtt out")
        if board.flash_with is None or not board.flash_with.target("pyocd"):
            raise UsageError("pyOCD does not know this board", where=where, hint="use its serial port")
        if board.core.has_caches:
            hint = "use its serial port"
            raise UsageError("the core's data cache hides its memory from the probe", where=where, hint=hint)

    def _check_server(self) -> None:
        # The tables of the RPC server in the C runtime have a fixed size.
        if len(self.modules) > _SERVER_MODELS:
            raise UsageError(
                f"{len(self.modules)} models; a server holds at most {_SERVER_MODELS}",
                hint="make several images, or a standalone one",
            )
        for info in self.models:
            if len(info.inputs) > _SERVER_INPUTS:
                raise UsageError(
                    f"{len(info.inputs)} inputs; a server sets at most {_SERVER_INPUTS}",
                    where=info.name,
                    hint="concatenate inputs, or generate with --type standalone or library",
                )

    @property
    def name(self) -> str:
        """The project's name: the models' names, or with many models the first name and the number of the
        others.
        """
        names = [info.name for info in self.models]
        joined = "_".join(names)
        return joined if len(joined) <= _LONGEST_NAME else f"{names[0]}_and_{len(names) - 1}_more"

    @property
    def has_registry(self) -> bool:
        """True if models can be found and called by name, as TVM's hosts do."""
        return any(module.functions for module in self.modules)

    @property
    def has_backend(self) -> bool:
        """True if code calls TVM's functions for memory and errors."""
        return BACKEND_FILE in self.metadata

    @property
    def models(self) -> tuple[ModelInfo, ...]:
        return tuple(module.info for module in self.modules)

    @property
    def artefact(self) -> str:
        # Below ``build/``.
        if self.type == "library":
            return f"lib{self.name}.a"
        if self.platform == "zephyr":
            return "zephyr/zephyr.elf"
        return "firmware" if self.board.is_host else "firmware.elf"
