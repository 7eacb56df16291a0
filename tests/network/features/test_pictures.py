"""Pictures of a camera's frames against those that Pillow and OpenCV made."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtgen.base.errors import UsageError
from crtgen.network.features import Features
from crtgen.network.features.resizing import pillow_axes
from tests.support import models_dir

Bytes = npt.NDArray[np.uint8]
_SIZES = ((32, 32), (48, 40), (96, 96))


@cache
def _given() -> dict[str, npt.NDArray[Any]]:
    with np.load(models_dir().parent / "sound" / "images.npz") as arrays:
        return dict(arrays)


def _camera(frame: npt.NDArray[Any], **settings: Any) -> Features:
    """Settings that leave the size of the frame as it is, unless others are given."""
    height, width = frame.shape[:2]
    usual = {"width": width, "height": height, "pixels": "bytes"}
    return Features("image", frame_width=width, frame_height=height, **{**usual, **settings})


def _picture(frame: npt.NDArray[Any], **settings: Any) -> npt.NDArray[Any]:
    return _camera(frame, **settings).transform(frame)


@pytest.mark.parametrize(
    ("frame", "settings", "wanted"),
    [
        ("rgb565_u16", {"format": "rgb565"}, "rgb565_to_rgb_bitrep"),
        ("yuyv", {"format": "yuyv"}, "yuyv_to_rgb_cv2"),
        ("bayer_rggb", {"format": "bayer_rggb"}, "bayer_rggb_to_rgb_cv2"),
        ("rgb", {"grey": "pillow"}, "gray_pil_L"),
        ("rgb", {"grey": "opencv"}, "gray_cv2"),
    ],
)
def test_formats(frame: str, settings: dict[str, Any], wanted: str) -> None:
    expected = _given()[wanted]
    made = _picture(_given()[frame], **settings)
    np.testing.assert_array_equal(made.reshape(expected.shape), expected)


@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize(
    ("resize", "name"),
    [
        ("pillow-bilinear", "pil_bilinear"),
        ("pillow-nearest", "pil_nearest"),
        ("pillow-box", "pil_box"),
        ("opencv-linear", "cv2_linear"),
        ("opencv-area", "cv2_area"),
    ],
)
def test_sizes(size: tuple[int, int], resize: str, name: str) -> None:
    made = _picture(_given()["rgb"], width=size[0], height=size[1], resize=resize)
    np.testing.assert_array_equal(made, _given()[f"{name}_{size[0]}x{size[1]}"])


def test_bayer_patterns_that_begin_elsewhere() -> None:
    frame = _given()["bayer_rggb"]
    colours = _given()["bayer_rggb_to_rgb_cv2"]
    for order, rows, columns in (("grbg", 1, -1), ("gbrg", -1, 1), ("bggr", -1, -1)):
        made = _picture(np.ascontiguousarray(frame[::rows, ::columns]), format=f"bayer_{order}")
        np.testing.assert_array_equal(made, colours[::rows, ::columns])


@pytest.mark.parametrize("resize", ["opencv-linear", "opencv-area"])
def test_half_the_size_is_the_mean_of_four(resize: str) -> None:
    frame = _given()["rgb"]
    sums = frame.astype(int).reshape(30, 2, 40, 2, 3).sum(axis=(1, 3))
    np.testing.assert_array_equal(_picture(frame, width=40, height=30, resize=resize), (sums + 2) >> 2)


def test_the_mean_of_whole_pixels_is_rounded_to_even() -> None:
    frame = np.array([[0, 1, 1, 2, 255, 255]], np.uint8)
    made = _picture(frame, format="grey", width=3, height=1, resize="opencv-area")
    assert made.ravel().tolist() == [0, 2, 255]


def test_linear_as_tensorflow() -> None:
    frame = _given()["rgb"]
    made = _picture(frame, width=48, height=96, resize="tensorflow-bilinear", pixels="real", std=[1.0])
    expected = frame.astype(float)
    for axis, count in ((0, 96), (1, 48)):
        length = frame.shape[axis]
        at = np.clip((np.arange(count) + 0.5) * length / count - 0.5, 0, length - 1)
        low = np.minimum(at.astype(int), length - 2)
        part = np.expand_dims(at - low, (1, 2) if axis == 0 else (0, 2))
        expected = expected.take(low, axis) * (1 - part) + expected.take(low + 1, axis) * part
    assert made.dtype == np.float32
    assert float(np.abs(made - expected).max()) < 1e-5 * 255


@pytest.mark.parametrize(
    ("before", "after", "version", "axes"),
    [
        ((75, 102), (10, 81), 13, (0, 1)),
        ((29, 72), (20, 68), 13, (0, 1)),
        ((45, 82), (23, 71), 13, (1, 0)),  # twice as many pixels, which is not more
        ((44, 47), (60, 76), 13, (1, 0)),
        ((75, 102), (10, 81), 12, (1, 0)),
    ],
)
def test_the_order_of_pillow(
    before: tuple[int, int], after: tuple[int, int], version: int, axes: tuple[int, int]
) -> None:
    assert pillow_axes(before, after, version) == axes


def test_the_square_in_the_middle() -> None:
    frame = _given()["rgb"]
    made = _picture(frame, crop="square", width=60)
    np.testing.assert_array_equal(made, frame[:, 10:70])


@pytest.mark.parametrize(
    "resize",
    [
        "pillow-bilinear",
        "pillow-box",
        "pillow-nearest",
        "opencv-linear",
        "opencv-area",
        "tensorflow-bilinear",
    ],
)
@pytest.mark.parametrize("size", [(20, 20), (30, 30), (24, 60), (60, 25), (70, 40)])
def test_what_is_outside_of_the_square_has_no_part(resize: str, size: tuple[int, int]) -> None:
    frame = _given()["rgb"]
    settings = {"width": size[0], "height": size[1], "resize": resize, "pixels": "real", "grey": "pillow"}
    made = _picture(frame, crop="square", **settings)
    np.testing.assert_array_equal(made, _picture(np.ascontiguousarray(frame[:, 10:70]), **settings))


def test_pixels_are_real_by_mean_and_deviation() -> None:
    frame = _given()["rgb"][:5, :4]
    mean, std = [123.5, 116.25, 103.0], [58.0, 57.5, 57.0]
    made = _picture(frame, pixels="real", mean=mean, std=std)
    expected = (frame.astype(np.float32) - np.array(mean, np.float32)) / np.array(std, np.float32)
    np.testing.assert_array_equal(made, expected)


def test_several_frames_and_their_codes() -> None:
    frames = np.stack([_given()["rgb"], _given()["rgb"][::-1]])
    features = _camera(frames[0], width=8, height=6)
    made = features.transform(frames)
    np.testing.assert_array_equal(made[1], features.transform(frames[1]))
    np.testing.assert_array_equal(features.quantized(frames).astype(int), made.astype(int) - 128)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"format": "rgb888x"}, "format is 'rgb888x'"),
        ({"resize": "pillow-lanczos"}, "resize is 'pillow-lanczos'"),
        ({"format": "grey", "grey": "pillow"}, "the frame is grey already"),
        ({"mean": [1.0, 2.0]}, "2 of mean, 3 channels"),
        ({"std": [0.0]}, "a std of 0"),
        ({"format": "yuyv", "frame_width": 95}, "two pixels of yuyv share a colour"),
        ({"resize": "tensorflow-bilinear", "pixels": "bytes"}, "bytes of tensorflow-bilinear"),
        ({"width": 0}, "width is 0"),
    ],
)
def test_what_is_wrong_is_said(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Features("image", **settings)


def test_frames_of_another_shape_are_refused() -> None:
    with pytest.raises(UsageError, match=r"frames of uint8 and shape \(60, 80, 3\)"):
        Features("image", frame_width=60, frame_height=80).transform(_given()["rgb"])
