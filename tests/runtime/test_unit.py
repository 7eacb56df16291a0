"""The parts of the runtime that need no conversation: registry, pool, frames, session, time, backend."""

import subprocess
from pathlib import Path

import pytest

from tests.runtime.build import SANITIZE, TRAPPED, compile_program, vectors_header, zig
from tests.support import nightly

pytestmark = pytest.mark.cc


@pytest.mark.parametrize("compiler", ["gcc", nightly("zig")])
def test_units(tmp_path: Path, compiler: str) -> None:
    """The C checks: golden vectors whole, byte by byte and in random splits among them."""
    (tmp_path / "vectors.h").write_text(vectors_header())
    if compiler == "gcc":
        program = compile_program(tmp_path / "unit", "unit.c", flags=SANITIZE)
    else:
        program = compile_program(tmp_path / "unit", "unit.c", compiler=zig(), flags=TRAPPED)
    done = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
