"""The section ``[decision]`` of a description."""

from pathlib import Path

from crtgen.base.errors import UsageError
from crtgen.base.toml import TomlTable, text
from crtgen.network.pipeline.clusters import read_clusters
from crtgen.network.pipeline.decision import Boxes, Decision, Gate
from crtgen.network.pipeline.values import count, labels, names, number, one_of

__all__ = ["read_decision"]

_OF_BOXES = ("most", "overlap")
# Settings that apply to scores of runs, and not to boxes.
_OF_SCORES = (
    *("average", "least", "patience", "vote", "quiet", "quiet_of", "ignore", "top_k", "anomaly", "clusters"),
)


def read_decision(table: TomlTable, folder: Path, gate: Gate | None) -> Decision:
    """Read the decision; file names are relative to ``folder``. Raises ``UsageError`` for contradictory
    settings.
    """
    known = table.get("labels", names, ())
    vote = table.get("vote", count, 0)
    clusters = table.get("clusters", text, "")
    anomaly = table.get("anomaly", one_of("mse", "kmeans"), "")
    if clusters and anomaly != "kmeans":
        raise table.error("clusters", 'they go with anomaly = "kmeans"')
    made = Decision(
        labels=tuple(_index(table, label, known) for label in table.get("label", labels, ())),
        names=known,
        above=table.get("above", number, 0.5),
        average=table.get("average", count, 1),
        least=table.get("least", count, 0),
        patience=table.get("patience", count, vote // 2 + 1),
        vote=vote,
        quiet=table.get("quiet", number, 0.0),
        quiet_of=table.get("quiet_of", one_of("all", "label"), "all"),
        ignore=table.get("ignore", number, 0.0),
        top=table.get("top_k", count, 1),
        anomaly=anomaly,
        clusters=read_clusters(folder / clusters) if clusters else None,
        boxes=_boxes(table, gate),
        gate=gate,
    )
    table.finish()
    return made


def _boxes(table: TomlTable, gate: Gate | None) -> Boxes | None:
    if not table.has("boxes"):
        for key in _OF_BOXES:
            if table.has(key):
                raise table.error(key, 'it goes with boxes = "fomo" or "nms"')
        return None
    for key in _OF_SCORES:
        if table.has(key):
            raise table.error(key, "boxes are found in each run by itself: it goes with scores")
    kind = table.get("boxes", one_of("fomo", "nms"))
    if kind == "fomo" and table.has("overlap"):
        raise table.error("overlap", 'cells are merged where they touch: it goes with boxes = "nms"')
    if gate is not None:
        raise UsageError("a [gate] needs scores, not boxes", hint="leave the [gate] out")
    return Boxes(kind=kind, most=table.get("most", count, 10), overlap=table.get("overlap", number, 0.5))


def _index(table: TomlTable, label: int | str, known: tuple[str, ...]) -> int:
    if isinstance(label, int):
        return label
    if label not in known:
        raise table.error("label", f"no label is called {label!r}")
    return known.index(label)
