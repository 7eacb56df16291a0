"""Pictures in PNG, JPEG, BMP, GIF or WebP, recognised by content.

Pillow recognises dozens of formats by their content, whatever the name of the file says, and starts
Ghostscript for PostScript. Only these five are tried. Their headers give the size, so the memory is known
before a pixel is decoded; Pillow allocates a WebP while opening it, so its header is read here.
"""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen.base import files
from crtgen.base.budget import Budget
from crtgen.base.errors import UsageError
from crtgen.base.formats.foreign import foreign

__all__ = ["read_picture"]

_STARTS = {
    "PNG": b"\x89PNG\r\n\x1a\n",
    "JPEG": b"\xff\xd8\xff",
    "BMP": b"BM",
    "GIF": b"GIF8",
    "WEBP": b"RIFF",
}
# Bytes of a pixel of Pillow's, unless it is grey.
_PIXEL = 4

_INSTALL = "pip install 'crtgen[media]'"


def read_picture(
    path: Path,
    size: tuple[int, int],
    *,
    grey: bool = False,
    box: bool = False,
    check: Callable[[int, int], None] = lambda width, height: None,
) -> tuple[npt.NDArray[np.uint8], tuple[int, int]]:
    """Read a picture, resized to ``size`` (W, H): bytes ``[H, W, 3]``, or ``[H, W]`` if ``grey``; and its
    original size.

    Pixels are interpolated linearly, or averaged over a ``box``. ``check`` may refuse a width and height
    before anything is decoded. Raises ``UsageError``, or ``UnsupportedError`` for a picture that takes too
    much memory.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise UsageError("pictures need Pillow", where=str(path), hint=_INSTALL) from error
    with foreign(path, "the picture", "export it again, as PNG for example") as spent:
        data = files.read(path, "the picture")
        form = next((name for name, start in _STARTS.items() if data.startswith(start)), None)
        if form is None or (form == "WEBP" and data[8:12] != b"WEBP"):
            raise ValueError("the file is not a PNG, JPEG, BMP, GIF or WebP")
        if form == "WEBP":
            _hold(spent, *_webp_size(data), size, form)
        Image.MAX_IMAGE_PIXELS = None  # the budget knows better
        with spent.enforced():
            picture: Any = Image.open(BytesIO(data), formats=[form])
            given = (int(picture.size[0]), int(picture.size[1]))
            check(*given)
            _hold(spent, *given, size, "progressive" if picture.info.get("progressive") else form)
            how = Image.Resampling.BOX if box else Image.Resampling.BILINEAR
            resized = picture.convert("L" if grey else "RGB").resize(size, how)
            return np.array(resized, np.uint8), given


def _hold(spent: Budget, width: int, height: int, size: tuple[int, int], form: str) -> None:
    # Ask for the picture as it is decoded, converted and resized. libwebp has two canvases and hands out a
    # copy, libjpeg keeps the coefficients of a progressive picture. Resizing goes by rows first, and has
    # weights for each pixel of a side.
    extra = {"WEBP": 3 * _PIXEL, "progressive": 6, "GIF": _PIXEL}.get(form, 0)
    pixels = width * height * (2 * _PIXEL + extra)
    spent.hold(pixels + _PIXEL * size[0] * height + 24 * (width + height), f"{width} x {height} pixels")


def _webp_size(data: bytes) -> tuple[int, int]:
    # Width and height by the first chunk: https://developers.google.com/speed/webp/docs/riff_container
    def number(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], "little")

    kind = data[12:16]
    if kind == b"VP8X":
        return number(24, 3) + 1, number(27, 3) + 1
    if kind == b"VP8L":
        bits = number(21, 4)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        return number(26, 2) & 0x3FFF, number(28, 2) & 0x3FFF
    raise ValueError("the file has no picture")
