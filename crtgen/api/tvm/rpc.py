"""JSON-RPC 2.0 as TVM's project API uses it: each request and each answer is one line."""

import base64
import json
import sys
import traceback
from collections.abc import Mapping
from typing import Any, BinaryIO

from crtgen.api.tvm.transport import IoTimeoutError, TransportClosedError
from crtgen.base.errors import CrtgenError

__all__ = ["METHODS", "Answer", "answer", "serve"]

_SECONDS = (int, float, type(None))

METHODS: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "server_info_query": {"tvm_version": str},
    "generate_project": {
        "model_library_format_path": str,
        "standalone_crt_dir": str,
        "project_dir": str,
        "options": dict,
    },
    "build": {"options": dict},
    "flash": {"options": dict},
    "open_transport": {"options": dict},
    "close_transport": {},
    "read_transport": {"n": int, "timeout_sec": _SECONDS},
    "write_transport": {"data": str, "timeout_sec": _SECONDS},
}
"""The methods, and the types of their parameters."""

_FAILED, _PARSE, _REQUEST, _METHOD, _PARAMS = -32000, -32700, -32600, -32601, -32602
"""Error codes: the first is any failure of a method, the others are those of JSON-RPC."""

Answer = dict[str, Any]


class _RefusedError(Exception):
    # Not a request.
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def serve(source: BinaryIO, target: BinaryIO, handler: object) -> None:
    """Answer requests until the input ends; ``handler`` has a method for each of ``METHODS``."""
    for line in source:
        target.write(json.dumps(answer(line, handler)).encode() + b"\n")
        target.flush()


def answer(line: bytes, handler: object) -> Answer:
    """Answer a request. An error of a method is part of the answer; nothing is raised."""
    number = None
    try:
        request = _request(line)
        number = request.get("id")
        method, params = _call(request)
        result = getattr(handler, method)(**params)
    except _RefusedError as error:
        return _error(number, error.code, str(error))
    except (IoTimeoutError, TransportClosedError) as error:
        return _error(number, _FAILED, type(error).__name__)  # TVM raises its error of this name
    except CrtgenError as error:
        hint = f"\n  hint: {error.hint}" if error.hint else ""
        return _error(number, _FAILED, f"{error}{hint}{_end_of(error.log)}")
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return _error(number, _FAILED, f"{type(error).__name__}: {error}")
    if isinstance(result, bytes):
        result = {"data": base64.b85encode(result).decode()}
    return {"jsonrpc": "2.0", "id": number, "result": result}


def _end_of(log: str | None) -> str:
    return "".join(f"\n  {line}" for line in (log or "").splitlines()[-20:])


def _request(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except ValueError as error:
        raise _RefusedError(_PARSE, f"the request is no JSON: {error}") from None
    if not isinstance(request, dict) or request.get("jsonrpc") != "2.0":
        raise _RefusedError(_REQUEST, 'a request is an object with "jsonrpc": "2.0"')
    return request


def _call(request: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    # The method and its parameters, each of its type.
    method, params = request.get("method"), request.get("params")
    if not isinstance(method, str) or method not in METHODS:
        raise _RefusedError(_METHOD, f"there is no method {method!r}")
    wanted = METHODS[method]
    if not isinstance(params, dict) or set(params) != set(wanted):
        raise _RefusedError(_PARAMS, f"{method} takes {', '.join(wanted) or 'no parameters'}")
    for name, kind in wanted.items():
        if not isinstance(params[name], kind) or isinstance(params[name], bool):
            raise _RefusedError(_PARAMS, f"{method}: {name} has a wrong type, {type(params[name]).__name__}")
    if "data" in params:
        params["data"] = _decoded(params["data"])
    return method, params


def _decoded(text: str) -> bytes:
    try:
        return base64.b85decode(text)
    except ValueError as error:
        raise _RefusedError(_PARAMS, f"write_transport: data is not base85: {error}") from None


def _error(number: object, code: int, message: str) -> Answer:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message, "data": None}}
