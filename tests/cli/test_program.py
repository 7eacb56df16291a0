"""The program as a process: it leaves nothing running, and speaks JSON when it is asked to."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from crtgen.base.version import __version__
from crtgen.cli import app
from tests.support import ROOT, is_gone, nightly, require_tool

PROGRAM = """
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup ignores
import crtgen
from crtgen.cli import app
from crtgen.base.version import __version__
image = crtgen.load(sys.argv[1]).compile("mps2_an386").generate().build()
app.end_like_an_exit()
with image.run() as session:
    print(session.device.process.pid, flush=True)
    import time
    time.sleep(60)
"""


@pytest.mark.qemu
@pytest.mark.parametrize("number", [signal.SIGTERM, nightly(signal.SIGHUP)])
def test_a_signal_ends_qemu(number: signal.Signals) -> None:
    require_tool("qemu-system-arm")
    model = str(ROOT / "demo" / "digits.tflite")
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, model], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    qemu = int(process.stdout.readline())
    os.kill(qemu, 0)
    process.send_signal(number)
    assert process.wait(120) == 128 + number
    process.stdout.close()
    for _ in range(1200):
        if not Path(f"/proc/{qemu}").exists():
            return
        time.sleep(0.05)
    pytest.fail(f"QEMU, process {qemu}, survived")


UNWELL = """
import os, signal, time
from crtgen.cli import app
class Object:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
app.end_like_an_exit()
Object()
time.sleep(60)
"""


def test_a_signal_while_an_object_is_removed_ends_the_program_without_a_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", UNWELL], capture_output=True, timeout=50)
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, b"")


@pytest.mark.parametrize("place", ["a b", nightly("/proc")])
def test_a_build_that_is_ended_leaves_no_word_and_no_process(tmp_path: Path, place: str) -> None:
    """Temporary folders have a space in their name, or are where no file can be."""
    model = str(ROOT / "demo" / "digits.tflite")
    tools, pid = tmp_path / "tools", tmp_path / "pid"
    tools.mkdir()
    (tmp_path / "a b").mkdir()
    (tools / "cmake").write_text(f"#!/bin/sh\necho $$ > {pid}.new\nmv {pid}.new {pid}\nexec sleep 60\n")
    (tools / "cmake").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(tmp_path / place)}
    command = [sys.executable, "-m", "crtgen", "verify", model, "--board", "host"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe)
    for _ in range(1200):
        if pid.exists() or process.poll() is not None:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 128 + signal.SIGTERM
    assert is_gone(int(pid.read_text()))


def test_nohup_holds() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        app.end_like_an_exit()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not before[signal.SIGTERM]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["run"], "Missing argument"), (["run", "net.tflite", "--bogus"], "--bogus"), (["absent"], "absent")],
)
def test_wrong_usage_as_json(arguments: list[str], message: str) -> None:
    command = [sys.executable, "-c", "from crtgen.cli import main; main()", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    answer = json.loads(done.stdout)
    assert answer["error"] == "UsageError"
    assert answer["exit_code"] == 2
    assert message in answer["message"]


@pytest.mark.parametrize("closed", ["stdin", "stdout", "stderr"])
def test_a_closed_stream_is_no_traceback(closed: str) -> None:
    redirection = {"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-"}[closed]
    command = f"{sys.executable} -m crtgen boards {redirection}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120, check=True)
    assert ("mps2_an386" in done.stdout) == (closed != "stdout")
    assert done.stderr == ""


_START = """
import sys, signal
from crtgen.__main__ import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv[1:] = ["boards"]
print("up", flush=True)
try:
    main()
except SystemExit as end:
    sys.exit(end.code)
"""


@pytest.mark.parametrize("wait", [0.05, 0.2, 0.4])
def test_an_interrupt_while_it_starts_is_no_traceback(wait: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _START], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    time.sleep(wait)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert "Traceback" not in errors
    assert process.returncode in (-signal.SIGINT, 130, 0)


def test_the_version_is_an_answer_without_the_compiler() -> None:
    program = (
        "import sys; sys.argv = ['crtgen', '--version']\n"
        "from crtgen.__main__ import main; main()\n"
        "print(sorted(m for m in sys.modules if m in ('numpy', 'typer', 'crtgen.api')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == [f"crtgen {__version__}", "[]"]


def test_help_comes_at_once_and_without_an_argument() -> None:
    """Commands are loaded when they are called: most of what a start costs is behind some of them."""
    program = "import sys\nfrom crtgen.cli import main\ntry:\n    main()\nexcept SystemExit as end:\n"
    program += (
        "    print(end.code, sorted({'numpy', 'onnx', 'crtgen.compiler.kernels'} & sys.modules.keys()))"
    )
    shown = [
        subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=60)
        for words in ([], ["-h"])
    ]
    assert shown[0].stdout == shown[1].stdout
    lines = shown[0].stdout.splitlines()
    assert lines[0].startswith("Usage: crtgen ")
    assert lines[-1] == "0 []"
    assert len(lines) <= 25, "a screen of 24 lines, and what this test prints"


def test_what_help_says_of_a_command_is_what_the_command_says() -> None:
    loaded = typer.main.get_command(app.app).commands  # type: ignore[attr-defined]
    said = {name: summary for group in app.COMMANDS.values() for name, summary in group.items()}
    assert said == {name: command.help.partition("\n\n")[0] for name, command in loaded.items()}


def test_help_shows_the_usual_options_and_on_request_the_others() -> None:
    usual, every = (CliRunner().invoke(app.app, ["run", option]).stdout for option in ("-h", "--help-all"))
    assert "--board" in usual
    assert "--core-dump" not in usual
    assert "--core-dump" in every
    assert len(usual.splitlines()) <= 60
    assert "--help-all" not in CliRunner().invoke(app.app, ["quantize", "-h"]).stdout, "it has few"


@pytest.mark.parametrize("command", ["run digits.tflite --board", "fit digits.tflite -b"])
def test_a_shell_completes_the_name_of_a_board(command: str) -> None:
    words = f"crtgen {command} mps2_an5"
    asked = {
        "_CRTGEN_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = subprocess.run(
        [str(Path(sys.executable).parent / "crtgen")],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["mps2_an500", "mps2_an505", "mps2_an521"]
