"""The project API: requests as TVM's client sends them, and a project from its archive to an inference."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtgen import api
from crtgen.api import tvm
from crtgen.api.tvm.project import Handler
from crtgen.api.tvm.rpc import METHODS, answer
from crtgen.base.errors import LinkTimeoutError, UsageError
from crtgen.device.rpc.client import Client, Timeouts
from tests.support import ROOT, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"
SCRIPT = "microtvm_api_server.py"


class Host:
    """The client's side, over pipes, as TVM starts it."""

    def __init__(self, process: subprocess.Popen[bytes], source: int, target: int) -> None:
        self._process = process
        self._source = os.fdopen(source, "rb")
        self._target = os.fdopen(target, "wb", buffering=0)
        self._number = 0

    def ask(self, method: str, **params: object) -> Mapping[str, Any]:
        """The whole answer."""
        self._number += 1
        request = {"jsonrpc": "2.0", "method": method, "params": params, "id": self._number}
        self._target.write(json.dumps(request).encode() + b"\n")
        reply: Mapping[str, Any] = json.loads(self._source.readline())
        assert (reply["jsonrpc"], reply["id"]) == ("2.0", self._number)
        return reply

    def call(self, method: str, **params: object) -> Any:
        reply = self.ask(method, **params)
        assert "error" not in reply, reply
        return reply["result"]

    def refused(self, method: str, **params: object) -> str:
        error = self.ask(method, **params)["error"]
        assert error["code"] == -32000
        return str(error["message"])

    def close(self) -> None:
        self._target.close()
        assert self._process.wait(60) == 0
        self._source.close()


@contextmanager
def serving(folder: Path) -> Iterator[Host]:
    """The server that a folder's script starts."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    command = [
        sys.executable,
        str(folder / SCRIPT),
        "--read-fd",
        str(theirs_in),
        "--write-fd",
        str(theirs_out),
    ]
    process = subprocess.Popen(command, pass_fds=(theirs_in, theirs_out), cwd=folder)
    os.close(theirs_in)
    os.close(theirs_out)
    host = Host(process, ours_in, ours_out)
    try:
        yield host
    finally:
        host.close()


class HostStream:
    """Bytes to the device through the server."""

    flow_controlled = True

    def __init__(self, host: Host) -> None:
        self._host = host

    def read(self, timeout: float) -> bytes:
        reply = self._host.ask("read_transport", n=128, timeout_sec=timeout)
        if "error" in reply:
            raise LinkTimeoutError(reply["error"]["message"])
        data = base64.b85decode(reply["result"]["data"])
        assert 1 <= len(data) <= 128
        return data

    def write(self, data: bytes) -> None:
        self._host.call("write_transport", data=base64.b85encode(data).decode(), timeout_sec=10)

    def close(self) -> None:
        pass


@pytest.mark.cc
def test_from_an_archive_to_an_inference(tmp_path: Path) -> None:
    require_tool("gcc")
    archive, folder = tmp_path / "digits.tar", tmp_path / "project"
    archive.write_bytes(api.load(DIGITS).compile("host").archive())
    made = {
        "model_library_format_path": str(archive),
        "standalone_crt_dir": "",
        "project_dir": str(folder),
    }
    with serving(tvm.TEMPLATE) as host:
        info = host.call("server_info_query", tvm_version="0.14.0")
        assert (info["is_template"], info["model_library_format_path"], info["protocol_version"]) == (
            True,
            None,
            1,
        )
        options = {option["name"]: option for option in info["project_options"]}
        assert options["board"]["required"] == ["generate_project"]
        assert all({"choices", "default", "type", "help"} <= option.keys() for option in options.values())
        assert all(option["required"] or option["optional"] for option in options.values())
        assert "the option board is missing" in host.refused("generate_project", **made, options={})
        for wrong, text in (
            ({"board": "no_such_board"}, "no_such_board"),
            ({"board": "host", "project_type": "x"}, "unknown project type x\n  hint: known: host_driven"),
            ({"board": "host"}, "the file holds code, which would be compiled and run"),
        ):
            assert text in host.refused("generate_project", **made, options=wrong)
        assert not folder.exists()
        host.call("generate_project", **made, options={"board": "host", "trust": "true"})
    with serving(folder) as host:
        info = host.call("server_info_query", tvm_version="0.9.0")
        assert (info["is_template"], info["model_library_format_path"]) == (False, str(folder / "model.tar"))
        assert (folder / "model.tar").read_bytes() == archive.read_bytes()
        assert "the project was not built yet" in host.refused("open_transport", options={})
        host.call("build", options={})
        host.call("flash", options={"port": None})
        assert host.refused("read_transport", n=1, timeout_sec=0) == "TransportClosedError"
        timeouts = host.call("open_transport", options={})["timeouts"]
        assert timeouts["session_start_retry_timeout_sec"] == 2
        cases = np.load(DIGITS.with_suffix(".npz"))
        with (
            Client(HostStream(host), timeouts=Timeouts(5, 60, 60)) as client,
            client.aot_executor() as executor,
        ):
            executor.set_input(0, cases["case7_input0"])
            executor.run()
            assert (executor.get_output(0) == cases["case7_output0"]).all()
        assert host.refused("read_transport", n=1, timeout_sec=0.01) == "IoTimeoutError"
        host.call("close_transport")
        host.call("close_transport")
        assert host.refused("write_transport", data="", timeout_sec=1) == "TransportClosedError"


@pytest.mark.cc
def test_a_transport_of_an_image() -> None:
    """``tvm.micro.Session`` opens, reads, writes and closes it."""
    require_tool("gcc")
    image = api.load(DIGITS).compile("host").generate().build()
    with tvm.transport(image) as transport:
        assert transport.timeouts().session_start_timeout_sec == 10
        hello = transport.read(4, 10)
        assert hello == bytes.fromhex("fe ff fd 03")
        assert transport.write(bytes.fromhex("ff fd 04 00 00 00 82 00 00 01 7b e9"), 1) == 12
        answered = b""
        while bytes.fromhex("01 01") not in answered:
            answered += transport.read(128, 10)
        with pytest.raises(tvm.IoTimeoutError):
            transport.read(1, 0.01)
    with pytest.raises(tvm.TransportClosedError):
        transport.read(1, 0)
    library = api.load(DIGITS).compile("host").generate("standalone").build()
    with pytest.raises(UsageError, match="a standalone image does not communicate"):
        tvm.transport(library).open()


class Nothing:
    """A handler that fails in its own ways."""

    def build(self, options: object) -> None:
        raise KeyError("surprise")

    def close_transport(self) -> None:
        return None


def _request(method: object, **params: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 5, "method": method, "params": params})


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        ("{", -32700, "the request is no JSON"),
        ("[]", -32600, "a request is an object"),
        ('{"jsonrpc": "1.0"}', -32600, "a request is an object"),
        (_request("serve"), -32601, "there is no method 'serve'"),
        (_request(["build"]), -32601, "there is no method ['build']"),
        (_request("build"), -32602, "build takes options"),
        (_request("build", x=1), -32602, "build takes options"),
        (
            _request("read_transport", n=True, timeout_sec=1),
            -32602,
            "read_transport: n has a wrong type, bool",
        ),
        (_request("write_transport", data=" ", timeout_sec=1), -32602, "data is not base85"),
        (_request("build", options={}), -32000, "KeyError: 'surprise'"),
    ],
)
def test_bad_requests_are_answered(request_: str, code: int, text: str) -> None:
    reply = answer(request_.encode(), Nothing())
    assert reply["error"]["code"] == code
    assert text in reply["error"]["message"]
    assert reply["id"] == (5 if '"id"' in request_ else None)


def test_every_method_has_a_handler() -> None:
    assert all(callable(getattr(Handler, name)) for name in METHODS)
    closed = b'{"jsonrpc": "2.0", "id": "a", "method": "close_transport", "params": {}}'
    assert answer(closed, Nothing()) == {"jsonrpc": "2.0", "id": "a", "result": None}
