"""Projects for Zephyr, built in the workspace that is there, and run in QEMU."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from typer.testing import CliRunner

from crtgen import api
from crtgen.base.errors import DeviceFault
from crtgen.boards import all_boards, find_board
from crtgen.cli.app import app
from crtgen.compiler.request import Request
from crtgen.device.rpc.client import Client
from crtgen.device.run import run_standalone, start_qemu
from crtgen.firmware.builder import ZephyrWorkspace
from crtgen.firmware.project import FirmwareRequest, ProjectOptions, generate_project
from crtgen.firmware.project.options import STACK
from crtgen.lab.measure.cases import ReferenceRun, read_cases
from crtgen.network.frontends import load
from tests.device.run.test_faults import RECURSION
from tests.firmware.project.toy import METADATA, toy
from tests.support import ROOT, model_path, symbol_table
from tests.zephyr.workspace import printed, require_workspace, west_build

pytestmark = [pytest.mark.zephyr, pytest.mark.models, pytest.mark.timeout(1200)]

BOARDS = ("mps2_an385", "mps2_an521", "mps3_an547")
MODELS = ("hello_world_int8", "kws_int8", "ic01_int8")


WORKSPACE = require_workspace(module=True)


@pytest.fixture
def workspace() -> ZephyrWorkspace:
    return WORKSPACE


def cases(model: api.Compiled, index: int = 0) -> tuple[ReferenceRun, ...]:
    info = model.modules[index].info
    return read_cases(model_path(info.name).with_suffix(".npz"), info.inputs, info.outputs)


def compiled(board: str, *names: str) -> api.Compiled:
    return api.compile([api.load(model_path(name)) for name in names], board)


def _combinations() -> Iterator[object]:
    """Each model, target and board once; the rest of their combinations belongs to the matrix."""
    pairs = [*((model, "c") for model in MODELS), ("kws_int8", "llvm")]
    for i, (model, target) in enumerate(pairs):
        for j, board in enumerate(BOARDS):
            yield pytest.param(model, target, board, marks=() if i % len(BOARDS) == j else pytest.mark.matrix)


@pytest.mark.parametrize(("model", "target", "board"), list(_combinations()))
def test_a_model_is_verified_over_the_rpc(
    workspace: ZephyrWorkspace, model: str, target: str, board: str
) -> None:
    if target == "llvm":
        pytest.importorskip("llvmlite")
    file = model_path(model)
    arguments = ["verify", str(file), "--board", board, "--platform", "zephyr", "--target", target, "--json"]
    result = CliRunner().invoke(app, [*arguments, "--expect", str(file.with_suffix(".npz"))])
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert (data["board"], data["failed"]) == (board, 0)
    assert data["cases"] >= 8


@pytest.mark.nightly
def test_run_counts_instructions(workspace: ZephyrWorkspace) -> None:
    arguments = ["run", str(model_path("hello_world_int8")), "--board", "mps2_an385", "--json"]
    zephyr = CliRunner().invoke(app, [*arguments, "--platform", "zephyr"])
    bare = CliRunner().invoke(app, arguments)
    assert zephyr.exit_code == bare.exit_code == 0, zephyr.output + bare.output
    one, other = json.loads(zephyr.stdout), json.loads(bare.stdout)
    assert one["outputs"] == other["outputs"]
    assert one["instructions"] == pytest.approx(other["instructions"], rel=0.5)
    assert one["image"]["groups"]["weights"]["flash"] > 0
    assert one["image"]["groups"]["runtime"]["flash"] > 0
    assert one["image"]["arena"] == other["image"]["arena"]


def test_a_standalone_image_prints_its_result(workspace: ZephyrWorkspace) -> None:
    model = compiled("mps2_an385", "kws_int8")
    case = cases(model)[0]
    image = model.generate("standalone", samples={"kws_int8": case.inputs}, platform="zephyr").build()
    finished = run_standalone(image.path, find_board("mps2_an385"), timeout=120)
    assert finished.code == 0
    ran, outputs, last, _ = finished.output.split("\n")
    assert re.fullmatch(r"kws_int8: ran [1-9]\d* ticks", ran)
    assert outputs.split()[1:] == [str(v) for v in case.outputs[0].ravel()]
    assert last == "finished: 0 failed"


@pytest.mark.nightly
def test_two_models_in_one_image(workspace: ZephyrWorkspace) -> None:
    model = compiled("mps2_an521", "hello_world_int8", "kws_int8")
    image = model.generate(platform="zephyr").build()
    with image.run() as session:
        assert [info.name for info in session.models] == ["hello_world_int8", "kws_int8"]
        for index, info in enumerate(session.models):
            for case in cases(model, index)[:2]:
                (output,) = session.infer(*case.inputs, model=info.name)
                np.testing.assert_array_equal(output, case.outputs[0])


@pytest.mark.nightly
def test_a_moved_project_is_built_by_plain_west(workspace: ZephyrWorkspace, tmp_path: Path) -> None:
    model = compiled("mps2_an385", "hello_world_int8")
    first = model.generate("standalone", platform="zephyr").extract(tmp_path / "first")
    first.build()
    moved = tmp_path / "moved"
    shutil.move(tmp_path / "first", moved)
    elf = west_build(workspace, "mps2_an385", moved, tmp_path / "elsewhere")
    assert "finished: 0 failed\n" in printed(elf, "mps2_an385", "finished: ")
    api.open_project(moved).build()  # its build directory came along, made for another place
    assert str(tmp_path / "first") not in (moved / "build" / "CMakeCache.txt").read_text()


@pytest.mark.nightly
def test_a_pool_that_fits_the_large_memory_only(workspace: ZephyrWorkspace) -> None:
    """The overlay of mps3_an547 chooses a memory of 4 MiB: Zephyr's own choice has 512 KiB."""
    model = compiled("mps3_an547", "hello_world_int8")
    case = cases(model)[0]
    with model.generate(pool=2 << 20, platform="zephyr").build().run() as session:
        np.testing.assert_array_equal(session.infer(*case.inputs)[0], case.outputs[0])


def test_the_application_alone_takes_model_files(workspace: ZephyrWorkspace, tmp_path: Path) -> None:
    models = f"-DCRTGEN_MODELS={model_path('hello_world_int8')}"
    elf = west_build(workspace, "mps2_an385", ROOT / "zephyr_app", tmp_path / "b", models)
    with start_qemu(elf, find_board("mps2_an385")) as device, Client(device.stream) as client:
        assert client.aot_executor("hello_world_int8")


@pytest.mark.nightly
def test_the_application_alone_runs_on_zeros(workspace: ZephyrWorkspace, tmp_path: Path) -> None:
    """What twister builds of sample.yaml, and the line that it waits for."""
    options = [f"-DCRTGEN_MODELS={ROOT / 'demo' / 'digits.tflite'}"]
    options += [f"-DCONFIG_{name}=y" for name in ("CRTGEN_STANDALONE", "UART_CONSOLE", "PRINTK")]
    elf = west_build(workspace, "mps2_an385", ROOT / "zephyr_app", tmp_path / "b", *options)
    assert 'regex:\n        - "finished: 0 failed"' in (ROOT / "zephyr_app" / "sample.yaml").read_text()
    assert "finished: 0 failed\n" in printed(elf, "mps2_an385", "finished: ")


def test_nothing_is_lost_in_a_ring_that_is_too_small(workspace: ZephyrWorkspace, tmp_path: Path) -> None:
    model = compiled("mps2_an385", "kws_int8")
    project = model.generate(platform="zephyr").extract(tmp_path / "p")
    with (project.directory / "prj.conf").open("a") as file:
        file.write("CONFIG_CRTGEN_RING_SIZE=16\n")
    with project.build().run() as session:
        for case in cases(model):
            np.testing.assert_array_equal(session.infer(*case.inputs)[0], case.outputs[0])


def test_a_fault_is_reported_and_the_device_starts_again(workspace: ZephyrWorkspace, tmp_path: Path) -> None:
    model = compiled("mps2_an385", "hello_world_int8")
    project = model.generate(platform="zephyr").extract(tmp_path / "p")
    source = project.directory / "model" / "hello_world_int8.c"
    text, count = re.subn(
        r"^((?:static )?\w+ hello_world_int8_compute\([^;{]*\)\n\{)",
        r'\1\n    __asm volatile("udf #0");',
        source.read_text(),
        flags=re.MULTILINE,
    )
    assert count == 1
    source.write_text(text)
    log: list[str] = []
    case = cases(model)[0]
    with project.build().run(on_log=log.append) as session:
        with pytest.raises(DeviceFault, match="undefined instruction in hello_world_int8_compute"):
            session.infer(*case.inputs)
        session.client.connect()
        assert session.client.aot_executor("hello_world_int8")
    assert [line.partition(":")[0] for line in log] == ["fault in hello_world_int8"]


def write_application(directory: Path, call: str) -> None:
    """An application that has nothing to do with crtgen but one line."""
    (directory / "src").mkdir(parents=True)
    (directory / "models").mkdir()
    shutil.copy(model_path("kws_int8"), directory / "models" / "kws.tflite")
    shutil.copy(model_path("hello_world_int8"), directory / "models" / "sine.tflite")
    (directory / "prj.conf").write_text("")
    (directory / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\n"
        "find_package(Zephyr REQUIRED HINTS $ENV{ZEPHYR_BASE})\n"
        "project(hello_world)\n"
        "target_sources(app PRIVATE src/main.c)\n"
        f"{call}\n"
    )
    (directory / "src" / "main.c").write_text(
        "#include <zephyr/kernel.h>\n"
        "#include <kws.h>\n"
        "#include <sine.h>\n"
        "int main(void)\n"
        "{\n"
        "    int8_t in[490] = {0}, out[12], x = 0, y = 0;\n"
        "    struct kws_outputs outputs = {out};\n"
        "    struct sine_outputs sine = {&y};\n"
        "    kws_run(&(struct kws_inputs){in}, &outputs);\n"
        "    sine_run(&(struct sine_inputs){&x}, &sine);\n"
        "    for (int i = 0; i < 12; i++)\n"
        '        printk("%d ", out[i]);\n'
        '    printk("sine %d\\n", y);\n'
        "}\n"
    )


def reference(name: str, *shape: int) -> list[int]:
    graph = load(model_path(name))
    values = graph.evaluate({graph.inputs[0]: np.zeros(shape, np.int8)})
    return [int(v) for v in values[graph.outputs[0]].ravel()]


def test_crtgen_add_model_in_an_application(workspace: ZephyrWorkspace, tmp_path: Path) -> None:
    source = tmp_path / "app"
    write_application(source, "crtgen_add_model(app models/kws.tflite models/sine.tflite OPTIMIZE size)")
    elf = west_build(workspace, "mps2_an521", source, tmp_path / "b", f"-DZEPHYR_EXTRA_MODULES={ROOT}")
    text = printed(elf, "mps2_an521", "sine")
    expected = " ".join(map(str, reference("kws_int8", 1, 49, 10, 1)))
    assert f"{expected} sine" in text
    assert "-O2" not in (tmp_path / "b" / "crtgen" / "crtgen.cmake").read_text()


@pytest.mark.parametrize(
    ("board", "places", "configuration", "memory"),
    [
        (
            "mps2_an521",
            "kernels=SRAM weights=SRAM",
            "CONFIG_CODE_DATA_RELOCATION_SRAM=y\n",
            range(0x38000000, 0x38400000),
        ),
        pytest.param(
            "mps3_an547",
            "kernels=DTCM weights=DTCM arena=DTCM",
            "CONFIG_FPU=y\nCONFIG_FPU_SHARING=y\n",
            range(0x30000000, 0x30080000),
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_crtgen_add_model_places_parts(
    workspace: ZephyrWorkspace, tmp_path: Path, board: str, places: str, configuration: str, memory: range
) -> None:
    source = tmp_path / "app"
    write_application(source, f"crtgen_add_model(app models/kws.tflite models/sine.tflite PLACE {places})")
    (source / "prj.conf").write_text(f"CONFIG_CODE_DATA_RELOCATION=y\n{configuration}")
    overlays = ROOT / "zephyr_app" / "boards"
    shutil.copytree(overlays, source / "boards")  # mps3_an547: Zephyr's SRAM is not the DTCM
    elf = west_build(workspace, board, source, tmp_path / "b", f"-DZEPHYR_EXTRA_MODULES={ROOT}")
    expected = " ".join(map(str, reference("kws_int8", 1, 49, 10, 1)))
    assert f"{expected} sine" in printed(elf, board, "sine")
    with elf.open("rb") as file:
        found = {s.name: s["st_value"] & ~1 for s in symbol_table(ELFFile(file)).iter_symbols()}
    parts = {
        "kernels": r"(kws|sine)_(conv2d|fully_connected|softmax)_\d",
        "weights": r"crt_param_(kws|sine)_.*",
        "arena": r"crt_shared_arena",
    }
    for part, pattern in parts.items():
        addresses = [address for name, address in found.items() if re.fullmatch(pattern, name)]
        assert addresses
        if f"{part}=" in places:
            assert all(address in memory for address in addresses), part


def configure(
    workspace: ZephyrWorkspace, board: str, source: Path, build: Path
) -> "subprocess.CompletedProcess[str]":
    """CMake's part of a build, for a board of crtgen or, if it has none of this name, of Zephyr."""
    name = (
        found.zephyr_name(workspace.version)
        if (found := {each.name: each for each in all_boards()}.get(board))
        else board
    )
    command = ["west", "build", "-c", "--cmake-only", "-b", name, "-d", str(build), str(source)]
    return subprocess.run(
        [*command, "--", f"-DZEPHYR_EXTRA_MODULES={ROOT}"],
        cwd=workspace.top,
        env=workspace.environment(),
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_crtgen_add_model_on_a_board_that_crtgen_does_not_know(
    workspace: ZephyrWorkspace, tmp_path: Path
) -> None:
    write_application(tmp_path / "app", "crtgen_add_model(app models/kws.tflite)")
    result = configure(workspace, "qemu_cortex_m3", tmp_path / "app", tmp_path / "b")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "-mcpu=cortex-m3 " in (tmp_path / "b" / "crtgen" / "crtgen.cmake").read_text()


@pytest.mark.nightly
def test_crtgen_add_model_on_a_core_with_helium(workspace: ZephyrWorkspace, tmp_path: Path) -> None:
    """It stops with the lines that are missing; with them it works."""
    source = tmp_path / "app"
    write_application(source, "crtgen_add_model(app models/kws.tflite models/sine.tflite)")
    refused = configure(workspace, "mps3_an547", source, tmp_path / "refused")
    lines = re.findall(r"^ *(CONFIG_FPU\w*=y)$", refused.stdout + refused.stderr, re.MULTILINE)
    assert (refused.returncode != 0, lines) == (True, ["CONFIG_FPU=y", "CONFIG_FPU_SHARING=y"])
    (source / "prj.conf").write_text("\n".join(lines) + "\n")
    elf = west_build(workspace, "mps3_an547", source, tmp_path / "b", f"-DZEPHYR_EXTRA_MODULES={ROOT}")
    expected = " ".join(map(str, reference("kws_int8", 1, 49, 10, 1)))
    assert f"{expected} sine" in printed(elf, "mps3_an547", "sine")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("crtgen_add_model(app)", "name a model file"),
        ("crtgen_add_model(app models/kwx.tflite)", "there is no file"),
        ("crtgen_add_model(app src/main.c)", "crtgen failed"),
        ("crtgen_add_model(app models/kws.tflite PLACE arena=DTCM)", "Zephyr can place into SRAM"),
        ("crtgen_add_model(app models/kws.tflite)\ncrtgen_add_model(app models/sine.tflite)", "in one call"),
    ],
)
def test_what_crtgen_add_model_refuses(
    workspace: ZephyrWorkspace, tmp_path: Path, call: str, message: str
) -> None:
    write_application(tmp_path / "app", call)
    result = configure(workspace, "mps2_an385", tmp_path / "app", tmp_path / "b")
    assert result.returncode != 0
    assert message in " ".join((result.stdout + result.stderr).split())


def test_west_crtgen_hands_its_arguments_on(workspace: ZephyrWorkspace, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest"
    shutil.copytree(ROOT / "zephyr", manifest / "zephyr")
    (manifest / "west.yml").write_text("manifest:\n  self:\n    west-commands: zephyr/west-commands.yml\n")
    environment = {k: v for k, v in workspace.environment().items() if k != "ZEPHYR_BASE"}
    subprocess.run(["west", "init", "-l", str(manifest)], env=environment, check=True, timeout=120)
    target = tmp_path / "project"
    command = ["west", "crtgen", "generate", str(model_path("hello_world_int8")), str(target)]
    subprocess.run([*command, "-b", "mps2_an385"], cwd=tmp_path, env=environment, check=True, timeout=120)
    assert json.loads((target / "project.json").read_text())["options"]["platform"] == "zephyr"
    refused = subprocess.run(
        ["west", "crtgen", "generate", "nothing.tflite", "x"], cwd=tmp_path, env=environment, timeout=60
    )
    assert refused.returncode != 0


@pytest.mark.parametrize("board", ["mps2_an385", pytest.param("mps3_an547", marks=pytest.mark.matrix)])
def test_a_stack_overflow_is_reported_with_its_cause(workspace: ZephyrWorkspace, board: str) -> None:
    firmware = FirmwareRequest(
        [toy(RECURSION)], METADATA, Request(find_board(board)), ProjectOptions(platform="zephyr")
    )
    with api.GeneratedProject(generate_project(firmware)).build().run() as session:
        with pytest.raises(DeviceFault, match="stack overflow, called from run") as caught:
            session.infer(np.zeros((1, 4), np.int8))
        fault = caught.value
        assert fault.fault_registers["cfsr"] != 0
        assert fault.registers["r4"] != 0
        assert fault.stack_used >= fault.stack_size == STACK
        session.client.connect()
        assert session.client.info() is not None


def test_a_watchdog_ends_a_run_without_end(workspace: ZephyrWorkspace, tmp_path: Path) -> None:
    board = find_board("mps2_an385")
    firmware = FirmwareRequest(
        [toy("for (;;) {}")], METADATA, Request(board), ProjectOptions(platform="zephyr")
    )
    project = api.GeneratedProject(generate_project(firmware)).extract(tmp_path / "p")
    with (project.directory / "prj.conf").open("a") as file:
        file.write("CONFIG_CRTGEN_WATCHDOG_SECONDS=1\n")
    with project.build().run() as session:
        with pytest.raises(DeviceFault, match="watchdog: no progress in run") as caught:
            session.infer(np.zeros((1, 4), np.int8))
        assert caught.value.uptime > 1
        session.client.connect()
        time.sleep(3)  # what waits for a request feeds it
        assert session.client.info() is not None


def test_a_float_model_on_a_core_without_fpu(workspace: ZephyrWorkspace) -> None:
    """Its arithmetic is in libgcc, which Zephyr links before the models."""
    model = compiled("mps2_an385", "hello_world_float")
    with model.generate(platform="zephyr").build().run() as session:
        for case in cases(model)[:2]:
            (output,) = session.infer(*case.inputs)
            assert output.tolist()[0] == pytest.approx(case.outputs[0].tolist()[0], rel=1e-5)
