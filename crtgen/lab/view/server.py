"""The server of the page.

It listens on the loopback interface only, but other users of this computer and every page in the browser can
reach that. So a request is accepted only with the cookie that the first request got in exchange for the token
in the address, which works once. The ``Host`` must be this server's; otherwise a name that an attacker's DNS
points here would make the attacker's page same-origin. The ``Origin`` must be this server's, since cookies of
the loopback do not distinguish ports. Answers forbid the page to load anything from elsewhere. Bodies,
threads, jobs and their time are limited.
"""

import json
import secrets
import select
import socket
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Lock, Semaphore, Timer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from crtgen.base import files
from crtgen.base.errors import CrtgenError, UsageError
from crtgen.base.resources import templates_dir
from crtgen.lab.view.drops import MOST_BYTES, Drop, Drops
from crtgen.lab.view.jobs import Answer, Jobs, Live
from crtgen.lab.view.requests import COMMANDS, PAGE, PROJECT, Asked

__all__ = ["ViewServer"]

_THREADS = 32
# Seconds for a request's head, for one of its reads, and for a body.
_HEAD, _READ, _BODY = 20.0, 20.0, 300.0
_MOST_ASKED = 64 << 10
_STATIC = {
    "/": ("view/index.html", "text/html; charset=utf-8"),
    "/page.css": ("report/page.css", "text/css; charset=utf-8"),
    "/view.css": ("view/view.css", "text/css; charset=utf-8"),
    "/view.js": ("view/view.js", "text/javascript; charset=utf-8"),
    "/show.js": ("view/show.js", "text/javascript; charset=utf-8"),
    "/live.js": ("view/live.js", "text/javascript; charset=utf-8"),
    "/sound.js": ("view/sound.js", "text/javascript; charset=utf-8"),
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src blob:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(self)",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
# Inputs of a running model: pictures as a canvas gives them, sound, and files.
_INPUTS = (".png", ".wav", ".npy", ".npz", ".csv", ".jpg", ".jpeg", ".flac", ".ogg")


class _Refused(Exception):
    # A request that is not answered: the status and why.

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class ViewServer(ThreadingHTTPServer):
    # ``folder`` gets the dropped files; ``given`` is a model that is on the page from the start.

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder: Path, jobs: Jobs, given: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _PageHandler)
        self.drops, self.jobs, self.given = Drops(folder), jobs, given
        self.cookie = secrets.token_urlsafe(32)
        self._token = secrets.token_urlsafe(32)
        self._places, self._lock = Semaphore(_THREADS), Lock()
        self._live: tuple[str, Live] | None = None
        self._first: Drop | None = None if given is None else self.drops.take(given)

    @property
    def cookie_name(self) -> str:
        return f"crtgen_{self.server_port}"

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost"))

    @property
    def address(self) -> str:
        # The address that opens the page, once.
        return f"http://127.0.0.1:{self.server_port}/?token={self._token}"

    def use_token(self, token: str) -> bool:
        with self._lock:
            if not self._token or not compare_digest(token.encode(), self._token.encode()):
                return False
            self._token = ""
            return True

    def first(self) -> dict[str, Any]:
        # Say which model was named on the command line.
        drop = self._first
        return {} if drop is None else {"drop": drop.name, "files": list(drop.files)}

    def start_live(self, asked: Asked) -> Any:
        # Start the model; the one before it ends.
        live = self.jobs.live([str(asked.file()), "--board", "host", "--optimize", asked.level])
        self._change_live((asked.drop.name, live))
        return live.run()

    def run_live(self, drop: Drop, suffix: str, data: bytes) -> Any:
        with self._lock:
            name, live = self._live or ("", None)
        if live is None or name != drop.name:
            raise UsageError("no model runs", hint="start it again")
        file = drop.folder / f"input{suffix}"
        files.write(file, data, durable=False)
        return live.run(file)

    def end_live(self) -> None:
        self._change_live(None)

    def _change_live(self, new: tuple[str, Live] | None) -> None:
        with self._lock:
            old, self._live = self._live, new
        if old is not None:
            old[1].close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a connection that broke is the browser's business
            super().handle_error(request, client_address)


class _PageHandler(BaseHTTPRequestHandler):
    server: ViewServer
    timeout = _READ
    server_version, sys_version = "crtgen", ""

    def setup(self) -> None:
        super().setup()
        self._watch = Timer(_HEAD, partial(_shut, self.connection))
        self._watch.daemon = True
        self._watch.start()

    def finish(self) -> None:
        self._watch.cancel()
        super().finish()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def do_GET(self) -> None:
        self._answered(self._get)

    def do_POST(self) -> None:
        self._answered(self._post)

    def _answered(self, method: Callable[[str, Mapping[str, str]], None]) -> None:
        # Every error is an object like that of a command's --json; nothing else of it gets out.
        self._watch.cancel()
        try:
            split = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(split.query).items()}
            self._check(split.path, query)
            method(split.path, query)
        except _Refused as refused:
            self._send_json({"error": "Refused", "message": refused.message}, refused.status)
        except CrtgenError as error:
            self._send_json(_error(error), HTTPStatus.UNPROCESSABLE_ENTITY)
        except OSError:
            raise
        except Exception:
            self._send_json({"error": "Failed", "message": "see the terminal"}, HTTPStatus(500))
            raise

    def _check(self, path: str, query: Mapping[str, str]) -> None:
        if self.headers.get("Host") not in self.server.hosts:
            raise _Refused(HTTPStatus.MISDIRECTED_REQUEST, "the Host is not this server")
        origin = self.headers.get("Origin")
        if origin not in (None, *(f"http://{host}" for host in self.server.hosts)):
            raise _Refused(HTTPStatus.FORBIDDEN, "another page may not ask")
        if origin is None and self.command == "POST":
            raise _Refused(HTTPStatus.FORBIDDEN, "a request needs its Origin")
        if not self._is_known() and not (path == "/" and "token" in query):
            raise _Refused(HTTPStatus.FORBIDDEN, "open the address that crtgen view printed; it works once")

    def _is_known(self) -> bool:
        # Cookies of other programs at other ports are sent, too, whatever is in them.
        own = f"{self.server.cookie_name}={self.server.cookie}".encode()
        sent = self.headers.get("Cookie", "").encode(errors="replace").split(b";")
        return any(compare_digest(cookie.strip(), own) for cookie in sent)

    def _get(self, path: str, query: Mapping[str, str]) -> None:
        is_new = path == "/" and not self._is_known()
        if is_new and not self.server.use_token(query["token"]):
            raise _Refused(HTTPStatus.FORBIDDEN, "the address was used already; start crtgen view again")
        if path == "/api/project":
            project = self.server.drops[query.get("drop")].project
            if project is None:
                raise _Refused(HTTPStatus.NOT_FOUND, "no project was generated")
            self._send(_zipped(project), "application/zip")
            return
        if path not in _STATIC:
            raise _Refused(HTTPStatus.NOT_FOUND, "there is no such page")
        name, kind = _STATIC[path]
        self._send((templates_dir() / name).read_bytes(), kind)

    def _post(self, path: str, query: Mapping[str, str]) -> None:
        name = path.removeprefix("/api/")
        if path == "/api/drop":
            size = self._size(MOST_BYTES)
            drop = self.server.drops.add(
                query.get("drop", ""), query.get("path", ""), size, self._reader(size)
            )
            self._send_json({"drop": drop.name, "files": len(drop.files)})
        elif path == "/api/input":
            suffix = query.get("suffix", "")
            if suffix not in _INPUTS:
                raise UsageError(f"{suffix!r} is not an input", hint=f"known: {', '.join(_INPUTS)}")
            data = self._body(MOST_BYTES)
            self._send_json(self.server.run_live(self.server.drops[query.get("drop")], suffix, data))
        elif name in _ANSWERS or name in COMMANDS:
            self._send_json(self._asked(name, self._json()))
        else:
            raise _Refused(HTTPStatus.NOT_FOUND, "there is no such request")

    def _asked(self, name: str, request: Mapping[str, Any]) -> Any:
        if name in _ANSWERS:
            return _ANSWERS[name](self.server, request)
        asked = Asked(request, self.server.drops[request.get("drop")])
        arguments = COMMANDS[name](asked)
        answer = self.server.jobs.run(arguments, self._is_gone)
        if name == "generate" and not answer.exit_code:
            asked.drop.project = asked.folder / PROJECT
        return _told(asked, arguments, answer)

    def _is_gone(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _size(self, most: int) -> int:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in self.headers:
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "a body needs its Content-Length")
        if int(length[:20]) > most:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {most:,} bytes at once")
        return int(length)

    def _reader(self, size: int) -> Callable[[int], bytes]:
        end = time.monotonic() + _BODY

        def read(count: int) -> bytes:
            data = b""
            with suppress(OSError):  # a pause that is too long, or a connection that broke
                data = self.rfile.read1(count)
            if not data or time.monotonic() > end:
                raise _Refused(HTTPStatus.BAD_REQUEST, f"the body of {size:,} bytes did not come")
            return data

        return read

    def _body(self, most: int) -> bytes:
        size, found = self._size(most), b""
        read = self._reader(size)
        while len(found) < size:
            found += read(size - len(found))
        return found

    def _json(self) -> Mapping[str, Any]:
        try:
            request = json.loads(self._body(_MOST_ASKED))
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            raise _Refused(HTTPStatus.BAD_REQUEST, "the body is not a JSON object")
        return request

    def _send_json(self, data: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(json.dumps(data).encode(), "application/json", status)

    def _send(self, data: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if kind.startswith("text/html"):
            name, value = self.server.cookie_name, self.server.cookie
            self.send_header("Set-Cookie", f"{name}={value}; HttpOnly; SameSite=Strict; Path=/")
        self.end_headers()
        self.wfile.write(data)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _error(error: CrtgenError) -> dict[str, Any]:
    body = {"error": type(error).__name__, "message": error.message, "where": error.where}
    return {**body, "hint": error.hint, "log": error.log, "exit_code": error.exit_code}


def _told(asked: Asked, arguments: list[str], answer: Answer) -> dict[str, Any]:
    # The answer, the command to type for it, and what it drew; paths as they are in the drop.
    told = {"command": ["crtgen", *arguments], "exit_code": answer.exit_code, "result": answer.result}
    text = json.dumps(told)
    for folder in (asked.drop.folder / "in", asked.folder):
        text = text.replace(json.dumps(f"{folder}/")[1:-1], "")
    shortened: dict[str, Any] = json.loads(text)
    if (page := asked.folder / PAGE).is_file():
        shortened["page"] = files.read_text(page).partition("<main>")[2].partition("</main>")[0]
    return shortened


def _zipped(folder: Path) -> bytes:
    data = BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not file.is_symlink():
                archive.write(file, file.relative_to(folder.parent))
    return data.getvalue()


def _boards(server: ViewServer, request: Mapping[str, Any]) -> Any:
    answer = server.jobs.run(["boards"])
    return {"exit_code": answer.exit_code, "result": answer.result, "first": server.first()}


def _start(server: ViewServer, request: Mapping[str, Any]) -> Any:
    return server.start_live(Asked(request, server.drops[request.get("drop")]))


def _end(server: ViewServer, request: Mapping[str, Any]) -> Any:
    server.end_live()
    return {}


_ANSWERS: Mapping[str, Callable[[ViewServer, Mapping[str, Any]], Any]] = {
    "boards": _boards,
    "start": _start,
    "end": _end,
}
