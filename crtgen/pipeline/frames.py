"""Pictures and arrays in files as the frames of a pipeline's camera."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen import files
from crtgen.errors import UsageError
from crtgen.features import ImageSettings
from crtgen.ir import Array

__all__ = ["frame_of", "read_picture"]

_MOST = 1 << 26
"""Pixels of a picture, at most."""

_RED = {"bayer_rggb": (0, 0), "bayer_grbg": (0, 1), "bayer_gbrg": (1, 0), "bayer_bggr": (1, 1)}
_YUV = np.array([[65.481, 128.553, 24.966], [-37.797, -74.203, 112.0], [112.0, -93.786, -18.214]]) / 255
"""Rows for y, u and v: BT.601 with a limited range, of bytes."""

Bytes = npt.NDArray[np.uint8]


def read_picture(path: Path, settings: ImageSettings) -> Array:
    """The frame that the camera would give of a picture, which it may only make smaller as a whole.

    Raises ``UsageError`` for one that cannot be read, or of other proportions.
    """
    try:
        from PIL import Image
    except ImportError as error:
        hint = "pip install 'crtgen[media]'"
        raise UsageError("pictures need Pillow", where=str(path), hint=hint) from error
    size = (settings.frame_width, settings.frame_height)
    try:
        picture: Any = Image.open(BytesIO(files.read(path, "the picture")))
        given = picture.size
        if given[0] * given[1] > _MOST:
            raise ValueError(f"it has {given[0]} x {given[1]} pixels")
        picture = picture.convert("L" if settings.format == "grey" else "RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        hint = "export it again, as PNG say"
        raise UsageError(f"the picture cannot be read: {error}", where=str(path), hint=hint) from error
    if given[0] * size[1] != given[1] * size[0]:
        what = f"it has {given[0]}x{given[1]} pixels, the sensor {size[0]}x{size[1]}"
        raise UsageError(what, where=str(path), hint="cut it to the sensor's proportions")
    return frame_of(np.asarray(picture.resize(size, Image.Resampling.BOX)), settings.format)


def frame_of(colours: Bytes, form: str) -> Array:
    """A picture ``[H, W, 3]``, for ``grey`` ``[H, W]``, in the format of a camera."""
    if form in ("rgb888", "grey"):
        return colours
    if form == "rgb565":
        red, green, blue = np.moveaxis(colours.astype(np.uint16), -1, 0)
        packed: Array = (red >> 3 << 11) | (green >> 2 << 5) | (blue >> 3)
        return packed
    return _yuyv(colours) if form == "yuyv" else _bayer(colours, *_RED[form])


def _yuyv(colours: Bytes) -> Bytes:
    """Neighbours share the mean of their u, and of their v."""
    luma, u, v = np.moveaxis(colours @ _YUV.T, -1, 0)
    shared = np.empty_like(luma)
    for first, plane in enumerate((u, v)):
        shared[:, first::2] = plane.reshape(len(plane), -1, 2).mean(axis=-1)
    made: Bytes = np.rint(np.stack([luma + 16, shared + 128], axis=-1)).astype(np.uint8)
    return made


def _bayer(colours: Bytes, row: int, column: int) -> Bytes:
    made = colours[..., 1].copy()
    made[row::2, column::2] = colours[row::2, column::2, 0]
    made[1 - row :: 2, 1 - column :: 2] = colours[1 - row :: 2, 1 - column :: 2, 2]
    return made
