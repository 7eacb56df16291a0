"""Every board, as QEMU simulates it: firmware starts, computes, answers, counts, and reports its faults."""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards import find_board
from crtgen.device.rpc.client import SIMULATOR, Client
from crtgen.device.run import RunningDevice, run_standalone, start_device
from tests.firmware.project.building import BOARDS, build, build_toy, toy_project
from tests.support import absent, nightly, require_tool

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(1200)]

X = np.array([[1, -2, -128, 5]], np.int8)
Y = np.array([[-1, 2, 127, -5]], np.int8)


@pytest.fixture(autouse=True)
def _tools() -> None:
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi libnewlib-arm-none-eabi")
    require_tool("qemu-system-arm", "apt install qemu-system-arm")


_BOARDS = [board if board == "mps2_an386" else nightly(board) for board in BOARDS]
"""Others run networks on a push: ``tests/system``."""


@pytest.fixture(scope="module", params=_BOARDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Name of a board, and a server image for it."""
    require_tool("arm-none-eabi-gcc")
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, build_toy(request.param, "server", folder, pool=65536)


@pytest.fixture
def device(server: tuple[str, Path]) -> Iterator[RunningDevice]:
    with start_device(server[1], find_board(server[0])) as running:
        assert isinstance(running, RunningDevice)
        yield running


@pytest.mark.parametrize("board", _BOARDS)
def test_a_standalone_image_prints_its_outputs(tmp_path: Path, board: str) -> None:
    image = build_toy(board, "standalone", tmp_path, samples={"toy": [X]})
    result = run_standalone(image, find_board(board), timeout=120)
    assert result.code == 0
    assert re.fullmatch(r"toy: ran \d+ ticks\ny -1 2 127 -5\nfinished: 0 failed\n", result.output)


@pytest.mark.parametrize("board", map(nightly, BOARDS))
def test_an_image_by_zig_prints_the_same(tmp_path: Path, board: str) -> None:
    if find_spec("ziglang") is None:
        absent("ziglang", "pip install ziglang")
    zig = f"-DCMAKE_TOOLCHAIN_FILE={tmp_path}/cmake/zig.cmake"
    result = build(toy_project(board, "standalone", samples={"toy": [X]}), tmp_path, zig)
    finished = run_standalone(result / "firmware.elf", find_board(board), timeout=120)
    assert (finished.code, finished.output.splitlines()[1]) == (0, "y -1 2 127 -5")


def test_a_server_computes(device: RunningDevice) -> None:
    with Client(device.stream, timeouts=SIMULATOR) as client:
        executor = client.aot_executor("toy")
        executor.set_input(0, X)
        executor.run()
        assert np.array_equal(executor.get_output(0), Y)


def test_ticks_count_instructions(server: tuple[str, Path], device: RunningDevice) -> None:
    """A loop of 2n instructions takes 2n ns; the longer one is more than one turn of SysTick, which is the
    same code on each board.
    """
    timer = find_board(server[0]).timer
    assert timer is not None
    with Client(device.stream, timeouts=SIMULATOR) as client:
        assert client.ticks_per_second() == timer.clock
        for loops in (1_000_000, 400_000_000)[: 2 if server[0] == "mps2_an386" else 1]:
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


def test_after_a_shutdown_the_board_serves_again(device: RunningDevice) -> None:
    with Client(device.stream, timeouts=SIMULATOR) as client:
        client.shutdown()
        client.connect()
        assert client.info() is not None
    assert device.output() == ""


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
    assert run_standalone(image, find_board("mps3_an547"), timeout=120).code == 0


def test_a_profiled_image_gives_the_ticks_of_each_layer(tmp_path: Path) -> None:
    board = find_board("mps2_an386")
    spin = "for (volatile int i = 0; i < 100000; i++) {} CRT_LAYER_TIMED(0);"
    image = build_toy(board.name, "server", tmp_path, body=spin, profile=True)
    with start_device(image, board) as device, Client(device.stream, timeouts=SIMULATOR) as client:
        executor = client.aot_executor("toy")
        layers, runs = client.profile(executor), client.measure(executor, 1)
        assert layers is not None
        assert runs is not None
        (layer,), (run,) = layers.tolist(), runs.tolist()
        assert layer > 100_000 / 40
        assert run == pytest.approx(layer, rel=0.01)
