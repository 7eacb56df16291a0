"""A page's server in this process, and requests to it as a browser would send them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from typer.testing import CliRunner

from crtgen.cli.app import app
from crtgen.lab.view import Jobs, ViewServer
from crtgen.lab.view.jobs import Answer

__all__ = ["Commands", "Page", "running", "serving"]


class Commands(Jobs):
    """Runs the commands in this process, which has imported them already."""

    def __init__(self) -> None:
        super().__init__(("false",))
        self._one = Lock()  # the standard output is the process's

    def prepare(self) -> None:
        pass

    def run(
        self, arguments: Sequence[str], is_gone: Callable[[], bool] = lambda: False, longest: float = 0
    ) -> Answer:
        with self._one:
            done = CliRunner().invoke(app, [*arguments, "--json"])
        return Answer(done.exit_code, json.loads(done.stdout))


@dataclass(frozen=True)
class Page:
    """A page that was opened."""

    server: ViewServer
    cookie: str

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request with the headers of this page, apart from those given; None leaves one out."""
        host = f"127.0.0.1:{self.server.server_port}"
        own = {"Host": host, "Origin": f"http://{host}", "Cookie": self.cookie}
        every = {name: value for name, value in {**own, **(headers or {})}.items() if value is not None}
        connection = HTTPConnection("127.0.0.1", self.server.server_port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            if body is not None and "Content-Length" not in every:
                every["Content-Length"] = str(len(body))
            for name, value in every.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def ask(self, name: str, **request: Any) -> Any:
        return json.loads(self.send("POST", f"/api/{name}", json.dumps(request).encode())[2])

    def drop(self, *files: Path) -> dict[str, str]:
        """Drop files; return the request that names the first."""
        drop = ""
        for file in files:
            path = f"/api/drop?drop={drop}&path={file.name}"
            drop = json.loads(self.send("POST", path, file.read_bytes())[2])["drop"]
        return {"drop": drop, "file": files[0].name}


@contextmanager
def running(server: ViewServer) -> Iterator[None]:
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.jobs.close()


@contextmanager
def serving(folder: Path, jobs: Jobs) -> Iterator[Page]:
    with ViewServer(folder, jobs) as server, running(server):
        path = server.address.partition(str(server.server_port))[2]
        status, headers, _ = Page(server, "").send("GET", path, headers={"Origin": None})
        assert status == 200
        yield Page(server, headers["Set-Cookie"].partition(";")[0])
