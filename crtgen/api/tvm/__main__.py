"""The server of the project API, started by a project's ``microtvm_api_server.py``."""

import argparse
import os
from pathlib import Path

from crtgen.api.tvm.project import Handler
from crtgen.api.tvm.rpc import serve

__all__: list[str] = []


def main() -> None:
    """Serve requests from one file descriptor, answering on the other, until the input ends."""
    parser = argparse.ArgumentParser(prog="microtvm_api_server.py")
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--read-fd", type=int, required=True)
    parser.add_argument("--write-fd", type=int, required=True)
    parser.add_argument("--debug", action="store_true")
    given = parser.parse_args()
    handler = Handler(given.project)
    with os.fdopen(given.read_fd, "rb") as source, os.fdopen(given.write_fd, "wb") as target:
        try:
            serve(source, target, handler)
        finally:
            handler.close_transport()


if __name__ == "__main__":
    main()
