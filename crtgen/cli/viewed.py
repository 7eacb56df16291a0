"""Child process of ``crtgen view``: imports crtgen, waits for a line, and executes it.

``{"arguments": [...], "live": false}`` is a command, which runs as if it had been typed. If it is live,
``crtgen run`` keeps the model running and answers every line ``{"input": FILE}`` with a line, until its input
ends.
"""

import gc
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from crtgen.__main__ import COLLECTED
from crtgen.api.slot import start_server
from crtgen.base.errors import CrtgenError
from crtgen.cli import run
from crtgen.cli.app import main
from crtgen.cli.groups import Building, Compiling, Files, Generating
from crtgen.cli.recorded import Recorded, recorded_by
from crtgen.compiler.codegen.module import Interface, ModelInfo
from crtgen.device.run import Site
from crtgen.device.session import Session
from crtgen.lab.measure.cases import Inputs, read_inputs
from crtgen.lab.measure.media import Scaling
from crtgen.network.ir import Array

__all__ = ["wait"]

_Group = TypeVar("_Group")
_AHEAD = ("inspect", "fit", "verify", "prove", "generate", "eval")


def wait() -> None:
    for name in _AHEAD:
        import_module(f"crtgen.cli.{name}")
    request = json.loads(sys.stdin.readline() or "{}")
    if not request:  # the page has ended
        return
    gc.set_threshold(COLLECTED)
    if request["live"]:
        run.command = _live
    sys.argv = ["crtgen", *request["arguments"]]
    main()


@wraps(run.command)
def _live(**values: Any) -> None:
    # Stands in for ``crtgen run``: the same options and settings, for a model that keeps running.
    source: Path = values["source"]
    files, compiling = _group(Files, values), _group(Compiling, values)
    generating, building = _group(Generating, values), _group(Building, values)
    try:
        recorded = recorded_by(source, files) if source.suffix == ".toml" else None
        loaded = None if recorded is None else recorded.loaded
        image = building.image(source, files, compiling, generating, lambda text: None, loaded=loaded)
        with start_server(image, Site(), counting=False) as session:
            info = session.model(None)
            _say(_about(info, recorded))
            for line in sys.stdin:
                _say(_answer(session, info, recorded, Path(json.loads(line)["input"])))
    except CrtgenError as error:
        _say(_error(error))


def _group(kind: type[_Group], values: Mapping[str, Any]) -> _Group:
    names = (f.name for f in fields(cast(Any, kind)))
    return kind(**{name: values[name] for name in names})


def _about(info: ModelInfo, recorded: Recorded | None) -> dict[str, Any]:
    pipeline = None if recorded is None else recorded.pipeline
    names = pipeline.decision.names if pipeline is not None and pipeline.decision is not None else ()
    return {
        "model": info.name,
        "inputs": [{"name": i.name, "shape": list(i.shape), "dtype": i.dtype.value} for i in info.inputs],
        "labels": list(names),
        "rate": pipeline.rate if pipeline is not None and not pipeline.is_camera else None,
    }


def _answer(session: Session, info: ModelInfo, recorded: Recorded | None, file: Path) -> dict[str, Any]:
    try:
        given = _inputs(file, info, recorded)
        start = time.perf_counter()
        made = [session.infer(*arrays, model=info.name) for arrays in given.runs]
        spent = time.perf_counter() - start
    except CrtgenError as error:
        return _error(error)
    every = [np.stack(arrays) for arrays in zip(*made, strict=True)] if given.is_sequence else made[0]
    named = zip(info.outputs, every, strict=True)
    heard = None if recorded is None else recorded.heard([arrays[0] for arrays in made])
    return {
        "outputs": {interface.name: array.tolist() for interface, array in named},
        "values": {i.name: _values(i, a) for i, a in zip(info.outputs, made[-1], strict=True)},
        "runs": len(made),
        "seconds": spent,
        **(heard.value() if heard else {}),
    }


def _inputs(file: Path, info: ModelInfo, recorded: Recorded | None) -> Inputs:
    if recorded is None:
        return read_inputs(file, info.inputs)
    return recorded.inputs(file, False, Scaling())


def _values(interface: Interface, array: Array) -> Sequence[float]:
    # Dequantised elements of the last run.
    real = array.ravel().astype(np.float64)
    if interface.quant is not None and interface.quant.axis is None:
        real = (real - interface.quant.zero_point) * interface.quant.scale
    return [float(value) for value in real]


def _error(error: CrtgenError) -> dict[str, Any]:
    return {"error": type(error).__name__, "message": error.message, "hint": error.hint}


def _say(data: Any) -> None:
    sys.stdout.write(json.dumps(data) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    wait()
