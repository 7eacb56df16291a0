"""The table of the functions that a device offers, and what is written from it."""

import subprocess
import sys

from crtgen.base.endpoints import EXECUTOR, GLOBALS
from crtgen.device.rpc.server import ServedModel, Server
from tests.support import ROOT


def test_the_runtime_and_its_page_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "endpoints.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_device_in_python_offers_nothing_else() -> None:
    server = Server(models=[ServedModel("m", {"x": ((1,), "int8")}, [((1,), "int8")], lambda x: [x])])
    offered = {name for functions in server._modules.values() for name, _ in functions}
    offered |= set(server._models["m"].functions())
    assert offered <= {endpoint.name for endpoint in (*GLOBALS, *EXECUTOR)}


def test_names_are_unique_and_letters_are_those_of_the_arguments() -> None:
    names = [endpoint.name for endpoint in (*GLOBALS, *EXECUTOR)]
    assert len(set(names)) == len(names)
    letters = {endpoint.name: endpoint.letters for endpoint in (*GLOBALS, *EXECUTOR)}
    assert letters["crtgen.measure"] == "mi"
    assert letters["tvm.aot_executor.create"] == "mds"
    assert letters["set_input"] == "nt"
    assert letters["run"] == ""
