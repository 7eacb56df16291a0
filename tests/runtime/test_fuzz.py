"""A bounded fuzz of the server under ASan and UBSan. CRTGEN_FUZZ_CONVERSATIONS makes it longer."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runtime.build import SANITIZE, TRAPPED, compile_program, zig
from tests.support import nightly

pytestmark = pytest.mark.cc


@pytest.mark.parametrize(
    ("compiler", "extra"), [("gcc", ()), nightly("clang", ()), ("gcc", ("-DCRT_SLOTS", "-DCRT_RECORD=2"))]
)
def test_fuzz(tmp_path: Path, compiler: str, extra: tuple[str, ...]) -> None:
    """Clang's UBSan finds what gcc's does not; zig has one, too, where clang is not installed."""
    command: tuple[str, ...] = (compiler,)
    flags: tuple[str, ...] = SANITIZE
    if compiler == "clang" and shutil.which("clang") is None:
        command, flags = zig(), TRAPPED
    flags = (*flags, "-DCRT_PROFILE", *extra)
    program = compile_program(tmp_path / "fuzz", "fuzz.c", compiler=command, flags=flags)
    count = int(os.environ.get("CRTGEN_FUZZ_CONVERSATIONS", "2000"))
    done = subprocess.run(
        [program, str(count), "1"], capture_output=True, text=True, timeout=120 + count, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > count
