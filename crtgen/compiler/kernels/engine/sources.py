"""Sources, module and device that a kernel of an external code generator belongs to."""

from dataclasses import dataclass

__all__ = ["DeviceContext", "ModuleOf", "SourceLibrary"]


@dataclass(frozen=True, slots=True)
class SourceLibrary:
    """A library of C or assembly sources that a kernel links with: paths, contents, include folders.

    The files go into the project below ``model/external/<name>``.
    """

    name: str
    files: tuple[tuple[str, bytes], ...]
    include_dirs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceContext:
    """The device that a module runs on. Two instances of an accelerator are two contexts."""

    kind: str = "cpu"
    index: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


@dataclass(frozen=True, slots=True)
class ModuleOf:
    """The module of an external code generator that a kernel belongs to.

    ``handle`` is a constant C expression of type ``void *``, the device. Kernels of such a module take a last
    parameter ``void *device``.
    """

    name: str
    context: DeviceContext
    handle: str = ""
