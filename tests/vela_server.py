"""Vela in a process that is started once.

Most of a short run of Vela is Python's imports. So tests have one process of it, which forks for each run:
the child does what ``python -m ethosu.vela`` does. An order is a line of JSON, an answer a line with the exit
code.

usage: python -m tests.vela_server
"""

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support import ROOT

__all__ = ["VelaServer"]


class VelaServer:
    """Stands in for ``run_to_end`` where Vela is started. The process begins with the first run."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, command: Sequence[str], *, time_limit: float, directory: Path) -> tuple[int | None, str]:
        """Run ``python -m ethosu.vela`` with these arguments; return its exit code and output."""
        _, module, name, *arguments = command
        assert (module, name) == ("-m", "ethosu.vela")
        if self._process is None:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            own = [sys.executable, "-m", "tests.vela_server"]
            self._process = subprocess.Popen(own, cwd=ROOT, **pipes)
        log = directory / "log"
        order = {"arguments": arguments, "directory": str(directory), "log": str(log)}
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        asked.write(json.dumps(order) + "\n")
        asked.flush()
        return int(answers.readline()), log.read_text()

    def end(self) -> None:
        if self._process is not None:
            self._process.communicate(timeout=60)


def _child(order: dict[str, Any]) -> int:
    # One run of Vela, whose output goes to the log.
    from ethosu.vela.vela import main

    os.chdir(order["directory"])
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.argv[1:] = order["arguments"]
    try:
        return int(main() or 0)
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1


def _serve() -> None:
    import ethosu.vela.vela  # noqa: F401  once, for all children

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = _child(json.loads(line))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    _serve()
