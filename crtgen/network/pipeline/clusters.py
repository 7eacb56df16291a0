"""Clusters of normal data, read from a file."""

from pathlib import Path

import numpy as np

from crtgen.base.errors import UsageError
from crtgen.base.formats.arrays import read_arrays
from crtgen.network.features.scaler import check_numbers
from crtgen.network.pipeline.decision import Clusters

__all__ = ["read_clusters"]

_HINT = "numpy.savez with centroids [K, N], radii [K] and, where a scaler was fitted, mean [N] and scale [N]"


def read_clusters(path: Path) -> Clusters:
    """Read clusters from a ``.npz``. Raises ``UsageError`` if arrays are missing or inconsistent."""
    held = read_arrays(path, "the clusters", _HINT, needed=("centroids", "radii"))
    centroids, radii = held.pop("centroids"), held.pop("radii")
    if centroids.ndim != 2 or not centroids.size:
        raise UsageError(f"centroids of shape {centroids.shape}", where=str(path), hint=_HINT)
    count, width = centroids.shape
    mean, scale = held.pop("mean", np.zeros(width)), held.pop("scale", np.ones(width))
    if held:
        raise UsageError(f"the file has an unknown array {min(held)}", where=str(path), hint=_HINT)
    check_numbers("centroids", centroids, (count, width), path, _HINT)
    check_numbers("radii", radii, (count,), path, _HINT)
    check_numbers("mean", mean, (width,), path, _HINT)
    check_numbers("scale", scale, (width,), path, _HINT)
    if not (scale > 0).all():
        raise UsageError("a scale is not above 0", where=str(path), hint="leave out features that never vary")
    parts = (array.astype(np.float32) for array in (centroids, radii, mean, scale))
    return Clusters(*parts)
