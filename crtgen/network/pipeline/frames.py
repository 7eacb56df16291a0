"""Pictures and arrays in files, as frames of a pipeline's camera."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from crtgen.base.errors import UsageError
from crtgen.base.formats import pictures
from crtgen.network.features import ImageSettings
from crtgen.network.ir import Array

__all__ = ["frame_of", "read_picture"]

_RED = {"bayer_rggb": (0, 0), "bayer_grbg": (0, 1), "bayer_gbrg": (1, 0), "bayer_bggr": (1, 1)}
# Rows for y, u and v: BT.601 with a limited range, of bytes.
_YUV = np.array([[65.481, 128.553, 24.966], [-37.797, -74.203, 112.0], [112.0, -93.786, -18.214]]) / 255

Bytes = npt.NDArray[np.uint8]


def read_picture(path: Path, settings: ImageSettings) -> Array:
    """Return the frame that the camera would give for a picture, which may have to be reduced but not
    cropped.

    Raises ``UsageError`` for a picture that cannot be read, or has another aspect ratio.
    """
    size = (settings.frame_width, settings.frame_height)

    def check(width: int, height: int) -> None:
        if width * size[1] != height * size[0]:
            what = f"it has {width}x{height} pixels, the sensor {size[0]}x{size[1]}"
            raise UsageError(what, where=str(path), hint="cut it to the sensor's proportions")

    pixels, _ = pictures.read_picture(path, size, grey=settings.format == "grey", box=True, check=check)
    return frame_of(pixels, settings.format)


def frame_of(colours: Bytes, form: str) -> Array:
    """Convert a picture ``[H, W, 3]``, or ``[H, W]`` for ``grey``, to the format of a camera."""
    if form in ("rgb888", "grey"):
        return colours
    if form == "rgb565":
        red, green, blue = np.moveaxis(colours.astype(np.uint16), -1, 0)
        packed: Array = (red >> 3 << 11) | (green >> 2 << 5) | (blue >> 3)
        return packed
    return _yuyv(colours) if form == "yuyv" else _bayer(colours, *_RED[form])


def _yuyv(colours: Bytes) -> Bytes:
    # Neighbours share the mean of their u, and of their v.
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
