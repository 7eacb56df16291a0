"""A project as a Zephyr application, with the files of ``zephyr_app/`` and the models as libraries beside
it.
"""

from dataclasses import dataclass
from pathlib import Path

from crtgen.base.resources import zephyr_app_dir
from crtgen.boards import Board
from crtgen.compiler.codegen.render import render
from crtgen.firmware.project.firmware import FirmwareRequest
from crtgen.firmware.project.sample import sample_files

__all__ = ["board_files", "library_file", "platform_files", "read_me"]

_CONF = {
    "server": ("CONFIG_CRTGEN_RECEIVE_SIZE={receive_buffer}",),
    "standalone": ("CONFIG_CRTGEN_STANDALONE=y", "CONFIG_PRINTK=y"),
}
_REPLACED = {
    "server": ("CONFIG_MAIN_STACK_SIZE=",),
    "standalone": ("CONFIG_MAIN_STACK_SIZE=", "CONFIG_UART_CONSOLE=", "#"),
}
_RUN_NOTE = {
    "server": "It serves the RPC on the console's UART, or on the chosen node `crtgen,rpc`.",
    "standalone": "It prints the outputs on the console.",
}


@dataclass(frozen=True, slots=True)
class _LibraryView:
    title: str
    core: str
    needs_fpu: bool
    has_npu: bool
    model_level: str
    definitions: tuple[str, ...]
    model_sources: tuple[str, ...]
    runtime_sources: tuple[str, ...]
    include_dirs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _MailboxView:
    board: str
    mailbox: str


@dataclass(frozen=True, slots=True)
class _ZephyrReadmeView:
    title: str
    version: str
    is_library: bool
    is_server: bool
    has_registry: bool
    models: tuple[object, ...]
    board: str
    other_names: str
    run_note: str


def platform_files(firmware: FirmwareRequest) -> dict[str, bytes]:
    """Return the application: every file of ``zephyr_app/`` that it needs, its options, and its built-in
    input.
    """
    if firmware.type == "library":
        return {}
    root = zephyr_app_dir()
    files = {path: (root / path).read_bytes() for path in _application(root, firmware.type)}
    files["prj.conf"] = _configuration(files["prj.conf"].decode(), firmware).encode()
    if firmware.type == "server" and firmware.board.mailbox is not None:
        files |= {path: text.encode() for path, text in _mailbox(firmware.board).items()}
    if firmware.type == "standalone":
        files |= {f"src/{name}": text.encode() for name, text in sample_files(firmware).items()}
    return files


def library_file(
    firmware: FirmwareRequest,
    title: str,
    model_level: str,
    model_sources: tuple[str, ...],
    runtime_sources: tuple[str, ...],
    include_dirs: tuple[str, ...],
) -> str:
    """Return ``crtgen.cmake``: models and runtime as CMake libraries."""
    is_library = firmware.type == "library"  # which has a file of definitions
    definitions = {
        "CRT_PROFILE": firmware.options.profile,
        "CRT_TVM_CODE": firmware.has_backend,
        "CRT_ARENA_GUARD": firmware.type == "server",
        f"CRT_SHARED_ARENA={firmware.shared_arena}": bool(firmware.shared_arena),
        f"CRT_RECORD={firmware.options.record}": bool(firmware.options.record) and not is_library,
        "CRT_DRIFT": bool(firmware.watched) and not is_library,
        f"CRT_POOL_BLOCKS={firmware.blocks}": firmware.has_registry,
        f"CRT_POOL_SIZE={firmware.pool}": firmware.has_registry,
    }
    chosen = tuple(name for name, wanted in definitions.items() if wanted)
    core = firmware.board.core
    view = _LibraryView(
        title=title,
        core=core.name,
        needs_fpu=core.mve,
        has_npu=firmware.uses_arms_driver,
        model_level=model_level,
        definitions=chosen,
        model_sources=model_sources,
        runtime_sources=runtime_sources,
        include_dirs=include_dirs,
    )
    return render("project/zephyr/crtgen.cmake.j2", v=view)


def read_me(firmware: FirmwareRequest, title: str, version: str, models: tuple[object, ...]) -> str:
    view = _ZephyrReadmeView(
        title=title,
        version=version,
        is_library=firmware.type == "library",
        is_server=firmware.type == "server",
        has_registry=firmware.has_registry,
        models=models,
        board=firmware.board.zephyr[0].name,
        other_names=_other_names(firmware.board),
        run_note=_RUN_NOTE.get(firmware.type, ""),
    )
    return render("project/zephyr/README.md.j2", v=view)


def board_files(board: Board) -> list[str]:
    """Return where an application has files for the board, without suffix, for each of its names.

    Zephyr looks for ``boards/<board>_<qualifiers>``. Zephyr 4 refuses a file of this name without the SoC if
    the board has several SoCs. A former name that is equal to it has its files in ``boards/before-4``, where
    the application's CMakeLists.txt looks.
    """
    names = [entry.name.split("/") for entry in board.zephyr]
    refused = {"_".join([name[0], *name[2:]]) for name in names if len(name) > 2}
    files = ["_".join(name) for name in names]
    return [f"boards/before-4/{file}" if file in refused else f"boards/{file}" for file in files]


def _mailbox(board: Board) -> dict[str, str]:
    # The driver of the board's mailbox; it is for this board only, by each of its names.
    view = _MailboxView(board.name, f"{board.mailbox:#010x}")
    confs = (f"{path}.conf" for path in board_files(board))
    return {
        "src/mailbox.c": render("project/common/mailbox.c.j2", v=view),
        **dict.fromkeys(confs, "CONFIG_CRTGEN_MAILBOX=y\n"),
    }


def _other_names(board: Board) -> str:
    names = (f"`{e.name}` from Zephyr {'.'.join(map(str, e.since))} on" for e in board.zephyr[1:])
    text = ", ".join(names)
    return f"The board is called {text}." if text else ""


def _application(root: Path, type: str) -> list[str]:
    found = (f.relative_to(root).as_posix() for f in sorted(root.rglob("*")) if f.is_file())
    unused = {"server": "src/standalone.c", "standalone": "src/server.c"}[type]
    return [path for path in found if path not in (unused, "sample.yaml", "README.md")]


def _configuration(text: str, firmware: FirmwareRequest) -> str:
    # ``prj.conf`` with the options of the project instead of the application's own.
    kept = [line for line in text.splitlines() if not line.startswith(_REPLACED[firmware.type])]
    added = [line.format(receive_buffer=firmware.receive_buffer) for line in _CONF[firmware.type]]
    added += ["CONFIG_CRTGEN_NPU=y"] if firmware.has_npu else []
    return "\n".join([*kept, f"CONFIG_MAIN_STACK_SIZE={firmware.stack}", *added]) + "\n"
