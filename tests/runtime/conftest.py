"""The programs that the tests of the runtime share, compiled once."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from crtgen.device.rpc.client import Client, Timeouts
from crtgen.device.run.streams import PipeStream
from tests.runtime.build import SANITIZE, compile_program
from tests.runtime.raw import Raw

Serve = Callable[..., PipeStream]

POOL = 16384
"""Bytes of the pool of the toy image."""


@pytest.fixture(scope="session")
def server_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy image's server, as a process, with profiling."""
    out = tmp_path_factory.mktemp("server") / "server"
    return compile_program(out, "server.c", flags=(*SANITIZE, "-DCRT_PROFILE"))


@contextmanager
def _running(command: list[str]) -> Iterator[PipeStream]:
    """The process must end by itself, without a finding, once its input is closed."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        stream = PipeStream.of_process(process)
        try:
            yield stream
        finally:
            stream.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        assert process.stderr is not None
        assert (process.returncode, process.stderr.read()) == (0, b"")


@pytest.fixture
def serve(server_program: Path) -> Iterator[Serve]:
    """Start a server: ``serve(image, receive_size)`` is its stream. All of them are stopped and checked."""
    with ExitStack() as stack:
        yield lambda image="models", receive=2048: stack.enter_context(
            _running([str(server_program), image, str(receive)])
        )


@pytest.fixture
def client(serve: Serve) -> Client:
    """A client that is connected to the server of the toy image."""
    connection = Client(serve(), timeouts=Timeouts(5, 60, 60))
    connection.connect()
    return connection


@pytest.fixture
def raw(serve: Serve) -> Raw:
    """The same server, for raw packets."""
    return Raw(serve())
