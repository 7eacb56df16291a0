"""The server: who may ask, what is taken, and what its children may do."""

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crtgen.base.errors import CrtgenError
from crtgen.lab.view import Jobs
from crtgen.lab.view.drops import MOST_BYTES
from tests.lab.view.serving import Page, serving

# A child that waits as crtgen's does, and answers with what it was told.
_CHILD = """
import json, os, sys, time
asked = json.loads(sys.stdin.readline() or "{}")
arguments = asked.get("arguments", [])
if "boards" in arguments:
    time.sleep(float(os.environ.get("SLOW", 0)))
    print(json.dumps({"boards": [], "pid": os.getpid()}))
elif arguments and arguments[-2] == "library":
    print("a traceback with /secret/path\\x1b[31m", file=sys.stderr)
    sys.exit(1)
else:
    print(json.dumps({"told": arguments}))
"""
_FAKE = (sys.executable, "-I", "-S", "-c", _CHILD)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with serving(tmp_path / "view", Jobs(_FAKE)) as found:
        yield found


def _model(tmp_path: Path) -> Path:
    file = tmp_path / "net.tflite"
    file.write_bytes(b"anything")
    return file


def test_the_address_works_once(tmp_path: Path) -> None:
    with serving(tmp_path / "view", Jobs(_FAKE)) as page:
        server = page.server
        assert server.server_address[0] == "127.0.0.1"
        assert len(server.cookie) >= 43, "256 bits"
        status, _, body = page.send("GET", "/?token=" + "x" * 43, headers={"Cookie": None})
        assert status == 403
        assert b"used already" in body
        status, headers, _ = page.send("GET", "/")
        assert status == 200
        assert headers["Set-Cookie"].endswith("; HttpOnly; SameSite=Strict; Path=/")
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
    with serving(tmp_path / "other", Jobs(_FAKE)) as other:
        assert other.cookie != page.cookie


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Cookie": None}, 403),
        ({"Cookie": "crtgen_1=x"}, 403),
        ({"Cookie": "=;;,"}, 403),
        ({"Host": "attacker.example"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Host": None}, 421),
        ({"Origin": "http://attacker.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "https://127.0.0.1"}, 403),
        ({"Origin": None}, 403),
        ({}, 200),
    ],
)
def test_who_may_ask(page: Page, headers: dict[str, str | None], status: int) -> None:
    found, sent, body = page.send("POST", "/api/boards", b"{}", headers)
    assert found == status
    assert sent["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in sent
    if status != 200:
        assert b"boards" not in body
    if "Origin" not in headers:
        assert page.send("GET", "/view.js", headers=headers)[0] == status


def test_cookies_of_other_programs(page: Page) -> None:
    """Cookies do not tell ports apart, so those of every local program come, too."""
    for others in ('a={"b": [1, 2]}; {}', '{}; é="', "x; =; {};"):
        cookie = others.replace("{}", page.cookie, 1) if others[0] != "a" else others[:-2] + page.cookie
        assert page.send("GET", "/view.js", headers={"Cookie": cookie})[0] == 200
    for wrong in (f"x{page.cookie}", f"{page.cookie}x", page.cookie.upper(), page.cookie.partition("=")[2]):
        assert page.send("GET", "/view.js", headers={"Cookie": wrong})[0] == 403


def test_other_methods_and_places_are_refused(page: Page) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "HEAD", "TRACE"):
        assert page.send(method, "/")[0] == 501
    for path in ("/../pyproject.toml", "/view/index.html", "/%2e%2e/x", "//etc/passwd", "/api/boards"):
        assert page.send("GET", path)[0] == 404
    assert page.send("POST", "/api/exec", b"{}")[0] == 404
    assert page.send("GET", "/api/project?drop=nothing")[0] == 422


@pytest.mark.parametrize(
    "path",
    [
        "../up",
        "a/../../up",
        "/etc/passwd",
        "C:\\windows",
        "a\\b",
        "nul.tflite",
        ".hidden",
        "a/.git/config",
        "a/b/c/d.wav",
        "",
        "a\nb",
        "a%00b",
        "x" * 300,
    ],
)
def test_names_lead_nowhere(page: Page, tmp_path: Path, path: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    name = path.replace("%", "%25").replace("\n", "%0A").replace("\\", "%5C").replace("a%2500b", "a%00b")
    status, _, body = page.send("POST", f"/api/drop?path={name}", b"data")
    assert status == 422
    assert json.loads(body)["message"]
    assert sorted(tmp_path.rglob("*")) == before


def test_sizes_have_limits(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    large = {"Content-Length": str(MOST_BYTES + 1)}
    assert page.send("POST", "/api/drop?path=a.tflite", b"", large)[0] == 413
    assert page.send("POST", "/api/drop?path=a.tflite", b"", {"Content-Length": "9" * 5000})[0] == 413
    for length in ("", "-1", "٣", "1e9"):
        headers = {"Content-Length": length.encode().decode("latin-1")}
        assert page.send("POST", "/api/drop?path=a.tflite", b"", headers)[0] == 411
    chunked = {"Transfer-Encoding": "chunked"}
    assert page.send("POST", "/api/drop?path=a.tflite", b"", chunked)[0] == 411
    assert page.send("POST", "/api/fit", b"[" * 60_000)[0] == 400
    assert page.send("POST", "/api/fit", b" " * 70_000)[0] == 413
    monkeypatch.setattr("crtgen.lab.view.drops._MOST_IN_ALL", 10)
    assert page.send("POST", "/api/drop?path=a.tflite", b"x" * 11)[0] == 422
    monkeypatch.setattr("crtgen.lab.view.drops._MOST_DROPS", 1)
    first = json.loads(page.send("POST", "/api/drop?path=a.tflite", b"1")[2])["drop"]
    page.send("POST", "/api/drop?path=a.tflite", b"1")
    assert page.ask("fit", drop=first, file="a.tflite")["message"] == "these files are not here any more"


def test_a_body_that_does_not_come(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crtgen.lab.view.server._PageHandler.timeout", 0.2)
    host = f"127.0.0.1:{page.server.server_port}"
    head = f"POST /api/drop?path=a.tflite HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
    with socket.create_connection(("127.0.0.1", page.server.server_port)) as line:
        line.sendall(f"{head}Cookie: {page.cookie}\r\nContent-Length: 100\r\n\r\nshort".encode())
        line.settimeout(30)
        assert line.recv(12) == b"HTTP/1.0 400"
    monkeypatch.setattr("crtgen.lab.view.server._HEAD", 0.2)
    with socket.create_connection(("127.0.0.1", page.server.server_port)) as line:
        line.sendall(b"GET /")
        line.settimeout(30)
        assert line.recv(100) == b""


@pytest.mark.parametrize(
    "more",
    [
        {"board": "--trust"},
        {"board": "./boards/x.toml"},
        {"board": 3},
        {"optimize": "--debug"},
        {"optimize": ["speed"]},
        {"file": "../net.tflite"},
        {"file": 7},
        {"drop": "../"},
        {"drop": {}},
    ],
)
def test_requests_are_no_arguments(page: Page, tmp_path: Path, more: dict[str, object]) -> None:
    asked = page.drop(_model(tmp_path))
    answer = page.ask("verify", **{**asked, **more})
    assert answer["error"] == "UsageError"
    assert "told" not in str(answer)


def test_boards_are_simulated(page: Page, tmp_path: Path) -> None:
    asked = page.drop(_model(tmp_path))
    told = page.ask("verify", **asked, board="nucleo_l4r5zi")
    assert told["command"] == [
        *("crtgen", "verify", "net.tflite", "--board", "nucleo_l4r5zi", "--optimize", "balanced"),
        "--simulate",
    ]
    assert told["result"]["told"][-1] == "--json"
    assert "--simulate" not in page.ask("verify", **asked, board="host")["command"]


def test_limits_and_folder_are_passed_on(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crtgen.base.budget._seconds", 7)
    monkeypatch.setattr("crtgen.base.folder._named", tmp_path)
    told = page.ask("prove", **page.drop(_model(tmp_path)), board="host")["result"]["told"]
    assert told[2:6] == ["--limit-seconds", "7", "--folder", str(tmp_path)]


def test_a_failed_command_says_nothing_of_itself(
    page: Page, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its traceback goes to the terminal."""
    asked = page.drop(_model(tmp_path))
    status, _, body = page.send(
        "POST", "/api/generate", json.dumps({**asked, "board": "host", "type": "library"}).encode()
    )
    assert status == 422
    assert b"secret" not in body
    assert b"Traceback" not in body
    shown = capfd.readouterr().err
    assert "/secret/path" in shown
    assert "\x1b" not in shown, "a model's names move no cursor"


def test_many_at_once(page: Page) -> None:
    """Each of twenty requests gets an answer: two run at a time, and what is too much is refused."""
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: page.ask("boards"), range(20)))
    done = [answer for answer in answers if answer.get("exit_code") == 0]
    assert len({answer["result"]["pid"] for answer in done}) == len(done), "each in a child of its own"
    others = {answer["message"] for answer in answers if "message" in answer}
    assert others <= {"too many requests wait already"}
    assert len(done) >= 18


def test_a_model_that_stops(tmp_path: Path) -> None:
    """Its requests say so; another model that starts ends it."""
    silent = "import sys; sys.stdin.readline(); print('{}', flush=True); sys.stdin.readline()"
    jobs = Jobs((sys.executable, "-I", "-S", "-c", silent))
    live = jobs.live([])
    assert live.run() == {}
    with pytest.raises(CrtgenError, match="the model has stopped"):
        live.run(tmp_path / "x.png")
    with pytest.raises(CrtgenError, match="the model has stopped"):
        live.run(tmp_path / "x.png")
    assert not jobs.children
    with serving(tmp_path / "view", jobs) as page:
        asked = page.drop(_model(tmp_path))
        assert page.ask("start", **asked) == {}
        (first,) = jobs.children
        assert page.ask("start", **asked) == {}
        assert first not in jobs.children
        assert len(jobs.children) == 1
        assert page.ask("end", **asked) == {}
        assert not jobs.children
        assert json.loads(page.send("POST", f"/api/input?drop={asked['drop']}&suffix=.png", b"x")[2])[
            "message"
        ] == ("no model runs")
        assert page.send("POST", f"/api/input?drop={asked['drop']}&suffix=.sh", b"x")[0] == 422


def _ends(pids: list[int]) -> bool:
    end = time.monotonic() + 30
    while any(Path(f"/proc/{pid}/cmdline").is_file() for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command ends when the browser goes, when it takes too long, and when the page ends."""
    monkeypatch.setenv("SLOW", "600")
    jobs = Jobs(_FAKE)
    start = time.monotonic()
    with pytest.raises(CrtgenError, match="nobody waits"):
        jobs.run(["boards"], lambda: True)
    with pytest.raises(CrtgenError, match="more than 0"):
        jobs.run(["boards"], longest=0.1)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(jobs.run, ["boards"])
        while len(jobs.children) < 1:
            time.sleep(0.01)
        children = list(jobs.children)
        jobs.close()
        with pytest.raises(CrtgenError):
            running.result(60)
    assert _ends(children)
    assert time.monotonic() - start < 300
    with pytest.raises(CrtgenError, match="has ended"):
        jobs.run(["boards"])
    assert not jobs.children


def test_the_browser_that_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOW", "600")
    jobs = Jobs(_FAKE)
    with serving(tmp_path / "view", jobs) as page:
        asked = page.drop(_model(tmp_path))
        host = f"127.0.0.1:{page.server.server_port}"
        body = json.dumps({**asked, "board": "boards"}).encode()
        head = f"POST /api/fit HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nCookie: {page.cookie}\r\n"
        with socket.create_connection(("127.0.0.1", page.server.server_port)) as line:
            line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            while not jobs.children:
                time.sleep(0.01)
            children = list(jobs.children)
        assert _ends(children)


def test_only_this_user_reads_the_files(page: Page, tmp_path: Path) -> None:
    page.drop(_model(tmp_path))
    (file,) = (tmp_path / "view").rglob("net.tflite")
    assert file.read_bytes() == b"anything"
    assert not os.path.islink(file)
