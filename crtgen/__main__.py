"""``python -m crtgen`` is the program ``crtgen``."""

import gc
import os
import signal
import sys

from crtgen.base.version import __version__

__all__ = ["COLLECTED", "main"]

COLLECTED = 50_000
"""Objects that are made before cycles are looked for: there are few, and looking is a tenth of compiling."""


def main() -> None:
    """Entry point of the program ``crtgen``; an interrupt while it is loaded ends it without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _open_standard_streams()
    if sys.argv[1:] == ["--version"]:  # an answer that needs nothing of the rest
        print(f"crtgen {__version__}")
        return
    from crtgen.cli import main as command_line

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.set_threshold(COLLECTED)
    command_line()


def _open_standard_streams() -> None:
    # A stream that the caller closed reads nothing, and what is written to it is lost. Otherwise the next
    # file that is opened would be taken for it.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = os.O_RDONLY if number == 0 else os.O_WRONLY
            descriptor = os.open(os.devnull, mode)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8"))  # noqa: SIM115


if __name__ == "__main__":
    main()
