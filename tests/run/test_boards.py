"""Every board, as QEMU simulates it: firmware starts, computes, answers, counts, and reports its faults."""

import re
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards import find_board
from crtgen.errors import LinkError
from crtgen.project import Options
from crtgen.rpc.client import SIMULATOR, Client
from crtgen.run import RunningDevice, run_standalone, start_device
from tests.project.building import BOARDS, build, build_toy, toy_project
from tests.support import absent, require_tool

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(120)]

X = np.array([[1, -2, -128, 5]], np.int8)
Y = np.array([[-1, 2, 127, -5]], np.int8)


@pytest.fixture(autouse=True)
def _tools() -> None:
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi libnewlib-arm-none-eabi")
    require_tool("qemu-system-arm", "apt install qemu-system-arm")


@pytest.fixture(scope="module", params=BOARDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Name of a board, and a server image for it."""
    require_tool("arm-none-eabi-gcc")
    return request.param, build_toy(request.param, "server", tmp_path_factory.mktemp(request.param))


@pytest.fixture
def device(server: tuple[str, Path]) -> Iterator[RunningDevice]:
    with start_device(server[1], find_board(server[0])) as running:
        assert isinstance(running, RunningDevice)
        yield running


@pytest.mark.parametrize("board", BOARDS)
def test_a_standalone_image_prints_its_outputs(tmp_path: Path, board: str) -> None:
    image = build_toy(board, "standalone", tmp_path, samples={"toy": [X]})
    result = run_standalone(image, find_board(board), timeout=20)
    assert result.code == 0
    assert re.fullmatch(r"toy: ran \d+ ticks\ny -1 2 127 -5\n", result.output)


@pytest.mark.parametrize("board", BOARDS)
def test_an_image_by_zig_prints_the_same(tmp_path: Path, board: str) -> None:
    if find_spec("ziglang") is None:
        absent("ziglang", "pip install ziglang")
    zig = f"-DCMAKE_TOOLCHAIN_FILE={tmp_path}/cmake/zig.cmake"
    result = build(toy_project(board, "standalone", samples={"toy": [X]}), tmp_path, zig)
    finished = run_standalone(result / "firmware.elf", find_board(board), timeout=20)
    assert (finished.code, finished.output.splitlines()[1]) == (0, "y -1 2 127 -5")


def test_a_server_computes(device: RunningDevice) -> None:
    with Client(device.stream, timeouts=SIMULATOR) as client:
        executor = client.aot_executor("toy")
        executor.set_input(0, X)
        executor.run()
        assert np.array_equal(executor.get_output(0), Y)


def test_ticks_count_instructions(server: tuple[str, Path], device: RunningDevice) -> None:
    """A loop of 2n instructions takes 2n ns; the longer one is more than one turn of SysTick."""
    timer = find_board(server[0]).timer
    assert timer is not None
    with Client(device.stream, timeouts=SIMULATOR) as client:
        assert client.ticks_per_second() == timer.clock
        for loops in (1_000_000, 400_000_000):
            expected = 2 * loops * timer.clock / 1e9
            assert client.calibrate(loops) == pytest.approx(expected, abs=5)


def test_bytes_arrive_as_they_were_sent(device: RunningDevice) -> None:
    data = np.random.default_rng(7).integers(0, 256, 20_000, np.uint8)
    with (
        Client(device.stream, timeouts=SIMULATOR) as client,
        client.allocate(data.shape, data.dtype) as tensor,
    ):
        tensor.write(data)
        assert np.array_equal(tensor.read(), data)


def test_a_shutdown_ends_the_simulator(device: RunningDevice) -> None:
    with Client(device.stream, timeouts=SIMULATOR) as client:
        client.shutdown()
        assert device.wait(5) == 0
    assert device.output() == ""


def function_range(image: Path, name: str) -> range:
    command = ["arm-none-eabi-nm", "-S", str(image)]
    listing = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    found = re.search(rf"^(\w+) (\w+) \w {name}$", listing, re.MULTILINE)
    assert found is not None, listing
    return range(int(found[1], 16), int(found[1], 16) + int(found[2], 16))


UNDEFINED = '__asm volatile("udf #0");'
BAD_ADDRESS = "(void)*(volatile int32_t *)0xDFFFFF00u;"
DEEP_STACK = "volatile char frame[65536]; for (int i = 65535; i >= 0; i--) frame[i] = 0; (void)frame[0];"


@pytest.mark.parametrize(
    ("board", "body", "cfsr"),
    [
        *((board, UNDEFINED, 1 << 16) for board in BOARDS),  # UNDEFINSTR
        ("mps2_an386", BAD_ADDRESS, 1 << 15 | 1 << 9),  # BFARVALID, PRECISERR
        ("mps2_an505", BAD_ADDRESS, 1 << 15 | 1 << 9),
        ("mps2_an505", DEEP_STACK, 1 << 20),  # STKOF
        ("mps3_an547", DEEP_STACK, 1 << 20),
    ],
)
def test_a_fault_is_reported(tmp_path: Path, board: str, body: str, cfsr: int) -> None:
    image = build_toy(board, "standalone", tmp_path, body=body)
    result = run_standalone(image, find_board(board), timeout=20)
    assert result.code == 70
    found = re.fullmatch(r"fault: pc 0x(\w{8}), lr 0x(\w{8}), cfsr 0x(\w{8})\n", result.output)
    assert found is not None, result.output
    pc, lr, actual = (int(digits, 16) for digits in found.groups())
    assert actual == cfsr
    assert pc in function_range(image, "run")
    if body != DEEP_STACK:
        assert lr - 1 in function_range(image, "main")


TAIL_PREDICATED = """\
static uint8_t bytes[32];
__asm volatile("mov r0, %0\\n\\tmovs r1, #20\\n\\tvmov.i8 q0, #7\\n\\tdlstp.8 lr, r1\\n"
               "1:\\n\\tvstrb.8 q0, [r0], #16\\n\\tletp lr, 1b"
               :: "r"(bytes) : "r0", "r1", "lr", "memory", "q0");
int sum = 0;
for (int i = 0; i < 32; i++)
    sum += bytes[i];
if (sum != 20 * 7) {
    return -1;
}
"""


def test_helium_and_low_overhead_loops_are_enabled(tmp_path: Path) -> None:
    image = build_toy("mps3_an547", "standalone", tmp_path, body=TAIL_PREDICATED)
    assert run_standalone(image, find_board("mps3_an547"), timeout=20).code == 0


def test_a_profiled_image_gives_the_ticks_of_each_layer(tmp_path: Path) -> None:
    board = find_board("mps2_an386")
    spin = "for (volatile int i = 0; i < 100000; i++) {} CRT_LAYER_DONE(0);"
    image = build_toy(board.name, "server", tmp_path, body=spin, options=Options(profile=True))
    with start_device(image, board) as device, Client(device.stream, timeouts=SIMULATOR) as client:
        executor = client.aot_executor("toy")
        layers, runs = client.profile(executor), client.measure(executor, 1)
        assert layers is not None
        assert runs is not None
        (layer,), (run,) = layers.tolist(), runs.tolist()
        assert layer > 100_000 / 40
        assert run == pytest.approx(layer, rel=0.01)


def test_a_fault_in_a_call_reaches_the_host(tmp_path: Path) -> None:
    board = find_board("mps2_an386")
    image = build_toy(board.name, "server", tmp_path, body=BAD_ADDRESS)
    log: list[str] = []
    with (
        pytest.raises(LinkError) as caught,
        start_device(image, board) as device,
        Client(device.stream, timeouts=SIMULATOR, on_log=log.append) as client,
    ):
        client.aot_executor("toy").run()
    assert "cfsr" in str(caught.value).lower()
    assert "cfsr" in "".join(log).lower()
    assert "fault: pc 0x" in caught.value.log
