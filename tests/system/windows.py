"""A crtgen without what Windows lacks: the modules, functions and constants of POSIX are taken away.

``python -m tests.system.windows inspect net.tflite + fit net.tflite`` runs both commands. Line ends and
names that differ in case only have tests of their own.
"""

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from types import ModuleType

import serial

LOADED = (serial, subprocess)
"""Modules that read properties of this system when they are imported."""

LACKING: Iterable[tuple[ModuleType, tuple[str, ...]]] = (
    (signal, ("SIGHUP", "SIGKILL", "SIGPIPE", "SIGALRM", "alarm", "pthread_sigmask")),
    (os, ("getuid", "geteuid", "getgid", "killpg", "setsid", "fork", "openpty", "pread", "memfd_create")),
    (os, ("O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "O_NOCTTY", "fchmod")),
    (select, ("poll", "epoll")),
    (socket, ("AF_UNIX",)),
)
MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")


def pretend() -> None:
    """Take it away from this process, whose own way to start programs stays that of this system."""
    vars(shutil)["_use_fd_functions"] = False
    for module, names in LACKING:
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]


if __name__ == "__main__":
    pretend()
    from crtgen.cli.app import main

    for words in " ".join(sys.argv[1:]).split(" + "):
        sys.argv[1:] = words.split()
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise
