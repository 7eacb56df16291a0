"""From models and a board to a project."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from crtgen.base.contents import Contents, Maker
from crtgen.base.errors import UsageError
from crtgen.base.files import read
from crtgen.base.resources import license_file, microtvm_dir, runtime_dir
from crtgen.base.version import __version__
from crtgen.boards import Core, is_own
from crtgen.compiler.codegen.drift import drift_file
from crtgen.compiler.codegen.metadata import METADATA_FILE, Registry
from crtgen.compiler.codegen.module import CModule, Interface, ModelInfo
from crtgen.compiler.codegen.names import arena_symbol
from crtgen.compiler.codegen.render import render
from crtgen.firmware.library import runtime_headers
from crtgen.firmware.project import baremetal, host, zephyr
from crtgen.firmware.project.exports import Sources, check_export, export_files
from crtgen.firmware.project.field import field_files
from crtgen.firmware.project.firmware import FirmwareRequest
from crtgen.firmware.project.library import example_files
from crtgen.firmware.project.manifest import BOARD_FILE, FORMAT, Manifest, digests_of
from crtgen.firmware.project.project import Project
from crtgen.firmware.project.sample import sample_files
from crtgen.firmware.project.toolchains import toolchains_of
from crtgen.firmware.project.vscode import vscode_files
from crtgen.network.ir import shape_text

__all__ = ["generate_project"]

_SOURCES = (".c", ".S", ".o")
_EXTERNAL = "external"
_MOST_CONSTANTS = 1 << 20  # bytes of a model whose text stays in memory, which is five times as long
_INCLUDE = re.compile(r"^#include <(\w+\.h)>", re.MULTILINE)
_TITLE = {
    "server": "an RPC server",
    "standalone": "a program with built-in input",
    "library": "a library",
    "mlperftiny": "a benchmark of MLPerf Tiny",
    "slot": "an image for a slot",
}


@dataclass(frozen=True, slots=True)
class _BuildView:
    title: str
    name: str
    toolchain: str
    profile: str
    guard: str
    record: int
    is_watched: bool
    is_host: bool
    has_example: bool
    core_flags: str
    shared_arena: int
    has_slots: bool
    has_npu: bool
    entry: str
    blocks: int
    model_sources: tuple[str, ...]
    include_dirs: tuple[str, ...]
    model_libraries: tuple[str, ...]
    runtime_sources: tuple[str, ...]
    platform_sources: tuple[str, ...]
    model_level: str
    small_libc: bool


@dataclass(frozen=True, slots=True)
class _ModelRow:
    name: str
    inputs: str
    outputs: str
    arena: str


@dataclass(frozen=True, slots=True)
class _ReadmeView:
    title: str
    version: str
    models: tuple[_ModelRow, ...]
    artefact: str
    toolchain: str
    toolchains: str
    name: str
    is_library: bool
    is_server: bool
    is_host: bool
    has_example: bool
    has_registry: bool
    abi: str
    run: str
    run_note: str
    runtime_note: str
    platform_note: str


def generate_project(firmware: FirmwareRequest) -> Project:
    """Return the project, in memory. Raises ``UsageError`` for samples or options that do not match the
    models.
    """
    code = Contents({f"model/{name}": entry for name, entry in _model_files(firmware).items()})
    if firmware.options.framework:
        check_export(firmware)
        files = _exported_files(firmware, code)
    else:
        others = (_zephyr_files if firmware.platform == "zephyr" else _cmake_files)(firmware, code)
        files = Contents({**code.entries, **others})
    if firmware.type == "server":
        files = Contents({**files.entries, **_tvm_files()})
    if is_own(firmware.board) and firmware.board.file:
        files = Contents({**files.entries, BOARD_FILE: read(firmware.board.file, "the board")})
    return Project(_manifest(firmware, files), files)


def _tvm_files() -> dict[str, bytes]:
    # Files by which TVM's micro host builds, flashes and talks to a project.
    return {path.name: path.read_bytes() for path in microtvm_dir().glob("*.py")}


def _cmake_files(firmware: FirmwareRequest, model: Contents[bytes]) -> dict[str, bytes]:
    # Everything beside the models for a project of CMake's own.
    files = {f"platform/{name}": text.encode() for name, text in _platform_files(firmware).items()}
    files |= {f"cmake/{name}": text.encode() for name, text in _toolchain_files(firmware).items()}
    files |= _runtime_files(firmware, model)
    files |= example_files(firmware)
    template = "library.cmake.j2" if firmware.type == "library" else "CMakeLists.txt.j2"
    view = _build_view(firmware, tuple(sorted({*model, *files})))
    files["CMakeLists.txt"] = render(f"project/common/{template}", v=view).encode()
    files["README.md"] = render("project/common/README.md.j2", v=_readme_view(firmware)).encode()
    folders = ("model", "runtime/include", *view.include_dirs)
    folders += () if firmware.type == "library" else ("platform",)
    return files | vscode_files(firmware, folders)


def _zephyr_files(firmware: FirmwareRequest, model: Contents[bytes]) -> dict[str, bytes]:
    # Everything beside the models for a project of Zephyr's.
    files = zephyr.platform_files(firmware) | _runtime_files(firmware, model)
    view = _build_view(firmware, tuple(sorted({*model, *files})))
    files["crtgen.cmake"] = zephyr.library_file(
        firmware, view.title, view.model_level, view.model_sources, view.runtime_sources, view.include_dirs
    ).encode()
    rows = tuple(_row(info) for info in firmware.models)
    files["README.md"] = zephyr.read_me(firmware, view.title, __version__, rows).encode()
    return files


def _exported_files(firmware: FirmwareRequest, model: Contents[bytes]) -> Contents[bytes]:
    # All files of a library for a framework.
    code = Contents({**model.entries, **_runtime_files(firmware, model)})
    rows = tuple(_row(info) for info in firmware.models)
    paths = _sources(tuple(sorted(code)), "model/")
    sources = Sources(paths, _include_dirs(firmware), firmware.request.level.flag, rows)
    return export_files(firmware, code, sources)


def _model_files(firmware: FirmwareRequest) -> dict[str, bytes | Maker[bytes]]:
    texts = [_texts(module) for module in firmware.modules] + [firmware.metadata]
    files: dict[str, bytes | Maker[bytes]] = {}
    parts = [{n: _encoded(entry) for n, entry in Contents.of(t).entries.items()} for t in texts]
    for part in (*parts, firmware.objects):
        for name, data in part.items():
            if name in files:
                raise UsageError(f"two models make a file {name}", hint="give the models different names")
            files[name] = data
    files |= {f"{n}_drift.c": drift_file(n, r).encode() for n, r in firmware.watched.items()}
    if firmware.type == "library" and firmware.request.cores == 2:
        files["crt_cores.c"] = (runtime_dir() / "src" / "crt_cores.c").read_bytes()
    return files | field_files(firmware) | _external_files(firmware)


def _texts(module: CModule) -> Mapping[str, str]:
    # The files of a model. All are read for their digests; those of a small one are kept for writing.
    constants = sum(param.nbytes for param in module.params)
    return module.files if constants > _MOST_CONSTANTS else dict(module.files)


def _encoded(entry: str | Maker[str]) -> bytes | Maker[bytes]:
    return entry.encode() if isinstance(entry, str) else lambda: (piece.encode() for piece in entry())


def _external_files(firmware: FirmwareRequest) -> dict[str, bytes]:
    # Sources that kernels link with; several kernels may need different files of one library.
    files: dict[str, bytes] = {}
    for library in (library for module in firmware.modules for library in module.libraries):
        for path, data in library.files:
            name = f"{_EXTERNAL}/{library.name}/{path}"
            if files.setdefault(name, data) != data:
                raise UsageError(
                    f"there are two versions of {path}",
                    where=library.name,
                    hint="their contents differ: rename one of them",
                )
    return files


def _include_dirs(firmware: FirmwareRequest) -> tuple[str, ...]:
    libraries = (library for module in firmware.modules for library in module.libraries)
    found = (f"model/{_EXTERNAL}/{lib.name}/{folder}" for lib in libraries for folder in lib.include_dirs)
    return tuple(dict.fromkeys(found))


def _platform_files(firmware: FirmwareRequest) -> dict[str, str]:
    if firmware.type == "library":
        return {}
    if firmware.type == "slot":
        return baremetal.slot_files(firmware)
    platform = host if firmware.board.is_host else baremetal
    sample = sample_files(firmware) if firmware.type == "standalone" else {}
    return {**platform.platform_files(firmware), **sample}


def _toolchain_files(firmware: FirmwareRequest) -> dict[str, str]:
    if firmware.board.is_host:
        return host.toolchain_files()
    return baremetal.toolchain_files(firmware.board.core)


def _runtime_files(firmware: FirmwareRequest, model: Contents[bytes]) -> dict[str, bytes]:
    # The C runtime; a library has its headers, or without a registry those that its code includes.
    root = runtime_dir()
    if firmware.has_registry:
        is_source = firmware.type not in ("library", "slot") or firmware.platform == "zephyr"
        folders = ("include", "src") if is_source else ("include",)
        wanted = [file for folder in folders for file in (root / folder).rglob("*.[ch]")]
    else:
        paths = [path for path in model if path.endswith((".c", ".h"))]
        code = ["\n".join(_includes(model.pieces(path))) for path in paths]
        headers = runtime_headers(code)
        wanted = [root / "include" / header for header in headers]
        wanted += [root / "include" / "dlpack" / "dlpack.h"] if "crt/model.h" in headers else []
        included = {name for text in (*code, *headers.values()) for name in _INCLUDE.findall(text)}
        c_library = () if firmware.board.is_host else (root / "include" / "freestanding").glob("*.h")
        wanted += [file for file in c_library if file.name in included]
    files = {f"runtime/{f.relative_to(root).as_posix()}": f.read_bytes() for f in sorted(wanted)}
    return {**files, "runtime/LICENSE": license_file().read_bytes()}


def _includes(pieces: Iterable[bytes]) -> Iterator[str]:
    # The lines that include a file.
    rest = b""
    for piece in chain(pieces, [b"\n"]):
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in lines if line.startswith(b"#include"))


def _sources(files: tuple[str, ...], folder: str) -> tuple[str, ...]:
    return tuple(file for file in files if file.startswith(folder) and file.endswith(_SOURCES))


def _model_sources(firmware: FirmwareRequest, files: tuple[str, ...]) -> tuple[str, ...]:
    # Those that are compiled; the image for a slot is no image with a registry.
    found = _sources(files, "model/")
    return tuple(f for f in found if f != f"model/{METADATA_FILE}") if firmware.type == "slot" else found


def _title(firmware: FirmwareRequest) -> str:
    return f"{', '.join(i.name for i in firmware.models)} on {firmware.board.name}, {_TITLE[firmware.type]}"


def _build_view(firmware: FirmwareRequest, files: tuple[str, ...]) -> _BuildView:
    level = firmware.request.level
    return _BuildView(
        title=_title(firmware),
        name=firmware.name,
        toolchain=toolchains_of(firmware.board, firmware.platform)[0],
        profile="ON" if firmware.options.profile else "OFF",
        guard="ON" if firmware.type == "server" else "OFF",
        record=firmware.options.record,
        is_watched=bool(firmware.watched),
        is_host=firmware.board.is_host,
        has_example="example/main.c" in files,
        core_flags=" ".join(firmware.board.core.gcc_flags),
        shared_arena=firmware.shared_arena,
        has_slots=firmware.options.slots,
        has_npu=firmware.has_npu,
        entry="crt_slot_run" if firmware.type == "slot" else "crt_reset",
        blocks=firmware.blocks if firmware.type == "server" else 0,
        model_sources=_model_sources(firmware, files),
        include_dirs=_include_dirs(firmware),
        model_libraries=tuple(n for n in firmware.objects if n.endswith(".so")),
        runtime_sources=_sources(files, "runtime/"),
        platform_sources=_sources(files, "platform/"),
        model_level=level.flag,
        small_libc=level.small_libc and firmware.type != "library" and not firmware.board.is_host,
    )


def _readme_view(firmware: FirmwareRequest) -> _ReadmeView:
    toolchains = toolchains_of(firmware.board, firmware.platform)
    run, run_note = _run(firmware)
    return _ReadmeView(
        title=_title(firmware),
        version=__version__,
        models=tuple(_row(info) for info in firmware.models),
        artefact=firmware.artefact,
        toolchain=toolchains[0],
        toolchains=", ".join(f"`{t}`" for t in toolchains),
        name=firmware.name,
        is_library=firmware.type == "library",
        is_server=firmware.type == "server",
        is_host=firmware.board.is_host,
        has_example=bool(example_files(firmware)),
        has_registry=firmware.has_registry,
        abi=_abi(firmware.board.core),
        run=run,
        run_note=run_note,
        runtime_note="headers that the model's files include." if not run else "the C runtime.",
        platform_note="start-up, clock, serial port and `main`. Yours to edit.",
    )


def _abi(core: Core) -> str:
    # Options of an application that calls the models.
    if core.arch == "host":
        return "the compiler's own"
    floats = "soft (`-mfloat-abi=soft`)" if core.fpu == "none" else "hard (`-mfloat-abi=hard`)"
    return f"`{' '.join(core.gcc_flags)}`; floating point is {floats}, in your application as well"


_BENCHMARK_NOTE = (
    "It talks to the EEMBC runner on its serial port. The energy mode is a macro in `platform/main.c`."
)


def _run(firmware: FirmwareRequest) -> tuple[str, str]:
    # The command that runs the firmware, and what it does; empty for a library.
    if firmware.type == "library":
        return "", ""
    is_server = firmware.listens
    board = firmware.board
    if board.is_host:
        note = "It serves the RPC on standard input and output." if is_server else "It prints the outputs."
        return "build/firmware", _BENCHMARK_NOTE if firmware.benchmark else note
    if board.qemu is None:
        note = "Write it to the board with your programmer."
        return f"arm-none-eabi-objcopy -O binary build/{firmware.artefact} build/firmware.bin", note
    serial = "unix:/tmp/serial.sock,server=on,wait=off" if is_server else "stdio"
    note = (
        _BENCHMARK_NOTE
        if firmware.benchmark
        else (
            "In QEMU, with the RPC's serial port on a socket:"
            if is_server
            else "It prints the outputs in QEMU, which Ctrl-C ends:"
        )
    )
    lines = (
        " ".join(("qemu-system-arm -machine", board.qemu.machine, *board.qemu.args)),
        f"-nographic -monitor none -serial {serial} -kernel build/{firmware.artefact}",
    )
    return " \\\n    ".join(lines), note


def _row(info: ModelInfo) -> _ModelRow:
    sizes = [f"{info.arena} B"]
    sizes += [f"{size} B in .bss.{arena_symbol(info.name, part)}" for part, size in info.parts.items()]
    return _ModelRow(info.name, _interfaces(info.inputs), _interfaces(info.outputs), ", ".join(sizes))


def _interfaces(interfaces: tuple[Interface, ...]) -> str:
    return ", ".join(f"{i.name} ({shape_text(i.shape)} {i.dtype.value})" for i in interfaces)


def _manifest(firmware: FirmwareRequest, files: Contents[bytes]) -> Manifest:
    return Manifest(
        format=FORMAT,
        version=__version__,
        name=firmware.name,
        board=firmware.board.name,
        optimize=firmware.request.optimize,
        place=firmware.request.place,
        toolchain=toolchains_of(firmware.board, firmware.platform)[0],
        artefact=firmware.artefact,
        options=firmware.options,
        models=firmware.models,
        functions=tuple(f.symbol for f in Registry.of(firmware.modules).functions),
        files=digests_of(files),
    )
