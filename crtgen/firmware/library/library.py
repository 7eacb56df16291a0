"""The product of this stage: models that are linked into one image."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crtgen.base.errors import UsageError
from crtgen.boards import Core
from crtgen.compiler.codegen import CModule, metadata_files
from crtgen.compiler.codegen.render import render
from crtgen.firmware.library.imported import Linkable, backend_file
from crtgen.firmware.library.sources import check_core

__all__ = ["BACKEND_FILE", "Library", "link"]

BACKEND_FILE = "tvm_backend.c"
_ARENA_FILE = "crt_arena.c"


@dataclass(frozen=True, slots=True, eq=False)
class Library:
    """Models in the order of the registry; ``files`` are those that the image contains once.

    ``objects`` are linked unchanged. ``shared_arena`` is the size in bytes of the working memory that all
    models share; 0 if each has its own. ``storages`` are those of each graph that a host may run itself.
    """

    modules: tuple[CModule, ...]
    files: Mapping[str, str]
    objects: Mapping[str, bytes] = field(default_factory=dict)
    shared_arena: int = 0
    storages: tuple[tuple[int, ...], ...] = ()


def link(
    parts: Sequence[Linkable], core: Core, share_arena: bool | None = None, registry: bool = True
) -> Library:
    """Link the models into one library for a core.

    Several models share one arena, which is as large as the largest needs, unless ``share_arena`` is false.
    ``registry`` false omits the registry, unless a model needs it. Raises ``UsageError`` for names that clash
    and ``UnsupportedError`` for code that cannot be linked for the core.
    """
    plain = [part.module.plain for part in parts]
    modules = tuple(module for module in plain if module is not None)
    registry = registry or len(modules) < len(parts)
    if registry:
        modules = tuple(part.module for part in parts)
    objects: dict[str, bytes] = {}
    for part in parts:
        for name, data in part.objects.items():
            if name in objects:
                raise UsageError(f"two models have an object {name}", hint="give them different names")
            check_core(part.module.info.name, name, data, core)
            objects[name] = data
    files = dict(metadata_files(modules)) if registry else {}
    workspaces = [part.workspace for part in parts if part.workspace is not None]
    if workspaces:
        files[BACKEND_FILE] = backend_file(max(workspaces))
    arena = max((module.info.arena for module in modules), default=0)
    shared = arena if (len(parts) > 1 if share_arena is None else share_arena) else 0
    if shared:
        files[_ARENA_FILE] = render("shared_arena.c.j2", size=shared)
    storages = tuple(part.storages for part in parts if part.storages)
    return Library(modules, files, objects, shared, storages)
