"""Finds the network that a TVM archive was made from, to compile it with crtgen's own kernels.

TVM folds parameters into its code and leaves the scales of channels out of the Relay text. So the network is
read from its own file, and the archive only tells whether it is the right one.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crtgen import api
from crtgen.api.tvm.relay import Relay, read_relay, size_of
from crtgen.base.errors import UnsupportedError, UsageError
from crtgen.firmware.library import Archive, MlfModel
from crtgen.network.ir import Graph, Value

__all__ = ["Migrated", "migrate"]


@dataclass(frozen=True, slots=True)
class Migrated:
    """A model of an archive, and the file of its network.

    ``inputs``, ``parameters`` and ``scales`` count those that the archive names; the network has them all.
    """

    model: str
    source: str
    inputs: int
    parameters: int
    scales: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def migrate(archive: Path, sources: Sequence[Path]) -> tuple[Migrated, ...]:
    """Find the network of each model of an archive among the sources.

    Raises ``UnsupportedError`` if the archive does not describe a model well enough, or if no source is its
    network.
    """
    loaded = api.load(archive)
    content = loaded.package.content if isinstance(loaded, api.Imported) else None
    if not isinstance(content, Archive) or content.operators is not None:
        hint = "crtgen migrate takes an archive in Model Library Format (.tar)"
        raise UsageError("the file is no archive of models", where=str(archive), hint=hint)
    networks = [(str(path), _graph(path)) for path in sources]
    return tuple(_migrated(model, networks, str(archive)) for model in content.models)


def _graph(path: Path) -> Graph:
    model = api.load(path)
    if isinstance(model, api.Imported):
        raise UsageError("a source is a network, not an archive", where=str(path), hint="--source net.tflite")
    return model.graph


def _migrated(model: MlfModel, networks: Sequence[tuple[str, Graph]], where: str) -> Migrated:
    relay = read_relay(model.relay)
    at = f"{where}: {model.name}"
    if not relay.arguments:
        hint = "look for the file that TVM compiled: crtgen takes it as it is"
        raise UnsupportedError(
            "the archive has no Relay text, which describes the network", where=at, hint=hint
        )
    inputs, params = _split(relay, model)
    if not networks:
        raise UnsupportedError(
            f"the archive alone does not contain the network: {_lacks(relay, len(params))}",
            where=at,
            hint="name the file that TVM compiled: --source net.tflite",
        )
    reasons = []
    for name, graph in networks:
        others = list(_differences(relay, inputs, params, graph))
        if not others:
            return Migrated(model.name, name, len(inputs), len(params), len(relay.scales))
        reasons.append(f"{name}: {others[0]}")
    raise UnsupportedError(
        "none of the sources is the network of the archive", where=at, hint="\n        ".join(reasons)
    )


def _split(relay: Relay, model: MlfModel) -> tuple[list[str], list[str]]:
    # The names of the inputs, which the metadata lists, and of the parameters.
    named = {_plain(tensor.name) for main in model.metadata.main for tensor in main.inputs}
    inputs = [name for name in relay.arguments if _plain(name) in named]
    return inputs, [name for name in relay.arguments if name not in inputs]


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def _lacks(relay: Relay, parameters: int) -> str:
    parts = [f"{parameters} parameters are folded into its code"] * (parameters > 0)
    parts += [f"the text leaves the values of {relay.hidden} constants out"] * (relay.hidden > 0)
    return " and ".join(parts) or "the text does not say it all"


def _differences(relay: Relay, inputs: Sequence[str], params: Sequence[str], graph: Graph) -> Iterator[str]:
    # Names in the archive that the network lacks.
    theirs = Counter(relay.arguments[name] for name in inputs)
    ours = Counter((v.shape, v.dtype.value) for v in map(graph.values.__getitem__, graph.inputs))
    if theirs != ours:
        yield f"its inputs are {_words(ours)}, those of the archive {_words(theirs)}"
    constants = Counter(_size(v) for v in graph.values.values() if v.data is not None)
    missing = Counter(size_of(relay.arguments[name]) for name in params) - constants
    for (count, dtype), times in missing.items():
        yield f"it has no constant of {count} x {dtype}" + (f", or too few by {times}" if times > 1 else "")
    known = {pair for v in graph.values.values() for pair in _scales(v)}
    for scale, zero in sorted(relay.scales - known):
        yield f"no tensor has the scale {scale} and the zero point {zero}"


def _words(tensors: Counter[tuple[tuple[int, ...], str]]) -> str:
    return ", ".join(f"{'x'.join(map(str, shape))} {dtype}" for shape, dtype in tensors.elements()) or "none"


def _size(value: Value) -> tuple[int, str]:
    return size_of((value.shape, value.dtype.value))


def _scales(value: Value) -> Iterator[tuple[str, int]]:
    # Scales in the spelling of the archive's text; a constant may have several.
    if value.quant is not None and value.quant.axis is None:
        yield f"{value.quant.scales[0]:.6g}", value.quant.zero_points[0]
