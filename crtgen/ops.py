"""The operators of a graph, as external code generators see them."""

from crtgen.network.ops import *  # noqa: F403
