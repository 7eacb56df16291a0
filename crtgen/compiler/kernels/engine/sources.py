"""Sources, module and device to which a kernel of an external code generator belongs."""

from dataclasses import dataclass

__all__ = ["DeviceContext", "ModuleOf", "SourceLibrary"]


@dataclass(frozen=True, slots=True)
class SourceLibrary:
    """A library of C or assembly sources with which a kernel is linked: paths, contents, include folders.

    The files go into the project's folder ``model/external/<name>``.
    """

    name: str
    files: tuple[tuple[str, bytes], ...]
    include_dirs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceContext:
    """The device on which a module runs. Two instances of an accelerator are two contexts."""

    kind: str = "cpu"
    index: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


@dataclass(frozen=True, slots=True)
class ModuleOf:
    """The module of an external code generator to which a kernel belongs.

    ``handle`` is a constant C expression of type ``void *``, the device. Kernels of such a module take a last
    parameter ``void *device``.
    """

    name: str
    context: DeviceContext
    handle: str = ""
