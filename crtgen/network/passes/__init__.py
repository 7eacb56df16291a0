"""Graph rewrites: each is a frozen dataclass that takes a graph and returns an equivalent one.

Only the order of float32 additions may change: bands of a matrix skip its zeros.
"""

from crtgen.network.passes.core import Change, Pass, Rewrite, Rule, run_passes
from crtgen.network.passes.ends import channels_last, turned_shape, with_io
from crtgen.network.passes.fold import FoldChannels, FoldedLayer, RemovedChannel
from crtgen.network.passes.fuse import FoldPadding, FuseActivations
from crtgen.network.passes.layout import MoveTransposes, TurnOperands
from crtgen.network.passes.simplify import (
    FoldConstants,
    MergeReshapes,
    RemoveDead,
    RemoveIdentities,
    ReshapeTransposes,
)
from crtgen.network.passes.slide import Sliding, slide, start_of_signal
from crtgen.network.passes.spectral import FindBands, FindPowers
from crtgen.network.passes.tabulate import TabulateFloats

__all__ = [
    "DEFAULT_PASSES",
    "WITHOUT_FOLDING",
    "Change",
    "FindBands",
    "FindPowers",
    "FoldChannels",
    "FoldConstants",
    "FoldPadding",
    "FoldedLayer",
    "FuseActivations",
    "MergeReshapes",
    "MoveTransposes",
    "Pass",
    "RemoveDead",
    "RemoveIdentities",
    "RemovedChannel",
    "ReshapeTransposes",
    "Rewrite",
    "Rule",
    "Sliding",
    "TabulateFloats",
    "TurnOperands",
    "channels_last",
    "run_passes",
    "slide",
    "start_of_signal",
    "turned_shape",
    "with_io",
]

WITHOUT_FOLDING: tuple[Pass, ...] = (
    FoldConstants(),
    TabulateFloats(),
    RemoveDead(),
    MoveTransposes(),
    TurnOperands(),
    ReshapeTransposes(),
    MergeReshapes(),
    RemoveDead(),
    RemoveIdentities(),
    FoldPadding(),
    FuseActivations(),
    FindPowers(),
    FindBands(),
    MergeReshapes(),
    RemoveDead(),
)
"""The passes, in an order in which each finds what earlier ones uncovered."""

DEFAULT_PASSES: tuple[Pass, ...] = (*WITHOUT_FOLDING, FoldChannels())
"""All passes, with removal of constant channels last."""
