"""The page of operators is what the tables say."""

import subprocess
import sys

from tests.support import ROOT


def test_the_page_of_operators_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "operators.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
