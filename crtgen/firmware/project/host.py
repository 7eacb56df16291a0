"""The platform of a host project: the serial port is standard input and output."""

from dataclasses import dataclass

from crtgen.compiler.codegen.render import render
from crtgen.firmware.project.firmware import FirmwareRequest
from crtgen.firmware.project.mlperftiny import BenchmarkView
from crtgen.firmware.project.toolchains import HOST

__all__ = ["platform_files", "toolchain_files"]

_NANOSECONDS = 1_000_000_000
_READ_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class _HostView:
    board: str
    is_host: bool
    is_server: bool
    has_backend: bool
    clock: int
    receive_buffer: int
    pool: int
    chunk: int
    benchmark: BenchmarkView | None
    mailbox: str = ""
    watchdog: None = None
    slots: None = None
    second_core: str = ""
    npu: None = None
    npu_mailbox: str = ""


def platform_files(firmware: FirmwareRequest) -> dict[str, str]:
    view = _HostView(
        board=firmware.board.name,
        is_host=True,
        is_server=firmware.listens,
        has_backend=firmware.has_backend,
        clock=_NANOSECONDS,
        receive_buffer=firmware.receive_buffer,
        pool=firmware.pool,
        chunk=_READ_CHUNK,
        benchmark=firmware.benchmark,
        second_core=firmware.board.second_core if firmware.request.cores == 2 else "",
    )
    templates = {
        "platform.h": "common/platform.h",
        "main.c": f"common/main_{firmware.type}.c",
        "platform.c": "host/platform.c",
    }
    if view.second_core:
        templates["second_thread.c"] = "host/second_thread.c"
    return {name: render(f"project/{template}.j2", v=view) for name, template in templates.items()}


def toolchain_files() -> dict[str, str]:
    return {f"{t}.cmake": render(f"project/host/{t}.cmake.j2") for t in HOST}
