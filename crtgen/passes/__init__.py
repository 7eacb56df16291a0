"""Graph rewrites: each is a frozen dataclass, graph in, graph out, and leaves every result as it was."""

from crtgen.passes.core import Change, Hit, Pass, Rule, run_passes
from crtgen.passes.fold import FoldChannels, FoldedLayer, RemovedChannel
from crtgen.passes.fuse import FoldPadding, FuseActivations
from crtgen.passes.simplify import (
    FoldConstants,
    MergeReshapes,
    RemoveDead,
    RemoveIdentities,
    ReshapeTransposes,
)

__all__ = [
    "DEFAULT_PASSES",
    "Change",
    "FoldChannels",
    "FoldConstants",
    "FoldPadding",
    "FoldedLayer",
    "FuseActivations",
    "Hit",
    "MergeReshapes",
    "Pass",
    "RemoveDead",
    "RemoveIdentities",
    "RemovedChannel",
    "ReshapeTransposes",
    "Rule",
    "run_passes",
]

DEFAULT_PASSES: tuple[Pass, ...] = (
    FoldConstants(),
    RemoveDead(),
    ReshapeTransposes(),
    MergeReshapes(),
    RemoveDead(),
    RemoveIdentities(),
    FoldPadding(),
    FuseActivations(),
    FoldChannels(),
)
"""The order in which each pass finds what those before it uncovered."""
