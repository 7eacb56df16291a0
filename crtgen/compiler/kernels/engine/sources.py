"""What a kernel brings along: libraries of sources, the module and the device that it belongs to."""

from dataclasses import dataclass

__all__ = ["DeviceContext", "ModuleOf", "SourceLibrary"]


@dataclass(frozen=True, slots=True)
class SourceLibrary:
    """Sources that a kernel's code is built with: paths and contents, and which of the folders have headers.

    They go into the project below ``model/external/<name>``; C and assembly files are compiled.
    """

    name: str
    files: tuple[tuple[str, bytes], ...]
    include_dirs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceContext:
    """The device that a module runs on, as its own key: two instances of one accelerator are two contexts."""

    kind: str = "cpu"
    index: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


@dataclass(frozen=True, slots=True)
class ModuleOf:
    """The module of an external code generator that a kernel belongs to.

    ``handle`` is a constant expression of type ``void *`` in C: the device. A kernel of a module with one has
    a last parameter ``void *device``.
    """

    name: str
    context: DeviceContext
    handle: str = ""
