"""A bounded fuzz of the server under ASan and UBSan. CRTGEN_FUZZ_SECONDS makes it longer."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.runtime.build import SANITIZE, compile_program

pytestmark = pytest.mark.cc


def test_fuzz(tmp_path: Path) -> None:
    program = compile_program(tmp_path / "fuzz", "fuzz.c", flags=(*SANITIZE, "-O2", "-DCRT_PROFILE"))
    seconds = int(os.environ.get("CRTGEN_FUZZ_SECONDS", "5"))
    done = subprocess.run(
        [program, str(seconds), "1"], capture_output=True, text=True, timeout=seconds + 120, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    conversations, packets = (int(part.split()[0]) for part in done.stdout.split(","))
    assert packets > conversations > 100
