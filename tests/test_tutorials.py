"""The tutorials: their commands are typed, their Python runs, their C compiles; and the site is built."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crtgen.boards import CORES
from crtgen.cli.app import app
from tests.support import ROOT, copy_checkout, require_tool

TUTORIALS = ROOT / "docs" / "tutorials"
_WAIT = 60
"""Seconds until a device has made its line."""


def blocks(page: str, language: str) -> list[str]:
    text = (TUTORIALS / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def type_commands(page: str, *crtgen: str | Path) -> None:
    """Type every command of a page; what the page says is printed has to be in its output.

    ``crtgen`` is the command line that starts it; without one the commands run in this process.
    """
    devices: list[subprocess.Popen[bytes]] = []
    try:
        _type(page, devices, *crtgen)
    finally:
        for device in devices:
            device.kill()
            device.wait()


def _type(page: str, devices: list[subprocess.Popen[bytes]], *crtgen: str | Path) -> None:
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *expected = part.splitlines()
            program, *arguments = command.split()
            if program == "pip":
                continue
            if program.startswith("qemu-"):
                devices.append(_device(require_tool(program), arguments))
                continue
            assert program == "crtgen"
            code, stdout, output = _typed(crtgen, arguments)
            assert code == 0, f"{command}\n{output}"
            for line in expected:
                assert line in stdout, f"{command}: {line}\n{stdout}"


def _device(program: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    """A simulated board in the background, whose serial port is a socket."""
    assert arguments.pop() == "&"
    device = subprocess.Popen([program, *arguments])
    line = Path(next(a for a in arguments if a.startswith("unix:")).removeprefix("unix:").partition(",")[0])
    end = time.monotonic() + _WAIT
    while not line.exists():
        assert device.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    return device


def _typed(crtgen: Sequence[str | Path], arguments: list[str]) -> tuple[int, str, str]:
    """Exit code, standard output, and all output."""
    if not crtgen:
        here = CliRunner().invoke(app, arguments, catch_exceptions=False)
        return here.exit_code, here.stdout, here.output
    done = subprocess.run([*crtgen, *arguments], capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stdout + done.stderr


def compile_c(page: str, library: Path) -> None:
    """The C of a page against a generated library, for the Cortex-M4."""
    (source,) = blocks(page, "c")
    Path("app.c").write_text(source)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{library}/model", f"-I{library}/runtime/include"]
    command = [
        require_tool("arm-none-eabi-gcc"),
        *CORES["cortex-m4"].gcc_flags,
        *flags,
        "-c",
        "app.c",
        "-o",
        "app.o",
    ]
    subprocess.run(command, check=True, timeout=60)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the demonstration in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").symlink_to(ROOT / "demo")
    return tmp_path


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of crtgen that may be written to, as the current folder."""
    copy_checkout(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.qemu
def test_first_steps(folder: Path) -> None:
    require_tool("qemu-system-arm")
    type_commands("first-steps.md")
    assert (folder / "crtgen.lock.json").exists()


@pytest.mark.qemu
def test_first_steps_in_a_checkout(checkout: Path) -> None:
    """A checkout with settings of its own is still crtgen's: a command works after ``init`` there, too."""
    require_tool("qemu-system-arm")
    run = ["run", "demo/digits.tflite", "--board", "mps2_an386", "--input", "demo/digit.npz"]
    for arguments, shown in ((["init", "demo/digits.tflite"], "crtgen.toml"), (run, "[7] 0.996094")):
        code, found, output = _typed((sys.executable, "-m", "crtgen"), arguments)
        assert code == 0, output
        assert shown in found
    assert not (checkout / "tests").exists(), "it is the copy that ran"


@pytest.mark.qemu
def test_a_network_of_your_own(folder: Path) -> None:
    pytest.importorskip("skl2onnx")
    require_tool("qemu-system-arm")
    (training,) = blocks("own-network.md", "python")
    done = subprocess.run([sys.executable, "-c", training], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.partition("right:")[2]) > 0.85
    type_commands("own-network.md")
    compile_c("own-network.md", Path("net"))


@pytest.mark.qemu
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("page", "module"), [("keras.md", "tensorflow"), ("pytorch-keyword-spotter.md", "torch")]
)
def test_networks_of_large_frameworks(page: str, module: str, folder: Path) -> None:
    """By the Python of ``CRTGEN_TRAINING_PYTHON``, where crtgen's own has no TensorFlow or PyTorch."""
    python = os.environ.get("CRTGEN_TRAINING_PYTHON", sys.executable)
    found = subprocess.run([python, "-c", f"import {module}"], capture_output=True, timeout=300)
    if found.returncode:
        pytest.skip(f"the tutorial {page} was not tried: {python} has no {module}")
    (training,) = blocks(page, "python")
    done = subprocess.run([python, "-c", training], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    right = re.search(r"right: (\d\.\d+)", done.stdout)
    assert right
    assert float(right[1]) > 0.85
    type_commands(page)


@pytest.mark.qemu
@pytest.mark.nightly
def test_an_evening_with_sounds(folder: Path) -> None:
    pytest.importorskip("skl2onnx")
    require_tool("node")
    training = "".join(blocks("sound.md", "python"))
    done = subprocess.run([sys.executable, "-c", training], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (description,) = blocks("sound.md", "toml")
    (folder / "heard.toml").write_text(description)
    right = CliRunner().invoke(app, ["eval", "heard.toml", "clips", "--board", "host", "--json"])
    assert json.loads(right.stdout)["accuracy"] > 0.8
    type_commands("sound.md")
    compile_c("sound.md", Path("firmware"))


@pytest.mark.qemu
@pytest.mark.nightly
@pytest.mark.parametrize("page", ["recording.md", "slots.md"])
def test_pages_that_need_a_device(page: str, folder: Path) -> None:
    """A device of QEMU runs in the background, as the page says."""
    require_tool("qemu-system-arm")
    type_commands(f"../{page}")


def test_coming_from_tensorflow_lite_micro(folder: Path) -> None:
    data = (ROOT / "demo" / "digits.tflite").read_bytes()
    numbers = ", ".join(f"0x{byte:02x}" for byte in data)
    (folder / "model_data.cc").write_text(f"alignas(16) const unsigned char g_model[] = {{{numbers}}};\n")
    type_commands("tflite-micro.md")
    compile_c("tflite-micro.md", Path("lib"))


@pytest.mark.cc
def test_coming_from_st(folder: Path) -> None:
    type_commands("st-edge-ai.md")


@pytest.mark.cc
def test_the_example_is_built_and_tested(tmp_path: Path) -> None:
    example = ROOT / "examples" / "digits"
    cmake = require_tool("cmake")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for command in ([cmake, "-S", str(example), "-B", str(tmp_path)], [cmake, "--build", str(tmp_path)]):
        subprocess.run(command, check=True, timeout=300, capture_output=True, env=environment)
    said = subprocess.run([tmp_path / "recognise"], capture_output=True, text=True, timeout=60, check=True)
    assert re.fullmatch(r"it is a 1, (0\.\d\d|1\.00)\n", said.stdout)
    suite = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(example),
    ]
    done = subprocess.run(
        [*suite, "--crtgen-target", "host", str(example)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


@pytest.mark.nightly
def test_the_site_is_built(tmp_path: Path) -> None:
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    python = (tmp_path / "python" / "index.html").read_text()
    assert "crtgen.device.session.Session" in python
    assert "Run one inference: an array per input" in python, "docstrings are there"
    pages = [page for page in tmp_path.rglob("*.html") if page.name != "404.html"]
    for page in pages:
        fetched = re.findall(r'(?:src|href)="(https?://[^"]+\.(?:js|css|woff2?))"', page.read_text())
        assert not fetched, f"{page}: fetched from elsewhere"
