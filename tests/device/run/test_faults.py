"""Each kind of fault on each board of QEMU: reported with its cause; then the board starts again."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crtgen.base.errors import DeviceFault
from crtgen.boards import find_board
from crtgen.cli.app import app
from crtgen.device.fault import Symbols, core_dump, describe
from crtgen.device.rpc.client import SIMULATOR, Client
from crtgen.device.run import run_standalone, start_device
from crtgen.firmware.project.options import STACK
from tests.firmware.project.building import BOARDS, build, build_toy, toy_project
from tests.support import require_tool

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(1200)]

UNDEFINED = '__asm volatile("udf #0");'
NOTHING_THERE = "(void)*(volatile int32_t *)0xDFFFFF00u;"
BELOW_THE_STACK = """\
extern uint32_t crt_stack_bottom[];
volatile uintptr_t below = (uintptr_t)crt_stack_bottom - 4;
*(volatile uint32_t *)below = 0;"""
WRITE_TO_CODE = "volatile uint32_t *code = (volatile uint32_t *)(uintptr_t)shape; *code = 1;"
RUN_DATA = "((void (*)(void))(uintptr_t)&arena[1])();"
DIVISION = "volatile int zero = 0; zero = 5 / zero;"
RECURSION = """\
static int32_t (*volatile again)(void);
volatile int32_t pad = 1;
again = toy_model.run;
(void)again();
(void)pad;"""
LARGE_FRAME = """\
volatile char frame[65536];
for (int i = 65535; i >= 0; i--)
    frame[i] = 0;
(void)frame[0];"""

KINDS = {
    "undefined": (UNDEFINED, "undefined instruction", "run"),
    "nothing there": (NOTHING_THERE, "access to protected memory", "run"),
    "below the stack": (BELOW_THE_STACK, "access to protected memory", "run"),
    "write to code": (WRITE_TO_CODE, "access to protected memory", "run"),
    "run data": (RUN_DATA, "code where there is none", ""),
    "division": (DIVISION, "division by zero", "run"),
    "recursion": (RECURSION, "stack overflow", ""),
    "large frame": (LARGE_FRAME, "stack overflow", None),
}
IN_CI = (
    *(("mps2_an386", kind) for kind in ("recursion", "large frame", "write to code")),
    *(("mps3_an547", kind) for kind in ("recursion", "division")),
)
REST = [(board, kind) for board in BOARDS for kind in KINDS if (board, kind) not in IN_CI]


@pytest.fixture(autouse=True)
def _tools() -> None:
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi libnewlib-arm-none-eabi")
    require_tool("qemu-system-arm", "apt install qemu-system-arm")


@pytest.mark.parametrize(
    ("board", "kind"), [*IN_CI, *(pytest.param(*case, marks=pytest.mark.nightly) for case in REST)]
)
def test_a_fault_is_reported(tmp_path: Path, board: str, kind: str) -> None:
    body, expected, function = KINDS[kind]
    image = build_toy(board, "standalone", tmp_path, body=body)
    with pytest.raises(DeviceFault) as caught:
        run_standalone(image, find_board(board), timeout=120)
    fault = caught.value
    assert fault.kind == expected, fault
    assert fault.callers[-1] == "crt_reset"
    assert fault.stack_size == STACK
    if function is not None:
        assert fault.function == function
    if expected == "stack overflow" and kind == "recursion":
        assert fault.stack_used >= fault.stack_size
        assert fault.callers[0] == "run"


def test_a_server_reports_a_fault_and_serves_again(tmp_path: Path) -> None:
    board = find_board("mps2_an386")
    image = build_toy(board.name, "server", tmp_path, body=RECURSION)
    log: list[str] = []
    with (
        start_device(image, board) as device,
        Client(device.stream, timeouts=SIMULATOR, on_log=log.append, symbols=Symbols(image)) as client,
    ):
        with pytest.raises(DeviceFault, match="stack overflow, called from run"):
            client.aot_executor("toy").run()
        client.connect()
        assert client.last_fault() is None
        assert client.info() is not None
    assert [line.partition(":")[0] for line in log] == ["fault in toy"]


@pytest.mark.parametrize(
    ("place", "told"), [("    int status = 0;\n", False), ("    crt_server_boot(&server);\n", True)]
)
def test_a_fault_before_any_session_waits_for_the_next(tmp_path: Path, place: str, told: bool) -> None:
    """It lies in memory that the reset leaves alone; the log has it once the server can send one."""
    project = toy_project("mps2_an386", "server")
    name = "platform/main.c"
    text = project.sources[name].decode()
    assert text.count(place) == 1
    broken = f"{place}    if (!crt_fault_is_valid(&crt_last_fault))\n        {UNDEFINED}\n"
    sources = {**project.sources, name: text.replace(place, broken).encode()}
    image = build(replace(project, sources=sources), tmp_path) / "firmware.elf"
    log: list[str] = []
    with (
        start_device(image, find_board("mps2_an386")) as device,
        Client(device.stream, timeouts=SIMULATOR, on_log=log.append, symbols=Symbols(image)) as client,
    ):
        fault = client.last_fault()
        assert fault is not None
        assert describe(fault, Symbols(image)).message.startswith("undefined instruction in main, pc 0x")
        assert client.last_fault() is None
        client.connect()
        assert client.last_fault() is None
    words = ["fault in the server", "before this session"] if told else []
    assert [line.partition(":")[0] for line in log] == words


def test_a_core_dump_opens_in_gdb(tmp_path: Path) -> None:
    gdb = require_tool("gdb-multiarch", "apt install gdb-multiarch")
    image = build_toy("mps2_an386", "standalone", tmp_path, body=UNDEFINED)
    with pytest.raises(DeviceFault) as caught:
        run_standalone(image, find_board("mps2_an386"), timeout=120)
    core = tmp_path / "core"
    core.write_bytes(core_dump(caught.value))
    command = [gdb, "-nx", "-batch", "-ex", "info registers", "-ex", "bt", str(image), str(core)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    registers = {line.split()[0]: line.split()[1] for line in said.splitlines() if "0x" in line}
    assert int(registers["pc"], 16) == caught.value.registers["pc"]
    assert int(registers["sp"], 16) == caught.value.registers["sp"]
    frames = [line for line in said.splitlines() if line.startswith("#")]
    assert " run " in frames[0], said
    assert " main " in frames[-1], said


@pytest.mark.parametrize(
    "board",
    [
        "mps2_an386",
        *(
            pytest.param(b, marks=pytest.mark.nightly)
            for b in BOARDS
            if b != "mps2_an386" and find_board(b).watchdog
        ),
    ],
)
def test_a_watchdog_ends_a_run_without_end(tmp_path: Path, board: str) -> None:
    waits = 'for (;;) __asm volatile("wfi");'  # no instruction is simulated meanwhile
    project = toy_project(board, "server", body=waits)
    name = "platform/platform.h"
    quick = project.sources[name].replace(b"CRT_WATCHDOG_SECONDS 60u", b"CRT_WATCHDOG_SECONDS 1u")
    assert quick != project.sources[name]
    image = build(replace(project, sources={**project.sources, name: quick}), tmp_path) / "firmware.elf"
    with (
        start_device(image, find_board(board)) as device,
        Client(device.stream, timeouts=SIMULATOR, symbols=Symbols(image)) as client,
    ):
        with pytest.raises(DeviceFault, match="watchdog: no progress in run") as caught:
            client.aot_executor("toy").run(timeout=300)
        assert caught.value.uptime > 1
        client.connect()
        assert client.info() is not None


def test_a_fault_can_wait_for_a_debugger(tmp_path: Path) -> None:
    image = build(toy_project("mps2_an386", "server", body=UNDEFINED), tmp_path, "-DCRT_KEEP_FAULT=ON")
    with (
        start_device(image / "firmware.elf", find_board("mps2_an386")) as device,
        Client(device.stream, timeouts=SIMULATOR) as client,
    ):
        with pytest.raises(DeviceFault):
            client.aot_executor("toy").run()
        assert device.process.poll() is None  # type: ignore[union-attr]


def test_the_command_line_tells_of_a_fault(tmp_path: Path) -> None:
    toy_project("mps2_an386", "server", body=UNDEFINED).extract(tmp_path / "p")
    core = tmp_path / "core"
    result = CliRunner().invoke(app, ["run", str(tmp_path / "p"), "--json", "--core-dump", str(core)])
    assert result.exit_code == 7, result.output
    told = json.loads(result.stdout)
    assert told["error"] == "DeviceFault"
    assert told["message"].startswith("undefined instruction in run, pc 0x")
    assert (told["fault"]["kind"], told["fault"]["function"]) == ("undefined instruction", "run")
    assert told["fault"]["callers"][0] in ("crt_executor_run", "crt_module_call")
    assert core.read_bytes().startswith(b"\x7fELF")


def test_the_monitor_explains_a_fault(tmp_path: Path) -> None:
    toy_project("mps2_an386", "standalone", body=UNDEFINED).extract(tmp_path)
    result = CliRunner().invoke(app, ["monitor", str(tmp_path), "--seconds", "20"])
    assert result.exit_code == 7, result.output
    assert "undefined instruction in run, pc 0x" in result.stderr
    assert "crtgen.dump" not in result.stdout
