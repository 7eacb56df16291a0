"""Lets TVM's micro host build, flash and talk to this project: it starts crtgen's server of the project API.

TVM's Python may be older than crtgen's. The Python that has crtgen is the one that CRTGEN_PYTHON names, else
this one, else that of the program crtgen on the PATH.
"""

import importlib.util
import os
import shutil
import sys


def python():
    """The Python that has crtgen."""
    named = os.environ.get("CRTGEN_PYTHON")
    if named:
        return named
    if importlib.util.find_spec("crtgen") is not None:
        return sys.executable
    program = shutil.which("crtgen")
    if program is None:
        sys.exit("crtgen was not found: install it, or name its Python in the variable CRTGEN_PYTHON")
    return os.path.join(os.path.dirname(os.path.realpath(program)), "python")


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    command = [python(), "-P", "-m", "crtgen.tvm", "--project", here]
    os.execv(command[0], command + sys.argv[1:])
