"""A library as what somebody's framework takes: the same sources of the models, another wrapper."""

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass

from crtgen.boards import CORES, Core
from crtgen.codegen.render import render
from crtgen.contents import Contents
from crtgen.errors import UsageError
from crtgen.project.firmware import Firmware
from crtgen.project.frameworks import FRAMEWORKS, VENDOR, Framework
from crtgen.project.pattern import CheckedModel, checked_models, is_checkable
from crtgen.version import __version__

__all__ = ["VERSION", "Sources", "check_export", "export_files"]

VERSION = "1.0.0"
"""Of a new package; its owner counts it up."""

_FREESTANDING = "runtime/include/freestanding/"
_CMSIS = {"cortex-m0plus": "Cortex-M0+"}
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Sources:
    """What wrappers have to know: files to compile, folders with headers, the level's option, models."""

    sources: tuple[str, ...]
    include_dirs: tuple[str, ...]
    flag: str
    rows: Sequence[object]


@dataclass(frozen=True, slots=True)
class _CoreView:
    """A core as CMSIS packs name it, with what has to be in it."""

    name: str
    features: str


@dataclass(frozen=True, slots=True)
class _ExportView:
    name: str
    vendor: str
    version: str
    made_by: str
    title: str
    framework: str
    core: str
    is_portable: bool
    has_fpu: bool
    core_flags: str
    cores: tuple[_CoreView, ...]
    optimize: str
    flag: str
    example: str
    entry: str
    models: tuple[CheckedModel, ...]
    rows: tuple[object, ...]
    sources: tuple[str, ...]
    include_dirs: tuple[str, ...]
    definitions: tuple[str, ...]
    files: tuple[str, ...]


def check_export(firmware: Firmware) -> None:
    """Raise ``UsageError`` for what the framework cannot take."""
    name = firmware.options.framework
    framework = FRAMEWORKS[name]
    libraries = any(module.libraries for module in firmware.modules)
    refused = {
        "a library with a registry cannot be exported": (firmware.has_registry, "leave --registry out"),
        "object files cannot be exported": (bool(firmware.objects), "say --target c"),
        "its code runs on no Cortex-M": (
            framework.portable and not firmware.board.is_host,
            "say --board host",
        ),
        "it finds no headers of external libraries": (
            not framework.options and libraries,
            "leave --codegen and --cmsis-nn out",
        ),
        "it has no options for files, which --profile needs": (
            not framework.options and firmware.options.profile,
            "leave --profile out",
        ),
        "it has no options for files, which a shared arena needs": (
            not framework.options and bool(firmware.shared_arena),
            "say --own-arenas",
        ),
    }
    for reason, (is_so, hint) in refused.items():
        if is_so:
            raise UsageError(reason, where=f"--for {name}", hint=hint)


def export_files(firmware: Firmware, code: Contents[bytes], sources: Sources) -> Contents[bytes]:
    """All files: ``code`` of models and runtime, where the framework wants it, and the wrapper."""
    framework = FRAMEWORKS[firmware.options.framework]
    name = firmware.name
    entries = ((path, entry) for path, entry in code.entries.items() if not path.startswith(_FREESTANDING))
    files = {_place(framework, path): entry for path, entry in entries}
    has_example = all(map(is_checkable, firmware.modules))
    example = framework.example.format(name=name) if has_example else ""
    view = _view(firmware, framework, sources, example, tuple(sorted(files)))
    for path, template in framework.files.items():
        if has_example or not path.startswith(("example", "samples")):
            files[path.format(name=name)] = render(f"project/exports/{template}.j2", v=view).encode()
    use = render(f"project/exports/{firmware.options.framework}/use.md.j2", v=view)
    files["README.md"] = render("project/exports/README.md.j2", v=view, use=use).encode()
    if framework.packs:
        files[f"{VENDOR}.{name}.{VERSION}.pack"] = _archive(Contents(files))
    return Contents(files)


def _view(
    firmware: Firmware, framework: Framework, sources: Sources, example: str, files: tuple[str, ...]
) -> _ExportView:
    core = firmware.board.core
    shared = (f"CRT_SHARED_ARENA={firmware.shared_arena}",) if firmware.shared_arena else ()
    return _ExportView(
        name=firmware.name,
        vendor=VENDOR,
        version=VERSION,
        made_by=__version__,
        title=_title(firmware),
        framework=firmware.options.framework,
        core=core.name,
        is_portable=firmware.board.is_host,
        has_fpu=core.fpu != "none",
        core_flags=" ".join(core.gcc_flags),
        cores=() if firmware.board.is_host else _able(core),
        optimize=firmware.request.optimize,
        flag=sources.flag,
        example=example,
        entry=framework.entry,
        models=checked_models(firmware) if example else (),
        rows=tuple(sources.rows),
        sources=tuple(_place(framework, path) for path in sources.sources),
        include_dirs=tuple(_place(framework, path) for path in sources.include_dirs),
        definitions=(*shared, *(("CRT_PROFILE",) if firmware.options.profile else ())),
        files=files,
    )


def _title(firmware: Firmware) -> str:
    names = " and ".join(info.name for info in firmware.models)
    kind = "networks" if len(firmware.models) > 1 else "network"
    made = "as portable C" if firmware.board.is_host else f"for {firmware.board.core.name}"
    return f"The {kind} {names} {made}"


def _place(framework: Framework, path: str) -> str:
    """Where a file of ``model/`` or ``runtime/`` lies; flat, ``#include`` finds it below ``src/``."""
    if not framework.flat:
        return path
    for folder in ("model/", "runtime/include/"):
        if path.startswith(folder):
            return f"src/{path.removeprefix(folder)}"
    return f"src/crt/{path.rpartition('/')[2]}"


def _able(core: Core) -> tuple[_CoreView, ...]:
    """The cores that can execute code for ``core``."""
    whole = [c for c in CORES.values() if "+" not in c.name and c.dsp >= core.dsp and c.mve >= core.mve]
    names = [_CMSIS.get(c.name, c.name.title()) for c in whole if core.narrow or not c.narrow]
    optional = {"Cortex-M33": ' Ddsp="DSP"'} if core.dsp else {}
    optional |= dict.fromkeys(("Cortex-M55", "Cortex-M85"), ' Dmve="FP_MVE"') if core.mve else {}
    return tuple(_CoreView(name, optional.get(name, "")) for name in names)


def _archive(files: Contents[bytes]) -> bytes:
    """A zip archive; equal files give equal bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w") as file:
                file.writelines(files.pieces(path))
    return stream.getvalue()
