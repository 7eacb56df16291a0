"""Ethos-U as a code generator.

The problem. An NPU computes most layers of a network, but not all. Vela, Arm's compiler for it, takes whole
``.tflite`` files, decides itself what the NPU computes, and leaves the rest to an interpreter.

The idea. crtgen keeps its own graph and plan. Vela is run twice: first on all layers separately, to learn
which of them it accepts and why not the others; then on each region of accepted layers, for the command
stream. A region is one call of the driver in the straight-line code, its scratch is a buffer of our arena,
and its inputs and outputs are regions of the NPU's memory at the addresses of our plan. So everything else
stays as it is: registry, linked parameters, archives, several models in one image.

Memories. Scratch is in the arena, or with ``--place npu=MEMORY`` in a part of it in that memory. A U65 then
uses both (Vela's ``Dedicated_Sram``): feature maps in the arena, and a smaller working area in that memory.

The invariant. A region's stream only reads the region's inputs and only writes its outputs and its scratch.
This is checked at generation: the stream is decoded with crtgen's own tables, and refused if it names another
region.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Self

import numpy as np

from crtgen.base.errors import BuildError, UnsupportedError, UsageError
from crtgen.base.resources import runtime_dir
from crtgen.boards import Board
from crtgen.compiler.byoc.ethos_u.layers import WRITERS, why_not
from crtgen.compiler.byoc.ethos_u.network import apart, network_of
from crtgen.compiler.byoc.ethos_u.vela import (
    DEDICATED,
    SHARED,
    SRAM_ONLY,
    CompiledStream,
    VelaMemory,
    compile_network,
    left_to_the_core,
    vela_version,
)
from crtgen.compiler.byoc.generator import Generated, Generator, Pattern
from crtgen.compiler.kernels.engine.kernel import Const, Target
from crtgen.compiler.kernels.engine.sources import DeviceContext, SourceLibrary
from crtgen.network.ir import Graph, Node, Op, Signature
from crtgen.network.ops import Reshape
from crtgen.npu.config import Config, find_config
from crtgen.npu.stream import commands

__all__ = ["ARM_DRIVER", "DRIVERS", "ETHOS_U", "THE_BOARDS", "EthosU"]

ETHOS_U = "ethos-u"
THE_BOARDS = "board"
"""The name of a configuration that stands for the one in the board's file."""

_ALIGN = 16
_CONSTANTS, _SCRATCH, _FAST = 0, 1, 2
_REGIONS = 8
_SECOND_PORT = 2  # of the NPU to the bus
_MARK = """\
/* The register CONFIG of the NPU that the streams are for; tools find its name in the image. */
extern const uint32_t crt_npu_for_{0};
const uint32_t crt_npu_for_{0} __attribute__((weak)) = {1:#010x}u;"""


@dataclass(frozen=True, slots=True)
class _Driver:
    """A driver: its file, the first region for inputs and outputs, and the form in which it takes the
    stream.
    """

    source: str
    first: int
    payload: Callable[[CompiledStream], bytes]


def _bare(compiled: CompiledStream) -> bytes:
    return compiled.stream


# Actions of a payload for Arm's driver: a word each, the number of the action in its lowest byte.
_CONFIGURED, _STREAM, _NOTHING = 1, 2, 5
_PATCH = 1 << 4  # of the payload's format


def _with_header(compiled: CompiledStream) -> bytes:
    # "COP1", the configuration and version that the stream is for, the stream at a multiple of 16 bytes.
    words = len(compiled.stream) // 4
    stream = _STREAM | (words >> 16) << 8 | (words & 0xFFFF) << 16
    config = (_CONFIGURED | _PATCH << 16, compiled.config, compiled.arch)
    return struct.pack("<4s7I", b"COP1", *config, _NOTHING, _NOTHING, _NOTHING, stream) + compiled.stream


OWN_DRIVER, ARM_DRIVER = "crtgen", "arm"
DRIVERS: Mapping[str, _Driver] = MappingProxyType(
    {
        OWN_DRIVER: _Driver("crt_npu.c", _SCRATCH + 1, _bare),
        # Arm's driver may put its fast memory into region 2.
        ARM_DRIVER: _Driver("crt_npu_arm.c", _SCRATCH + 2, _with_header),
    }
)


class EthosU(Generator):
    name = ETHOS_U
    context = DeviceContext("npu")
    patterns: ClassVar[tuple[Pattern, ...]] = tuple((kind,) for kind in WRITERS)
    merges: ClassVar[bool] = True
    explains: ClassVar[bool] = True
    sized: ClassVar[bool] = True

    def __init__(
        self,
        config: Config | None,
        driver: str = "",
        memory: VelaMemory | None = None,
        *,
        is_apart: bool = False,
    ) -> None:
        """Create the generator; without a configuration, that of the board is used. ``driver`` is a key of
        ``DRIVERS``; the default is Arm's driver on boards that only Zephyr starts, otherwise crtgen's.
        Without ``memory``, Vela's mode follows from the board's memories. If it ``is_apart``, all scratch is
        in a separate part of the arena.
        """
        self._config, self.driver, self._memory, self._is_apart = config, driver, memory, is_apart
        self._reasons: dict[tuple[int, int], str] = {}

    @property
    def config(self) -> Config:
        if self._config is None:
            raise UsageError("nothing says which NPU it is", hint="for example --npu ethos-u55-128")
        return self._config

    def on_board(self, board: Board, place: Mapping[str, str]) -> "EthosU":
        config = self._config
        if config is None and board.npu is None:
            hint = "name one, for a library: --npu ethos-u55-128; or add [npu] to the board's file"
            raise UsageError("the board has no NPU", where=board.name, hint=hint)
        if config is None and board.npu is not None:
            config = find_config(board.npu.config)
        on_zephyr = bool(board.memories) and board.platforms[0] == "zephyr"
        driver = self.driver or (ARM_DRIVER if on_zephyr else OWN_DRIVER)
        is_apart = "npu" in place and place["npu"] != place.get("arena", board.data)
        memory = self._memory or _memory(config, board, place, is_apart)
        if memory.mode == DEDICATED and config is not None and not config.product:
            raise UsageError(
                f"{DEDICATED} is for a U65: the second bus port of a U55 cannot write, so all of its scratch "
                "memory is behind the first",
                where=config.name,
                hint=f"{SHARED}, which is the default; --place npu=MEMORY says in which memory scratch is",
            )
        return EthosU(config, driver, memory, is_apart=is_apart and memory.mode != DEDICATED)

    @classmethod
    def create(cls, options: Mapping[str, str]) -> Self:
        cls.refuse_unknown(
            options, ["config", "driver", "memory"], "its options are config, driver and memory"
        )
        if "config" not in options:
            raise UsageError(f"{cls.name} needs a configuration", hint="for example --npu ethos-u55-128")
        driver = options.get("driver", "")
        if driver not in ("", *DRIVERS):
            raise UsageError(f"{driver} is not a driver of the NPU", hint=f"known: {', '.join(DRIVERS)}")
        config = None if options["config"] == THE_BOARDS else find_config(options["config"])
        return cls(config, driver, _mode(options["memory"]) if "memory" in options else None)

    def runs_on(self, board: Board) -> bool:
        return board.npu is not None and (self._config is None or self._config.name == board.npu.config)

    def version(self) -> str:
        return f"{self.config.name} {self.driver} vela {vela_version()} {super().version()[:16]}"

    def prepare(self, graph: Graph) -> None:
        nodes = [node for node in graph.nodes if not why_not(node.op, graph.signature(node))]
        refused = _refused(graph, nodes, self.config)
        self._reasons = {
            _key(node.op, graph.signature(node)): why for node, why in zip(nodes, refused, strict=True)
        }

    def reason(self, op: Op, sig: Signature) -> str:
        return why_not(op, sig) or self._reasons.get(_key(op, sig), "")

    @property
    def _first(self) -> int:
        # The first region for inputs and outputs.
        own = DRIVERS[self.driver or OWN_DRIVER].first
        is_dedicated = self._memory is not None and self._memory.mode == DEDICATED
        return max(own, _FAST + 1) if is_dedicated else own

    def reason_as_a_whole(self, subgraph: Graph) -> str:
        count = len(subgraph.inputs) + len(subgraph.outputs)
        most = _REGIONS - self._first
        return f"it has {count} inputs and outputs; the NPU has pointers for {most}" * (count > most)

    def not_worth(self, subgraph: Graph) -> str:
        return "" if any(_computes(node) for node in subgraph.nodes) else "it only renames values"

    def generate(self, subgraph: Graph, target: Target) -> Generated:
        small = target.optimize in ("size", "ram")
        network = network_of(subgraph)
        driver = DRIVERS[self.driver or OWN_DRIVER]
        memory = self._memory or VelaMemory()
        compiled = compile_network(network, self.config, small=small, memory=memory, first=self._first)
        _check(subgraph, compiled, self.config)
        scratch, fast = (-(-size // _ALIGN) * _ALIGN for size in (compiled.scratch, compiled.fast))
        apart = scratch if self._is_apart else fast
        payload = driver.payload(compiled)
        stream = np.frombuffer(payload, np.uint32)
        constants = np.frombuffer(compiled.constants, np.uint8)
        consts = [Const.of("stream", stream, _ALIGN, f"for {self.config.name}, by Vela {vela_version()}")]
        if constants.size:
            consts.append(Const.of("constants", constants, _ALIGN))
        return Generated(
            body=_body(subgraph, compiled, self.config, len(payload), is_apart=self._is_apart),
            consts=tuple(consts),
            scratch=0 if self._is_apart else scratch,
            apart=apart,
            support=_MARK.format(_symbol(self.config), self.config.word),
            includes=("crt/npu.h",),
            libraries=(_library(driver.source),),
            fails=True,
            estimate=compiled.cycles,
        )


def _mode(name: str) -> VelaMemory:
    if name not in (SHARED, SRAM_ONLY, DEDICATED):
        known = f"known: {SHARED}, {SRAM_ONLY}, {DEDICATED}"
        raise UsageError(f"{name} is not one of Vela's modes of memory", where=ETHOS_U, hint=known)
    return VelaMemory(name)


def _memory(config: Config | None, board: Board, place: Mapping[str, str], is_apart: bool) -> VelaMemory:
    # Vela's mode of memory that follows from the board's memories.
    if is_apart and config is not None and config.product:
        memory = board.memory(place["npu"])
        # What is left to variables and the stack, if they are there, is not known yet.
        return VelaMemory(DEDICATED, memory.size // (2 if memory.name == board.data else 1))
    weights = place.get("weights", board.code if board.memories else "")
    in_ram = bool(weights) and board.memory(weights).kind == "ram"
    return VelaMemory(SRAM_ONLY if in_ram else SHARED)


def _key(op: Op, sig: Signature) -> tuple[int, int]:
    # A layer of a graph, as long as the graph is there.
    return id(op), id(sig.y)


def _refused(graph: Graph, nodes: Sequence[Node], config: Config) -> list[str]:
    # Why Vela does not take each layer; empty if it does. If Vela fails, it is asked again about each half.
    if not nodes:
        return []
    try:
        left = left_to_the_core(apart(graph, nodes), config)
    except BuildError as error:
        if len(nodes) == 1:
            return [f"{error.message} on this layer"]
        half = len(nodes) // 2
        return [*_refused(graph, nodes[:half], config), *_refused(graph, nodes[half:], config)]
    return [left.get(f"y{n}", "") for n, _ in enumerate(nodes)]


def _symbol(config: Config) -> str:
    return config.name.replace("-", "_")


def _computes(node: Node) -> bool:
    return not isinstance(node.op, Reshape)


def _library(source: str) -> SourceLibrary:
    data = (runtime_dir() / "npu" / source).read_bytes()
    return SourceLibrary(ETHOS_U, ((f"src/{source}", data),))


def _check(subgraph: Graph, compiled: CompiledStream, config: Config) -> None:
    # Raise ``UnsupportedError`` unless the stream is for this NPU and names regions of this call only.
    if compiled.config != config.word:
        raise UnsupportedError(
            f"Vela's stream is for the configuration {compiled.config:#x}, expected {config.word:#x}",
            where=config.name,
            hint="install the version of Vela that crtgen knows: pip install 'crtgen[npu]'",
        )
    known = {_CONSTANTS, _SCRATCH, *compiled.inputs, *compiled.outputs} | (
        {_FAST} if compiled.fast else set()
    )
    for command in commands(compiled.stream):
        external = not (command.name.startswith("DMA0") and command.parameter & 0x100)
        if command.name.endswith("_REGION") and external and command.parameter & 7 not in known:
            raise UnsupportedError(
                f"Vela's stream uses region {command.parameter & 7}, which no value of these layers is in",
                where=subgraph.name,
                hint="leave these layers to the core, and report it",
            )


def _regions(subgraph: Graph, compiled: CompiledStream, is_apart: bool) -> Sequence[tuple[int, str, int]]:
    # Number, C expression and bytes of each region that has memory.
    values = subgraph.values
    scratch, fast = (-(-size // _ALIGN) * _ALIGN for size in (compiled.scratch, compiled.fast))
    found = [(_CONSTANTS, "constants", len(compiled.constants))] if compiled.constants else []
    found += [(_SCRATCH, "apart" if is_apart else "scratch", scratch)] if scratch else []
    found += [(_FAST, "apart", fast)] if fast else []
    found += [
        (r, f"x{i}", -(-values[n].nbytes // _ALIGN) * _ALIGN)
        for i, (r, n) in enumerate(zip(compiled.inputs, subgraph.inputs, strict=True))
    ]
    found += [
        (r, f"y{i}", values[n].nbytes)
        for i, (r, n) in enumerate(zip(compiled.outputs, subgraph.outputs, strict=True))
    ]
    return sorted(found)


def _body(subgraph: Graph, compiled: CompiledStream, config: Config, size: int, *, is_apart: bool) -> str:
    regions = _regions(subgraph, compiled, is_apart)
    scratch = {region for region, what, _ in regions if what in ("scratch", "apart")}
    written = sum(1 << region for region in {*scratch, *compiled.outputs})
    # Constants come through the second port. So does what is in the slower memory, if there is a faster one.
    slow = {_CONSTANTS} if not compiled.fast else {r for r, what, _ in regions if what != "apart"}
    ports = sum(_SECOND_PORT << 2 * region for region in slow)
    lines = [f"    [{region}] = {{(uintptr_t){what}, {size}u}}," for region, what, size in regions]
    return "\n".join(
        [
            "    const struct crt_npu_job job = {",
            "        .stream = stream,",
            f"        .stream_bytes = {size}u,",
            f"        .config = *(const volatile uint32_t *)&crt_npu_for_{_symbol(config)},",
            f"        .written = {written:#04x}u,",
            "        .regions = {",
            *(f"        {line}" for line in lines),
            "        },",
            f"        .ports = {ports:#06x}u,",
            "    };",
            "    return crt_npu_run(&job);",
        ]
    )
