"""The options of a project: what kind of program is made around the models, and its sizes."""

from dataclasses import dataclass
from typing import TypedDict

from crtgen.base.errors import UsageError
from crtgen.compiler.codegen.checks import check_sizes
from crtgen.firmware.project.frameworks import FRAMEWORKS

__all__ = [
    "RECEIVE_BUFFER",
    "RECEIVE_LEAST",
    "STACK",
    "TARGETS",
    "TYPES",
    "OptionFields",
    "ProjectOptions",
    "receive_buffer_of",
    "stack_of",
]

TYPES = ("server", "standalone", "library", "mlperftiny", "slot")

TARGETS = ("c", "llvm")
"""Forms of the models in a project: C sources, or object files made by LLVM."""

RECEIVE_BUFFER = 2048
STACK = 8 * 1024
"""Default stack in bytes if the RAM is large."""

RECEIVE_LEAST = 256
"""``CRT_SERVER_RECEIVE_MIN`` of crt/server.h."""

_MOST_BLOCKS = 1 << 16
_MOST_RUNS = 1 << 16


def stack_of(ram: int) -> int:
    """Return the default stack size in bytes for ``ram`` bytes of RAM; 0 means unlimited RAM."""
    return min(STACK, ram // 4 & -8) if ram else STACK


def receive_buffer_of(ram: int) -> int:
    return min(RECEIVE_BUFFER, max(RECEIVE_LEAST, ram // 8)) if ram else RECEIVE_BUFFER


@dataclass(frozen=True, slots=True)
class ProjectOptions:
    """Choices of a project; sizes in bytes.

    ``type`` is one of ``TYPES``. ``framework`` is the library's wrapper, one of
    ``crtgen.firmware.project.FRAMEWORKS``; empty means CMake, or Zephyr on its platform. ``platform`` is one
    of the board's, such as ``zephyr``; empty means its first. ``target`` is ``c``, or ``llvm`` for a project
    with the models as object files. With ``share_arena`` the C models share their working memory; None means
    yes if there are several. ``registry`` adds the registry of functions, with TVM's types, to a library;
    other types always have it, and so have libraries of imported code.

    ``stack`` is reserved for the stack; None means ``STACK``, or a quarter of a small RAM. ``receive_buffer``
    limits the packets of the RPC; None means ``RECEIVE_BUFFER``, or an eighth of a small RAM. ``pool`` is the
    memory that a host may allocate on the device, in at most ``blocks`` blocks; None means as much as the
    models need, see ``Firmware``. ``profile`` reports the time of each layer. Each model keeps its last
    ``record`` runs, an even number, in memory that survives a reset. With ``rtt`` a server's serial port is
    memory that a debug probe reads and writes. With ``slots`` a server also runs models in the board's slots;
    ``slot`` is the one for which an image of the type ``slot`` is linked.
    """

    type: str = "server"
    platform: str = ""
    framework: str = ""
    target: str = "c"
    share_arena: bool | None = None
    registry: bool = False
    stack: int | None = None
    pool: int | None = None
    blocks: int | None = None
    receive_buffer: int | None = None
    profile: bool = False
    rtt: bool = False
    slots: bool = False
    slot: str = ""
    record: int = 0

    def __post_init__(self) -> None:
        self._check_framework()
        check_sizes(receive_buffer=self.receive_buffer or 0, pool=self.pool or 0, stack=self.stack or 0)
        check_sizes(_MOST_BLOCKS, blocks=self.blocks or 0)
        check_sizes(_MOST_RUNS, record=self.record)
        if self.record % 2:
            raise UsageError(f"a black box cannot keep {self.record} runs", hint="give an even number")

    def _check_framework(self) -> None:
        # Raise ``UsageError`` for an unknown one; without options for files, nothing is shared.
        name = self.framework
        if not name:
            return
        if name not in FRAMEWORKS:
            raise UsageError(f"unknown framework {name}", hint=f"known: {', '.join(FRAMEWORKS)}")
        if self.type != "library":
            raise UsageError(f"{name} takes a library, not a {self.type}", hint="--type library")
        if self.share_arena is None and not FRAMEWORKS[name].options:
            object.__setattr__(self, "share_arena", False)


class OptionFields(TypedDict, total=False):
    """The fields of ``ProjectOptions`` apart from the type, as keywords of ``Compiled.generate``."""

    # written by tools/options.py
    platform: str
    framework: str
    target: str
    share_arena: bool | None
    registry: bool
    stack: int | None
    pool: int | None
    blocks: int | None
    receive_buffer: int | None
    profile: bool
    rtt: bool
    slots: bool
    slot: str
    record: int
    # end
